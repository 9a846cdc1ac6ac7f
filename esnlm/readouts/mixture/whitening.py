"""Training rows of the mixture: whitened tiles, kept in memory or whitened again in each pass."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
from scipy.linalg import eigh

from esnlm.readouts.base.blocks import NO_HELD_OUT, Block, Blocks, rows_within
from esnlm.readouts.base.centred_moments import TOO_LARGE, check_sizes
from esnlm.readouts.base.moments import Moments
from esnlm.utils.arrays import Array, Bools, Floats, Ints64
from esnlm.utils.sums import Total
from esnlm.utils.threads import map_tiles
from esnlm.utils.validation import DivergenceError

# Rows of a tile: its posteriors (n_experts * n_classes, rows) should stay in the second cache.
TILE = 512
# Tiles whose results are held at once before they are summed.
_WAVE = 16
# Consecutive rows, some ten sentences, that go to training or to the held-out part together.
_STRETCH = 64
# Fewer held-out rows than this say too little about when to stop.
_FEWEST_HELD_OUT = 256
# Directions whose variance is below this share of the mean one are not blown up to unit variance.
_VARIANCE_FLOOR = 1e-4
_KEPT_BYTES = 1 << 30

#: Arrays of one tile, or of several, that are added up place by place.
Sums = tuple[Array, ...]
#: Sums over the parts of a corpus of what a function makes of the blocks of each.
Share = Callable[[str, Callable[[Blocks], Total]], Total]


@dataclass(frozen=True)
class Whitening:
    """Affine map of states to coordinates of mean zero and (nearly) unit covariance."""

    mean: Array  # (n_units,)
    map: Array  # (n_units, n_units)

    @classmethod
    def from_moments(cls, moments: Moments, dtype: Any) -> "Whitening":
        """``(x - mean) @ map`` with map = U diag(v + floor)^(-1/2), v U = eigh(covariance)."""
        covariance = moments.centred_gram() / max(moments.n, 1)
        variances, directions = eigh(covariance)
        variances = np.maximum(variances, 0.0)
        floor = _VARIANCE_FLOOR * variances.mean()
        check_sizes(covariance.diagonal(), moments.mean, floor)
        floor = floor or 1.0
        scaled = directions / np.sqrt(variances + floor)
        return cls(moments.mean.astype(dtype), np.ascontiguousarray(scaled, dtype=dtype))

    @property
    def shares(self) -> Floats:
        """Variance of the states along each coordinate, relative to the mean one: (n_units,)."""
        variances = 1.0 / self._squares()
        return variances / variances.mean()

    def draw(self, rng: np.random.RandomState, n_rows: int) -> Floats:
        """Return standard normal weights (n_rows, n_units) on whitened coordinates.

        They are drawn along the units and rotated, so that they do not depend on the signs and
        the order of the directions that the decomposition happened to return.
        """
        directions = self.map / np.sqrt(self._squares())
        return rng.standard_normal((n_rows, len(self.mean))) @ directions

    def _squares(self) -> Floats:
        return np.sum(np.square(self.map, dtype=np.float64), axis=0)

    def __call__(self, X: Array) -> Array:
        """States X (n, n_units) -> (n, n_units + 1) C-ordered, last column one."""
        Z = np.empty((len(X), X.shape[1] + 1), dtype=self.map.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(X - self.mean, self.map, out=Z[:, :-1])
        Z[:, -1] = 1.0
        if not np.isfinite(Z).all():
            raise DivergenceError(TOO_LARGE)
        return Z


def in_held_out(first: int, n: int, every: int) -> Bools:
    """Which of rows first ... first + n - 1 are held out: each ``every``-th stretch of 64 rows.

    >>> in_held_out(126, 4, every=2).tolist()
    [True, True, False, False]
    """
    if every == 0:
        return np.zeros(n, dtype=bool)
    return (np.arange(first, first + n) // _STRETCH) % every == every - 1


@dataclass(frozen=True)
class Source:
    """n whitened rows (Z (n, n_units + 1), codes (n,)), in tiles.

    ``batches`` is a list where the rows are kept in memory, else whitens them anew in each pass;
    ``n_threads`` work on tiles.
    """

    batches: Blocks
    n: int
    n_threads: int | None

    @property
    def in_memory(self) -> bool:
        """Whether every pass has the same batches."""
        return isinstance(self.batches, list)

    def each(self, function: Callable[[int, Array, Array], Any], stride: int = 1) -> Iterator[Any]:
        """Results of ``function(index, Z, codes)`` for every tile, in order, on the threads.

        With a ``stride``, for the first of so many tiles.
        """
        index = 0
        for Z, codes in self.batches:
            starts = range(0, len(Z), TILE)
            tiles = [
                (number, Z[s : s + TILE], codes[s : s + TILE])
                for number, s in enumerate(starts, index)
                if number % stride == 0
            ]
            index += len(starts)
            for wave in range(0, len(tiles), _WAVE):
                some = tiles[wave : wave + _WAVE]
                yield from map_tiles(lambda tile: function(*tile), some, self.n_threads)

    def add_up(
        self, function: Callable[[int, Array, Array], Sums], *totals: Floats, stride: int = 1
    ) -> None:
        """Add the arrays that the function returns of each tile to float64 ``totals``, in place."""
        for sums in self.each(function, stride):
            for total, addend in zip(totals, sums, strict=True):
                total += addend


@dataclass(frozen=True)
class PartedSource(Source):
    """n rows of a corpus in parts: ``share(name, function)`` sums what a function makes of each.

    The function is from blocks of (states, codes) to a `Total`.
    """

    whitening: Whitening
    share: Share

    def each(self, function: Callable[[int, Array, Array], Any], stride: int = 1) -> Iterator[Any]:
        """Yield one result, the sum over the tiles of all parts."""
        yield self.share("em", partial(_sum_of_tiles, self.whitening, function, stride)).values


def _sum_of_tiles(
    whitening: Whitening,
    function: Callable[[int, Array, Array], Sums],
    stride: int,
    blocks: Blocks,
) -> Total:
    """Return the sum of results over the tiles of a part, in their order."""
    tiles = Source(_Streamed(blocks, whitening), 0, None).each(function, stride)
    return reduce(add, map(Total, tiles))


@dataclass(frozen=True)
class _Streamed:
    """Blocks of states as whitened batches: the held-out rows of the blocks, or the others."""

    blocks: Blocks
    whitening: Whitening
    every: int = 0
    held_out: bool = False

    def __iter__(self) -> Iterator[Block]:
        first = 0
        for X, codes in self.blocks:
            rows = in_held_out(first, len(X), self.every) == self.held_out
            first += len(X)
            if rows.all():
                yield self.whitening(X), codes
            elif rows.any():
                yield self.whitening(X[rows]), codes[rows]


@dataclass(frozen=True)
class Parts:
    """Rows of a corpus in parts, which others hold: their moments, and sums over the parts."""

    moments: Moments
    share: Share


@dataclass(frozen=True)
class TrainingRows:
    """Rows to fit and to judge by, their whitening, and counts (V,) of the labels."""

    whitening: Whitening
    train: Source
    held_out: Source | None
    counts: Ints64


def prepare(
    blocks: Blocks | Parts,
    held_out: Blocks | None,
    *,
    sizes: tuple[int, int],
    buffer_size: int,
    hold_out_every: int,
    n_threads: int | None,
) -> TrainingRows:
    """Whiten rows (X (n, n_units), codes (n,)) by their moments, and set some apart.

    ``sizes`` are n_units and V. At most ``buffer_size`` rows, and 1 GiB, are kept in memory; more
    are streamed. Where ``held_out`` is None, each ``hold_out_every``-th stretch of rows is held
    out; 0 for none, and none of parts.
    """
    inner: Source | None = None
    if isinstance(blocks, Parts):
        moments = blocks.moments
        whitening = Whitening.from_moments(moments, np.float32)  # as their states are
        train: Source = PartedSource((), moments.n, n_threads, whitening, blocks.share)
    else:
        moments = Moments(*sizes)
        rows, n, dtype = _read(blocks, buffer_size, lambda X: X.copy(), moments.add)
        if not n:
            raise ValueError("blocks hold no rows: give at least one (state, next token) pair")
        whitening = Whitening.from_moments(moments, dtype)
        every = hold_out_every if held_out is None else 0
        out = in_held_out(0, n, every)
        if out.sum() < _FEWEST_HELD_OUT:
            every, out = 0, np.zeros_like(out)
        batches: list[Blocks]
        if rows is None:
            batches = [_Streamed(blocks, whitening, every, side) for side in (False, True)]
        else:
            pairs = [(whitening(X), codes) for X, codes in rows]
            del rows
            Z, codes = (np.concatenate(column) for column in zip(*pairs, strict=True))
            del pairs
            batches = [[(Z[part], codes[part])] for part in (~out, out)]
        train = Source(batches[0], n - int(out.sum()), n_threads)
        if out.any():
            inner = Source(batches[1], int(out.sum()), n_threads)
    if held_out is not None:
        rows, n, _ = _read(held_out, buffer_size, whitening)
        if not n:
            raise ValueError(NO_HELD_OUT)
        inner = Source(rows or _Streamed(held_out, whitening), n, n_threads)
    return TrainingRows(whitening, train, inner, moments.counts)


def _read(
    blocks: Blocks,
    buffer_size: int,
    copy: Callable[[Array], Array],
    add: Callable[[Array, Array], Any] = lambda X, codes: None,
) -> tuple[list[Block] | None, int, Any]:
    """Read all blocks, and ``add`` each: copies of them while they fit, rows, and the dtype."""
    n, dtype = 0, np.dtype(np.float64)
    rows: list[Block] | None = []
    for X, codes in blocks:
        add(X, codes)
        n, dtype = n + len(codes), X.dtype
        most = min(int(buffer_size), rows_within(_KEPT_BYTES, X.shape[1], dtype))
        if rows is not None and n <= most:
            rows.append((copy(X), codes.copy()))
        else:
            rows = None
    return rows, n, dtype
