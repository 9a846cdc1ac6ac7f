"""Ridge regression of every penalty from one eigendecomposition, and its cross-validation error."""

import math

import numpy as np
from scipy import linalg

from esnlm.readouts.base.moments import Moments
from esnlm.utils.arrays import Floats

# Penalties that are no smaller than so many times what rounding moves eigenvalues by.
_TRUSTED = 4.0
# Eigenvalues below it count as zero: the square of their inverse would overflow.
_LEAST_VALUE = 1e-130


class Spectrum:
    """Eigendecomposition of the centred Gram matrix, and the statistics of every penalty."""

    def __init__(self, moments: Moments) -> None:
        """Decompose the centred Gram matrix, and rotate the centred sums to its eigenvectors."""
        self.n = moments.n
        self.mean = moments.mean
        self.frequencies = moments.counts / moments.n
        self.values, self.vectors = linalg.eigh(
            moments.centred_gram(), overwrite_a=True, check_finite=False, driver="evd"
        )
        self.rounding = max(-float(self.values[0]), 0.0)
        np.maximum(self.values, 0.0, out=self.values)
        self.rotated_sums = self.vectors.T @ moments.centred_sums().T
        self.power = np.einsum("jv,jv->j", self.rotated_sums, self.rotated_sums)
        # tr(YᵀY) of one-hot targets is n; centring takes n_v² / n off for each class.
        self.variation = moments.n - float(np.sum(moments.counts**2.0)) / moments.n

    def coefficients(self, alpha: float) -> Floats:
        """Coefficients (V, n_units) of one penalty."""
        shrunk = inverse_of(self.values + alpha)[:, None] * self.rotated_sums
        return np.ascontiguousarray((self.vectors @ shrunk).T)


def inverse_of(values: Floats) -> Floats:
    """1 / value of eigenvalues, zero for those that are zero but for rounding."""
    least = np.finfo(np.float64).eps * max(float(values.max()), _LEAST_VALUE) * len(values)
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > least)


def penalty_path(shares: Floats, largest: float, rounding: float) -> Floats:
    """Penalties of which one is chosen: rising shares of a Gram matrix's largest eigenvalue.

    ``rounding`` is how far below zero an eigenvalue lies, which but for rounding none does. Along
    directions that the states hardly take, eigenvalues are no more exact than that, so a smaller
    penalty fits what rounding made of them, at a cross-validation error that looks small.
    """
    alphas = shares * max(largest, np.finfo(np.float64).tiny)
    return alphas[alphas >= min(_TRUSTED * rounding, alphas[-1])]


def gcv_error(
    alpha: float, values: Floats, power: Floats, variation: float, n: int, n_intercepts: int = 1
) -> float:
    """Generalised cross-validation error of ridge, n RSS / (n - df)² (Golub, Heath & Wahba 1979).

    ``values`` are the eigenvalues of the centred Gram matrix, of several regressions those of each
    (n_intercepts, n_units); ``power`` the squared norms, over targets, of the cross moments along
    the eigenvectors; ``variation`` is the sum of squares of the centred targets.
    """
    inverse = inverse_of(values + alpha)
    explained = float((power * (2 * inverse - values * inverse**2)).sum())
    freedom = n - n_intercepts - float((values * inverse).sum())
    if freedom < 1e-6 * n:
        return math.inf
    return n * max(variation - explained, 0.0) / freedom**2
