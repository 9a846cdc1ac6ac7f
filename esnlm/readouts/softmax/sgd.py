"""Stochastic gradient for softmax regression, preconditioned by the Gram matrix of the states."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.readout import Blocks, rows_within
from esnlm.readouts.softmax.loss import residuals

_LOGIT_BYTES = 1 << 24
_GRAM_DAMPING = 1e-3
_CURVATURE_MEMORY = 0.05
_LEAST_CURVATURE = 1e-6
_WARM_UP = 20
# Rates grow with the batch until the longest step, not the noise, is the limit.
_MOST_BATCHES = 1.0


class IncrementalSolver:
    """Mini-batch minimiser of the penalised likelihood of softmax regression.

    A step on a batch with gradient G (n_units, V) in centred coordinates is
    ``rate * (S + d I)⁻¹ G / sqrt(c)`` with heavy-ball momentum: S the covariance of the states
    (of a sample), d a thousandth of its mean eigenvalue and the ``ridge`` in units of S, c (V,)
    the running mean of p (1 - p).
    The root gives the noise of every class the same size in its logits, ``rate² n_units /
    batch``, whatever its frequency; that is why rates are stated for ``batch = n_units``.

    Parameters
    ----------
    moments : Moments
        Of a sample of rows: the preconditioner and the centre.
    frequencies : ndarray (V,)
        Relative frequencies of the classes, all positive: the first intercepts.
    momentum : float
    weights, intercept : ndarray (n_units, V), (V,), optional
        Where to start; zero weights when left out.
    ridge : float
        The penalty divided by the rows it is spread over.
    """

    def __init__(
        self,
        moments: Moments,
        frequencies: NDArray[Any],
        momentum: float = 0.9,
        weights: NDArray[Any] | None = None,
        intercept: NDArray[Any] | None = None,
        ridge: float = 0.0,
    ) -> None:
        n_units, n_classes = moments.n_units, len(frequencies)
        self.batch = batch_rows(n_units)
        self.momentum = momentum
        self.n_steps = 0
        self.centre = moments.mean.astype(np.float32)
        self.variances = frequencies * (1 - frequencies)
        self.inverse = _damped_inverse(moments, ridge / float(self.variances.mean() + 1e-12))
        self.weights: NDArray[Any] = np.zeros((n_units, n_classes), dtype=np.float32)
        self.offset: NDArray[Any] = np.log(frequencies).astype(np.float32)
        if weights is not None and intercept is not None:
            self.weights[...] = weights
            self.offset[...] = intercept + self.centre @ self.weights
        self._velocity = np.zeros_like(self.weights)
        self._offset_velocity = np.zeros_like(self.offset)

    @property
    def intercept(self) -> NDArray[np.float64]:
        """Intercept (V,) for states that are not centred."""
        centred = self.offset.astype(np.float64)
        return centred - self.centre.astype(np.float64) @ self.weights.astype(np.float64)

    def learn(self, X: NDArray[Any], codes: NDArray[np.intp], rate: float, ridge: float) -> None:
        """Mini-batch steps over a block X (n, n_units), codes (n,): rows j, j + m, j + 2m ..."""
        n_batches = max(1, round(len(X) / self.batch))
        for j in range(n_batches):
            self.step(X[j::n_batches], codes[j::n_batches], rate, ridge)

    def step(self, X: NDArray[Any], codes: NDArray[np.intp], rate: float, ridge: float) -> None:
        """One step on a batch; ``ridge`` is the penalty divided by the rows it is spread over."""
        gradient, offset_gradient, variances = self._gradient(X, codes)
        gradient += np.float32(ridge) * self.weights
        memory = max(_CURVATURE_MEMORY, 1 / (self.n_steps + 2))
        self.variances += memory * (variances - self.variances)
        size = (
            rate * min(_MOST_BATCHES, len(X) / X.shape[1]) * min(1, (self.n_steps + 1) / _WARM_UP)
        )
        scale = size / np.sqrt(self.variances + _LEAST_CURVATURE)
        scale32 = scale.astype(np.float32)
        move = self.inverse @ gradient
        move *= scale32
        self._velocity *= np.float32(self.momentum)
        self._velocity -= move
        self._offset_velocity *= np.float32(self.momentum)
        self._offset_velocity -= offset_gradient * scale32
        self.weights += self._velocity
        self.offset += self._offset_velocity
        self.n_steps += 1

    def _gradient(
        self, X: NDArray[Any], codes: NDArray[np.intp]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
        """Mean gradient of weights and intercept in centred coordinates, and of p (1 - p)."""
        n_classes = len(self.offset)
        gradient = np.zeros_like(self.weights)
        offset_gradient = np.zeros(n_classes, dtype=np.float32)
        squares = np.zeros(n_classes)
        mean = np.zeros(n_classes)
        shift = self.offset - self.centre @ self.weights
        rows = rows_within(_LOGIT_BYTES, n_classes, np.float32)
        for start in range(0, len(X), rows):
            x = np.asarray(X[start : start + rows], dtype=np.float32)
            Z = x @ self.weights
            Z += shift
            c = codes[start : start + rows]
            _, P, R = residuals(Z, c, np.ones(len(c), dtype=np.float32))
            gradient += (R.T @ x).T
            offset_gradient += R.sum(axis=0)
            mean += P.sum(axis=0)
            squares += np.einsum("iv,iv->v", P, P)
        offset_gradient /= len(X)
        gradient /= len(X)
        gradient -= np.outer(self.centre, offset_gradient)
        return gradient, offset_gradient, (mean - squares) / len(X)


def batch_rows(n_units: int) -> int:
    """Rows of a mini-batch: about n_units, so that preconditioning costs less than the rows."""
    return int(np.clip(n_units, 128, 4096))


def sample_moments(blocks: Blocks, n_units: int, n_classes: int, rows: int) -> Moments:
    """Moments of the first blocks, until they hold ``rows`` rows."""
    moments = Moments(n_units, n_classes)
    for X, codes in blocks:
        moments.add(X, codes)
        if moments.n >= rows:
            break
    return moments


def _damped_inverse(moments: Moments, ridge: float) -> NDArray[np.float32]:
    """(S + (d + ridge) I)⁻¹ (n_units, n_units) of the states' covariance S."""
    gram = moments.centred_gram()
    gram /= max(moments.n, 1)
    n_units = len(gram)
    scale = float(np.trace(gram)) / n_units
    gram.flat[:: n_units + 1] += max(_GRAM_DAMPING * scale, 1e-12) + ridge
    return np.linalg.inv(gram).astype(np.float32)
