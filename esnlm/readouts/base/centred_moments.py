"""Additive moments of (state, real target) pairs, from which ridge is solved."""

import warnings
from typing import Self

import numpy as np

from esnlm.utils.arrays import Array, Floats
from esnlm.utils.memory import check_memory
from esnlm.utils.state_dict import Stateful
from esnlm.utils.validation import DivergenceError

TOO_LARGE = (
    "the states are too large for the sum of their squares: scale them, or lower input_scaling"
)
_PIECE = 16384
# Squares of states below ``_TINY`` may vanish. Rounding makes variances of ``_ROUNDING`` times the
# squared mean.
_TINY, _ROUNDING = 1e-15, 1e-6


def check_sizes(variances: Array, means: Array, least: float = 0.0) -> None:
    """Warn where most states (n_units,) vary too little to be learned from.

    ``least`` is the variance that a readout's damping adds: it hides those far below. Squares of
    tiny states vanish.
    """
    varying = variances[variances > _ROUNDING * means**2]
    is_tiny = 0 < np.abs(means).max() < _TINY and variances.max() <= least
    if is_tiny or (varying.size and least > 10 * np.median(varying)):
        warnings.warn(
            "most states are too small to be learned from, by themselves or beside others that are"
            " far larger: scale them, as sklearn.preprocessing.StandardScaler does",
            stacklevel=2,
        )


class CentredMoments(Stateful):
    """Means and centred products of states X (n, n_units) and real targets Y (n, n_outputs).

    All are float64. Rows are merged by the means of their pieces (Chan, Golub & LeVeque 1983):
    a large mean costs no digits, and the cut of rows into calls changes rounding alone. The names
    are those that `Moments` has of one-hot targets.

    >>> X, Y = np.array([[1.0], [2.0], [6.0]]), np.array([[0.0], [1.0], [5.0]])
    >>> moments = CentredMoments(1, 1).add(X[:2], Y[:2]).add(X[2:], Y[2:])
    >>> moments.mean, moments.centred_gram(), moments.centred_sums(), moments.variation
    (array([3.]), array([[14.]]), array([[14.]]), 14.0)
    """

    def __init__(self, n_units: int, n_outputs: int) -> None:
        """Set all moments to zero, after a check that they fit in memory."""
        size = n_units + n_outputs
        check_memory(
            f"moments of {n_units} units and {n_outputs} outputs", 16 * size**2, "lower one"
        )
        self.n_units, self.n_outputs, self.n = n_units, n_outputs, 0
        self._mean, self._products = np.zeros(size), np.zeros((size, size))

    def add(self, X: Array, Y: Array) -> Self:
        """Absorb states X (n, n_units) and their targets Y (n, n_outputs); returns self."""
        for start in range(0, len(X), _PIECE):
            part = slice(start, start + _PIECE)
            rows = np.concatenate([X[part], Y[part]], axis=1, dtype=np.float64)
            mean = rows.mean(axis=0)
            rows -= mean
            shift, total = mean - self._mean, self.n + len(rows)
            with np.errstate(over="ignore", invalid="ignore"):  # `centred_gram` says so
                self._products += rows.T @ rows
                self._products += np.outer(shift, shift * (self.n * len(rows) / total))
            self._mean += shift * (len(rows) / total)
            self.n = total
        return self

    @property
    def mean(self) -> Floats:
        """Mean state (n_units,)."""
        return self._mean[: self.n_units]

    @property
    def target_mean(self) -> Floats:
        """Mean target (n_outputs,)."""
        return self._mean[self.n_units :]

    @property
    def variation(self) -> float:
        """Sum of squares of the centred targets."""
        return float(np.trace(self._products[self.n_units :, self.n_units :]))

    def centred_gram(self) -> Floats:
        """(X - mean)ᵀ(X - mean) (n_units, n_units), a copy.

        Raise DivergenceError where states are too large for their squares.
        """
        gram = self._products[: self.n_units, : self.n_units].copy()
        if not np.isfinite(np.trace(gram)):
            raise DivergenceError(TOO_LARGE)
        return gram

    def centred_sums(self) -> Floats:
        """(Y - mean)ᵀ(X - mean) (n_outputs, n_units)."""
        return self._products[self.n_units :, : self.n_units]
