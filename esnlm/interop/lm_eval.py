"""Our models in EleutherAI's lm-evaluation-harness, without torch.

Importing this module registers the model ``esnlm``; ``python -m esnlm.interop.lm_eval`` is the
harness's own command line with it::

    python -m esnlm.interop.lm_eval run --model esnlm --model_args pretrained=MODEL --tasks ...
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from tqdm import tqdm

from esnlm.models.language_model import LanguageModel
from esnlm.models.sampling import SamplingOptions
from esnlm.storage.model_folder import unchecked_config
from esnlm.text.boundaries import needed, without_marks
from esnlm.text.corpus import TokenStream, join_sequences
from esnlm.text.files import files_in
from esnlm.utils.arrays import Ints64

_OUTPUT_BYTES = 1 << 26
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

#: Texts, ids of the context, ids of the continuation.
Request = tuple[Any, list[int], list[int]]


@register_model("esnlm")
class ReservoirLM(TemplateLM):
    """A model folder as a model of the harness: the scores are those of ``LanguageModel``.

    Texts are tokenized as the harness does for models of transformers: a text begins with BOS (a
    model with ``reset="never"``: an EOS, or a line end, stands before it), the state is zero
    before it, and no EOS is scored after it. ``others`` is what the harness passes to every model,
    as batch size and device, and is ignored. ValueError: the model has no tokenizer, or no token to
    begin a text with, or is no reservoir with a readout.
    """

    def __init__(self, pretrained: str | Path | LanguageModel, **others: Any) -> None:
        super().__init__()
        if not isinstance(pretrained, LanguageModel):
            if kind := unchecked_config(Path(pretrained)).get("kind"):
                raise ValueError(
                    f"{pretrained} holds a model of kind {kind}, expected a reservoir with a"
                    " readout: judge it by `esnlm blimp`, which reads models of all kinds"
                )
            pretrained = LanguageModel.load(pretrained)
        self.model = pretrained
        self._tokens = needed(self.model.tokenizer_)
        self._bos = None if self.model.reset_ == "never" else self._tokens.bos_id
        self._prefix = self._first_token()

    @property
    def eot_token_id(self) -> int | None:
        """Id of EOS, where there is one."""
        return self._tokens.eos_id

    @property
    def prefix_token_id(self) -> int:
        """Id of the token before a text without context."""
        return self._prefix

    @property
    def tokenizer_name(self) -> str:
        """Names the cache of requests."""
        return "esnlm"

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **others: Any
    ) -> list[int]:
        """Ids of a text, after BOS unless it spells one itself or ``add_special_tokens=False``."""
        if add_special_tokens is None:
            string = without_marks(string, self._tokens, self.model.reset_)
            string = string.removeprefix(self._tokens.bos or "")
        ids: list[int] = self._tokens.encode(string).tolist()
        return ids if self._bos is None or add_special_tokens is False else [self._bos, *ids]

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """Log-probability of each text after the prefix token."""
        pairs: list[Request] = []
        for request in requests:
            text = request.args[0].removeprefix(self._tokens.spelling(self._prefix))
            ids = self.tok_encode(text, add_special_tokens=False)
            begins = ids[:1] == [self._prefix]
            pairs.append((None, [self._prefix], ids[1:] if begins else ids))
        sums = self._sums(pairs)
        for request, total in zip(requests, sums, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return sums

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """Continuations, each to its first stop string, EOS or number of tokens."""
        texts = []
        for request in tqdm(requests, desc="Generating", disable=disable_tqdm):
            context, options = request.args
            texts.append(self._continued(context, dict(options)))
            self.cache_hook.add_partial("generate_until", request.args, texts[-1])
        return texts

    def _loglikelihood_tokens(
        self, requests: Sequence[Request], disable_tqdm: bool = False, **others: Any
    ) -> list[tuple[float, bool]]:
        answers = list(zip(self._sums(requests), self._greedy(requests), strict=True))
        for (texts, _, _), answer in zip(requests, answers, strict=True):
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, answer)
        return answers

    def _sums(self, requests: Sequence[Request]) -> list[float]:
        """Log-probability of each continuation."""
        if not requests:
            return []
        texts = [(*context, *following) for _, context, following in requests]
        # Once each: the same text has the same score, to the last bit, and ties are ties.
        distinct = sorted(set(texts))
        scored = self.model.log_likelihood(self._stream(distinct))
        by_text = dict(zip(distinct, scored, strict=True))
        pairs = zip(texts, requests, strict=True)
        return [float(by_text[text][len(context) - 1 :].sum()) for text, (_, context, _) in pairs]

    def _greedy(self, requests: Sequence[Request]) -> list[bool]:
        """Whether every token of a continuation is the most probable one there.

        Token by token, for those still in question; what goes before it is read once however
        many requests share it.
        """
        answers = [True] * len(requests)
        place, open_ones = 0, list(range(len(requests)))
        while open_ones := [i for i in open_ones if answers[i] and place < len(requests[i][2])]:
            before = [(*requests[i][1], *requests[i][2][:place]) for i in open_ones]
            prefixes = sorted(set(before))
            best = dict(zip(prefixes, self._most_probable(prefixes), strict=True))
            for i, prefix in zip(open_ones, before, strict=True):
                answers[i] = bool(best[prefix] == requests[i][2][place])
            place += 1
        return answers

    def _most_probable(self, prefixes: list[tuple[int, ...]]) -> Ints64:
        """Return the most probable token (n,) after each prefix."""
        model = self.model
        stream = self._stream([(*prefix, 0) for prefix in prefixes])
        ends = np.cumsum([len(prefix) + 1 for prefix in prefixes]) - 2
        which = np.full(len(stream.tokens), -1)
        which[ends] = np.arange(len(prefixes))
        best = np.zeros(len(prefixes), dtype=np.int64)
        at_once = max(1, _OUTPUT_BYTES // (8 * model.n_tokens_))
        for states, _, positions in model._states.blocks(stream).with_positions():
            rows = np.flatnonzero(which[positions] >= 0)
            for start in range(0, len(rows), at_once):
                part = rows[start : start + at_once]
                best[which[positions[part]]] = model.readout_.predict(states[part])
        return best

    def _stream(self, sequences: list[tuple[int, ...]]) -> TokenStream:
        """Sequences that each begin at the zero state."""
        arrays = ([np.array(ids, dtype=np.int64)] for ids in sequences)
        return join_sequences(arrays, n_tokens=self.model.n_tokens_, reset=True)

    def _continued(self, context: str, options: dict[str, Any]) -> str:
        """Return a continuation of a text, cut before the first stop string."""
        stops = options.get("until") or []
        stops = [stops] if isinstance(stops, str) else list(stops)
        lengths = [options[name] for name in _LENGTHS if options.get(name) is not None]
        sampled = options.get("do_sample", bool(options.get("temperature")))
        temperature = float(options.get("temperature") or 1.0) if sampled else 0.0
        choice = SamplingOptions(temperature, options.get("top_k") or None, options.get("top_p"), 0)
        prompt = np.array(self.tok_encode(context) or [self._prefix])
        tokens: list[int] = []
        text = ""
        for token in self.model.generate(int((lengths or [256])[0]), prompt=prompt, choice=choice):
            if token == self._tokens.eos_id:
                break
            tokens.append(token)
            text = self._tokens.decode(tokens)
            if any(stop and stop in text for stop in stops):
                break
        for stop in filter(None, stops):
            text = text.split(stop)[0]
        return text

    def _first_token(self) -> int:
        """Return the id of BOS, EOS or a line end; raise ValueError where there is none."""
        for boundary in (self._bos, self._tokens.eos_id):
            if boundary is not None:
                return boundary
        line_end = self._tokens.encode("\n")
        if not len(line_end) or line_end[-1] == self._tokens.unk_id:
            raise ValueError(
                "the model's tokenizer has no token to begin a text with: train it with boundary"
                " tokens or with line ends"
            )
        return int(line_end[-1])


def blimp_tasks(folder: str | Path) -> list[dict[str, Any]]:
    """Tasks for ``lm_eval.simple_evaluate(tasks=...)``: one a ``.jsonl`` file of a BLiMP folder.

    Unlike the harness's own BLiMP they read local files, and put no space before a sentence.
    """
    files = files_in(Path(folder), ".jsonl")
    if not files:
        raise FileNotFoundError(f"{folder} holds no .jsonl files: give a folder of BLiMP data")
    return [
        {
            "task": f"blimp_{file.stem}",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"validation": str(file.resolve())}},
            "validation_split": "validation",
            "output_type": "multiple_choice",
            "num_fewshot": 0,
            "doc_to_text": "",
            "doc_to_target": 0,
            "doc_to_choice": "{{[sentence_good, sentence_bad]}}",
            "target_delimiter": "",
            "metric_list": [{"metric": "acc"}],
        }
        for file in files
    ]


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
