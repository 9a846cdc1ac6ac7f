"""Directions of the M-step, and the history of a run of EM, by which it ends."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from esnlm.utils.arrays import Array, Ints
from esnlm.utils.messages import say

_TINY = 1e-300
#: Of a diagonal that is inverted: the gate of one expert, without a penalty, has none.
LEAST_CURVATURE = 1e-12


def conjugate_gradient(
    gradient: Array, product: Callable[[Array], Array], inverse: Array, systems: Ints, n_steps: int
) -> Array:
    """Approximate solution D (rows, width) of H D = gradient, from ``n_steps`` products with H.

    Started at zero, every truncation is a direction of ascent for the function whose negative
    curvature is H. ``product`` maps D to H D, which is symmetric and positive definite within every
    system: ``systems`` (rows,) says which one a row belongs to; they share products but not step
    lengths. ``inverse`` (rows, width) of the diagonal is the preconditioner.
    """

    def inner(left: Array, right: Array) -> Array:
        return np.bincount(systems, weights=np.einsum("ij,ij->i", left, right))

    def by_row(values: Array) -> Array:
        return values[systems, None]

    direction = np.zeros(gradient.shape)
    residual = np.array(gradient, dtype=np.float64)
    scaled = inverse * residual
    search = scaled
    old = inner(residual, scaled)
    for _ in range(n_steps):
        image = product(search)
        length = by_row(old / np.maximum(inner(search, image), _TINY))
        direction += length * search
        residual -= length * image
        scaled = inverse * residual
        new = inner(residual, scaled)
        search = scaled + by_row(new / np.maximum(old, _TINY)) * search
        old = new
    return direction


class QuasiNewtonMemory:
    """Curvature of the likelihood over the last ``size`` steps, to correct Newton directions.

    The M-step uses the curvature of Q, which exceeds that of the likelihood by the information in
    the missing responsibilities, so it steps too short. The limited-memory BFGS recursion with
    the M-step as its first metric corrects that (quasi-Newton acceleration of EM: Jamshidian &
    Jennrich 1997; Lange 1995).
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._pairs: list[tuple[Array, Array, float]] = []

    def update(self, step: Array, drop: Array) -> None:
        """Remember that the gradient fell by ``drop`` along ``step``."""
        product = float(np.vdot(step, drop))
        if product > 1e-10 * float(np.vdot(step, step)):
            self._pairs = [*self._pairs, (step, drop, 1.0 / product)][-self.size :]

    def direction(self, gradient: Array, solve: Callable[[Array], Array]) -> Array:
        """Two-loop recursion around ``solve``, the Newton step of the M-step for a gradient."""
        remaining = np.array(gradient, dtype=np.float64)
        lengths = []
        for step, drop, inverse in reversed(self._pairs):
            length = inverse * float(np.vdot(step, remaining))
            remaining -= length * drop
            lengths.append(length)
        direction = solve(remaining)
        for (step, drop, inverse), length in zip(self._pairs, reversed(lengths), strict=True):
            direction = direction + (length - inverse * float(np.vdot(drop, direction))) * step
        if np.vdot(direction, gradient) <= 0:
            self._pairs = []
            return solve(gradient)
        return direction


@dataclass
class ConvergenceMonitor:
    """Keeps log-likelihoods per row (nats) of every iteration and decides when to stop.

    ``penalised``, ``log_likelihood`` and ``held_out`` have an entry for the start and one for each
    iteration; ``held_out`` is empty without held-out rows. ``best`` is the iteration whose
    parameters are kept: best held-out, or the last. ``converged`` and ``stopped_early`` say whether
    convergence, or held-out rows, ended the run. Parameters: see `MixtureOfExpertsReadout`.
    """

    tol: float
    max_iter: int
    patience: int
    verbose: bool = False
    penalised: list[float] = field(default_factory=list)
    log_likelihood: list[float] = field(default_factory=list)
    held_out: list[float] = field(default_factory=list)
    converged: bool = False

    def report(
        self, penalised: float, log_likelihood: float, held_out: float | None = None
    ) -> None:
        """Add the values of an iteration; warns where the penalised one fell."""
        for value in (penalised, held_out):
            if value is not None and not math.isfinite(value):
                raise FloatingPointError(
                    f"the log-likelihood became {value}: check the states for huge or tiny values"
                )
        if self.penalised:
            gain = penalised - self.penalised[-1]
            if gain < 0:
                warnings.warn(
                    f"the penalised log-likelihood fell by {-gain:.3g} nats a row at "
                    f"iteration {len(self.penalised)}",
                    ConvergenceWarning,
                    stacklevel=2,
                )
            self.converged = bool(gain < self.tol)
        self.penalised.append(penalised)
        self.log_likelihood.append(log_likelihood)
        if held_out is not None:
            self.held_out.append(held_out)
        if self.verbose:
            of_held_out = f"  held out {self.held_out[-1]:.5f}" if self.held_out else ""
            line = f"EM {self.n_iter:4d}  penalised {penalised:.5f}  training {log_likelihood:.5f}"
            say(line + of_held_out)

    @property
    def n_iter(self) -> int:
        """Iterations made."""
        return max(len(self.penalised) - 1, 0)

    @property
    def best(self) -> int:
        """The iteration with the best held-out score, the last of equal ones, or else the last."""
        if not self.held_out:
            return self.n_iter
        return max(range(len(self.held_out)), key=lambda i: (self.held_out[i], i))

    @property
    def is_best(self) -> bool:
        """Whether the parameters of the last report are the ones to keep."""
        return self.best == self.n_iter

    @property
    def stopped_early(self) -> bool:
        """Whether ``patience`` iterations passed without a better held-out score."""
        return self.n_iter - self.best >= self.patience

    @property
    def done(self) -> bool:
        """Whether to stop: converged, no longer better on held-out rows, or out of iterations."""
        return self.converged or self.stopped_early or self.n_iter >= self.max_iter

    @property
    def score(self) -> float:
        """Best held-out, else last penalised log-likelihood: restarts are compared by it."""
        return self.held_out[self.best] if self.held_out else self.penalised[-1]
