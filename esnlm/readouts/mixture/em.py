"""Base of softmax and linear experts: a softmax gate, a Gaussian prior, the steps of EM."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from esnlm.readouts.mixture.optimize import QuasiNewtonMemory
from esnlm.readouts.mixture.whitening import Source, TrainingRows
from esnlm.utils.arrays import Array, Floats, Ints64

_SHORTEST_STEP = 2.0**-8
# Keeps the intercepts of classes that never occur finite; too weak to matter elsewhere.
_INTERCEPT_ALPHA = 1e-3
#: exp of this is the smallest share a softmax gives: products of three stay normal floats, whose
#: matrix products do not slow down as those of denormal ones do.
LOWEST_LOGIT = -25.0


def softmax_in_place(logits: Array, axis: int) -> Array:
    """Softmax along ``axis``, no share below about 1e-11."""
    logits -= logits.max(axis=axis, keepdims=True)
    np.maximum(logits, LOWEST_LOGIT, out=logits)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=axis, keepdims=True)
    return logits


@dataclass(frozen=True)
class Prior:
    """Gaussian prior of the weights: experts vary around common weights, which vary around zero.

    The energy is the least over the common weights c of
    ½ alpha Σ_k |W_k - c|² + ½ common_alpha |c|², where c = share · mean_k W_k; experts with share
    0, and all intercepts, are independent. precision (n_experts * n_classes + n_experts, width) is
    that of the deviations, and of the gate's weights; mean, of the same shape, is the mode.
    """

    precision: Floats
    n_experts: int
    share: float = 0.0
    mean: Array | None = None

    @classmethod
    def of_weights(
        cls,
        n_experts: int,
        n_classes: int,
        shares: Floats,
        *,
        alpha: float,
        common_alpha: float,
        gate_alpha: float,
    ) -> "Prior":
        """Return the prior with its mode at zero, in whitened coordinates.

        It is isotropic in the states, scaled to a total variance of one: along a coordinate whose
        variance is shares (n_units,) times the mean one, precision is alpha * n_units / share.
        Recent words lie in the directions of large variance, so they count for more before any
        evidence.
        """
        n_rows = n_experts * n_classes
        precision = np.full((n_rows + n_experts, len(shares) + 1), float(alpha))
        precision[n_rows:] = gate_alpha
        precision[:, :-1] *= len(shares) / shares
        precision[:, -1] = _INTERCEPT_ALPHA
        total = n_experts * alpha + common_alpha
        return cls(precision, n_experts, n_experts * alpha / total if total else 0.0)

    def centre(self, weights: Array) -> Floats:
        """Mode of each row of ``weights`` (rows, width), given what the experts share."""
        centre = np.zeros(self.precision.shape)
        if self.mean is not None:
            centre += self.mean
        if self.share:
            width = self.precision.shape[-1]
            experts = centre[: -self.n_experts].reshape(self.n_experts, -1, width)
            away = (weights - centre)[: -self.n_experts].reshape(experts.shape)
            experts[:, :, :-1] += self.share * away[:, :, :-1].mean(axis=0)
        return centre

    def product(self, direction: Array) -> Floats:
        """Second derivative of the energy times ``direction``."""
        return self.precision * (direction - replace(self, mean=None).centre(direction))

    def gradient(self, weights: Array) -> Floats:
        """Gradient of the log-density."""
        return self.precision * (self.centre(weights) - weights)

    def log_density(self, weights: Array) -> tuple[float, float]:
        """Log-density of the experts' weights, and of the gate's, up to constants."""
        away = weights if self.mean is None else weights - self.mean
        energy = 0.5 * np.einsum("ij,ij->i", away, -self.gradient(weights))
        return -float(energy[: -self.n_experts].sum()), -float(energy[-self.n_experts :].sum())


class Posterior(NamedTuple):
    """One tile: experts (K, V, m), gate and responsibilities (K, m), log P(y|x) (m,)."""

    experts: Array
    gate: Array
    responsibilities: Array
    log_probability: Array


class Expectation(NamedTuple):
    """Result of an E-step.

    log_likelihood and penalised are sums over rows; gradient is that of penalised (and of Q) in
    the weights, or None where the M-step does not need it; curvature (rows of the weights,) is
    the sum of -∂²Q over the square of each logit; statistics are the experts' own.
    """

    log_likelihood: float
    penalised: float
    gradient: Floats | None
    curvature: Floats
    statistics: Any


@dataclass
class Experts(ABC):
    """K experts over V classes and a softmax gate over them.

    Weights are (K * V + K, n_units + 1): the experts' rows, then the gate's; columns are whitened
    coordinates Z (m, n_units + 1), the intercept last. A Newton step takes ``n_conjugate`` steps
    of conjugate gradient.
    """

    #: Standard deviation of the experts' first weights, on coordinates of unit variance.
    spread: ClassVar[float]

    n_experts: int
    n_classes: int
    prior: Prior
    _: KW_ONLY
    n_conjugate: int

    def start(self, rows: TrainingRows, rng: np.random.RandomState) -> Array:
        """First weights: class frequencies in the intercepts, random elsewhere."""
        K, V = self.n_experts, self.n_classes
        width = rows.whitening.map.shape[0]
        weights = np.zeros((K * V + K, width + 1))
        weights[: K * V, :-1] = self.spread * rows.whitening.draw(rng, K * V)
        weights[K * V :, :-1] = 0.5 * rows.whitening.draw(rng, K)
        weights[: K * V, -1] = np.tile(self._intercepts(rows.counts), K)
        return weights.astype(rows.whitening.map.dtype)

    @abstractmethod
    def e_step(self, source: Source, weights: Array) -> Expectation:
        """Responsibilities of every row, summed to the likelihood and the M-step's statistics."""

    @abstractmethod
    def m_step(
        self, source: Source, weights: Array, expected: Expectation, memory: QuasiNewtonMemory
    ) -> Callable[[float], Array]:
        """Weights for a step length in (0, 1]; Q rises for every one that is short enough."""

    def e_step_uphill(
        self,
        source: Source,
        weights: Array,
        expected: Expectation,
        step_to: Callable[[float], Array],
        memory: QuasiNewtonMemory,
    ) -> tuple[Array, Expectation]:
        """First weights of the steps 1, 1/2, 1/4 ... with no lower objective, and the E-step there.

        The objective is the penalised log-likelihood.
        """
        step = 1.0
        while step >= _SHORTEST_STEP:
            candidate = step_to(step)
            fresh = self.e_step(source, candidate)
            if fresh.penalised >= expected.penalised:
                if fresh.gradient is not None and expected.gradient is not None:
                    move = candidate - np.asarray(weights, dtype=np.float64)
                    memory.update(move, expected.gradient - fresh.gradient)
                return candidate, fresh
            step /= 2
        return weights, expected

    def scores(
        self, rows: TrainingRows, weights: Array, expected: Expectation
    ) -> tuple[float, float, float | None]:
        """Penalised, training and held-out log-likelihood a row (nats)."""

        def tile(_: int, Z: Array, codes: Array) -> float:
            return float(self._log_probability(Z, codes, weights).sum(dtype=np.float64))

        n, held_out = rows.train.n, None
        if rows.held_out is not None:
            held_out = sum(rows.held_out.each(tile)) / rows.held_out.n
        return expected.penalised / n, expected.log_likelihood / n, held_out

    def gate(self, Z: Array, weights: Array) -> Array:
        """P(k | x): Z (m, width) -> (m, K)."""
        rows = weights[self.n_experts * self.n_classes :]
        return np.ascontiguousarray(softmax_in_place(rows @ Z.T, axis=0).T)

    def distribution(self, Z: Array, weights: Array) -> Array:
        """P(y|x): Z (m, width) -> (m, V)."""
        experts, gate = self._factors(Z, weights)
        return np.einsum("km,kvm->mv", gate, experts)

    @abstractmethod
    def posterior(self, Z: Array, codes: Array, weights: Array) -> Posterior:
        """Responsibilities of one tile, by Bayes' rule: Z (m, width), codes (m,)."""

    def _log_probability(self, Z: Array, codes: Array, weights: Array) -> Array:
        """Predicted log-probability of each label: (m,)."""
        return self.posterior(Z, codes, weights).log_probability

    def _factors(self, Z: Array, weights: Array) -> tuple[Array, Array]:
        """Return outputs of the experts (K, V, m), before any softmax, and P(k | x) (K, m)."""
        n_rows = self.n_experts * self.n_classes
        outputs = weights @ Z.T
        experts = outputs[:n_rows].reshape(self.n_experts, self.n_classes, len(Z))
        return experts, softmax_in_place(outputs[n_rows:], axis=0)

    @abstractmethod
    def _intercepts(self, counts: Ints64) -> Array:
        """First intercepts (V,) of an expert, from the counts of the classes."""
