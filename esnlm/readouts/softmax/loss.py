"""Penalised multinomial likelihood: value, gradient and Hessian product.

Parameters are ``theta`` (n_units + 1, V) float64: a weight column for each class over an
intercept row, in centred coordinates, ``logits = (x - centre) @ theta[:-1] + theta[-1]``. The
objective is the mean over n rows, ``sum_i nll_i / n + penalty / (2 n) |theta[:-1]|²``;
scikit-learn's LogisticRegression with ``C = 1 / penalty`` has the same minimum (with two classes,
where it fits one column for both, ``C = 2 / penalty``).
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import logsumexp

from esnlm.kernels import rows as kernels
from esnlm.readouts.base.blocks import NO_HELD_OUT, Blocks, rows_within
from esnlm.utils.arrays import Array, Bools, Floats

# Logits of a part of the rows stay in cache.
_LOGIT_BYTES = 1 << 22
# Matrix products are a quarter faster where the columns fill vectors.
_COLUMNS = 8
_NEVER = -1e4


def softmax(Z: Array) -> Array:
    """Logits Z (n, V) -> probabilities, in place; returns Z."""
    kernels.shift_rows(Z)
    np.exp(Z, out=Z)
    kernels.normalise_rows(Z)
    return Z


def log_softmax(Z: Array) -> Array:
    """Logits Z (n, V) -> natural log-probabilities, in place; returns Z."""
    Z -= Z.max(axis=1, keepdims=True)
    Z -= np.log(np.exp(Z).sum(axis=1, keepdims=True))
    return Z


def logits(X: Array, weights: Array, intercept: Array) -> Array:
    """X (n, n_units) @ weights (n_units, V) + intercept (V,), in X's dtype."""
    Z = X @ weights.astype(X.dtype, copy=False)
    Z += intercept.astype(X.dtype, copy=False)
    return Z


def mean_loss(blocks: Blocks, weights: Array, intercept: Array) -> float:
    """Mean negative log-likelihood (nats) of blocks of (X, codes)."""
    total, n_rows = 0.0, 0
    for X, codes in blocks:
        likelihood = 0.0
        rows = rows_within(_LOGIT_BYTES, len(intercept), X.dtype)
        for start in range(0, len(X), rows):
            log_p = log_softmax(logits(X[start : start + rows], weights, intercept))
            of_targets = log_p[np.arange(len(log_p)), codes[start : start + rows]]
            likelihood += float(of_targets.sum(dtype=np.float64))
        total -= likelihood
        n_rows += len(codes)
    if n_rows == 0:
        raise ValueError(NO_HELD_OUT)
    return total / n_rows


def mean_log_sum(blocks: Blocks, weights: Array, intercept: Array) -> float:
    """Mean logarithm of the sum of exponential logits, over rows of blocks of (X, codes)."""
    total, n_rows = 0.0, 0
    for X, _ in blocks:
        rows = rows_within(_LOGIT_BYTES, len(intercept), X.dtype)
        for start in range(0, len(X), rows):
            Z = logits(X[start : start + rows], weights, intercept)
            total += float(logsumexp(Z, axis=1).sum(dtype=np.float64))
        n_rows += len(X)
    return total / n_rows


def residuals(Z: Array, targets: Array) -> tuple[Array, ...]:
    """Negative log-likelihoods (n,) of logits Z (n, V), and the factors of their derivatives.

    These are probabilities P (n, V) in Z's memory, and the residuals ``P - t`` (n, V) for targets
    t given as columns (n,).
    """
    kernels.shift_rows(Z)
    np.exp(Z, out=Z)
    R, losses = np.empty_like(Z), np.empty(len(Z), dtype=Z.dtype)
    kernels.residual_rows(Z, targets, R, losses)
    return losses, Z, R


