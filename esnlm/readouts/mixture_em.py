"""Generalised expectation-maximisation: the loop, whatever the experts are."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.mixture_data import Source, TrainingRows
from esnlm.readouts.mixture_monitor import ConvergenceMonitor

_SHORTEST_STEP = 2.0**-8
# Keeps the intercepts of classes that never occur finite; too weak to matter elsewhere.
_INTERCEPT_ALPHA = 1e-3


class Parameters(NamedTuple):
    """weights (n_experts * n_classes + n_experts, n_units + 1): experts' rows, then the gate's.

    Columns are whitened coordinates, the intercept last; variance is that of linear experts.
    """

    weights: NDArray[Any]
    variance: float = 1.0


class Prior(NamedTuple):
    """Gaussian prior of the weights: precision and mean, in the shape of the weights."""

    precision: NDArray[np.float64]
    mean: NDArray[Any]

    @classmethod
    def of_weights(
        cls, n_experts: int, n_classes: int, width: int, alpha: float, gate_alpha: float
    ) -> "Prior":
        """Mean zero; precision ``alpha`` for experts, ``gate_alpha`` for the gate."""
        n_rows = n_experts * n_classes
        precision = np.full((n_rows + n_experts, width), float(alpha))
        precision[n_rows:] = gate_alpha
        precision[:, -1] = _INTERCEPT_ALPHA
        return cls(precision, np.zeros_like(precision))

    def log_density(self, weights: NDArray[Any]) -> float:
        """Up to a constant: -½ Σ precision (weights - mean)²."""
        return -0.5 * float(np.sum(self.precision * np.square(weights - self.mean)))

    def gradient(self, weights: NDArray[Any]) -> NDArray[np.float64]:
        """Of the log-density in the weights."""
        return self.precision * (self.mean - weights)


class Expectation(NamedTuple):
    """What one pass under some parameters gathered.

    log_likelihood and penalised are sums over rows; curvature (rows of the weights,) is the sum
    of -∂²Q over the square of each logit; statistics are the model's own.
    """

    log_likelihood: float
    penalised: float
    curvature: NDArray[np.float64]
    statistics: Any


class Model(Protocol):
    """A mixture of experts as EM sees it."""

    def start(self, rows: TrainingRows, rng: np.random.RandomState) -> Parameters:
        """First parameters, random."""
        ...

    def expect(self, source: Source, parameters: Parameters) -> Expectation:
        """E-step: the log-likelihood and the statistics of the M-step, under `parameters`."""
        ...

    def maximise(
        self, source: Source, parameters: Parameters, expectation: Expectation
    ) -> Callable[[float], Parameters]:
        """M-step: parameters for a step length in (0, 1]; Q rises for every short enough one."""
        ...

    def log_score(self, source: Source, parameters: Parameters) -> float:
        """Sum of the predicted log-probabilities of the labels."""
        ...


def run_em(
    model: Model, rows: TrainingRows, monitor: ConvergenceMonitor, rng: np.random.RandomState
) -> tuple[Parameters, NDArray[np.float64]]:
    """Best parameters of one run and their curvature; the penalised likelihood never falls."""
    parameters = best = model.start(rows, rng)
    expectation = model.expect(rows.train, parameters)
    curvature = expectation.curvature
    _report(model, rows, monitor, parameters, expectation)
    while not monitor.done:
        step_to = model.maximise(rows.train, parameters, expectation)
        parameters, expectation = accept(model, rows.train, step_to, parameters, expectation)
        _report(model, rows, monitor, parameters, expectation)
        if monitor.is_best:
            best, curvature = parameters, expectation.curvature
    return best, curvature


def accept(
    model: Model,
    source: Source,
    step_to: Callable[[float], Parameters],
    parameters: Parameters,
    expectation: Expectation,
) -> tuple[Parameters, Expectation]:
    """The longest halved step under which the penalised log-likelihood does not fall."""
    step = 1.0
    while step >= _SHORTEST_STEP:
        candidate = step_to(step)
        fresh = model.expect(source, candidate)
        if fresh.penalised >= expectation.penalised:
            return candidate, fresh
        step /= 2
    return parameters, expectation


def _report(
    model: Model,
    rows: TrainingRows,
    monitor: ConvergenceMonitor,
    parameters: Parameters,
    expectation: Expectation,
) -> None:
    held_out = None
    if rows.held_out is not None:
        held_out = model.log_score(rows.held_out, parameters) / rows.held_out.n
    n = rows.train.n
    monitor.report(expectation.penalised / n, expectation.log_likelihood / n, held_out)
