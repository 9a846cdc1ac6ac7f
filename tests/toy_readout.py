"""A readout added by the recipe in ARCHITECTURE.md: each class a Gaussian of common width."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.base.readout import StreamingReadout
from esnlm.readouts.softmax.loss import log_softmax
from esnlm.utils.validation import Number, check_parameters, limited


@dataclass(eq=False, repr=False)
class GaussianReadout(StreamingReadout):
    """``P(c|x)`` in proportion to ``n_c exp(-|x - mean_c|² / 2 width²)``, from sums over rows."""

    _parameters = ("mean_", "log_share_", "width_")

    least_width: float = limited(1e-3, Number(0, open="low"))

    def _start(self) -> None:
        check_parameters(self)
        self._counts = np.full(len(self.classes_), 0.5)
        self._sums: Any = 0.0
        self._squares = 0.0
        self._stale = False

    def _absorb(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        rows = np.asarray(X, dtype=np.float64)
        one_hot = np.eye(len(self.classes_))[codes]
        self._counts = self._counts + one_hot.sum(axis=0)
        self._sums = self._sums + one_hot.T @ rows
        self._squares += float(np.square(rows).sum())
        self._stale = True

    def _settle(self) -> None:
        if not self._stale:
            return
        self._stale = False
        self.mean_ = self._sums / self._counts[:, None]
        inside = self._squares - float((self._counts @ np.square(self.mean_)).sum())
        variance = inside / (self._counts.sum() * self._sums.shape[1])
        self.width_ = max(float(np.sqrt(max(variance, 0.0))), self.least_width)
        self.log_share_ = np.log(self._counts / self._counts.sum())

    def _log_probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        far = np.square(X[:, None, :].astype(np.float64) - self.mean_).sum(axis=2)
        logs = self.log_share_ - far / (2 * self.width_**2)
        return log_softmax(logs.astype(X.dtype))
