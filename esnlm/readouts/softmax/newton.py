"""Softmax regression by Newton's method, each step from truncated conjugate gradient."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from esnlm.readouts.base.blocks import ArrayBlocks, Blocks, rows_within
from esnlm.readouts.base.centred_moments import check_sizes
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.softmax.loss import MultinomialLoss, mean_log_sum, mean_loss
from esnlm.readouts.softmax.sgd import SoftmaxPasses, batch_rows, frequencies_of, interleaved
from esnlm.utils.arrays import Floats

_HESSIAN_BYTES = 1 << 24
# With 16 the steps overshoot, and most of the time goes into making them shorter.
_HESSIAN_ROWS_A_UNIT = 64
_MAX_PRODUCTS = 40
_FORCING = 0.2
_BLOCK_BYTES = 1 << 26
# Blocks of n units take the time of n / 4 Hessian products.
_UNITS_A_PRODUCT = 4
# Units are brought to one size where their sizes differ by more than this.
_ALIKE = 1e-3
_SINGLE = 1e-6


def newton_solution(
    blocks: Blocks, held_out: Blocks | None, passes: SoftmaxPasses, *, tol: float, max_iter: int
) -> tuple[Floats, Floats, list[float]]:
    """Weights (n_units, V), intercept (V,), and the objective (nats a row) of start and steps.

    Where there are many rows, cheap ``passes`` of the other solver come first. With held-out rows
    the step of the least loss on them is the solution, and the search stops after two that are
    worse; otherwise the last one is.
    """
    moments = passes.survey
    assert moments is not None, "passes that begin have no solver yet"
    for X, codes in blocks:
        moments.add(X, codes)
    centre = moments.mean
    # Several rows a unit, or as many as are cheap, stand for all in Hessian products.
    sample = rows_within(_HESSIAN_BYTES, moments.n_units, np.float32)
    sample = max(_HESSIAN_ROWS_A_UNIT * moments.n_units, sample)
    loss = MultinomialLoss(
        blocks,
        passes.alpha,
        centre,
        fixed=moments.counts == 0,
        stride=-(-moments.n // sample),
        lasting=isinstance(blocks, ArrayBlocks),
    )
    unseen = loss.fixed

    def whole(theta: Floats) -> Floats:
        """Theta whose classes without rows have, on average, the mass of half an occurrence."""
        if not unseen.any():
            return theta
        mass = float(frequencies_of(moments.counts)[unseen].sum())
        W, b = theta[:-1, ~unseen], theta[-1, ~unseen] - centre @ theta[:-1, ~unseen]
        theta = theta.copy()
        theta[-1, unseen] = mean_log_sum(blocks, W, b) + np.log(mass / (1 - mass) / unseen.sum())
        return theta

    start = _first_theta(blocks, moments, passes)
    steps = newton_steps(loss, start, GramPreconditioner(moments), tol)
    best, least, worse = start, np.inf, 0
    history: list[float] = []
    for theta, value in islice(steps, max_iter + 1):
        history.append(value)
        if held_out is None or theta is start:
            best = theta
            continue
        judged = whole(theta)
        score = mean_loss(held_out, judged[:-1], judged[-1] - centre @ judged[:-1])
        worse = 0 if score < least else worse + 1
        if not worse:
            best, least = theta, score
        if worse == 2:
            break
    best = whole(best)
    return best[:-1], best[-1] - centre @ best[:-1], history


def _first_theta(blocks: Blocks, moments: Moments, passes: SoftmaxPasses) -> Floats:
    """Frequencies alone; with many rows, the parameters after cheap passes of the other solver."""
    n_units = moments.n_units
    theta = np.zeros((n_units + 1, moments.n_classes))
    theta[-1] = np.log(frequencies_of(moments.counts))
    if moments.n < 16 * batch_rows(n_units):
        return theta
    passes.end_sample()
    shuffled = interleaved(blocks, n_units)
    for _ in range(passes.n_passes):
        for X, codes in shuffled:
            passes.learn(X, codes)
        passes.end_pass(None)
    solver = passes.solver
    if not np.all(np.isfinite(solver.weights)):
        return theta
    unseen = moments.counts == 0
    theta[:-1] = np.where(unseen, 0.0, solver.weights)
    theta[-1] = np.where(unseen, theta[-1], solver.offset)
    return theta


class GramPreconditioner:
    """Inverse of ``c_v S + a I`` for each class v: the Hessian if p(1-p) did not vary with x.

    ``S = (X - centre)ᵀ(X - centre) / n`` is decomposed once; ``c_v`` is the present mean of
    p_v (1 - p_v).
    """

    def __init__(self, moments: Moments) -> None:
        gram = moments.centred_gram()
        gram /= max(moments.n, 1)
        check_sizes(gram.diagonal(), moments.mean)
        values, self.vectors = np.linalg.eigh(gram)
        # A direction without variance gets a small positive curvature in place of none.
        self.values = np.maximum(values, 1e-10 * max(float(values[-1]), 1e-300))

    def apply(self, gradient: Floats, loss: MultinomialLoss) -> Floats:
        """Preconditioned gradient (n_units + 1, V)."""
        curvature, ridge = loss.curvature, loss.penalty / loss.n_rows
        least = 1e-4 * float(curvature.max()) + 1e-12
        scale = np.maximum(curvature, least)
        step = np.empty_like(gradient)
        rotated = self.vectors.T @ gradient[:-1]
        rotated /= self.values[:, None] * scale + ridge
        step[:-1] = self.vectors @ rotated
        step[-1] = gradient[-1] / scale
        return step


class BlockPreconditioner:
    """Inverse of the blocks of the Hessian, (n_units + 1)² for each class, where it was made.

    The Gram preconditioner is far from them where states tell which classes are possible.
    """

    def __init__(self, loss: MultinomialLoss) -> None:
        blocks = loss.hessian_blocks()
        sizes = np.sqrt(np.diagonal(blocks, axis1=1, axis2=2).max(axis=0))
        # A unit that varies by the rounding of its mean is not made larger.
        sizes[:-1][sizes[:-1] <= _SINGLE * np.abs(loss.centre)] = sizes.max()
        if sizes.min() > _ALIKE * sizes.max():
            sizes[:] = 1.0
        values, vectors = np.linalg.eigh(blocks / np.outer(sizes, sizes))
        # Sums of float32 say nothing of smaller curvatures.
        self._values = np.maximum(values, 1e-7 * float(values.max()) + 1e-300)
        self._vectors = vectors / sizes[:, None]

    def apply(self, gradient: Floats, _: MultinomialLoss) -> Floats:
        """Preconditioned gradient (n_units + 1, V)."""
        rotated = np.einsum("vij,iv->vj", self._vectors, gradient)
        return np.einsum("vij,vj->iv", self._vectors, rotated / self._values)


def newton_steps(
    loss: MultinomialLoss,
    theta: Floats,
    preconditioner: GramPreconditioner | BlockPreconditioner,
    tol: float,
) -> Iterator[tuple[Floats, float]]:
    """Theta (n_units + 1, V) and the objective: at the start, and after each Newton step.

    Ends when half the Newton decrement, an estimate of the gain left, is below ``tol``
    (nats a row), or no step lowers the objective; it never rises from one step to the next.
    Where blocks of the Hessian fit in memory, they are the preconditioner as soon as Hessian
    products have taken as long as blocks take, and again each time that they have.
    """
    n_units, n_products = len(theta) - 1, 0
    has_blocks = theta.size * (n_units + 1) * theta.itemsize <= _BLOCK_BYTES
    value, gradient = loss.evaluate(theta)
    yield theta, value
    while True:
        step, n_more = _truncated_cg(loss, gradient, preconditioner)
        n_products += n_more
        slope = float(np.sum(gradient * step))
        if -slope / 2 <= tol * 1e-3 or not np.isfinite(slope):
            return
        trial = _line_search(loss, theta, step, value, slope)
        if trial is None:
            return
        theta, value, gradient = trial
        yield theta, value
        if -slope / 2 <= tol:
            return
        if has_blocks and n_products * _UNITS_A_PRODUCT >= n_units:
            preconditioner, n_products = BlockPreconditioner(loss), 0


def _truncated_cg(
    loss: MultinomialLoss,
    gradient: Floats,
    preconditioner: GramPreconditioner | BlockPreconditioner,
) -> tuple[Floats, int]:
    """Approximate -H⁻¹ gradient, to a fifth of the residual, and the number of products."""
    step = np.zeros_like(gradient)
    residual = -gradient
    z = preconditioner.apply(residual, loss)
    direction = z.copy()
    power = float(np.sum(residual * z))
    enough = _FORCING**2 * power
    n_products = 0
    while n_products < _MAX_PRODUCTS and power > enough:
        product = loss.hessian_product(direction)
        n_products += 1
        curvature = float(np.sum(direction * product))
        if curvature <= 0:
            break
        rate = power / curvature
        step += rate * direction
        residual -= rate * product
        z = preconditioner.apply(residual, loss)
        power, last = float(np.sum(residual * z)), power
        direction *= power / last
        direction += z
    return (step if step.any() else z), n_products


def _line_search(
    loss: MultinomialLoss, theta: Floats, step: Floats, value: float, slope: float
) -> tuple[Floats, float, Floats] | None:
    """First of the steps 1, 1/2, 1/4 ... that lowers the objective enough (Armijo), or None."""
    rate = 1.0
    for _ in range(25):
        trial = theta + rate * step
        new_value, gradient = loss.evaluate(trial)
        if new_value <= value + 1e-4 * rate * slope:
            return trial, new_value, gradient
        rate /= 2
    return None
