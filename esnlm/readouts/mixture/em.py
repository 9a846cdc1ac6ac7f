"""Generalised expectation-maximisation: the loop, whatever the experts are."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.mixture.convergence import ConvergenceMonitor
from esnlm.readouts.mixture.optimize import QuasiNewtonMemory
from esnlm.readouts.mixture.whitening import Source, TrainingRows

_SHORTEST_STEP = 2.0**-8
# Steps of EM that the quasi-Newton correction remembers.
_MEMORY = 10
# Keeps the intercepts of classes that never occur finite; too weak to matter elsewhere.
_INTERCEPT_ALPHA = 1e-3
# exp of this is the smallest share a softmax gives: products of three stay normal floats, whose
# matrix products do not slow down as those of denormal ones do.
_LOWEST_LOGIT = -25.0


def softmax_in_place(logits: NDArray[Any], axis: int) -> NDArray[Any]:
    """Logits -> shares that sum to one along ``axis``, none below about 1e-11."""
    logits -= logits.max(axis=axis, keepdims=True)
    np.maximum(logits, _LOWEST_LOGIT, out=logits)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=axis, keepdims=True)
    return logits


class Parameters(NamedTuple):
    """weights (n_experts * n_classes + n_experts, n_units + 1): experts' rows, then the gate's.

    Columns are whitened coordinates, the intercept last.
    """

    weights: NDArray[Any]


@dataclass(frozen=True)
class Prior:
    """Gaussian prior of the weights: experts vary around common weights, which vary around zero.

    Weights of expert k are ``common + deviation_k`` with precisions ``common_alpha`` and
    ``alpha``; the common weights are always at their best given the experts, so the energy is
    ½ alpha Σ_k |W_k - c|² + ½ common_alpha |c|² at its least over c.

    Parameters
    ----------
    precision : ndarray (n_experts * n_classes + n_experts, width)
        Of the deviations, and of the gate's weights.
    n_experts : int
    share : float
        c = share · mean_k W_k; 0 makes experts independent. Intercepts always are.
    mean : ndarray like precision, optional
        Where the prior has its top; zero when left out.
    """

    precision: NDArray[np.float64]
    n_experts: int
    share: float = 0.0
    mean: NDArray[Any] | None = None

    @classmethod
    def of_weights(
        cls,
        n_experts: int,
        n_classes: int,
        shares: NDArray[np.float64],
        *,
        alpha: float,
        common_alpha: float,
        gate_alpha: float,
    ) -> "Prior":
        """The prior with a top at zero, in whitened coordinates.

        It is isotropic in the states, scaled to a total variance of one, so that 1/alpha is the
        prior variance of a logit whatever the number of units. Along a coordinate whose variance
        is s (n_units,) times the mean one, precision is alpha * n_units / s. Recent words lie in
        the directions of large variance, so they count for more before any evidence.
        """
        n_rows = n_experts * n_classes
        precision = np.full((n_rows + n_experts, len(shares) + 1), float(alpha))
        precision[n_rows:] = gate_alpha
        precision[:, :-1] *= len(shares) / shares
        precision[:, -1] = _INTERCEPT_ALPHA
        total = n_experts * alpha + common_alpha
        return cls(precision, n_experts, n_experts * alpha / total if total else 0.0)

    def centre(self, weights: NDArray[Any]) -> NDArray[np.float64]:
        """What every row is drawn towards, given ``weights`` (rows, width)."""
        centre = np.zeros(self.precision.shape)
        if self.mean is not None:
            centre += self.mean
        if self.share:
            width = self.precision.shape[-1]
            experts = centre[: -self.n_experts].reshape(self.n_experts, -1, width)
            away = (weights - centre)[: -self.n_experts].reshape(experts.shape)
            experts[:, :, :-1] += self.share * away[:, :, :-1].mean(axis=0)
        return centre

    def product(self, direction: NDArray[Any]) -> NDArray[np.float64]:
        """Second derivative of the energy times ``direction``."""
        if not self.share:
            return self.precision * direction
        centre = Prior(self.precision, self.n_experts, self.share).centre(direction)
        return self.precision * (direction - centre)

    def gradient(self, weights: NDArray[Any]) -> NDArray[np.float64]:
        """Of the log-density in the weights."""
        return self.precision * (self.centre(weights) - weights)

    def log_density(self, weights: NDArray[Any]) -> float:
        """Of experts and gate together, up to a constant."""
        experts, gate = self.split_log_density(weights)
        return experts + gate

    def split_log_density(self, weights: NDArray[Any]) -> tuple[float, float]:
        """Of the experts, and of the gate, up to constants."""
        away = weights if self.mean is None else weights - self.mean
        energy = 0.5 * np.einsum("ij,ij->i", away, -self.gradient(weights))
        return -float(energy[: -self.n_experts].sum()), -float(energy[-self.n_experts :].sum())


class Expectation(NamedTuple):
    """What one pass under some parameters gathered.

    log_likelihood and penalised are sums over rows; gradient is that of penalised (and of Q) in
    the weights, where the M-step needs it; curvature (rows of the weights,) is the sum
    of -∂²Q over the square of each logit; statistics are the model's own.
    """

    log_likelihood: float
    penalised: float
    gradient: NDArray[np.float64] | None
    curvature: NDArray[np.float64]
    statistics: Any


class Experts(ABC):
    """A softmax gate over experts of some kind, as EM sees it.

    Parameters
    ----------
    n_experts, n_classes : int
    prior : Prior
        Gaussian prior of the weights.
    n_conjugate : int
        Steps of conjugate gradient in one Newton step.
    """

    def __init__(self, n_experts: int, n_classes: int, prior: Prior, *, n_conjugate: int) -> None:
        self.n_experts = n_experts
        self.n_classes = n_classes
        self.prior = prior
        self.n_conjugate = n_conjugate

    def gate(self, Z: NDArray[Any], parameters: Parameters) -> NDArray[Any]:
        """P(k | x): Z (m, width) -> (m, n_experts)."""
        rows = parameters.weights[self.n_experts * self.n_classes :]
        return np.ascontiguousarray(softmax_in_place(rows @ Z.T, axis=0).T)

    @abstractmethod
    def start(self, rows: TrainingRows, rng: np.random.RandomState) -> Parameters:
        """First parameters, random."""

    @abstractmethod
    def expect(self, source: Source, parameters: Parameters) -> Expectation:
        """E-step: the log-likelihood and the statistics of the M-step, under `parameters`."""

    @abstractmethod
    def maximise(
        self,
        source: Source,
        parameters: Parameters,
        expectation: Expectation,
        memory: QuasiNewtonMemory,
    ) -> Callable[[float], Parameters]:
        """M-step: parameters for a step length in (0, 1]; Q rises for every short enough one."""

    @abstractmethod
    def log_score(self, source: Source, parameters: Parameters) -> float:
        """Sum of the predicted log-probabilities of the labels."""

    @abstractmethod
    def distribution(self, Z: NDArray[Any], parameters: Parameters) -> NDArray[Any]:
        """P(y|x): Z (m, width) -> (m, n_classes)."""

    @abstractmethod
    def joint(self, Z: NDArray[Any], codes: NDArray[Any], parameters: Parameters) -> NDArray[Any]:
        """P(k | x, y): Z (m, width), codes (m,) -> (m, n_experts)."""


def run_em(
    model: Experts, rows: TrainingRows, monitor: ConvergenceMonitor, rng: np.random.RandomState
) -> tuple[Parameters, NDArray[np.float64]]:
    """Best parameters of one run and their curvature; the penalised likelihood never falls."""
    parameters = best = model.start(rows, rng)
    expectation = model.expect(rows.train, parameters)
    curvature = expectation.curvature
    memory = QuasiNewtonMemory(_MEMORY)
    _report(model, rows, monitor, parameters, expectation)
    while not monitor.done:
        parameters, expectation = iterate(model, rows.train, parameters, expectation, memory)
        _report(model, rows, monitor, parameters, expectation)
        if monitor.is_best:
            best, curvature = parameters, expectation.curvature
    return best, curvature


def iterate(
    model: Experts,
    source: Source,
    parameters: Parameters,
    expectation: Expectation,
    memory: QuasiNewtonMemory,
) -> tuple[Parameters, Expectation]:
    """M-step, halved until the penalised log-likelihood does not fall, and the next E-step."""
    step_to = model.maximise(source, parameters, expectation, memory)
    step = 1.0
    while step >= _SHORTEST_STEP:
        candidate = step_to(step)
        fresh = model.expect(source, candidate)
        if fresh.penalised >= expectation.penalised:
            if fresh.gradient is not None and expectation.gradient is not None:
                moved = candidate.weights - np.asarray(parameters.weights, dtype=np.float64)
                memory.update(moved, expectation.gradient - fresh.gradient)
            return candidate, fresh
        step /= 2
    return parameters, expectation


def _report(
    model: Experts,
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
