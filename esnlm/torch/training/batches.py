"""Batches of a corpus for each training pass, from any batch on, some read ahead of their step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional

from esnlm.text.corpus import CorpusError, TokenStream
from esnlm.torch.device import Processes, on_device, share_of_memory
from esnlm.torch.networks.network import Network
from esnlm.torch.training.plan import Plan
from esnlm.utils.arrays import Bools, Ints64

# Of pieces whose lengths are drawn (Merity et al. 2018, and their code for the least).
_SHORT_SHARE, _LENGTH_DEVIATION, _LEAST_PIECE = 0.05, 5.0, 5
# Values of hidden vectors read ahead; on a CUDA device those that fill a sixteenth of it.
_VALUES = 1 << 24
# Hidden vectors are computed for a multiple of this many rows on a CPU: oneDNN builds a kernel for
# each number of rows, and the first use of one costs several times as much as the next.
_ROWS = 64


@dataclass(frozen=True)
class Batch:
    """A batch of a pass, (B, T)."""

    tokens: Ints64  #: to read
    following: Ints64  #: to predict
    counted: Bools  #: which predictions count
    continues: bool = False  #: its rows begin where those of the batch before ended

    def share(self, part: int, n_parts: int) -> "Batch":
        """Return the rows of one of several processes."""
        rows = slice(part, None, n_parts)
        tokens, following, counted = self.tokens[rows], self.following[rows], self.counted[rows]
        return Batch(tokens, following, counted, self.continues)


class PieceBatches:
    """Pieces of the text, each from the start state, in an order drawn for each pass.

    Pieces are windows or sequences; a sequence longer than ``plan.length`` is cut, the last token
    of a part being the first of the next. ``n_batches``, ``n_predicted`` and ``n_read`` (tokens)
    are those of one pass.
    """

    from_start = True

    def __init__(self, stream: TokenStream, plan: Plan, rows: int) -> None:
        """Cut the stream in windows or parts of sequences, and count batches and tokens."""
        self.stream, self.plan, self.rows = stream, plan, rows
        self.last_only = plan.last_only and plan.batching == "windows"
        if plan.batching == "windows":
            end = len(stream.tokens) - plan.length
            first = np.arange(0, end, plan.stride or plan.length, dtype=np.int64)
            self.first = first[: len(first) - len(first) % plan.parts]
            self.length = np.full(len(self.first), plan.length, dtype=np.int64)
        else:
            self.first, self.length = _parts(stream.lengths, plan.length)
        self.n_batches = plan.parts * -(-(len(self.first) // plan.parts) // rows)
        self.n_read = int(self.length.sum())
        self.n_predicted = len(self.first) if self.last_only else self.n_read

    def of_pass(self, number: int, first: int = 0) -> Iterator[Batch]:
        """Yield the batches of pass ``number``, from batch ``first`` on."""
        rng, n_parts = np.random.default_rng([self.plan.random_state, number]), self.plan.parts
        turns = np.arange(number * n_parts, (number + 1) * n_parts) // self.plan.n_passes % n_parts
        n = len(self.first) // n_parts
        order = [batch for part in turns.tolist() for batch in self._order(part * n, n, rng)]
        for index in range(first, self.n_batches):
            yield self._batch(order[index])

    def _order(self, begin: int, n: int, rng: np.random.Generator) -> list[Ints64]:
        """Draw the batches of ``n`` pieces, of similar lengths where ``pool`` exceeds 1."""
        order = begin + rng.permutation(n)
        if self.plan.pool == 1:
            return np.split(order, np.arange(self.rows, len(order), self.rows))
        batches: list[Ints64] = []
        size = self.plan.pool * self.rows
        for begin in range(0, len(order), size):
            pool = order[begin : begin + size]
            pool = pool[np.argsort(self.length[pool], kind="stable")]
            batches += np.split(pool, _even_cuts(self.length[pool], -(-len(pool) // self.rows)))
        return [batches[place] for place in rng.permutation(len(batches))]

    def _batch(self, pieces: Ints64) -> Batch:
        first, length = self.first[pieces], self.length[pieces]
        steps = np.arange(int(length.max()))
        inside = steps < length[:, None]
        places = np.where(inside, first[:, None] + steps, 0)
        tokens = np.where(inside, self.stream.tokens[places], 0).astype(np.int64)
        following = np.where(inside, self.stream.tokens[places + 1], 0).astype(np.int64)
        counted = inside & (steps == length[:, None] - 1) if self.last_only else inside
        return Batch(tokens, following, counted)


class StreamBatches:
    """The corpus as one text in parallel streams, the state carried from batch to batch.

    Tokens at the end that do not fill a row of all streams are left out. Attributes are those of
    `PieceBatches`.
    """

    from_start = False

    def __init__(self, stream: TokenStream, plan: Plan, rows: int) -> None:
        self.tokens, self.plan = stream.tokens, plan
        self.rows = min(rows, len(stream.tokens) - 1)
        self.steps = (len(stream.tokens) - 1) // max(1, self.rows)
        if plan.vary_length:
            self.lengths = _random_lengths(self.steps, plan)
        else:
            self.lengths = np.diff(np.append(np.arange(0, self.steps, plan.length), self.steps))
        self.n_batches = len(self.lengths)
        self.n_predicted = self.n_read = self.rows * self.steps

    def of_pass(self, number: int, first: int = 0) -> Iterator[Batch]:
        """Yield the batches of pass ``number``, from batch ``first`` on."""
        lengths = self.lengths
        if self.plan.vary_length:
            lengths = np.random.default_rng([self.plan.random_state, number]).permutation(lengths)
        begins, cuts = np.arange(self.rows)[:, None] * self.steps, np.append(0, np.cumsum(lengths))
        for index in range(first, self.n_batches):
            places = begins + np.arange(cuts[index], cuts[index + 1])
            tokens = np.asarray(self.tokens[places], dtype=np.int64)
            following = np.asarray(self.tokens[places + 1], dtype=np.int64)
            yield Batch(tokens, following, np.ones(places.shape, dtype=bool), index > 0)


Batches = PieceBatches | StreamBatches


def batches_of(stream: TokenStream, plan: Plan, n_processes: int = 1) -> Batches:
    """Return the batches of a corpus, of ``plan.batch_size`` rows for each process."""
    kind = StreamBatches if plan.batching == "streams" else PieceBatches
    batches = kind(stream, plan, plan.batch_size * n_processes)
    if batches.n_predicted < 1:
        pieces = {
            "windows": f"windows of {plan.length}, parts={plan.parts}: take shorter ones, or",
            "streams": f"{plan.batch_size * n_processes} streams: take fewer, or",
        }.get(plan.batching, "sentences:")
        raise CorpusError(
            f"{len(stream.tokens)} tokens of the corpus leave none to predict in {pieces} give more"
            " text"
        )
    return batches


@dataclass(frozen=True)
class Ready:
    """Rows of a batch of one process, the number of predictions of all, and hidden vectors if read.

    ``hidden()`` (n, D): those of the counted places, row by row, once; None: not read ahead.
    """

    batch: Batch
    n_predicted: int
    hidden: Callable[[], Tensor] | None = None


def read_ahead(
    network: Network, batches: Batches, processes: Processes, number: int, first: int
) -> Iterator[Ready]:
    """Yield the batches of pass ``number`` from ``first`` on, a group read at once where possible.

    Groups have the same bounds wherever reading begins, so that a resumed run sees the same bits.
    """
    reads_ahead, size = network.reads_ahead and batches.from_start, 1
    if reads_ahead:
        values = share_of_memory(network.device, 64, otherwise=_VALUES)
        width = network.harvest(np.zeros(1, np.int64), np.zeros(1, np.int64)).shape[1]
        per_batch = width * batches.n_read / (batches.n_batches * processes.size)
        size = max(1, int(values / max(1.0, per_batch)))
    begin = first - first % size
    rest = batches.of_pass(number, begin)
    while group := list(islice(rest, size)):
        parts = [batch.share(processes.rank, processes.size) for batch in group]
        harvested = cache(partial(_harvested, network, parts))  # when first read
        for place, (batch, part) in enumerate(zip(group, parts, strict=True)):
            if begin + place >= first:
                hidden = partial(_hidden, network, part, harvested, place) if reads_ahead else None
                yield Ready(part, int(batch.counted.sum()), hidden)
        begin += size


def _harvested(network: Network, parts: list[Batch]) -> dict[int, tuple[Bools, Tensor]]:
    """Of each batch, its places (B, T) up to the last that counts, and what was read there."""
    places = [np.logical_or.accumulate(p.counted[:, ::-1], axis=1)[:, ::-1] for p in parts]
    tokens = [part.tokens[marks] for part, marks in zip(parts, places, strict=True)]
    lengths = np.concatenate([marks.sum(axis=1) for marks in places])
    lengths = lengths[lengths > 0]
    harvested = network.harvest(np.concatenate(tokens), np.cumsum(lengths) - lengths)
    pieces = harvested.split([len(ids) for ids in tokens])
    return dict(enumerate(zip(places, pieces, strict=True)))


def _hidden(network: Network, part: Batch, harvested: Callable[[], Any], place: int) -> Tensor:
    """Return the hidden vectors of a batch's counted places, and forget what was read there."""
    mask, states = harvested().pop(place)
    n, lengths = len(states), mask.sum(axis=1)
    if padding := -n % _ROWS if states.device.type == "cpu" else 0:
        states = functional.pad(states, (0, 0, 0, padding))
        lengths = np.append(lengths, padding)
    hidden = network.hidden_of(states, lengths)[:n]
    counted = np.flatnonzero(part.counted[mask])
    if len(counted) == n:
        return hidden
    return hidden.index_select(0, on_device(counted, hidden.device))


