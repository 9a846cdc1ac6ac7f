"""Scores of a model on text, in units that compare across tokenizers."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from esnlm.models.base import SequenceModel
from esnlm.models.context import Context, check_context, in_context
from esnlm.models.interpolated import InterpolatedModel
from esnlm.models.surprisal import ScoredText
from esnlm.models.token_scores import token_scores
from esnlm.text.boundaries import without_marks
from esnlm.text.corpus import CorpusError, TextCorpus, TokenStream
from esnlm.text.layout import AS_WRITTEN, TextLayout
from esnlm.text.shards import Shards
from esnlm.text.source import holds_shards
from esnlm.text.tokenizers import in_batches
from esnlm.utils.arrays import Array, Ints64
from esnlm.utils.interpolation import likeliest_weight, log_mixture
from esnlm.utils.messages import progress_bar

COLUMNS = (
    "model", "text", "n_tokens", "n_words", "n_characters", "nll_per_token", "perplexity",
    "nll_per_word", "bits_per_character", "unknown_share", "weight",
)  # fmt: skip
_PART_TOKENS = 1 << 18
#: Tokens before a part that are read again where a state is never reset: it forgets the rest.
_OVERLAP = 4096


@dataclass
class Evaluation:
    """Measures of texts under one model, or under two and their interpolation.

    ``models``: one with a tokenizer, or two that read text alike. ``names``: theirs in the rows.
    ``split``: what a document of a text is, and ``layout`` how its files are laid out; see
    `esnlm.text.corpus.TextCorpus`. ``weight``: with two models, share of the first in the
    interpolation, which is a third row. ``context``: what a model reads before a sentence, see
    `esnlm.models.context.in_context`. ``words``: parts have what rows of words need, corrected for
    the ends of words, unless ``correct_boundaries`` is False. ``tables``: documents of paths that
    are no text but tables. ``verbose`` shows progress on standard error if it is a terminal.
    """

    models: Sequence[Any]
    names: Sequence[str]
    split: str
    _: KW_ONLY
    weight: float | None = None
    layout: TextLayout = AS_WRITTEN
    context: Context = None
    words: bool = False
    correct_boundaries: bool = True
    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    verbose: bool = False

    def __post_init__(self) -> None:
        check_context(self.context, self.models[0])
        if self.weight is not None:
            self.names = [*self.names, " + ".join(self.names)]

    def rows(
        self, paths: Sequence[str], *watchers: Callable[[str, ScoredText], None]
    ) -> list[dict[str, Any]]:
        """Rows of `COLUMNS` for each path (text, folder, shards), and for all if there are more.

        ``nll_per_token`` and ``nll_per_word`` are in nats, ``bits_per_character`` in bits: the
        negative log-likelihood of all predicted tokens, ends of sentences among them, over the
        number of predicted tokens, of white-space-separated words, and of characters, line ends
        among them. ``unknown_share`` is the part of predicted tokens that are the unknown token:
        tokenizers compare fairly only where it is small.

        Each of ``watchers`` is called with the path and each scored part as it comes; the last
        scores are those of the last row.
        """
        rows: list[dict[str, Any]] = []
        together: Any = Counter()
        for path in paths:
            sums = self._sums(path, watchers)
            together.update(sums)
            rows += self._measures(path, sums)
        return rows + (self._measures("all", together) if len(paths) > 1 else [])

    def _sums(self, path: str, watchers: Sequence[Callable[[str, ScoredText], None]]) -> Any:
        """Return counts of a text, and its negative log-likelihood (n_models,) in nats."""
        sums: Any = Counter()
        tokenizer = self.models[0].tokenizer_
        unk_id = -1 if tokenizer is None or tokenizer.unk_id is None else tokenizer.unk_id
        # A line end was cut off each document that is not a whole file.
        cut = 0 if self.split == "file" else 1
        with progress_bar(
            self.verbose, unit="tok", unit_scale=True, leave=False, desc="scoring"
        ) as bar:
            for part in self.parts(path):
                predicted = part.stream.tokens[part.predicted]
                texts = [without_marks(doc, tokenizer, part.reset) for doc in part.docs]
                sums.update(
                    n_tokens=len(predicted),
                    n_words=sum(len(text.split()) for text in texts),
                    n_characters=sum(len(text) + cut for text in texts),
                    n_unknown=int(np.count_nonzero(predicted == unk_id)),
                    nll=-np.array([scores.sum() for scores in part.scores]),
                )
                for watch in watchers:
                    watch(path, part)
                bar.update(len(part.stream.tokens))
        if holds_shards(path):
            counts = Shards(path, verify=False).manifest["totals"]
            sums["n_words"] = counts["words"]
            sums["n_characters"] = counts["characters"] + counts["sentences"]  # with line ends
        return sums

    def parts(self, path: str) -> Iterator[ScoredText]:
        """Yield the scored parts of a text or of shards, about a million characters each.

        With ``reset="never"`` a part begins with the state after the 4 096 tokens before it. Raises
        ValueError where shards have another tokenizer than the models, which must reset at
        sentences.
        """
        before: Array | None = None
        n_before = 0
        for docs in self._batches(path):
            stream, reset, walk, places = in_context(self.models[0], docs, self.context)
            predicted = stream.predicted()
            if before is not None:
                tokens = np.append(before, stream.tokens)
                walk = TokenStream(tokens, None, np.array([0, len(tokens)]))
                places = places + len(before)
                predicted[:] = True
            scores = [model._scores(walk)[places] * predicted for model in self.models]
            if self.weight is not None:
                mixed = log_mixture(scores, [self.weight, 1 - self.weight])
                scores.append(np.where(predicted, mixed, 0.0))
            of_words = None
            if self.words:
                last = self._last_model()
                of_words = token_scores(last, walk, self.correct_boundaries)[places]
            texts = docs if isinstance(docs, list) else []
            yield ScoredText(
                texts, n_before, stream, predicted, scores, reset, of_words, self.context
            )
            n_before += len(texts)
            if stream.starts is None:
                before = walk.tokens[-_OVERLAP:]

    def _last_model(self) -> SequenceModel:
        """Return the model of the last row."""
        last: SequenceModel = self.models[-1]
        if self.weight is None:
            return last
        return InterpolatedModel([self.models[0], last], weights=[self.weight, 1 - self.weight])

    def best_weight(self, paths: Sequence[str]) -> float:
        """Share of the first model that makes the interpolation likeliest on held-out texts."""
        parts = chain.from_iterable(map(self.parts, paths))
        scores = [np.stack(part.scores)[:, part.predicted] for part in parts]
        return likeliest_weight(*np.concatenate(scores, axis=1))

    def token_counts(self, paths: Sequence[str]) -> Ints64:
        """Count how often each token is one to predict in texts or shards: (V,)."""
        counts = np.zeros(self.models[0].n_tokens_, dtype=np.int64)
        for path in paths:
            for stream in map(self.models[0].tokenize, self._batches(path)):
                counts += np.bincount(stream.tokens[stream.predicted()], minlength=len(counts))
        return counts

    def _batches(self, path: str) -> Iterator[Any]:
        """Return documents of a text, some at a time, or parts of shards."""
        if holds_shards(path):
            by_document = self.context not in (None, "sentence")
            return _shard_streams(self.models[0], Shards(path), by_document=by_document)
        return in_batches(self.tables.get(path) or TextCorpus(path, self.split, self.layout))

    def _measures(self, path: str, sums: Any) -> list[dict[str, Any]]:
        """Return a row for each model; raise CorpusError where no token is predicted."""
        if sums and not sums["n_tokens"]:
            raise CorpusError(f"{path} holds no token to predict")
        counts = [sums[name] for name in ("n_tokens", "n_words", "n_characters")]
        n_tokens, n_words, n_characters = counts
        unknown = _ratio(sums["n_unknown"], n_tokens)
        rows = []
        for place, nll in enumerate(sums["nll"].tolist() if sums else ()):
            per_token = _ratio(nll, n_tokens)
            perplexity = math.exp(per_token) if per_token < 700 else math.inf
            bits = _ratio(nll / math.log(2), n_characters)
            scores = per_token, perplexity, _ratio(nll, n_words), bits, unknown
            weight = self.weight if place == len(self.models) else ""
            row = self.names[place], path, *counts, *scores, weight
            rows.append(dict(zip(COLUMNS, row, strict=True)))
        return rows


def _shard_streams(
    model: Any, shards: Shards, *, by_document: bool = False
) -> Iterator[TokenStream]:
    """Yield shards in streams of whole sentences, or of whole documents.

    A stream has a bounded number of tokens unless one of them is longer.
    """
    one, two = (t and t.__getstate__() for t in (model.tokenizer_, shards.tokenizer))
    if one != two:
        raise ValueError(
            f"the tokenizer of the shards in {shards.folder} is not the model's: prepare the text"
            " with the model's tokenizer.json"
        )
    if model.reset_ != "sentence":
        raise ValueError(f"shards hold sentences, but the model has reset={model.reset_!r}")
    whole = shards.stream()
    starts = np.append(0, np.cumsum(whole.lengths))
    cuts = np.unique(whole.bounds) if by_document else starts
    first = 0
    while first < len(cuts) - 1:
        after = int(np.searchsorted(cuts, cuts[first] + _PART_TOKENS))
        after = min(max(after, first + 1), len(cuts) - 1)
        low, high = cuts[[first, after]].tolist()
        inside = starts[np.searchsorted(starts, low) : np.searchsorted(starts, high)]
        bounds = np.unique(np.clip(whole.bounds, low, high))
        yield TokenStream(
            whole.tokens[low:high], inside - low, np.union1d(bounds, [low, high]) - low
        )
        first = after


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
