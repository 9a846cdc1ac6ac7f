"""Softmax regression by Newton's method: where it starts, what it reads, what judges its steps."""

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.readout import ArrayBlocks, Blocks, blocks_rows, rows_within
from esnlm.readouts.softmax.loss import (
    GramPreconditioner,
    MultinomialLoss,
    newton_cg,
)
from esnlm.readouts.softmax.sgd import (
    IncrementalSolver,
    Rates,
    SoftmaxPasses,
    batch_rows,
    frequencies_of,
    interleaved,
    mean_loss,
)

Float = NDArray[np.float64]

_HESSIAN_BYTES = 1 << 24
# With 16 the steps overshoot, and most of the time goes into making them shorter.
_HESSIAN_ROWS_A_UNIT = 64
# Passes that bring Newton's method near the optimum: cheaper by far than its first steps.
_WARM_PASSES = 16
_MAX_PRODUCTS = 40


def newton_solution(
    blocks: Blocks,
    n_units: int,
    n_classes: int,
    rates: Rates,
    held_out: Blocks | None,
    *,
    tol: float,
    max_iter: int,
) -> tuple[Float, Float, list[float]]:
    """Weights over an intercept row (n_units + 1, V), the centre (n_units,) that they refer to,
    and the objective (nats a row) at the start and after each step.

    With held-out rows the step that they like best is the solution, otherwise the last one.
    """
    moments = Moments(n_units, n_classes, gram_rows=16 * n_units + 16384)
    for X, codes in blocks:
        moments.add(X, codes)
    loss = MultinomialLoss(
        blocks,
        n_units,
        n_classes,
        rates.alpha,
        centre=moments.mean,
        stride=-(-moments.n // hessian_rows(n_units)),
        lasting=isinstance(blocks, ArrayBlocks),
        fixed=moments.counts == 0,
    )
    best = None if held_out is None else Best(moments.mean, held_out)
    result = newton_cg(
        loss,
        _first_theta(blocks, moments, rates),
        GramPreconditioner(moments),
        tol=tol,
        max_iter=max_iter,
        max_products=_MAX_PRODUCTS,
        monitor=best,
    )
    theta = result.theta if best is None or best.theta is None else best.theta
    return theta, moments.mean, result.history


def _first_theta(blocks: Blocks, moments: Moments, rates: Rates) -> Float:
    """Frequencies alone; with many rows, what cheap passes of the other solver give."""
    frequencies = frequencies_of(moments.counts)
    n_units, n_classes = moments.n_units, moments.n_classes
    theta = np.zeros((n_units + 1, n_classes))
    theta[-1] = np.log(frequencies)
    if moments.n < 16 * batch_rows(n_units):
        return theta
    passes = SoftmaxPasses(n_units, n_classes, blocks_rows(blocks), _WARM_PASSES, None, rates)
    solver = IncrementalSolver(moments, frequencies, rates.momentum, rates.alpha / moments.n)
    passes.solver = solver
    shuffled = interleaved(blocks, n_units)
    for _ in range(_WARM_PASSES):
        for X, codes in shuffled:
            passes.learn(X, codes)
        passes.end_pass(None)
    if not np.all(np.isfinite(solver.weights)):
        return theta
    unseen = moments.counts == 0
    theta[:-1] = np.where(unseen, 0.0, solver.weights)
    theta[-1] = np.where(unseen, theta[-1], solver.offset)
    return theta


def hessian_rows(n_units: int) -> int:
    """Rows whose Hessian products stand for those of all: several a unit, or what is cheap."""
    return max(_HESSIAN_ROWS_A_UNIT * n_units, rows_within(_HESSIAN_BYTES, n_units, np.float32))


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
