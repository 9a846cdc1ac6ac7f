"""Training on shards in parts, in this process or in many, to the same bytes.

A part (`esnlm.text.shard_parts`) is a run of sentences that depends on the corpus and the number of
parts alone. Whoever learns from it reads its tokens itself, harvests a chunk of states at a time,
and returns sums, which are added in the tree of `esnlm.utils.sums.in_pairs`. So a model depends on
the number of parts, and neither on who learned from which nor on how often.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
from sklearn.base import clone

from esnlm.features.spectral import SpectralWordFeatures
from esnlm.models.language_model import LanguageModel
from esnlm.models.states import States
from esnlm.readouts.base.blocks import Blocks
from esnlm.readouts.base.readout import Block, StreamingReadout
from esnlm.text.corpus import TokenStream
from esnlm.text.shard_parts import Part, PartedCorpus
from esnlm.text.shards import ShardsError
from esnlm.text.shuffling import ChunkOrder, target_counts
from esnlm.training.trainer import Trainer, TrainingPlan
from esnlm.utils.sums import Keyed, Reduce, Sums, reduce_here
from esnlm.utils.threads import one_blas_thread

T = TypeVar("T")

#: Parts where no number is given, unless the corpus has fewer chunks; of steps, which fewer
#: parts take more of one after the other.
PARTS, PARTS_OF_STEPS = 64, 8
# Chunks of a pilot sample that make a sum.
_SAMPLED_AT_ONCE = 4


class PartsTrainer(Trainer):
    """`Trainer` whose passes over prepared shards are shared out in parts.

    Inputs are one-hot or spectral. The state is zero where a part begins, as it is at every
    sentence of shards. Passes of ridge, alone or factored, and pilot samples are sums over rows,
    the same for any number of parts but for rounding. Passes of softmax and low-rank readouts take
    steps in rounds (`esnlm.readouts.base.passes`): the more parts, the fewer steps one after
    the other. The result depends on the model, the corpus, the held-out stream, the plan and
    ``n_parts`` (default: `PARTS` or `PARTS_OF_STEPS`, but at most one a chunk).

    ``reduce`` works on parts; default: in this process, one after the other.
    """

    def __init__(
        self,
        model: LanguageModel,
        corpus: PartedCorpus,
        held_out: TokenStream | None = None,
        plan: TrainingPlan | None = None,
        *,
        n_parts: int | None = None,
        reduce: Reduce = reduce_here,
    ) -> None:
        """Cut the corpus in parts, or raise ValueError unless the state resets at sentences."""
        self.corpus, self._reduce = corpus, reduce
        if model.reset_ != "sentence":
            raise ValueError(f"shards hold sentences: reset must be sentence, got {model.reset_}")
        self._take(model, corpus.n_rows, held_out, plan)
        most = self._most_parts()
        chunks = -(-corpus.n_tokens // self.plan.chunk_tokens)
        self.parts = corpus.parts(min(most, chunks) if n_parts is None else n_parts)

    def _most_parts(self) -> int:
        """How many parts there are by default; ValueError for what is not trained in parts."""
        model, features = self.model, self.model._parts.features
        fitted = features is None or hasattr(features, "embedding_")
        if not fitted and not isinstance(features, SpectralWordFeatures):
            raise ValueError(
                f"{type(features).__name__} are learned from one token after the other, not in"
                " parts: take SpectralWordFeatures, or train without parts"
            )
        readout = clone(model._parts.readout)
        n_columns = model._parts.reservoir.n_units + getattr(readout, "n_direct", 0)
        readout._begin(np.arange(model.n_tokens_), n_columns, n_rows=self.n_rows)
        if readout._pass_moments(1) is not None:
            return PARTS
        if not readout._enable_averaging(1):
            raise ValueError(
                f"{type(readout).__name__} is not trained in parts with these parameters: leave"
                " out parts and workers, or take another readout"
            )
        return PARTS_OF_STEPS

    def _draw(self) -> None:
        """Draw the reservoir, and fit spectral features to the pairs that the parts counted."""
        model = self.model
        features = model._parts.features
        fitted = features is None or hasattr(features, "embedding_")
        self._say("counting tokens")
        task = model.n_tokens_, None if fitted else features
        sums = self._reduce("counts", _count_part, task, self.parts, lambda part: None)
        model._draw_reservoir(sums.plain["counts"])
        if not fitted:
            self._say("spectral features")
            model.features_ = clone(features).fit_counts(_table(sums, model.n_tokens_))

    def read(self, number: int, *, n_rows: int | None = None) -> Iterator[Iterable[Block] | Sums]:
        """Yield the sums of pass ``number``, or of a sample of rows, or the changes of rounds.

        In a round of a pass that takes steps, a copy of the readout learns a chunk of each part
        from the same weights, and what they changed is averaged.
        """
        readout = self.readout
        if number != self._number:
            self._number, self._chunk = number, 0
        name, self._n_chunks = "moments" if number else "sample", 1
        share = 1.0 if n_rows is None else min(1.0, n_rows / self.n_rows)
        # A sample is little of each part, and sums are large: neighbours make one together.
        a_part = share * self.n_rows / len(self.parts)
        at_once = 1 if number else max(1, int(_SAMPLED_AT_ONCE * self.plan.chunk_tokens / a_part))
        starts = range(0, len(self.parts), at_once)
        items = [tuple(self.parts[i : i + at_once]) for i in starts]
        if readout._pass_moments(number) is None:
            readout._enable_averaging(len(self.parts))
            longest = max(part.end - part.begin for part in self.parts)
            name, self._n_chunks = f"pass {number}", -(-longest // self.plan.chunk_tokens)
        states = self._light_states()
        self._say(f"pass {number} of {readout._training_passes}" if number else "reading a sample")
        for chunk in range(self._chunk, self._n_chunks):
            task = _Task(
                states, readout, number, chunk, self._n_chunks, share, self.plan,
                self.n_rows,
            )  # fmt: skip

            def done(parts: tuple[Part, ...]) -> None:
                n_rows = sum(part.n_rows for part in parts) // self._n_chunks if number else 0
                self._bar.update(min(n_rows, self._n_tokens - self._bar.n))

            sums = self._reduce(name, _learn_parts, task, items, done)
            if number:
                self.tokens += int(sums.plain["rows"])
                self._bar.update(self.tokens - self._bar.n)
            yield sums
        self._say("solving")

    def share(self, name: str, function: Callable[[Blocks], T]) -> T:
        """Return the sum of ``function(blocks)`` over the parts."""
        task = self._light_states(), self.plan, function
        return self._reduce(name, _apply_to_part, task, self.parts, lambda part: None)

    def _light_states(self) -> States:
        """Return what harvests a stream, without the tables of drives, which are large."""
        states = self.model._states
        reservoir = copy(states.reservoir)
        reservoir.forget_drive()
        return replace(states, reservoir=reservoir)

    def _corpus_digest(self) -> str:
        return self.corpus.described()

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Return the settings of the run, with the number of parts."""
        return super().settings | {"parts": len(self.parts)}


