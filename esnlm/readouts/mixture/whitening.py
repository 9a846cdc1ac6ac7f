"""Rows for expectation-maximisation: whitened tiles, kept in memory or streamed again each pass."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.readout import Block, Blocks
from esnlm.utils.threads import TileMap

Result = TypeVar("Result")

# Rows of a tile: its posteriors (n_experts * n_classes, rows) should stay in the second cache.
TILE = 1024
# Tiles whose results are held at once before they are summed.
_WAVE = 16
# Consecutive rows, some ten sentences, that go to training or to the held-out part together.
_STRETCH = 64
# Directions whose variance is below this share of the mean one are not blown up to unit variance.
_VARIANCE_FLOOR = 1e-4


@dataclass(frozen=True)
class Whitening:
    """Affine map of states to coordinates of mean zero and (nearly) unit covariance.

    mean (n_units,) and map (n_units, n_units), both in the dtype of the states.
    """

    mean: NDArray[Any]
    map: NDArray[Any]

    @classmethod
    def from_moments(cls, moments: Moments, dtype: Any) -> "Whitening":
        """``(x - mean) @ map`` with map = U diag(v + floor)^(-1/2), v U = eigh(covariance)."""
        covariance = moments.centred_gram() / max(moments.n, 1)
        variances, directions = eigh(covariance)
        variances = np.maximum(variances, 0.0)
        floor = _VARIANCE_FLOOR * variances.mean() or 1.0
        scaled = directions / np.sqrt(variances + floor)
        return cls(moments.mean.astype(dtype), np.ascontiguousarray(scaled, dtype=dtype))

    @property
    def shares(self) -> NDArray[np.float64]:
        """Variance of the states along each coordinate, relative to the mean one: (n_units,)."""
        variances = 1.0 / np.sum(np.square(self.map, dtype=np.float64), axis=0)
        return variances / variances.mean()

    def draw(self, rng: np.random.RandomState, n_rows: int) -> NDArray[np.float64]:
        """Standard normal weights (n_rows, n_units) on whitened coordinates.

        They are drawn along the units and turned, so that they do not depend on the signs and
        the order in which the decomposition happened to give the directions.
        """
        directions = self.map / np.sqrt(np.sum(np.square(self.map, dtype=np.float64), axis=0))
        return rng.standard_normal((n_rows, len(self.mean))) @ directions

    def __call__(self, X: NDArray[Any]) -> NDArray[Any]:
        """States X (n, n_units) -> (n, n_units + 1) C-ordered, last column one."""
        Z = np.empty((len(X), X.shape[1] + 1), dtype=self.map.dtype)
        np.matmul(X - self.mean, self.map, out=Z[:, :-1])
        Z[:, -1] = 1.0
        return Z


def in_held_out(first: int, n: int, every: int) -> NDArray[np.bool_]:
    """Which of rows first ... first + n - 1 are held out: each ``every``-th stretch of 64 rows.

    With ``every`` 0 no row is.

    Examples
    --------
    >>> in_held_out(126, 4, every=2).tolist()
    [True, True, False, False]
    """
    if every == 0:
        return np.zeros(n, dtype=bool)
    return (np.arange(first, first + n) // _STRETCH) % every == every - 1


class Source:
    """Whitened rows (Z, codes) of one part of the training blocks, tile by tile.

    Parameters
    ----------
    batches : callable that starts a pass over (Z (n, n_units + 1), codes (n,)) batches
    n : int
        Rows of one pass.
    over : TileMap
        Maps a function over tiles, in order.
    in_memory : bool
        Whether batches stay what and where they are from one pass to the next.
    """

    def __init__(
        self, batches: Callable[[], Iterator[Block]], n: int, over: TileMap, in_memory: bool
    ) -> None:
        self._batches = batches
        self.n = n
        self.over = over
        self.in_memory = in_memory

    def each(self, function: Callable[[int, NDArray[Any], NDArray[Any]], Result]) -> Iterator[Any]:
        """Results of ``function(index, Z, codes)`` for every tile, in order, on the threads."""
        index = 0
        for Z, codes in self._batches():
            starts = range(0, len(Z), TILE)
            tiles = [
                (index + i, Z[s : s + TILE], codes[s : s + TILE]) for i, s in enumerate(starts)
            ]
            index += len(tiles)
            for wave in range(0, len(tiles), _WAVE):
                yield from self.over(lambda tile: function(*tile), tiles[wave : wave + _WAVE])


@dataclass(frozen=True)
class TrainingRows:
    """What one fit runs on: the whitening, both parts, and counts of the labels."""

    whitening: Whitening
    train: Source
    held_out: Source | None
    counts: NDArray[np.int64]


def prepare(
    blocks: Blocks,
    held_out: Blocks | None,
    *,
    n_classes: int,
    capacity: Callable[[int, Any], int],
    hold_out_every: int,
    over: TileMap,
) -> TrainingRows:
    """One pass for moments and labels, then sources that whiten rows.

    Parameters
    ----------
    blocks, held_out : re-iterables of (X (n, n_units), codes (n,))
    capacity : (n_units, dtype) -> rows that may be kept in memory
    hold_out_every : int
        Where ``held_out`` is None: one of so many stretches of rows is held out; 0 for none.
    """
    kept, moments, dtype = _first_pass(blocks, n_classes, capacity)
    whitening = Whitening.from_moments(moments, dtype)
    every = hold_out_every if held_out is None else 0
    n_held = int(in_held_out(0, moments.n, every).sum())
    if kept is not None:
        rows = [(whitening(X), codes) for X, codes in kept]
        del kept
        Z = np.concatenate([block for block, _ in rows])
        codes = np.concatenate([codes for _, codes in rows])
        del rows
        out = in_held_out(0, len(Z), every)
        train = _kept_source(Z[~out], codes[~out], over)
        inner = _kept_source(Z[out], codes[out], over)
    else:
        train = Source(
            lambda: _part(blocks, whitening, every, False), moments.n - n_held, over, False
        )
        inner = Source(lambda: _part(blocks, whitening, every, True), n_held, over, False)
    if held_out is not None:
        n_held, inner = _held_out_source(
            held_out, whitening, capacity(len(whitening.mean), dtype), over
        )
    return TrainingRows(whitening, train, inner if n_held else None, moments.counts)


def _first_pass(
    blocks: Blocks, n_classes: int, capacity: Callable[[int, Any], int]
) -> tuple[list[Block] | None, Moments, Any]:
    """Moments of every row, and the rows themselves while they fit."""
    kept: list[Block] | None = []
    moments: Moments | None = None
    dtype: Any = np.float64
    for X, codes in blocks:
        if moments is None:
            moments, dtype = Moments(X.shape[1], n_classes), X.dtype
        moments.add(X, codes)
        if kept is not None and moments.n <= capacity(X.shape[1], dtype):
            kept.append((X.copy(), codes.copy()))
        else:
            kept = None
    if moments is None:
        raise ValueError("blocks hold no rows: give at least one (state, next token) pair")
    return kept, moments, dtype


def _held_out_source(
    blocks: Blocks, whitening: Whitening, capacity: int, over: TileMap
) -> tuple[int, Source]:
    """Held-out rows and their number: whitened once where they fit, else in every pass."""
    n = 0
    kept: list[Block] | None = []
    for X, codes in blocks:
        n += len(codes)
        if kept is not None and n <= capacity:
            kept.append((whitening(X), codes.copy()))
        else:
            kept = None
    if kept:
        rows = kept
        return n, Source(lambda: iter(rows), n, over, True)
    return n, Source(lambda: _part(blocks, whitening, 0, False), n, over, False)


def _kept_source(Z: NDArray[Any], codes: NDArray[Any], over: TileMap) -> Source:
    return Source(lambda: iter([(Z, codes)]), len(Z), over, True)


def _part(blocks: Blocks, whitening: Whitening, every: int, held: bool) -> Iterator[Block]:
    """Whitened rows of the held-out part, or of the rest."""
    first = 0
    for X, codes in blocks:
        chosen = in_held_out(first, len(X), every) == held
        first += len(X)
        if chosen.all():
            yield whitening(X), codes
        elif chosen.any():
            yield whitening(X[chosen]), codes[chosen]
