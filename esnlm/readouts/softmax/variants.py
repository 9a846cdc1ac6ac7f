"""Softmax readouts on normalised states (Köster & Uchida), and of reduced rank (Ueda et al.)."""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from esnlm.readouts.base.blocks import Block, Blocks, MappedBlocks
from esnlm.readouts.base.centred_moments import TOO_LARGE
from esnlm.readouts.base.passes import Passes
from esnlm.readouts.softmax.loss import logits
from esnlm.readouts.softmax.softmax import SoftmaxReadout
from esnlm.utils.arrays import Array
from esnlm.utils.sums import Sums
from esnlm.utils.validation import PENALTY, Count, DivergenceError, limited

_EPSILON = 1e-5


@dataclass(eq=False, repr=False)
class ReducedRankSoftmaxReadout(SoftmaxReadout):
    """``P(y|x) = softmax(x A B + b)`` with A (n_units, rank), B (rank, V) (Ueda et al. 2025, §2.1).

    A network that `esnlm.torch` trains through both factors loads as this readout, and predicts
    without torch. Fitted here, it is a `SoftmaxReadout` whose weights are then replaced by the
    nearest of that rank (in the sum of squares), and its intercept by one that says the same of the
    mean state: exact where the rank reaches that of the weights.

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
        root = np.sqrt(scale[: self.rank])
        self.down_ = np.ascontiguousarray(right[: self.rank].T * root)
        self.up_ = np.ascontiguousarray((left[:, : self.rank] * root).T)

    def _linear(self, dtype: Any) -> Callable[[Array], Array]:
        down, up, intercept = (
            array.astype(dtype, copy=False) for array in (self.down_, self.up_, self.intercept_)
        )
        return lambda X: logits(X @ down, up, intercept)


def normalised(states: Array) -> Array:
    """LayerNorm without parameters: each row (n, n_units) to mean 0 and variance 1.

    >>> normalised(np.array([[1.0, 3.0], [0.0, 0.0]])).round(3)
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    with np.errstate(over="ignore", invalid="ignore"):
        centred = np.ascontiguousarray(states - states.mean(axis=1, keepdims=True))
        variance = np.einsum("ij,ij->i", centred, centred) / centred.shape[1]
    if not np.isfinite(variance).all():
        raise DivergenceError(TOO_LARGE)
    centred /= np.sqrt(variance + _EPSILON).astype(centred.dtype)[:, None]
    return centred


class NormalisedSoftmaxReadout(SoftmaxReadout):
    """`SoftmaxReadout` on `normalised` states.

    >>> X = np.random.default_rng(0).standard_normal((200, 5))
    >>> readout = NormalisedSoftmaxReadout().fit(X, X.argmax(axis=1))
    >>> bool(np.allclose(readout.predict_proba(3 * X), readout.predict_proba(X), atol=1e-3))
    True
    """

    def _train(self, passes: Passes, held_out: Blocks | None = None) -> Iterator[tuple[int, bool]]:
        judges = None if held_out is None else MappedBlocks(held_out, _normalised_block)
        return super()._train(_NormalisedPasses(passes), judges)

    def _pass_moments(self, number: int) -> None:
        """Nothing: the states that a pass reads are normalised by `_train`, not where it reads."""

    def _enable_averaging(self, n_copies: int) -> bool:
        return False

    def _checked(self, X: ArrayLike, y: ArrayLike, reset: bool) -> Block:
        return _normalised_block(*super()._checked(X, y, reset))

    def _ready(self, X: ArrayLike) -> Array:
        return normalised(super()._ready(X))


def _normalised_block(X: Array, y: Array) -> Block:
    return normalised(X), y


class _NormalisedPasses:
    def __init__(self, passes: Passes) -> None:
        self.passes, self.first = passes, passes.first

    def read(self, number: int, *, n_rows: int | None = None) -> Iterator[Blocks]:
        for chunk in self.passes.read(number, n_rows=n_rows):
            assert not isinstance(chunk, Sums), "nothing is added up"
            yield MappedBlocks(chunk, _normalised_block)
