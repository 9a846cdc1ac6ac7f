"""Trials of ``esnlm search``: models made and fitted as ``esnlm train`` does, and their loss."""

import hashlib
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from esnlm.options.corpus import is_trained
from esnlm.options.recipes import filled, train_options
from esnlm.options.search import SearchOptions
from esnlm.options.train import TrainOptions
from esnlm.search.objective import Corpora, Report, elman_corpora, loss_after_fit, split
from esnlm.search.space import Settings, Space
from esnlm.search.study import Executor, run_serially
from esnlm.text.boundaries import joined
from esnlm.text.corpus import CorpusError
from esnlm.text.shuffling import evenly_spaced
from esnlm.text.source import Source, open_source
from esnlm.training.resumable_run import stream_digest
from esnlm.utils import __version__
from esnlm.utils.messages import show_messages


class TrialModels:
    """Settings -> held-out loss, of models made and fitted as ``esnlm train`` does."""

    def __init__(self, space: Space, text: tuple[str, ...], options: SearchOptions) -> None:
        self.space, self.text, self.options = space, text, options
        self.source = open_source(text)
        base = train_options(space.fixed())
        self.base = replace(base, corpus=filled(options.corpus, base.corpus), seed=options.seed)
        self._corpora: dict[str, Corpora] = {}

    def __call__(self, settings: Settings, report: Report | None = None) -> float:
        """Return the held-out loss, in nats a token, of a model fitted with these settings."""
        _, _, loss = self.fitted(settings, self.options.seed, report)
        return loss

    def fitted(
        self, settings: Settings, seed: int, report: Report | None = None
    ) -> tuple[Any, Corpora, float]:
        """Return the model of these settings, what it has read, and its held-out loss."""
        options = replace(filled(self.base, train_options(settings)), seed=seed)
        reset = self._reset_of(options)
        corpora = self.corpora(reset)
        model = options.make_model(corpora.n_tokens, corpora.tokenizer, reset)
        model._read_corpus(corpora.train)
        options.choose_penalty(model, corpora.train, corpora.held_out)
        plan = options.plan() if options.in_passes(self.source) else None
        return model, corpora, loss_after_fit(model, corpora, plan, report)

    def _reset_of(self, options: TrainOptions) -> str:
        """Return where the state returns to zero: sentence, document or never."""
        if self.options.task == "elman":
            return options.corpus.reset or "sentence"
        return str(options.corpus.with_defaults(self.source).reset)

    def corpora(self, reset: str | None = None) -> Corpora:
        """Return the texts as tokens, once for each place where the state returns to zero."""
        reset = reset or self._reset_of(self.base)
        if reset not in self._corpora:
            make = self._draw if self.options.task == "elman" else self._read
            self._corpora[reset] = make(reset)
        return self._corpora[reset]

    def _draw(self, reset: str) -> Corpora:
        """Return sentences of Elman's grammar."""
        if reset == "document":
            raise ValueError("--task elman has sentences: --reset sentence or never, got document")
        share = held_out_share(self.options.held_out)
        if share is None:
            raise ValueError(f"--task elman holds a share out, got {self.options.held_out[0]!r}")
        return elman_corpora(reset, share, self.options.seed)

    def _read(self, reset: str) -> Corpora:
        """Return training, held-out and test text as tokens."""
        corpus = replace(self.base.corpus, reset=reset)
        tokenizer = corpus.make_tokenizer(self.source)
        n_tokens = len(tokenizer)

        def stream(source: Source) -> Any:
            return joined(corpus.read(source, tokenizer), tokenizer, reset, n_tokens)

        train, share = stream(self.source), held_out_share(self.options.held_out)
        if share is None:
            validation = stream(open_source(self.options.held_out))
        else:
            train, validation = split(train, share, self.options.seed)
        n_judged = self.base.plan().held_out_tokens
        test = stream(open_source(self.options.test)) if self.options.test else None
        return Corpora(train, evenly_spaced(validation, n_judged), test, n_tokens, tokenizer)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Return what the trials of a search depend on, beside its plan."""
        corpora = self.corpora()
        return {
            "task": self.options.task,
            "esnlm": __version__,
            "space": hashlib.sha256(repr(self.space).encode()).hexdigest(),
            "corpus": stream_digest(corpora.train),
            "held-out text": stream_digest(corpora.held_out),
        }

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        """Return what makes the same trials in another process: no text, but paths and digests."""

        def placed(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(str(Path(name).absolute()) for name in names)

        options, corpus, validation = self.options, self.base.corpus, self.options.held_out
        name = corpus.tokenizer
        if name is not None and not is_trained(name) and name != "gpt2":
            corpus = replace(corpus, tokenizer=placed((name,))[0])
        if held_out_share(validation) is None:
            validation = placed(validation)
        options = replace(options, corpus=corpus, test=placed(options.test), held_out=validation)
        content = self.space, placed(self.text), options, self.facts
        return _trials_here, (pickle.dumps(content),)


@lru_cache(maxsize=1)
def _trials_here(packed: bytes) -> TrialModels:
    """Return the trials of a search in a worker, who reads the text once, by its paths."""
    show_messages()
    space, text, options, facts = pickle.loads(packed)
    trials = TrialModels(space, text, options)
    for name, value in trials.facts.items():
        if value != facts[name]:
            raise CorpusError(f"the {name} is another one here than where the search runs")
    return trials


def loss_on_test(trials: TrialModels, run: tuple[Settings, int]) -> tuple[float, float | None]:
    """Return the loss on the test text of settings trained with a seed, and the least there is."""
    model, corpora, _ = trials.fitted(*run)
    floor = None if corpora.floors is None else corpora.floors[1]
    return -float(model.score(corpora.test)), floor


@contextmanager
def executor(cluster: str | None) -> Iterator[tuple[Executor, int]]:
    """Yield who runs trials, and how many at once: the workers of a cluster, or this process."""
    if cluster is None:
        yield run_serially, 1
        return
    from esnlm.runs.workers import workers

    with workers(cluster) as connection:
        yield connection.map, sum(connection.client.nthreads().values())


def held_out_share(held_out: tuple[str, ...]) -> float | None:
    """Return the share of the training text that is held out; None where a text is named."""
    if len(held_out) != 1:
        return None
    try:
        share = float(held_out[0])
    except ValueError:
        return None
    if not 0 < share < 1:
        raise ValueError(f"--held-out must be a share in (0, 1) or a text, got {share:g}")
    return share
