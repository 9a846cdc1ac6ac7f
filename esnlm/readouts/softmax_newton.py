"""What Newton's method on softmax regression reads rows and judges its steps by."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.base import Block, Blocks, rows_within
from esnlm.readouts.multinomial import WeightedBlock, log_likelihood

Float = NDArray[np.float64]

_HESSIAN_BYTES = 1 << 24
# With 16 the steps overshoot, and most of the time goes into making them shorter.
_HESSIAN_ROWS_A_UNIT = 64


def hessian_rows(n_units: int) -> int:
    """Rows whose Hessian products stand for those of all: several a unit, or what is cheap."""
    return max(_HESSIAN_ROWS_A_UNIT * n_units, rows_within(_HESSIAN_BYTES, n_units, np.float32))


class Weighted:
    """Blocks of (X, codes) as blocks of (X, codes, None)."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks

    def __iter__(self) -> Iterator[WeightedBlock]:
        for X, codes in self.blocks:
            yield X, codes, None


class Best:
    """Keeps the Newton step that held-out rows like best; stops after two that are worse."""

    def __init__(self, centre: Float, held_out: Blocks) -> None:
        self.centre = centre
        self.held_out = held_out
        self.score = np.inf
        self.worse = 0
        self.theta: Float | None = None

    def __call__(self, theta: Float) -> bool:
        score = mean_loss(self.held_out, theta[:-1], theta[-1] - self.centre @ theta[:-1])
        if score < self.score:
            self.score, self.theta, self.worse = score, theta, 0
        else:
            self.worse += 1
        return self.worse >= 2


def mean_loss(blocks: Iterable[Block], weights: NDArray[Any], intercept: NDArray[Any]) -> float:
    """Mean negative log-likelihood (nats) of blocks of (X, codes)."""
    total, rows = 0.0, 0
    for X, codes in blocks:
        total -= log_likelihood(X, codes, weights, intercept)
        rows += len(codes)
    if rows == 0:
        raise ValueError("held_out has no rows: give some, or None")
    return total / rows
