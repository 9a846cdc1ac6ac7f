"""Ridge regression of every penalty from one eigendecomposition, and its cross-validation error."""

import math

import numpy as np
from scipy import linalg

from esnlm.readouts.base.centred_moments import CentredMoments, check_sizes
from esnlm.readouts.base.moments import Moments
from esnlm.utils.arrays import Floats

#: Penalties of a path, as shares of the largest eigenvalue.
PATH = np.logspace(-9, 0, 28)
# Penalties that are no smaller than so many times what rounding moves eigenvalues by.
_TRUSTED = 4.0
# Eigenvalues below it count as zero: the square of their inverse would overflow.
_LEAST_VALUE = 1e-130


class Spectrum:
    """Eigendecomposition of the centred Gram matrix, and the statistics of every penalty."""

    def __init__(self, moments: Moments | CentredMoments) -> None:
        """Decompose the centred Gram matrix, and rotate the centred sums to its eigenvectors."""
        self.n = moments.n
        self.mean = moments.mean
        self.target_mean = moments.target_mean
        gram = moments.centred_gram()
        self._variances = gram.diagonal() / self.n
        self.values, self.vectors = linalg.eigh(
            gram, overwrite_a=True, check_finite=False, driver="evd"
        )
        self.rounding = max(-float(self.values[0]), 0.0)
        if self.rounding > self.values[-1]:  # squares of tiny states are zero
            self.values[:] = 0.0
        np.maximum(self.values, 0.0, out=self.values)
        self.rotated_sums = self.vectors.T @ moments.centred_sums().T
        self.power = np.einsum("jv,jv->j", self.rotated_sums, self.rotated_sums)
        self.variation = moments.variation

    def coefficients(self, alpha: float) -> Floats:
        """Coefficients (V, n_units) of one penalty."""
        shrunk = inverse_of(self.values + alpha)[:, None] * self.rotated_sums
        return np.ascontiguousarray((self.vectors @ shrunk).T)

    def penalties(self) -> Floats:
        """Return the penalties of ``PATH`` that are not lost in rounding, rising."""
        check_sizes(self._variances, self.mean, PATH[0] * self.values[-1] / self.n)
        return penalty_path(PATH, self.values[-1], self.rounding)

    def gcv_errors(self, alphas: Floats) -> Floats:
        """Return the generalised cross-validation error of each penalty (n_alphas,)."""
        values, power, variation = self.values, self.power, self.variation
        return np.array([gcv_error(a, values, power, variation, self.n) for a in alphas])


def ridge_coefficients(moments: Moments | CentredMoments, alpha: float) -> Floats:
    """Coefficients (V, n_units) by Cholesky, or by the spectrum where the matrix is singular."""
    gram = moments.centred_gram()
    check_sizes(gram.diagonal(), moments.mean)
    gram.flat[:: moments.n_units + 1] += alpha
    sizes = gram.diagonal().copy()
    try:
        factor = linalg.cho_factor(gram, overwrite_a=True, check_finite=False)
        # Each unit beside its own size: units of small numbers are no combinations of others.
        if alpha == 0 and (np.diag(factor[0]) ** 2 < 1e-12 * sizes).any():
            raise linalg.LinAlgError
    except linalg.LinAlgError:
        return Spectrum(moments).coefficients(alpha)
    solved = linalg.cho_solve(factor, moments.centred_sums().T, check_finite=False)
    return np.ascontiguousarray(solved.T)


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
