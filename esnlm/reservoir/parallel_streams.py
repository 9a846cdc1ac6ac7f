"""Streams: a token sequence cut into ranges that a reservoir reads side by side."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from esnlm.utils.arrays import Array, Bools, Ints64, checked_positions


@dataclass(frozen=True)
class Step:
    """One block of the plan; every array is (n_streams, n_steps).

    ``positions`` of the tokens to read, ``restart`` where the state before the token is zero,
    ``keep`` where the pair (state after the token, next token) is yielded.
    """

    positions: Ints64
    restart: Bools
    keep: Bools

    def tiled(self, n_tiles: int, width: int, dtype: np.dtype[Any]) -> tuple[Ints64, Ints64, Array]:
        """Return positions and targets (n_tiles, n_steps * width), and the carry of states.

        A target is the number of the pair in the block, or -1. The carry (n_tiles, (n_steps + 1) *
        width) is the factor, 0 or 1, of the state before each step and after the last. Streams that
        do not exist are zeros.
        """

        def by_tile(array: Array) -> Array:
            padded = np.zeros((n_tiles * width, array.shape[1]), dtype=array.dtype)
            padded[: len(array)] = array
            return padded.reshape(n_tiles, width, -1).transpose(0, 2, 1).reshape(n_tiles, -1)

        positions, keep, restart = map(by_tile, (self.positions, self.keep, self.restart))
        after = np.zeros((n_tiles, width), dtype=np.bool_)
        carry = 1 - np.concatenate((restart, after), axis=1).astype(dtype)
        targets = np.where(keep, np.cumsum(keep).reshape(keep.shape) - 1, -1)
        return positions, targets, carry


class StreamPlan:
    """Ranges of pairs (token, next token) given to streams, and their blocks.

    Pairs are numbered without those whose target is a start: pair ``c`` of sequence ``j`` reads
    the token at position ``c + j``. Only these tokens are read. starts (n_sequences,) int64 as
    `checked_starts` returns them: None is one sequence, cut anywhere. The others are those of
    `Reservoir.harvest`.
    """

    def __init__(
        self, n_tokens: int, starts: Ints64 | None, n_streams: int, warmup: int, washout: int
    ) -> None:
        """Cut the pairs in ranges for at most ``n_streams`` streams."""
        origin = np.zeros(1, dtype=np.int64) if starts is None else starts
        self.first_pairs = origin - np.arange(len(origin), dtype=np.int64)
        self.n_pairs = n_tokens - len(origin)
        self.washout = washout
        if starts is None:
            self._cut_anywhere(n_streams, warmup)
        else:
            self._cut_at_starts(n_streams)

    @property
    def n_streams(self) -> int:
        """Return the number of streams, at most as many as were asked for."""
        return len(self.begin)

    @property
    def n_steps(self) -> int:
        """Return the tokens that the longest stream reads."""
        return int((self.end - self.begin).max(initial=0))

    def step(self, first: int, n_steps: int) -> Step:
        """Return steps ``first`` to ``first + n_steps`` of every stream."""
        pairs = self.begin[:, None] + np.arange(first, first + n_steps, dtype=np.int64)
        active = pairs < self.end[:, None]
        pairs = np.where(active, pairs, self.begin[:, None])
        sequence = np.searchsorted(self.first_pairs, pairs, side="right") - 1
        age = pairs - self.first_pairs[sequence]
        keep = active & (pairs >= self.emit[:, None]) & (age >= self.washout)
        return Step(positions=pairs + sequence, restart=age == 0, keep=keep)

    def _cut_anywhere(self, n_streams: int, warmup: int) -> None:
        """Cut equal ranges; fewer where warming streams up would cost a quarter of the work."""
        affordable = self.n_pairs // (4 * warmup) if warmup else self.n_pairs
        count = max(1, min(n_streams, affordable))
        bounds = np.arange(count + 1, dtype=np.int64) * self.n_pairs // count
        self.emit, self.end = bounds[:-1], bounds[1:]
        self.begin = np.maximum(self.emit - warmup, 0)

    def _cut_at_starts(self, n_streams: int) -> None:
        """Cut whole sequences, in order, about equally many pairs to a stream."""
        targets = np.arange(1, n_streams, dtype=np.int64) * self.n_pairs // n_streams
        inner = self.first_pairs[
            np.minimum(np.searchsorted(self.first_pairs, targets), len(self.first_pairs) - 1)
        ]
        inner = inner[(inner > 0) & (inner < self.n_pairs)]
        bounds = np.unique(np.concatenate(([0], inner, [self.n_pairs])))
        self.begin, self.end = bounds[:-1], bounds[1:]
        self.emit = self.begin


def checked_starts(starts: ArrayLike | None, n_tokens: int) -> Ints64 | None:
    """Return starts of sequences, sorted, (n_sequences,), with 0 among them; None stays None."""
    if starts is None:
        return None
    at = checked_positions(starts)
    if (np.diff(at) <= 0).any() or (at.size and not 0 <= at[0] <= at[-1] < n_tokens):
        raise ValueError(f"starts must increase strictly and lie in [0, {n_tokens}), got {at}")
    return at if at.size and at[0] == 0 else np.concatenate(([0], at))
