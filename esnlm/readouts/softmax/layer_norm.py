"""A softmax readout on states of mean 0 and variance 1, as Köster & Uchida's."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from esnlm.readouts.base.blocks import Block, Blocks, MappedBlocks
from esnlm.readouts.base.passes import Passes
from esnlm.readouts.softmax.softmax import SoftmaxReadout
from esnlm.utils.arrays import Array
from esnlm.utils.sums import Sums

_EPSILON = 1e-5


def normalised(states: Array) -> Array:
    """LayerNorm without parameters: each row (n, n_units) to mean 0 and variance 1.

    >>> normalised(np.array([[1.0, 3.0], [0.0, 0.0]])).round(3)
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    centred = np.ascontiguousarray(states - states.mean(axis=1, keepdims=True))
    variance = np.einsum("ij,ij->i", centred, centred) / centred.shape[1]
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
        judges = None if held_out is None else _normalised_blocks(held_out)
        return super()._train(_NormalisedPasses(passes), judges)

    def _pass_moments(self, number: int) -> None:
        """Nothing: the states that a pass reads are normalised by `_train`, not where it reads."""

    def _enable_averaging(self, n_copies: int) -> bool:
        return False

    def _checked(self, X: ArrayLike, y: ArrayLike, reset: bool) -> Block:
        X, y = super()._checked(X, y, reset)
        return normalised(X), y

    def _ready(self, X: ArrayLike) -> Array:
        return normalised(super()._ready(X))


def _normalised_blocks(blocks: Blocks) -> Blocks:
    return MappedBlocks(blocks, lambda X, y: (normalised(X), y))


class _NormalisedPasses:
    def __init__(self, passes: Passes) -> None:
        self.passes = passes
        self.first = passes.first

    def read(self, number: int, *, n_rows: int | None = None) -> Iterator[Blocks]:
        for chunk in self.passes.read(number, n_rows=n_rows):
            assert not isinstance(chunk, Sums), "nothing is added up"
            yield _normalised_blocks(chunk)
