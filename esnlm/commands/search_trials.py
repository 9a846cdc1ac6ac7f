"""Trials of ``esnlm search``: models made and fitted as ``esnlm train`` does, and their loss."""

import hashlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from esnlm.commands.options.presets import filled, train_options
from esnlm.commands.options.search import SearchOptions
from esnlm.commands.options.train import TrainOptions
from esnlm.commands.train import make_model, make_plan, settle_penalty, trains_in_passes

if TYPE_CHECKING:
    from esnlm.experiments.search.objective import Corpora, Report
    from esnlm.experiments.search.space import Settings, Space


class TrialModels:
    """Settings -> held-out loss, of models made and fitted as ``esnlm train`` does."""

    def __init__(self, space: "Space", text: tuple[str, ...], options: SearchOptions) -> None:
        self.space, self.text, self.options = space, text, options
        base = train_options(space.fixed())
        self.base = replace(base, corpus=filled(options.corpus, base.corpus), seed=options.seed)
        self._corpora: dict[str, Corpora] = {}

    def __call__(self, settings: "Settings", report: "Report | None" = None) -> float:
        _, _, loss = self.fitted(settings, self.options.seed, report)
        return loss

    def fitted(
        self, settings: "Settings", seed: int, report: "Report | None" = None
    ) -> "tuple[Any, Corpora, float]":
        """The model of these settings, what it has read, and its held-out loss."""
        from esnlm.experiments.search.objective import loss_after_fit

        chosen = replace(filled(self.base, train_options(settings)), seed=seed)
        reset = self.reset_of(chosen)
        corpora = self.corpora(reset)
        model = make_model(chosen, corpora.n_tokens, corpora.tokenizer, reset)
        model.read(corpora.train)
        settle_penalty(model, corpora.train, corpora.held_out, chosen)
        plan = make_plan(chosen) if trains_in_passes(self.text, chosen) else None
        return model, corpora, loss_after_fit(model, corpora, plan, report)

    def reset_of(self, options: TrainOptions) -> str:
        if self.options.task == "elman":
            return options.corpus.reset or "sentence"
        return str(options.corpus.settled(self.text).reset)

    def corpora(self, reset: str) -> "Corpora":
        """The texts as tokens, once for each place where the state returns to zero."""
        if reset not in self._corpora:
            self._corpora[reset] = self._elman(reset) or self._read(reset)
        return self._corpora[reset]

    def _elman(self, reset: str) -> "Corpora | None":
        from esnlm.experiments.search.objective import elman_corpora

        if self.options.task != "elman":
            return None
        if reset == "document":
            raise ValueError("--task elman has sentences: --reset sentence or never, got document")
        share = held_out_share(self.options.held_out)
        if share is None:
            raise ValueError(f"--task elman holds a share out, got {self.options.held_out[0]!r}")
        return elman_corpora(reset, share, self.options.seed)

    def _read(self, reset: str) -> "Corpora":
        from esnlm.experiments.search.objective import Corpora, split
        from esnlm.text.boundaries import joined
        from esnlm.text.shuffling import evenly_spaced

        corpus = replace(self.base.corpus, reset=reset)
        tokenizer = corpus.make_tokenizer(self.text)
        n_tokens = len(tokenizer)

        def stream(names: tuple[str, ...]) -> Any:
            return joined(corpus.read(names, tokenizer), tokenizer, reset, n_tokens)

        train, share = stream(self.text), held_out_share(self.options.held_out)
        if share is None:
            held = stream(self.options.held_out)
        else:
            train, held = split(train, share, self.options.seed)
        n_judged = make_plan(self.base).held_out_tokens
        test = stream(self.options.test) if self.options.test else None
        return Corpora(train, evenly_spaced(held, n_judged), test, n_tokens, tokenizer)

    def floors(self) -> tuple[float, float] | None:
        """Losses of the process that made the held-out and the test sentences, if it is known."""
        return self.corpora(self.reset_of(self.base)).floors

    def facts(self) -> dict[str, Any]:
        """What the trials of a search depend on, beside its plan."""
        from esnlm.models.resumable_run import stream_digest
        from esnlm.utils.version import __version__

        corpora = self.corpora(self.reset_of(self.base))
        found = {"task": self.options.task, "esnlm": __version__}
        found["space"] = hashlib.sha256(repr(self.space).encode()).hexdigest()
        found["corpus"] = stream_digest(corpora.train)
        found["held-out text"] = stream_digest(corpora.held_out)
        return found


def held_out_share(held_out: tuple[str, ...]) -> float | None:
    """The share of the training text that is held out; None where a text is named."""
    try:
        share = float(held_out[0]) if len(held_out) == 1 else math.nan
    except ValueError:
        return None
    if math.isnan(share):
        return None
    if not 0 < share < 1:
        raise ValueError(f"--held-out must be a share in (0, 1) or a text, got {share:g}")
    return share