def _parts(lengths: Ints64, most: int) -> tuple[Ints64, Ints64]:
    """First places and lengths (of tokens read) of sequences, cut into parts of ``most``."""
    starts, lengths = np.cumsum(lengths) - lengths, lengths - 1
    n_parts = -(-lengths // most)
    part = np.arange(int(n_parts.sum())) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
    first = np.repeat(starts, n_parts) + part * most
    return first, np.minimum(np.repeat(lengths, n_parts) - part * most, most)


def _even_cuts(lengths: Ints64, n_parts: int) -> Ints64:
    """Cut pieces into parts of about equally many tokens, none of them empty.

    Parts of equally many pieces would give tokens of short pieces a larger weight.

    >>> _even_cuts(np.array([1, 1, 1, 1, 2, 2, 4]), 3).tolist()
    [4, 6]
    """
    ends, number = np.cumsum(lengths), np.arange(1, n_parts)
    cuts = np.searchsorted(ends * n_parts, ends[-1] * number) + 1
    cuts = number + np.maximum.accumulate(np.maximum(cuts - number, 0))
    return np.minimum(cuts, len(lengths) - n_parts + number)


def _random_lengths(n_steps: int, plan: Plan) -> Ints64:
    """Lengths of pieces of ``n_steps`` in all."""
    rng = np.random.default_rng(plan.random_state)
    most = n_steps // _LEAST_PIECE + 1
    about = plan.length * np.where(rng.random(most) < _SHORT_SHARE, 0.5, 1.0)
    lengths = np.maximum(_LEAST_PIECE, rng.normal(about, _LENGTH_DEVIATION)).astype(np.int64)
    whole = lengths[: np.searchsorted(np.cumsum(lengths), n_steps, side="right")]
    rest = n_steps - int(whole.sum())
    if rest >= _LEAST_PIECE or not len(whole):
        return np.append(whole, rest)
    whole[-1] += rest
    return whole
