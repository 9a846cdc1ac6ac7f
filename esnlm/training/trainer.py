"""Training in passes over a corpus that is never held: resumable to the last bit."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone

from esnlm.models.language_model import LanguageModel
from esnlm.models.saving import describe
from esnlm.models.states import StateBlocks, States, warmup_of
from esnlm.readouts.base.readout import Block
from esnlm.storage.checkpoints import Checkpoint
from esnlm.text.corpus import CorpusError, TokenStream
from esnlm.text.shuffling import ChunkOrder, evenly_spaced
from esnlm.training.resumable_run import ResumableRun, stream_digest
from esnlm.utils import __version__
from esnlm.utils.arrays import Arrays
from esnlm.utils.state_dict import under_prefix, with_prefix
from esnlm.utils.sums import Sums
from esnlm.utils.validation import Count, check_parameters, limited

_SCORES_A_PASS = 10


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Settings of a run beside the model and the corpus, on which its result depends.

    A step has ``chunk_tokens`` tokens: sequences from all over the corpus, harvested together. A
    held-out score comes every ``score_every`` tokens; 0: at the ends of passes; None: at tenths of
    a pass where scores are cheap, else at the ends. About ``held_out_tokens`` held-out tokens are
    scored, taken evenly. ``random_state`` is the seed of the order of sequences.
    """

    chunk_tokens: int = limited(1 << 16, Count())
    score_every: int | None = limited(None, Count(0, none=True))
    held_out_tokens: int = limited(1 << 15, Count())
    random_state: int = limited(0, Count(0))

    def __post_init__(self) -> None:
        check_parameters(self)