@dataclass(frozen=True)
class _Task:
    """What copies of a readout learn of their parts: chunk ``chunk`` of ``n_chunks``.

    Of a pass that only adds up there is one chunk, of a sample a ``share`` of it.
    """

    states: States
    readout: StreamingReadout
    number: int
    chunk: int
    n_chunks: int
    share: float
    plan: TrainingPlan
    n_rows: int

    def chunks(self, part: int, stream: TokenStream) -> Iterator[tuple[TokenStream, int]]:
        """Yield what is read of a part: all of it in its order, else sentences from all over it."""
        n_tokens, at_once = len(stream.tokens), self.plan.chunk_tokens
        rng = np.random.default_rng([self.plan.random_state, self.number, part])
        if self.readout._pass_moments(self.number) is None:
            order = ChunkOrder(stream, -(-n_tokens // self.n_chunks), rng)
            last = len(order) if self.chunk + 1 == self.n_chunks else self.chunk + 1
            indices = range(self.chunk, min(last, len(order)))
        elif self.share == 1:
            order = ChunkOrder(stream, at_once, None)
            indices = range(len(order))
        else:
            size = max(1, round(self.share * n_tokens))
            order = ChunkOrder(stream, min(at_once, size), rng)
            indices = range(min(len(order), -(-size // at_once)))
        for index in indices:
            yield from order.chunk(index)


def _count_part(task: tuple[int, SpectralWordFeatures | None], part: Part) -> Sums:
    """Return counts (n_tokens,) of the predicted tokens of a part, and of pairs for features."""
    n_tokens, features = task
    stream = part.stream()
    if (largest := int(stream.tokens.max())) >= n_tokens:
        raise ShardsError(
            f"{part.place.name} holds the token {largest}, expected less than the vocabulary's"
            f" {n_tokens}"
        )
    counts = {"counts": target_counts(stream, n_tokens)}
    if features is None:
        return Sums(counts)
    pairs = features.count(stream.tokens, n_tokens, stream.starts).tocoo()
    keys = pairs.row.astype(np.int64) * n_tokens + pairs.col
    order = np.argsort(keys)
    return Sums(counts, {"pairs": Keyed(keys[order], [pairs.data[order]])})


def _table(sums: Sums, n_tokens: int) -> scipy.sparse.csr_matrix:
    """Return counts of pairs (n_tokens, n_tokens)."""
    pairs = sums.keyed["pairs"]
    places = np.divmod(pairs.keys, n_tokens)
    return scipy.sparse.csr_matrix((pairs.values[0], places), shape=(n_tokens, n_tokens))


def _learn_parts(task: _Task, parts: tuple[Part, ...]) -> Sums:
    """Return what parts add to the sums of a pass, or change in a round."""
    readout = deepcopy(task.readout)
    moments, before = readout._pass_moments(task.number), None
    if moments is None:
        before = {name: a.copy() for name, a in readout.state_dict(training=True).items()}
    chunks: Iterable[tuple[TokenStream, int]] = chain.from_iterable(
        task.chunks(part.number, part.stream()) for part in parts
    )
    if moments is not None:
        chunks = list(chunks)
        distinct = np.unique(np.concatenate([np.unique(chunk.tokens) for chunk, _ in chunks]))
        moments.restrict_to_part(sum(part.n_rows for part in parts) / task.n_rows, len(distinct))
    # One thread: sums in one order, whatever the machine.
    with one_blas_thread():
        n_rows = 0
        for chunk, washout in chunks:
            readout._read_chunk(task.number, task.states.blocks(chunk, washout=washout))
            n_rows += chunk.n_predicted
        sums = readout._pass_sums(task.number, before)
    return Sums({**sums.plain, "rows": np.array(n_rows)}, sums.keyed)


def _apply_to_part(task: tuple[States, TrainingPlan, Callable[[Blocks], T]], part: Part) -> T:
    """Return a function of the blocks of a part, in the order of the text."""
    states, plan, function = task
    order = ChunkOrder(part.stream(), plan.chunk_tokens, None)
    chunks = chain.from_iterable(order.chunk(index) for index in range(len(order)))
    blocks = (states.blocks(chunk, washout=washout) for chunk, washout in chunks)
    with one_blas_thread():
        return function(chain.from_iterable(blocks))
