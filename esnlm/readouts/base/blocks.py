"""Blocks of rows (states, targets), from which readouts learn in one pass or several."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from esnlm.utils.arrays import Array, Ints
from esnlm.utils.sums import Sums

#: States X (n, n_units), and their labels or the columns of these (n,).
Block = tuple[Array, Array]
#: Each ``iter()`` is a fresh pass, in memory that the next block may use again.
Blocks = Iterable[Block]

_BLOCK_BYTES = 1 << 24
_KEPT_BYTES = 1 << 28


class Passes(Protocol):
    """Rows in passes, each with an order of its own, in chunks that are iterables of blocks.

    ``first`` is the pass to begin with: 0, the pilot sample, unless training is resumed.
    """

    first: int

    @property
    def rows(self) -> Blocks | None:
        """The rows of a pass, where they are at hand: they may be read as often as needed."""

    def read(self, number: int, *, n_rows: int | None = None) -> Iterator[Blocks | Sums]:
        """Chunks of a pass, or the first ones that hold ``n_rows`` rows.

        `Sums` stand for rows that were read elsewhere, by copies of the readout.
        """


class Progress(NamedTuple):
    """Place in `StreamingReadout._train`: after a chunk of pass ``number``, or after its end."""

    number: int
    ended: bool = False


class SamePasses:
    """`Passes` of one chunk each, all alike."""

    first = 0

    def __init__(self, rows: Blocks) -> None:
        self.rows: Blocks = rows

    def read(self, number: int, *, n_rows: int | None = None) -> Iterator[Blocks]:
        """Yield one chunk: all rows, or the first blocks that hold ``n_rows`` rows."""
        yield self.rows if n_rows is None else self._first(n_rows)

    def _first(self, n_rows: int) -> Iterator[Block]:
        for X, y in self.rows:
            yield X, y
            n_rows -= len(X)
            if n_rows <= 0:
                return


#: Takes every step of an iterable that works as it goes.
exhaust: Callable[[Iterable[Any]], Any] = partial(deque, maxlen=0)


class ArrayBlocks:
    """Arrays X (n, n_units), y (n,) as a re-iterable of blocks, which are views.

    A block has ``block_size`` rows, or about 16 MiB of states.

    >>> blocks = ArrayBlocks(np.zeros((5, 2)), np.arange(5), block_size=2)
    >>> [len(y) for _, y in blocks], [len(y) for _, y in blocks]
    ([2, 2, 1], [2, 2, 1])
    """

    def __init__(self, X: Array, y: Array, block_size: int | None = None) -> None:
        if len(X) != len(y):
            raise ValueError(f"X has {len(X)} rows and y {len(y)}: give one target a row")
        if block_size is not None and block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        self.X = X
        self.y = y
        self.n_rows = len(X)
        self.block_size = block_size or rows_within(_BLOCK_BYTES, X.shape[1], X.dtype)

    def __iter__(self) -> Iterator[Block]:
        for start in range(0, len(self.X), self.block_size):
            stop = start + self.block_size
            yield self.X[start:stop], self.y[start:stop]


class MappedBlocks:
    """Blocks through ``function(X, y)``, anew in each pass; those without rows are left out."""

    def __init__(self, blocks: Blocks, function: Callable[[Any, Any], Block]) -> None:
        self.blocks, self.function = blocks, function
        self.n_rows = blocks_rows(blocks)

    def __iter__(self) -> Iterator[Block]:
        return (self.function(X, y) for X, y in self.blocks if len(y))


def blocks_rows(blocks: Any) -> int:
    """Rows of one pass if the blocks have an attribute ``n_rows``, else 0."""
    return int(getattr(blocks, "n_rows", 0))


def rows_within(n_bytes: int, n_columns: int, dtype: Any) -> int:
    """Rows of ``n_columns`` values of ``dtype`` that fit in ``n_bytes``; at least one."""
    return max(1, n_bytes // max(1, n_columns * np.dtype(dtype).itemsize))


def in_memory(blocks: Blocks, n_rows: int, n_bytes: float = np.inf) -> ArrayBlocks | None:
    """All rows as arrays; None where they are more than ``n_rows`` or their states ``n_bytes``."""
    if isinstance(blocks, ArrayBlocks):
        fits = blocks.n_rows <= n_rows and blocks.X.nbytes <= n_bytes
        return blocks if fits else None
    if blocks_rows(blocks) > n_rows:
        return None
    parts: list[Block] = []
    for X, codes in blocks:
        parts.append((X.copy(), codes.copy()))
        n_rows, n_bytes = n_rows - len(X), n_bytes - X.nbytes
        if n_rows < 0 or n_bytes < 0:
            return None
    X, codes = map(np.concatenate, zip(*parts, strict=True))
    return ArrayBlocks(X, codes)


class Interleaved:
    """Arrays as blocks of rows far apart, ``k, k + m, k + 2m ...``: a fixed kind of shuffle.

    A block holds ``at_once`` such series, of about ``rows`` rows each.
    """

    def __init__(self, X: Array, codes: Ints, rows: int, at_once: int = 1) -> None:
        self.X, self.codes, self.at_once = X, codes, at_once
        self.n_series = max(1, len(X) // rows)
        self._kept = list(self._gathered()) if X.nbytes <= _KEPT_BYTES else None

    def __iter__(self) -> Iterator[Block]:
        return self._gathered() if self._kept is None else iter(self._kept)

    def _gathered(self) -> Iterator[Block]:
        for first in range(0, self.n_series, self.at_once):
            series = range(first, min(first + self.at_once, self.n_series))
            rows = np.concatenate([np.arange(k, len(self.X), self.n_series) for k in series])
            yield self.X[rows], self.codes[rows]
