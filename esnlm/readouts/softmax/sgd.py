"""Stochastic gradient for softmax regression, preconditioned by the Gram matrix of the states."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from esnlm.kernels import rows as kernels
from esnlm.readouts.base.blocks import ArrayBlocks, Blocks, Interleaved, rows_within
from esnlm.readouts.base.centred_moments import check_sizes
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.softmax.loss import logits, mean_loss, residuals
from esnlm.utils.arrays import Array, Arrays, Floats, Floats32, Ints, check_arrays
from esnlm.utils.state_dict import Stateful, saved

_LOGIT_BYTES = 1 << 24
# The inverse of a smaller variance than ``_LEAST`` overflows in single precision.
_GRAM_DAMPING, _LEAST = 1e-3, 1e-30
_CURVATURE_MEMORY = 0.05
_LEAST_CURVATURE = 1e-6
_WARM_UP = 20
_SAMPLE_ROWS_A_UNIT, _LEAST_SAMPLE = 8, 16384
_LAYOUTS = dict.fromkeys(("weights", "_velocity"), "f N V")
_LAYOUTS |= dict.fromkeys(("offset", "_offset_velocity", "variances"), "f V")
_LAYOUTS |= {"inverse": "f N N", "centre": "f N"}


def warmed_up(rate: float, n_steps: int) -> float:
    """``rate``, less in the first 20 steps: the size of a step after ``n_steps`` others."""
    return rate * min(1.0, (n_steps + 1) / _WARM_UP)


def class_rates(variances: Floats, observed: Array, n_steps: int, size: float) -> Floats32:
    """Step size of each class, ``size / sqrt(c)``: (V,) float32.

    ``variances`` (V,) are c, the running mean of p (1 - p), updated in place by that of a batch,
    ``observed``; its memory grows from two to twenty steps. The root gives the noise of every
    class the same size in its logits, whatever its frequency.
    """
    memory = max(_CURVATURE_MEMORY, 1 / (n_steps + 2))
    variances += memory * (observed - variances)
    rates = size / np.sqrt(np.maximum(variances, 0) + _LEAST_CURVATURE)
    return np.asarray(rates, dtype=np.float32)


def decayed(n_seen: int, batch: int) -> float:
    """Share of the learning rate that falls as the root of the rows seen."""
    return float((1 + n_seen / (20 * batch)) ** -0.5)


def heavy_ball(parameters: Array, velocity: Array, change: Array, momentum: float) -> None:
    """One step down ``change`` with heavy-ball momentum; parameters and velocity in place."""
    velocity *= np.float32(momentum)
    velocity -= change
    parameters += velocity


class IncrementalSolver(Stateful):
    """Mini-batch minimiser of the penalised likelihood of softmax regression.

    A step on a batch with gradient G (n_units, V) in centred coordinates is
    ``rate * (S + d I)⁻¹ G / sqrt(c)`` with heavy-ball momentum: S the covariance of the states
    (of a sample), d a thousandth of its mean eigenvalue and the ``ridge`` in units of S, c (V,)
    the running mean of p (1 - p). The noise of every class has the same size in its logits,
    ``rate² n_units / batch``; that is why rates are stated for ``batch = n_units``.

    ``moments`` of a sample of rows give the preconditioner and the centre, positive relative
    ``frequencies`` (V,) of the classes the first intercepts; ``ridge`` is the penalty divided by
    the rows it is spread over.
    """

    _saved = saved(
        "weights", "offset", "_velocity", "_offset_velocity", "inverse", "centre", "variances",
        "n_steps",
    )  # fmt: skip
    #: Nats a row of the frequencies alone, and of the latest batches; NaN after loading.
    chance: float = np.nan
    loss: float = np.nan

    def __init__(
        self, moments: Moments, frequencies: Array, momentum: float = 0.9, ridge: float = 0.0
    ) -> None:
        """Compute the preconditioner from ``moments``, and set intercepts to log frequencies."""
        self.momentum = momentum
        self.n_steps = 0
        self.centre = moments.mean.astype(np.float32)
        self.variances = frequencies * (1 - frequencies)
        covariance = moments.centred_gram()
        covariance /= max(moments.n, 1)
        ridge /= float(self.variances.mean() + 1e-12)
        self.inverse = damped_inverse(covariance, ridge, moments.rounding)
        sizes = moments.n_units, len(frequencies)
        self.weights: Array = np.zeros(sizes, dtype=np.float32)
        self.offset: Array = np.log(frequencies).astype(np.float32)
        self._velocity = np.zeros_like(self.weights)
        self._offset_velocity = np.zeros_like(self.offset)
        self.chance = float(-(frequencies * np.log(frequencies)).sum())
        self.loss = self.chance

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        check_arrays(arrays, _LAYOUTS)
        return arrays

    @property
    def batch(self) -> int:
        """Rows of a step."""
        return batch_rows(len(self.weights))

    @property
    def intercept(self) -> Floats:
        """Intercept (V,) for states that are not centred."""
        centred = self.offset.astype(np.float64)
        return centred - self.centre.astype(np.float64) @ self.weights.astype(np.float64)

    def learn(self, X: Array, codes: Ints, rate: float, ridge: float) -> None:
        """Mini-batch steps over a block X (n, n_units), codes (n,): rows j, j + m, j + 2m ..."""
        n_batches = max(1, round(len(X) / self.batch))
        for j in range(n_batches):
            self._step(X[j::n_batches], codes[j::n_batches], rate, ridge)

    def _step(self, X: Array, codes: Ints, rate: float, ridge: float) -> None:
        """Take a preconditioned heavy-ball step on a batch X (n, n_units), codes (n,)."""
        shift = self.offset - self.centre @ self.weights
        loss, gradient, offset_gradient, variances = batch_gradient(X, codes, self.weights, shift)
        self.loss += _CURVATURE_MEMORY * (loss / len(X) - self.loss)
        offset_gradient /= len(X)
        gradient /= len(X)
        gradient -= np.outer(self.centre, offset_gradient)
        gradient += np.float32(ridge) * self.weights
        # Rates grow with the batch until the longest step, not the noise, is the limit.
        size = warmed_up(rate * min(1.0, len(X) / X.shape[1]), self.n_steps)
        rates = class_rates(self.variances, variances / len(X), self.n_steps, size)
        move = self.inverse @ gradient
        move *= rates
        heavy_ball(self.weights, self._velocity, move, self.momentum)
        heavy_ball(self.offset, self._offset_velocity, offset_gradient * rates, self.momentum)
        self.n_steps += 1


def batch_gradient(
    X: Array, codes: Ints, weights: Array, intercept: Array
) -> tuple[float, Floats32, Floats32, Floats]:
    """Return summed loss, gradients in weights (n_units, V) and intercept, sums of p (1 - p)."""
    loss = 0.0
    gradient = np.zeros_like(weights)
    offset_gradient = np.zeros(len(intercept), dtype=np.float32)
    variances = np.zeros(len(intercept))
    rows = rows_within(_LOGIT_BYTES, len(intercept), np.float32)
    for start in range(0, len(X), rows):
        x = np.asarray(X[start : start + rows], dtype=np.float32)
        losses, P, R = residuals(logits(x, weights, intercept), codes[start : start + rows])
        loss += float(losses.sum())
        gradient += (R.T @ x).T
        offset_gradient += R.sum(axis=0)
        kernels.add_class_variances(variances, P)
    return loss, gradient, offset_gradient, variances


def batch_rows(n_units: int) -> int:
    """Rows of a mini-batch: about n_units, so that preconditioning costs less than the rows."""
    return int(np.clip(n_units, 128, 4096))


def damped_inverse(covariance: Floats, ridge: float, rounding: float) -> Floats32:
    """(S + (d + ridge) I)⁻¹ of a covariance S (n_units, n_units), which is overwritten.

    ``d`` is at least ``rounding``, the variance of states that may be rounding alone.
    """
    n_units = len(covariance)
    scale = float(np.trace(covariance)) / n_units
    least = _LEAST if scale else 1e-12
    covariance.flat[:: n_units + 1] += max(_GRAM_DAMPING * scale, rounding, least) + ridge
    return np.linalg.inv(covariance).astype(np.float32)


def check_states(moments: Moments) -> None:
    """Warn where most states are lost in the damping of `IncrementalSolver`."""
    variances = moments.centred_gram().diagonal() / max(moments.n, 1)
    check_sizes(variances, moments.mean, _GRAM_DAMPING * float(variances.mean()) + _LEAST)


def frequencies_of(counts: Array) -> Floats:
    """Relative frequencies (V,) of the classes, each of half an occurrence more than it had."""
    return (counts + 0.5) / (counts.sum() + 0.5 * len(counts))


def interleaved(blocks: Blocks, n_units: int) -> Blocks:
    """Arrays interleaved; streams as they come (a harvest's blocks span the corpus already)."""
    if not isinstance(blocks, ArrayBlocks):
        return blocks
    return Interleaved(blocks.X, blocks.y, max(blocks.block_size, 2 * batch_rows(n_units)))


@dataclass(eq=False)
class SoftmaxPasses(Stateful):
    """Pilot sample ``survey``, learning rates and best pass of an `IncrementalSolver`.

    The rate falls linearly to zero over all passes. In a first pass over an unknown number of
    rows (``n_rows`` 0) it falls as the root of the rows seen, and then linearly. ``counts``
    (n_classes,) are the occurrences of each class in a pass; default: in the pilot sample. The
    other parameters are those of `SoftmaxReadout`.
    """

    _saved = saved("n_rows", "n_passes", "n_seen", "best_score", "counts", "survey", "solver") | {
        "best.weights": "best_weights",
        "best.offset": "best_offset",
    }

    survey: Moments | None
    n_rows: int
    n_passes: int
    counts: Array | None
    alpha: float
    learning_rate: float
    momentum: float
    n_seen: int = 0
    solver: Any = None
    best_score: float = np.inf
    best_weights: Array | None = None
    best_offset: Array | None = None
    _unplanned: int = 0
    _first_rate: float = 1.0

    @property
    def sample_rows(self) -> int:
        """Rows of the pilot sample: enough for a steady matrix of products."""
        n_units = self.survey.n_units if self.survey else len(self.solver.weights)
        return max(_SAMPLE_ROWS_A_UNIT * n_units, _LEAST_SAMPLE)

    def end_sample(self) -> None:
        """Compute the preconditioner from the pilot sample."""
        sample = self.survey
        assert sample is not None, "the pilot sample is complete"
        frequencies = frequencies_of(sample.counts if self.counts is None else self.counts)
        ridge = self.alpha / max(self.n_rows, sample.n)
        self.solver = IncrementalSolver(sample, frequencies, self.momentum, ridge)
        self.survey = None

    def learn(self, X: Array, codes: Ints) -> None:
        """Take steps on one block."""
        n_rows = self.n_rows
        if n_rows:
            planned = n_rows * self.n_passes - self._unplanned
            share = self._first_rate * max(0.0, 1 - (self.n_seen - self._unplanned) / planned)
        else:
            n_rows = self.n_seen + len(X)
            share = self._first_rate = decayed(self.n_seen, self.solver.batch)
        rate, ridge = self.learning_rate * share, self.alpha / n_rows
        self.solver.learn(X, codes, rate, ridge)
        self.n_seen += len(X)

    def end_pass(self, held_out: Blocks | None) -> float | None:
        """Return the loss of held-out rows.

        After the last pass the solver has the best parameters.
        """
        if not self.n_rows:
            self.n_rows = self._unplanned = self.n_seen
        if held_out is None:
            return None
        solver, last = self.solver, self.n_seen >= self.n_rows * self.n_passes
        score = mean_loss(held_out, solver.weights, solver.intercept)
        if score < self.best_score:
            self.best_score = score
            self.best_weights, self.best_offset = solver.weights.copy(), solver.offset.copy()
        if last and self.best_weights is not None:
            solver.weights, solver.offset = self.best_weights, self.best_offset
            self.best_weights = self.best_offset = None
        return score

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        self.survey = None  # made again where there is one
        return arrays

    def _make_part(self, name: str, arrays: Arrays, training: bool) -> Stateful:
        if name == "survey":
            return Moments.restored(arrays, gram_rows=None)
        return IncrementalSolver.restored(arrays, momentum=self.momentum)
