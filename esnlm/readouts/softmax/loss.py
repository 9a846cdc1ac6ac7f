"""Penalised multinomial likelihood: value, gradient and Hessian product.

Parameters are ``theta`` (n_units + 1, V) float64: a weight column for each class over an
intercept row, in centred coordinates, ``logits = (x - centre) @ theta[:-1] + theta[-1]``. The
objective is the mean over n rows, ``sum_i nll_i / n + penalty / (2 n) |theta[:-1]|²``;
scikit-learn's LogisticRegression with ``C = 1 / penalty`` has the same minimum (with two classes,
where it fits one column for both, ``C = 2 / penalty``).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.kernels.multinomial import (
    add_class_variances,
    curvature_rows,
    normalise_rows,
    shift_rows,
    subtract_targets,
)
from esnlm.readouts.base.blocks import Blocks, rows_within

Float = NDArray[np.float64]

_LOGIT_BYTES = 1 << 22
# Matrix products are a quarter faster where the columns fill vectors.
_COLUMNS = 8
_NEVER = -1e4


def softmax(Z: NDArray[Any]) -> NDArray[Any]:
    """Logits Z (n, V) -> probabilities, in place; returns Z."""
    shift_rows(Z)
    np.exp(Z, out=Z)
    normalise_rows(Z, np.empty(len(Z), dtype=Z.dtype))
    return Z


def log_softmax(Z: NDArray[Any]) -> NDArray[Any]:
    """Logits Z (n, V) -> natural log-probabilities, in place; returns Z."""
    Z -= Z.max(axis=1, keepdims=True)
    Z -= np.log(np.exp(Z).sum(axis=1, keepdims=True))
    return Z


def logits(X: NDArray[Any], weights: NDArray[Any], intercept: NDArray[Any]) -> NDArray[Any]:
    """X (n, n_units) @ weights (n_units, V) + intercept (V,), in X's dtype."""
    Z = X @ weights.astype(X.dtype, copy=False)
    Z += intercept.astype(X.dtype, copy=False)
    return Z


def log_likelihood(
    X: NDArray[Any], codes: NDArray[np.intp], weights: NDArray[Any], intercept: NDArray[Any]
) -> float:
    """Sum of the log-probabilities (nats) of columns codes (n,) after states X (n, n_units).

    Logits of a bounded part of the rows are in memory at a time.
    """
    total = 0.0
    rows = rows_within(_LOGIT_BYTES, len(intercept), X.dtype)
    for start in range(0, len(X), rows):
        log_p = log_softmax(logits(X[start : start + rows], weights, intercept))
        chosen = log_p[np.arange(len(log_p)), codes[start : start + rows]]
        total += float(chosen.sum(dtype=np.float64))
    return total


def residuals(
    Z: NDArray[Any], targets: NDArray[Any], weights: NDArray[Any] | None = None
) -> tuple[float, NDArray[Any], NDArray[Any]]:
    """Negative log-likelihood of logits Z (n, V), and what its derivatives need.

    Returns the summed loss, probabilities P (n, V) in Z's memory, and the residuals ``P - t``
    (n, V) for targets t given as columns (n,).
    """
    shift_rows(Z)
    sums = np.empty(len(Z), dtype=Z.dtype)
    chosen = np.maximum(Z[np.arange(len(Z)), targets], _NEVER)
    np.exp(Z, out=Z)
    normalise_rows(Z, sums)
    losses = np.log(sums) - chosen
    R = Z.copy()
    ones = np.ones(len(Z), dtype=Z.dtype)
    subtract_targets(R, targets, ones)
    return float(np.dot(losses.astype(np.float64), ones)), Z, R


