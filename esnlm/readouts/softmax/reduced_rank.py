"""Softmax readout whose weights are a product of two thin matrices (Ueda et al. 2025, §2.1)."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from esnlm.readouts.softmax.loss import logits
from esnlm.readouts.softmax.softmax import SoftmaxReadout
from esnlm.utils.arrays import Array
from esnlm.utils.validation import PENALTY, Count, limited


@dataclass(eq=False, repr=False)
class ReducedRankSoftmaxReadout(SoftmaxReadout):
    """``P(y|x) = softmax(x A B + b)`` with A (n_units, rank) and B (rank, V).

    A network that `esnlm.torch` trains through both factors loads as this readout, and predicts
    without torch. Fitted here, it is a `SoftmaxReadout` whose weights are then replaced by the
    nearest of that rank (in the sum of squares): exact where the rank reaches that of the weights.

    Parameters
    ----------
    rank : int
        At most ``min(n_units, V)`` is kept.
    alpha, solver, tol, max_iter, n_passes, learning_rate, momentum, buffer_size
        See `SoftmaxReadout`.

    Attributes
    ----------
    down_ : ndarray (n_units, rank)
    up_ : ndarray (rank, V)
    intercept_ : ndarray (V,)

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
    >>> readout = ReducedRankSoftmaxReadout(rank=1, alpha=0.1).fit(X, ["a", "a", "b", "b"])
    >>> readout.predict([[0.2, 0.5], [2.9, 0.5]])
    array(['a', 'b'], dtype='<U1')
    >>> readout.down_.shape, readout.up_.shape
    ((2, 1), (1, 2))
    """

    _parameters: ClassVar[tuple[str, ...]] = ("down_", "up_", "intercept_")
    _layouts: ClassVar[dict[str, str]] = {
        **SoftmaxReadout._layouts,
        "down_": "f N R",
        "up_": "f R V",
    }

    _: KW_ONLY
    rank: int = limited(512, Count())
    alpha: float = limited(1.0, PENALTY)  # the others as inherited

    @property
    def coef_(self) -> Array:
        """Weights (V, n_units): the product of the factors."""
        return (self.down_ @ self.up_).T

    @coef_.setter
    def coef_(self, weights: Array) -> None:
        left, scale, right = np.linalg.svd(weights, full_matrices=False)
        kept = slice(0, min(self.rank, len(scale)))
        root = np.sqrt(scale[kept])
        self.down_ = np.ascontiguousarray(right[kept].T * root)
        self.up_ = np.ascontiguousarray((left[:, kept] * root).T)

    def _linear(self, dtype: Any) -> Callable[[Array], Array]:
        down, up, intercept = (
            array.astype(dtype, copy=False) for array in (self.down_, self.up_, self.intercept_)
        )
        return lambda X: logits(X @ down, up, intercept)