@dataclass(eq=False)
class MultinomialLoss:
    """Penalised mean negative log-likelihood of softmax regression over blocks of rows.

    Blocks of (X (n, n_units), codes (n,)) give the same rows in each pass; rows of blocks that are
    not ``lasting`` between passes are copied to be kept. ``penalty`` is that of half the squared
    weights, on the scale of the summed loss. The minimum does not depend on ``centre`` (n_units,),
    which is subtracted from states, the conditioning does. ``fixed`` (V,) classes, which have no
    rows, keep the initial value of their column and have no probability. Hessian products come
    from every ``stride``-th row, which is kept with its probabilities.
    """

    blocks: Blocks
    penalty: float
    centre: Floats
    fixed: Bools
    stride: int = 1
    lasting: bool = True
    curvature: Floats = field(init=False)

    def evaluate(self, theta: Floats) -> tuple[float, Floats]:
        """Objective and gradient (n_units + 1, V); Hessian products refer to this theta after."""
        W, intercept = theta[:-1], theta[-1] - self.centre @ theta[:-1]
        intercept = np.where(self.fixed, 2 * _NEVER, intercept)
        W, intercept = _padded(W, 0.0), _padded(intercept, 2 * _NEVER)
        gradient = np.zeros((len(theta), len(intercept)))
        variance = np.zeros(len(intercept))
        loss, self.n_rows = 0.0, 0
        self._sample: list[tuple[Array, Array]] = []
        for block, codes in self.blocks:
            rows = rows_within(_LOGIT_BYTES, len(self.fixed), block.dtype)
            for start in range(0, len(block), rows):
                X = block[start : start + rows]
                losses, P, R = residuals(logits(X, W, intercept), codes[start : start + rows])
                loss += float(np.dot(losses.astype(np.float64), np.ones(len(X))))
                gradient[:-1] += (R.T @ X).T
                gradient[-1] += R.sum(axis=0, dtype=np.float64)
                kernels.add_class_variances(variance, P)
                self.n_rows += len(X)
                if self.stride > 1:
                    X, P = X[:: self.stride].copy(), P[:: self.stride].copy()
                elif not self.lasting:
                    X = X.copy()
                self._sample.append((X, P))
        self.curvature = variance[: len(self.fixed)] / self.n_rows
        W, gradient = theta[:-1], gradient[:, : len(self.fixed)]
        gradient[:-1] -= np.outer(self.centre, gradient[-1])
        gradient[:-1] += self.penalty * W
        value = (loss + 0.5 * self.penalty * float(np.sum(W * W))) / self.n_rows
        gradient = gradient / self.n_rows
        gradient[:, self.fixed] = 0.0
        return value, gradient

    def hessian_product(self, direction: Floats) -> Floats:
        """Hessian at the last evaluated theta times direction (n_units + 1, V).

        Of a sample of rows when ``stride`` > 1; exact otherwise.
        """
        D, offset = direction[:-1], direction[-1] - self.centre @ direction[:-1]
        padded, offset = _padded(D, 0.0), _padded(offset, 0.0)
        product = np.zeros((len(direction), len(offset)))
        for X, P in self._sample:
            U = logits(X, padded, offset)
            kernels.curvature_rows(P, U)
            product[:-1] += (U.T @ X).T
            product[-1] += U.sum(axis=0, dtype=np.float64)
        product = product[:, : len(self.fixed)]
        product[:-1] -= np.outer(self.centre, product[-1])
        product /= sum(len(X) for X, _ in self._sample)
        product[:-1] += self.penalty / self.n_rows * D
        product[:, self.fixed] = 0.0
        return product

    def hessian_blocks(self) -> Floats:
        """Blocks (V, n_units + 1, n_units + 1) of the Hessian, one a class, at the last theta.

        Of the rows that `hessian_product` reads.
        """
        n_classes, n = len(self.fixed), len(self.centre) + 1
        blocks = np.zeros((n_classes, n, n))
        for X, P in self._sample:
            rows = np.ones((len(X), n), X.dtype)
            rows[:, :-1] = X - self.centre
            for block, p in zip(blocks, P.T, strict=False):
                weighted = rows * np.sqrt(np.maximum(p * (1 - p), 0.0))[:, None]
                block += weighted.T @ weighted
        blocks /= sum(len(X) for X, _ in self._sample)
        units = np.arange(n - 1)
        blocks[:, units, units] += self.penalty / self.n_rows
        return blocks


def _padded(columns: Array, value: float) -> Array:
    """Columns of a value after the last axis of ``columns``, to a multiple of ``_COLUMNS``."""
    missing = -columns.shape[-1] % _COLUMNS
    if not missing:
        return columns
    shape = (*columns.shape[:-1], missing)
    return np.concatenate([columns, np.full(shape, value, dtype=columns.dtype)], axis=-1)
