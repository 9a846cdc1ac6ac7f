"""Multinomial logistic readout: Newton-CG on data that fits in memory, streaming beyond."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.base import ArrayBlocks, Blocks, BufferedReadout
from esnlm.readouts.multinomial import (
    GramPreconditioner,
    MultinomialLoss,
    WeightedBlock,
    log_softmax,
    logits,
    newton_cg,
    softmax,
)
from esnlm.statistics import Moments


class SoftmaxReadout(BufferedReadout):
    """Softmax regression of the next token on the state (Rachez §3.3; Newton-Raphson with CG).

    Minimises ``sum_i -log p(y_i | x_i) + alpha / 2 |W|²``, intercepts unpenalised: the
    objective of scikit-learn's ``LogisticRegression(C=1 / alpha)`` (two classes: ``C = 2 /
    alpha``).
    """

    _parameters = ("coef_", "intercept_")

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        solver: Literal["auto", "newton-cg", "incremental"] = "auto",
        tol: float = 1e-6,
        max_iter: int = 100,
        buffer_size: int = 65536,
    ) -> None:
        self.alpha = alpha
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.buffer_size = buffer_size

    def _start(self) -> None:
        pass

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        n_classes = len(self.classes_)
        moments: Moments | None = None
        for X, codes in blocks:
            if moments is None:
                moments = Moments(self.n_features_in_, n_classes)
            moments.add(X, codes)
        if moments is None:
            raise ValueError("no rows to learn from: got 0 rows, give at least one")
        frequencies = (moments.counts + 0.5) / (moments.n + 0.5 * n_classes)
        theta = np.zeros((self.n_features_in_ + 1, n_classes))
        theta[-1] = np.log(frequencies)
        loss = MultinomialLoss(
            _Weighted(blocks),
            self.n_features_in_,
            n_classes,
            self.alpha,
            centre=moments.mean,
            fixed=moments.counts == 0,
        )
        result = newton_cg(
            loss, theta, GramPreconditioner(moments), tol=self.tol, max_iter=self.max_iter
        )
        self.history_ = result.history
        self.n_iter_ = max(1, len(result.history) - 1)
        self._set(result.theta, moments.mean)

    def _set(self, theta: NDArray[np.float64], centre: NDArray[np.float64]) -> None:
        intercept = theta[-1] - centre @ theta[:-1]
        self.coef_ = np.ascontiguousarray(theta[:-1].T)
        self.intercept_ = intercept - intercept.mean()

    def _update(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        self._solve(ArrayBlocks(X, codes), None)

    def _probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        return softmax(logits(X, self.coef_.T, self.intercept_))

    def _log_probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        return log_softmax(logits(X, self.coef_.T, self.intercept_))


class _Weighted:
    """Blocks of (X, codes) as blocks of (X, codes, None)."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks

    def __iter__(self) -> Iterator[WeightedBlock]:
        for X, codes in self.blocks:
            yield X, codes, None