class Trainer(ResumableRun):
    """Learns a language model from a stream of tokens in passes, in bounded memory.

    A pass reads all sequences in an order of its own, shuffled over the whole corpus, a chunk at
    a time. Each chunk is one step; between two steps a checkpoint may be saved. The result
    depends on the model, the stream, the held-out stream and the plan alone: neither on
    checkpoints nor on how often a run was interrupted and resumed.

    ``model`` is fitted in place. ``stream`` may be a memory map, as that of `Shards` is: only
    chunks are gathered. ``held_out`` is scored along the way; readouts choose penalties and passes
    by it.

    >>> from esnlm import RidgeReadout, Reservoir
    >>> stream = TokenStream(np.array([0, 1, 2, 1] * 9), None, np.array([0, 36]))
    >>> model = LanguageModel(Reservoir(20, random_state=0), RidgeReadout(), reset="never")
    >>> Trainer(model, stream).run().n_tokens_
    3
    """

    def __init__(
        self,
        model: LanguageModel,
        stream: TokenStream,
        *,
        held_out: TokenStream | None = None,
        plan: TrainingPlan | None = None,
    ) -> None:
        """Count the predicted tokens of ``stream``, and set up the run."""
        if not isinstance(model, LanguageModel):
            raise ValueError(f"model must be a LanguageModel, got {model!r}")
        for name, text in (("stream", stream), ("held_out", held_out)):
            if not isinstance(text, TokenStream) and (name == "stream" or text is not None):
                raise ValueError(
                    f"{name} must be a TokenStream, got {type(text).__name__}:"
                    " Shards(folder).stream() is one"
                )
        if not hasattr(model, "_parts"):
            stream = model._read_corpus(stream)
        self.stream = stream
        n_sequences = 1 if stream.starts is None else len(stream.starts)
        self._take(model, len(stream.tokens) - n_sequences, held_out, plan)

    def _take(
        self,
        model: LanguageModel,
        n_rows: int,
        held_out: TokenStream | None,
        plan: TrainingPlan | None,
    ) -> None:
        """Set model, plan and held-out text; raise CorpusError without a token to predict."""
        self.model, self.n_rows = model, n_rows
        self.plan = TrainingPlan() if plan is None else plan
        if not isinstance(self.plan, TrainingPlan):
            raise ValueError(f"plan must be a TrainingPlan or None, got {plan!r}")
        self.held_out = None
        if held_out is not None:
            self.held_out = evenly_spaced(held_out, self.plan.held_out_tokens)
        if self.n_rows < 1:
            raise CorpusError("the corpus holds no token to predict")

    def _begin(self, checkpoint: Checkpoint | None) -> int:
        """Draw or load the model's parts, prepare the readout, and return the run's tokens."""
        model = self.model
        self._say(
            "drawing the reservoir" if model._parts.features is None else "learning word features"
        )
        features = {} if checkpoint is None else under_prefix("features", checkpoint.arrays)
        if features:
            loaded = clone(model._parts.features).load_state_dict(features)
            model._parts = model._parts._replace(features=loaded)
        self._draw()
        self.readout = model.readout_ = clone(model._parts.readout)
        classes = np.arange(model.n_tokens_)
        self.readout._begin(
            classes, model._n_columns, n_rows=self.n_rows, counts=model.token_counts_
        )
        self.first = self._chunk = 0
        if checkpoint is not None:
            self.readout.load_state_dict(under_prefix("readout", checkpoint.arrays), training=True)
            self.first, self._chunk = checkpoint.facts["phase"], checkpoint.facts["chunk"]
        self._number = self.first
        return self.n_rows * self.readout._training_passes

    def _draw(self) -> None:
        self.model._draw_parts(self.stream)

    def _steps(self) -> Iterator[None]:
        """Train the readout, yield after each chunk, and score held-out text when due."""
        tokens = self.tokens
        self._say("reading a sample")
        for number, is_end in self.readout._train(self, self._held_states()):
            if is_end:
                self._score(number)
                continue
            self.step += 1
            self._chunk += 1
            if self._chunk < self._n_chunks and self._score_is_due(tokens):
                self._score(number)
            tokens = self.tokens
            yield
        self._score(self.readout._training_passes)

    def read(self, number: int, *, n_rows: int | None = None) -> Iterator[Iterable[Block] | Sums]:
        """Yield chunks of states of pass ``number``, after those read before a checkpoint."""
        rng = np.random.default_rng([self.plan.random_state, number])
        warmup = warmup_of(self.model.reservoir_)
        in_order = n_rows is not None and n_rows >= self.n_rows and self.readout._samples_in_order
        order = ChunkOrder(self.stream, self.plan.chunk_tokens, None if in_order else rng, warmup)
        self._n_chunks = len(order)
        if n_rows is not None:
            n_chunks = int(np.ceil(n_rows / self.n_rows * len(order)))
            self._n_chunks = min(len(order), n_chunks)
        if number != self._number:
            self._number, self._chunk = number, 0
        n_passes = self.readout._training_passes
        self._say(f"pass {number} of {n_passes}" if number else "reading a sample")
        for chunk in range(self._chunk, self._n_chunks):
            yield self._blocks(order.chunk(chunk), number)
        self._say("solving")

    def _blocks(self, pieces: list[tuple[TokenStream, int]], number: int) -> Iterator[Block]:
        for stream, washout in pieces:
            for states, following in self._states.blocks(stream, washout=washout):
                yield states, following
                if number:
                    self.tokens += len(following)
                    self._bar.update(len(following))

    def _held_states(self) -> StateBlocks | None:
        return None if self.held_out is None else self._states.blocks(self.held_out)

    @cached_property
    def _states(self) -> States:
        return self.model._states

    def _score_is_due(self, before: int) -> bool:
        every = self.plan.score_every
        if every is None:
            every = -(-self.n_rows // _SCORES_A_PASS) if self.readout._scores_are_cheap else 0
        return every > 0 and self.tokens // every > before // every

    def _score(self, number: int) -> None:
        """Record the mean held-out loss, in nats a token; do nothing without held-out text."""
        blocks = self._held_states()
        if blocks is None:
            return
        total, n, before = 0.0, 0, self._bar.desc
        self._say("scoring held-out text")
        for states, following in blocks:
            logs = self.readout.predict_log_proba_of(states, following)
            total -= float(logs.sum(dtype=np.float64))
            n += len(following)
        if not n:
            raise CorpusError("the held-out text holds no token to predict")
        self.last_score = total / n
        self._bar.set_description_str(before)
        self._record(number)

    def _snapshot(self) -> tuple[dict[str, Any], Arrays]:
        arrays = with_prefix("readout", self.readout.state_dict(training=True))
        if self.model.features_ is not None:
            arrays |= with_prefix("features", self.model.features_.state_dict())
        return {"phase": self._number, "chunk": self._chunk}, arrays

    def _finish(self) -> LanguageModel:
        self.model.run_ = self.digest()
        return self.model

    def _corpus_digest(self) -> str:
        return stream_digest(self.stream)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Return the settings of model, corpus, held-out text and plan, as JSON can hold them."""
        model, tokenizer = self.model, self.model.tokenizer_
        settings = {
            "esnlm": __version__,
            "reservoir": describe(model._parts.reservoir),
            "readout": describe(model._parts.readout),
            "features": describe(model._parts.features),
            "reset": model.reset_,
            "tokenizer": tokenizer and hashlib.sha256(tokenizer.to_json().encode()).hexdigest(),
            "corpus": self._corpus_digest(),
            "held-out text": None if self.held_out is None else stream_digest(self.held_out),
        }
        return settings | asdict(self.plan)