class MultinomialLoss:
    """Penalised mean negative log-likelihood of softmax regression over blocks of rows.

    Parameters
    ----------
    blocks : re-iterable of (X (n, n_units), codes (n,))
        Each pass must give the same rows.
    n_units, n_classes : int
    penalty : float
        Of half the squared weights, on the scale of the summed loss.
    centre : ndarray (n_units,)
        Subtracted from states; the minimum does not depend on it, the conditioning does.
    stride : int
        Hessian products come from every stride-th row, which is kept with its probabilities.
    lasting : bool
        Whether blocks stay as they are between passes; rows of others are copied to be kept.
    fixed : ndarray (V,) bool, optional
        Classes whose column keeps its initial value.
    """

    def __init__(
        self,
        blocks: Blocks,
        n_units: int,
        n_classes: int,
        penalty: float,
        centre: Float | None = None,
        stride: int = 1,
        lasting: bool = True,
        fixed: NDArray[np.bool_] | None = None,
    ) -> None:
        self.blocks = blocks
        self.penalty = penalty
        self.centre = np.zeros(n_units) if centre is None else centre
        self.n_classes = n_classes
        self.stride = stride
        self.lasting = lasting
        self.fixed = fixed
        self.curvature = np.full(n_classes, 1 / n_classes)
        self.n_rows = 0
        self._sample: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def evaluate(self, theta: Float) -> tuple[float, Float]:
        """Objective and gradient (n_units + 1, V); Hessian products refer to this theta after."""
        W, intercept = theta[:-1], theta[-1] - self.centre @ theta[:-1]
        W, intercept = _padded(W, 0.0), _padded(intercept, 2 * _NEVER)
        gradient = np.zeros((len(theta), len(intercept)))
        variance = np.zeros(len(intercept))
        loss, self.n_rows, self._sample = 0.0, 0, []
        for X, targets in self._pieces():
            part, P, R = residuals(logits(X, W, intercept), targets)
            loss += part
            gradient[:-1] += (R.T @ X).T
            gradient[-1] += R.sum(axis=0, dtype=np.float64)
            add_class_variances(variance, P, np.ones(len(X), dtype=X.dtype))
            self.n_rows += len(X)
            self._keep(X, P)
        self.curvature = variance[: self.n_classes] / self.n_rows
        W, gradient = theta[:-1], gradient[:, : self.n_classes]
        gradient[:-1] -= np.outer(self.centre, gradient[-1])
        gradient[:-1] += self.penalty * W
        value = (loss + 0.5 * self.penalty * float(np.sum(W * W))) / self.n_rows
        return value, self._free(gradient / self.n_rows)

    def hessian_product(self, direction: Float) -> Float:
        """Hessian at the last evaluated theta times direction (n_units + 1, V).

        Of a sample of rows when ``stride`` > 1; exact otherwise.
        """
        D, offset = direction[:-1], direction[-1] - self.centre @ direction[:-1]
        padded, offset = _padded(D, 0.0), _padded(offset, 0.0)
        product = np.zeros((len(direction), len(offset)))
        for X, P in self._sample:
            U = logits(X, padded, offset)
            curvature_rows(P, np.ones(len(X), dtype=X.dtype), U)
            product[:-1] += (U.T @ X).T
            product[-1] += U.sum(axis=0, dtype=np.float64)
        product = product[:, : self.n_classes]
        product[:-1] -= np.outer(self.centre, product[-1])
        product /= sum(len(X) for X, _ in self._sample)
        product[:-1] += self.penalty / self.n_rows * D
        return self._free(product)

    def _keep(self, X: NDArray[Any], P: NDArray[Any]) -> None:
        """Keep every stride-th row for Hessian products: views of all rows where they last."""
        if self.stride > 1:
            X, P = X[:: self.stride].copy(), P[:: self.stride].copy()
        elif not self.lasting:
            X = X.copy()
        self._sample.append((X, P))

    def _pieces(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Blocks cut so that the logits of a piece stay in cache."""
        for X, targets in self.blocks:
            rows = rows_within(_LOGIT_BYTES, self.n_classes, X.dtype)
            for start in range(0, len(X), rows):
                yield X[start : start + rows], targets[start : start + rows]

    def _free(self, gradient: Float) -> Float:
        if self.fixed is not None:
            gradient[:, self.fixed] = 0.0
        return gradient


def _padded(columns: NDArray[Any], value: float) -> NDArray[Any]:
    """Columns of a value after the last axis of ``columns``, to a multiple of ``_COLUMNS``."""
    missing = -columns.shape[-1] % _COLUMNS
    if not missing:
        return columns
    shape = (*columns.shape[:-1], missing)
    return np.concatenate([columns, np.full(shape, value, dtype=columns.dtype)], axis=-1)
