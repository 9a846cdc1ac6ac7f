"""Training on shards in parts, in this process or in many, to the same bytes.

A part (`esnlm.models.parts`) is a run of sentences that depends on the corpus and the number of
parts alone. Whoever learns from it reads its tokens itself, harvests a chunk of states at a time,
and returns sums, which are added in the tree of `esnlm.utils.sums.in_pairs`. So a model depends on
the number of parts, and neither on who learned from which nor on how often.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import clone

from esnlm.models.parts import Part, PartedCorpus
from esnlm.models.reservoir import LanguageModel
from esnlm.models.states import StateBlocks
from esnlm.models.training import Trainer, TrainingPlan
from esnlm.readouts.base.readout import Block, StreamingReadout
from esnlm.reservoir.spectral_features import SpectralWordFeatures
from esnlm.text.corpus import TokenStream
from esnlm.text.shards import ShardsError
from esnlm.text.shuffling import ChunkOrder, target_counts
from esnlm.utils.sums import Keyed, Reduce, Sums, reduce_here
from esnlm.utils.threads import one_blas_thread

#: Parts where no number is given, unless the corpus has fewer chunks.
PARTS = 64


class PartsTrainer(Trainer):
    """`Trainer` whose passes over prepared shards are shared out in parts.

    It trains readouts whose passes are sums over rows (ridge, class-factored ridge) on one-hot or
    spectral inputs. The state is zero where a part begins, as it is at every sentence of shards.
    The result depends on the model, the corpus, the held-out stream, the plan and ``n_parts``
    (default: `PARTS`, or as many as the corpus has chunks). ``reduce`` is told to work on parts;
    default: in this process, one after the other.
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
        self.corpus, self._reduce = corpus, reduce
        self._take(model, corpus.n_rows, held_out, plan)
        chunks = -(-corpus.n_tokens // self.plan.chunk_tokens)
        self.parts = corpus.parts(min(PARTS, chunks) if n_parts is None else n_parts)

    def _draw(self) -> None:
        """Draw the reservoir, and fit spectral features to the pairs that the parts counted."""
        model = self.model
        features = model.features
        fitted = features is None or hasattr(features, "embedding_")
        if not fitted and not isinstance(features, SpectralWordFeatures):
            raise ValueError(
                f"{type(features).__name__} are learned from one token after the other, not in"
                " parts: take SpectralWordFeatures, or train without parts"
            )
        self._say("counting tokens")
        given = (model.n_tokens_, None if fitted else features)
        found = self._reduce("counts", _counted, given, self.parts, lambda part: None)
        model.draw_reservoir(found.plain["counts"])
        if not fitted:
            self._say("spectral features")
            model.use_features(clone(features).fit_counts(_table(found, model.n_tokens_)))

    def read(self, number: int, n_rows: int | None = None) -> Iterator[Iterable[Block] | Sums]:
        """One chunk: the sums of pass ``number``, or of a sample of ``n_rows`` rows."""
        readout = self.readout
        if readout.added_up(number) is None:
            raise ValueError(
                f"{type(readout).__name__} takes steps in pass {number}, which is not shared out"
                " in parts: train it without --parts and --cluster"
            )
        if number != self._number:
            self._number, self._chunk = number, 0
        self._n_chunks = 1
        if self._chunk:  # a checkpoint holds it
            return
        share = 1.0 if n_rows is None else min(1.0, n_rows / self.n_rows)
        given = _Pass(_States.of(self.model), readout, number, share, self.plan, self.n_rows)
        name = "moments" if number else "sample"
        self._say(f"pass {number} of {readout.training_passes}" if number else "reading a sample")

        def done(part: Part) -> None:
            if number:
                self.tokens += part.n_rows
                self._bar.update(part.n_rows)

        yield self._reduce(name, _learned, given, self.parts, done)
        self._say("solving")

    def _corpus_digest(self) -> str:
        return self.corpus.described()

    @cached_property
    def settings(self) -> dict[str, Any]:
        return super().settings | {"parts": len(self.parts)}


@dataclass(frozen=True)
class _States:
    """What harvests a stream, without what a model has beside it."""

    reservoir: Any
    features: Any
    n_streams: int
    n_last: int

    @classmethod
    def of(cls, model: LanguageModel) -> "_States":
        n_last = model.n_columns_ - model.reservoir_.n_units
        return cls(model.reservoir_, model.features_, model.n_streams, n_last)

    def blocks(self, stream: TokenStream, washout: int) -> StateBlocks:
        parts = self.reservoir, stream, self.features
        return StateBlocks(*parts, self.n_streams, False, washout, self.n_last)


@dataclass(frozen=True)
class _Pass:
    """A pass, or for a ``share`` below one a sample, by copies of a readout that began it."""

    states: _States
    readout: StreamingReadout
    number: int
    share: float
    plan: TrainingPlan
    n_rows: int


def _counted(given: tuple[int, SpectralWordFeatures | None], part: Part) -> Sums:
    """Counts (n_tokens,) of the predicted tokens of a part, and of pairs for features."""
    n_tokens, features = given
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
    """Counts of pairs (n_tokens, n_tokens)."""
    pairs = sums.keyed["pairs"]
    places = np.divmod(pairs.keys, n_tokens)
    return scipy.sparse.csr_matrix((pairs.values[0], places), shape=(n_tokens, n_tokens))


def _learned(given: _Pass, part: Part) -> Sums:
    """What a part adds to the sums of a pass; ``given`` is left as it is."""
    readout, stream, plan = deepcopy(given.readout), part.stream(), given.plan
    moments = readout.added_up(given.number)
    assert moments is not None, "the pass adds up"
    moments.limit_to(part.n_rows / given.n_rows)
    # One thread: sums in one order, whatever the machine.
    with one_blas_thread():
        for chunk, washout in _chunks(stream, plan, given.share, given.number, part.number):
            readout.read_chunk(given.number, given.states.blocks(chunk, washout))
        return readout.sums(given.number)


def _chunks(
    stream: TokenStream, plan: TrainingPlan, share: float, number: int, part: int
) -> Iterator[tuple[TokenStream, int]]:
    """The chunks of a part in the order of the text; of a sample, sentences from all over it."""
    rng, left = None, len(stream.tokens)
    if share < 1:
        rng, left = np.random.default_rng([plan.seed, number, part]), round(share * left)
    order = ChunkOrder(stream, min(plan.chunk_tokens, max(1, left)), rng)
    for index in range(len(order)):
        if left <= 0:
            return
        for chunk, washout in order.chunk(index):
            yield chunk, washout
            left -= len(chunk.tokens)
