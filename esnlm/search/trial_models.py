"""Trials of ``esnlm search``: models made and fitted as ``esnlm train`` does, and their loss."""

import hashlib
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from esnlm.options.corpus import is_trained
from esnlm.options.recipes import filled, train_options
from esnlm.options.search import SearchOptions
from esnlm.options.train import TrainOptions
from esnlm.utils.messages import show_messages

if TYPE_CHECKING:
    from esnlm.search.objective import Corpora, Report
    from esnlm.search.space import Settings, Space
    from esnlm.search.trial import Executor
    from esnlm.text.source import Source

Item = TypeVar("Item")
T = TypeVar("T")


class TrialModels:
    """Settings -> held-out loss, of models made and fitted as ``esnlm train`` does."""

    def __init__(self, space: "Space", text: tuple[str, ...], options: SearchOptions) -> None:
        from esnlm.text.source import open_source

        self.space, self.text, self.options = space, text, options
        self.source = open_source(text)
        base = train_options(space.fixed())
        self.base = replace(base, corpus=filled(options.corpus, base.corpus), seed=options.seed)
        self._corpora: dict[str, Corpora] = {}

    def __call__(self, settings: "Settings", report: "Report | None" = None) -> float:
        """Return the held-out loss, in nats a token, of a model fitted with these settings."""
        _, _, loss = self.fitted(settings, self.options.seed, report)
        return loss

    def fitted(
        self, settings: "Settings", seed: int, report: "Report | None" = None
    ) -> "tuple[Any, Corpora, float]":
        """Return the model of these settings, what it has read, and its held-out loss."""
        from esnlm.search.objective import loss_after_fit

        chosen = replace(filled(self.base, train_options(settings)), seed=seed)
        reset = self.reset_of(chosen)
        corpora = self.corpora(reset)
        model = chosen.make_model(corpora.n_tokens, corpora.tokenizer, reset)
        model._read_corpus(corpora.train)
        chosen.choose_penalty(model, corpora.train, corpora.held_out)
        plan = chosen.plan() if chosen.in_passes(self.source) else None
        return model, corpora, loss_after_fit(model, corpora, plan, report)

    def reset_of(self, options: TrainOptions) -> str:
        """Return where the state returns to zero: sentence, document or never."""
        if self.options.task == "elman":
            return options.corpus.reset or "sentence"
        return str(options.corpus.with_defaults(self.source).reset)

    def corpora(self, reset: str) -> "Corpora":
        """Return the texts as tokens, once for each place where the state returns to zero."""
        if reset not in self._corpora:
            self._corpora[reset] = self._elman(reset) or self._read(reset)
        return self._corpora[reset]

    def _elman(self, reset: str) -> "Corpora | None":
        """Return the corpora of Elman's grammar with ``--task elman``, else None."""
        from esnlm.search.objective import elman_corpora

        if self.options.task != "elman":
            return None
        if reset == "document":
            raise ValueError("--task elman has sentences: --reset sentence or never, got document")
        share = held_out_share(self.options.held_out)
        if share is None:
            raise ValueError(f"--task elman holds a share out, got {self.options.held_out[0]!r}")
        return elman_corpora(reset, share, self.options.seed)

    def _read(self, reset: str) -> "Corpora":
        """Return training, held-out and test text as tokens."""
        from esnlm.search.objective import Corpora, split
        from esnlm.text.boundaries import joined
        from esnlm.text.shuffling import evenly_spaced
        from esnlm.text.source import open_source

        corpus = replace(self.base.corpus, reset=reset)
        tokenizer = corpus.make_tokenizer(self.source)
        n_tokens = len(tokenizer)

        def stream(source: "Source") -> Any:
            return joined(corpus.read(source, tokenizer), tokenizer, reset, n_tokens)

        train, share = stream(self.source), held_out_share(self.options.held_out)
        if share is None:
            held = stream(open_source(self.options.held_out))
        else:
            train, held = split(train, share, self.options.seed)
        n_judged = self.base.plan().held_out_tokens
        test = stream(open_source(self.options.test)) if self.options.test else None
        return Corpora(train, evenly_spaced(held, n_judged), test, n_tokens, tokenizer)

    def floors(self) -> tuple[float, float] | None:
        """Losses of the process that made the held-out and the test sentences, if it is known."""
        return self.corpora(self.reset_of(self.base)).floors

    def facts(self) -> dict[str, Any]:
        """Return what the trials of a search depend on, beside its plan."""
        from esnlm.training.resumable_run import stream_digest
        from esnlm.utils.version import __version__

        corpora = self.corpora(self.reset_of(self.base))
        found = {"task": self.options.task, "esnlm": __version__}
        found["space"] = hashlib.sha256(repr(self.space).encode()).hexdigest()
        found["corpus"] = stream_digest(corpora.train)
        found["held-out text"] = stream_digest(corpora.held_out)
        return found

    @cached_property
    def packed(self) -> bytes:
        """What makes the same trials in another process: no text, but its paths and digests."""

        def placed(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(str(Path(name).absolute()) for name in names)

        options, corpus, held = self.options, self.base.corpus, self.options.held_out
        name = corpus.tokenizer
        if name is not None and not is_trained(name) and name != "gpt2":
            corpus = replace(corpus, tokenizer=placed((name,))[0])
        options = replace(
            options,
            corpus=corpus,
            test=placed(options.test),
            held_out=placed(held) if held_out_share(held) is None else held,
        )
        return pickle.dumps((self.space, placed(self.text), options, self.facts()))


def tested(trials: TrialModels, run: "tuple[Settings, int]") -> tuple[float, float | None]:
    """The loss on the test text of settings trained with a seed, and the least there is."""
    model, corpora, _ = trials.fitted(*run)
    floor = None if corpora.floors is None else corpora.floors[1]
    return -float(model.score(corpora.test)), floor


@contextmanager
def shared_out(cluster: str | None) -> "Iterator[tuple[Executor, int]]":
    """Who runs trials, and how many at once: the workers of a cluster, or this process, one."""
    from esnlm.search.trial import run_serially

    if cluster is None:
        yield run_serially, 1
        return
    from esnlm.runs.workers import workers

    with workers(cluster) as found:

        def over(
            name: str, function: Callable[[Any, Item], T], given: TrialModels, items: Sequence[Item]
        ) -> Iterator[T]:
            return found.map(name, _by_worker, (function, given.packed), items)

        yield over, sum(found.client.nthreads().values())


def _by_worker(given: tuple[Callable[[TrialModels, Item], T], bytes], item: Item) -> T:
    function, packed = given
    return function(_trials_here(packed), item)


@lru_cache(maxsize=1)
def _trials_here(packed: bytes) -> TrialModels:
    """Return the trials of a search in a worker, who reads the text once, by its paths."""
    show_messages()
    space, text, options, facts = pickle.loads(packed)
    trials = TrialModels(space, text, options)
    for name, value in trials.facts().items():
        if value != facts[name]:
            raise ValueError(f"the {name} is another one here than where the search runs")
    return trials


def held_out_share(held_out: tuple[str, ...]) -> float | None:
    """Return the share of the training text that is held out; None where a text is named."""
    try:
        share = float(held_out[0]) if len(held_out) == 1 else math.nan
    except ValueError:
        return None
    if math.isnan(share):
        return None
    if not 0 < share < 1:
        raise ValueError(f"--held-out must be a share in (0, 1) or a text, got {share:g}")
    return share
