"""Canonical correlation analysis of states and next words, from moments."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import linalg
from sklearn.utils.extmath import randomized_svd

from esnlm.readouts.base.centred_moments import check_sizes
from esnlm.readouts.base.moments import Moments
from esnlm.utils.arrays import Array, Floats, Floats32, Ints
from esnlm.utils.threads import map_tiles, one_blas_thread

# Of the variance of all units together, added to every direction's. Sums are over more rows than
# the matrix of products: directions that vary little in its rows seem to tell more than they can.
_DAMPING = 2.5e-6
# A word of n rows weighs as much as n - 3 would: it takes some rows to know its mean state.
_COUNT_OFFSET = 3.0
_WORDS_AT_ONCE = 4096
# With more units than this, and this many for each direction, directions are approximated.
_EXACT, _MANY = 4096, 16
# Rows that one thread works on at a time: a block of 16 384 units has 512. Products of fewer
# operations are not worth threads.
_TILE = 512
_WORTH_THREADS = 1 << 24


def canonical_directions(moments: Moments, n_components: int) -> tuple[Floats32, Floats]:
    """Directions (n_units, P) along which states tell the next words apart best, and how well."""
    n_units = moments.n_units

    def root_of(covariance: Floats) -> Floats:
        return linalg.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)

    def damping(variance: float, rounding: float) -> float:
        return max(_DAMPING * variance, rounding, 1e-60 if variance else 1e-12)

    root = damped(moments, damping, root_of)
    root32 = root.astype(np.float32)
    between = np.zeros((n_units, n_units))
    for words, offsets in _offsets(moments):
        counts = moments.counts[words]
        offsets *= (1 / np.sqrt(moments.n * (counts + _COUNT_OFFSET)))[:, None]
        columns = linalg.solve_triangular(
            root32, offsets.T.astype(np.float32), lower=True, overwrite_b=True, check_finite=False
        )
        between += columns @ columns.T
    values, axes = _leading(between, min(n_components, n_units))
    directions = linalg.solve_triangular(root, axes, trans="T", lower=True, check_finite=False)
    # Eigenvectors come with either sign.
    directions *= np.where(
        directions[np.abs(directions).argmax(axis=0), range(len(axes.T))] < 0, -1, 1
    )
    correlations = np.sqrt(np.clip(values, 0, 1))
    return np.ascontiguousarray(directions, dtype=np.float32), correlations


def damped(
    moments: Moments, damping: Callable[[float, float], float], solve: Callable[[Floats], Any]
) -> Any:
    """Return ``solve`` of the states' covariance (n_units, n_units), made positive definite.

    ``damping(variance, rounding)`` is added to its diagonal, and ten times as much where that is
    too little: states that hardly vary hold little but rounding.
    """
    covariance = moments.centred_gram() / max(moments.n, 1)
    more = damping(float(np.trace(covariance)), moments.rounding)
    check_sizes(covariance.diagonal(), moments.mean, damping(float(np.trace(covariance)), 0.0))
    while True:
        covariance.flat[:: moments.n_units + 1] += more
        try:
            return solve(covariance)
        except linalg.LinAlgError:
            covariance, more = moments.centred_gram() / moments.n, 10 * more


def _leading(matrix: Array, n: int) -> tuple[Floats, Floats]:
    """Return the n largest eigenvalues (n,), falling, of a symmetric matrix; vectors as columns.

    Few of many by randomised subspace iteration (Halko, Martinsson & Tropp 2011).
    """
    size = len(matrix)
    if size <= _EXACT or size < _MANY * n:
        values, axes = linalg.eigh(
            matrix, subset_by_index=[size - n, size - 1], overwrite_a=True, check_finite=False
        )
        return values[::-1], np.ascontiguousarray(axes[:, ::-1])
    axes, values, _ = randomized_svd(
        matrix.astype(np.float32),
        n,
        n_oversamples=n,
        n_iter=8,
        power_iteration_normalizer="QR",
        random_state=0,
    )
    return values.astype(np.float64), np.ascontiguousarray(axes, dtype=np.float64)


def canonical_variables(X: Array, directions: Array, shift: Array) -> Array:
    """Components (n, P) of states X (n, n_units) along directions, less shift (P,); X's dtype.

    By tiles of rows: BLAS's own threads wait for each other, and are several times slower than
    one where something else runs on a core.
    """
    along, less = directions.astype(X.dtype, copy=False), shift.astype(X.dtype, copy=False)
    Z = np.empty((len(X), along.shape[1]), dtype=X.dtype)

    def tile(start: int) -> None:
        part = slice(start, start + _TILE)
        np.matmul(X[part], along, out=Z[part])
        Z[part] -= less

    tiles = range(0, len(X), _TILE)
    if len(X) * along.size < _WORTH_THREADS:
        for start in tiles:
            tile(start)
        return Z
    with one_blas_thread():
        map_tiles(tile, tiles)
    return Z


def word_vectors(moments: Moments, directions: Floats32, prior_rows: float = 5.0) -> Floats32:
    """Mean state before each word along ``directions`` (n_units, P): (V, P), shrunken to zero.

    A mean of n rows counts n / (n + prior_rows); words without rows have zeros.
    """
    vectors = np.zeros((moments.n_classes, directions.shape[1]), dtype=np.float32)
    for words, offsets in _offsets(moments):
        weights = 1 / (moments.counts[words] + prior_rows)
        vectors[words] = (offsets * weights[:, None]).astype(np.float32) @ directions
    return vectors


def _offsets(moments: Moments) -> Iterator[tuple[Ints, Floats]]:
    """Words that occurred, some at a time, and the sums (n, n_units) of their centred states."""
    mean = moments.mean
    vocabulary = np.flatnonzero(moments.counts)
    for start in range(0, len(vocabulary), _WORDS_AT_ONCE):
        words = vocabulary[start : start + _WORDS_AT_ONCE]
        yield words, moments.sums[words] - np.outer(moments.counts[words], mean)
