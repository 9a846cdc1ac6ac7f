"""Blocks of rows (states, targets), from which readouts learn in one pass or several."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import numpy as np

from esnlm.utils.arrays import Array, Arrays, Ints
from esnlm.utils.state_dict import Stateful

#: States X (n, n_units), and their labels or the columns of these (n,).
Block = tuple[Array, Array]
#: Each ``iter()`` is a fresh pass, in memory that the next block may use again.
Blocks = Iterable[Block]

_BLOCK_BYTES = 1 << 24
_KEPT_BYTES = 1 << 28


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


#: What a readout says that is to judge by held-out blocks without rows.
NO_HELD_OUT = "held_out has no rows: give some, or None"


class MappedBlocks:
    """Blocks through ``function(X, y)``, anew in each pass; those without rows are left out."""

    def __init__(self, blocks: Blocks, function: Callable[[Any, Any], Block]) -> None:
        self.blocks, self.function = blocks, function
        self.n_rows = blocks_rows(blocks)

    def __iter__(self) -> Iterator[Block]:
        for block in self.blocks:
            if len(block) != 2:
                raise ValueError(
                    f"blocks must be pairs (X, y), states and their targets, got {len(block)} in"
                    " place of 2: give a list of pairs"
                )
            X, y = block
            if len(y):
                yield self.function(X, y)


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
        self._memory = list(self._gathered()) if X.nbytes <= _KEPT_BYTES else None

    def __iter__(self) -> Iterator[Block]:
        return self._gathered() if self._memory is None else iter(self._memory)

    def _gathered(self) -> Iterator[Block]:
        for first in range(0, self.n_series, self.at_once):
            series = range(first, min(first + self.at_once, self.n_series))
            rows = np.concatenate([np.arange(k, len(self.X), self.n_series) for k in series])
            yield self.X[rows], self.codes[rows]


class Rows(Stateful):
    """Arrays of as many rows each, by name, collected in parts that are not to be changed.

    >>> rows = Rows("X", "codes")
    >>> rows.add(np.zeros((2, 3)), np.array([0, 1]))
    >>> rows.add(np.ones((1, 3)), np.array([2]))
    >>> rows.n, rows.joined()[1]
    (3, array([0, 1, 2]))
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        self.parts: list[tuple[Array, ...]] = []

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(len(first) for first, *_ in self.parts)

    def add(self, *arrays: Array) -> None:
        """Add rows of every array."""
        self.parts.append(arrays)

    def joined(self) -> tuple[Array, ...]:
        """Rows one after another, in memory of their own."""
        return tuple(np.concatenate(arrays) for arrays in zip(*self.parts, strict=True))

    def state_dict(self, *, training: bool = False) -> Arrays:
        """Return the joined arrays by name, or an empty dict before any rows."""
        return dict(zip(self.names, self.joined(), strict=True)) if self.parts else {}

    def load_state_dict(self, arrays: Arrays, *, training: bool = False) -> Self:
        """Replace all rows by those of ``arrays``, or by none where a name is missing."""
        is_complete = all(name in arrays for name in self.names)
        self.parts = [tuple(arrays[name] for name in self.names)] if is_complete else []
        return self
