"""A softmax gate over softmax experts: E-step, and M-step by Newton with conjugate gradient."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.mixture.em import Expectation, Experts, Parameters, softmax_in_place
from esnlm.readouts.mixture.optimize import QuasiNewtonMemory, conjugate_gradient
from esnlm.readouts.mixture.whitening import Source, TrainingRows

Floats = NDArray[Any]

# Bytes of posteriors kept from the E-step for the products of the M-step.
_KEPT_BYTES = 1 << 28


class Posterior(NamedTuple):
    """One tile: experts (K, V, m), gate and responsibilities (K, m), log P(y|x) (m,)."""

    experts: Floats
    gate: Floats
    responsibilities: Floats
    log_probability: Floats


class SoftmaxExperts(Experts):
    """P(y|x) = Σ_k P(k|x) P(y|x, k), all factors softmax (Rachez & Hagiwara, eq. 30-33)."""

    def start(self, rows: TrainingRows, rng: np.random.RandomState) -> Parameters:
        """Class frequencies in the intercepts, small random weights."""
        K, V = self.n_experts, self.n_classes
        width = rows.whitening.map.shape[0]
        weights = np.zeros((K * V + K, width + 1))
        weights[: K * V, :-1] = 0.1 * rows.whitening.draw(rng, K * V)
        weights[K * V :, :-1] = 0.5 * rows.whitening.draw(rng, K)
        weights[: K * V, -1] = np.tile(np.log(rows.counts + 1.0), K)
        return Parameters(weights.astype(rows.whitening.map.dtype))

    def posterior(self, Z: Floats, codes: NDArray[Any], weights: Floats) -> Posterior:
        """E-step of one tile: Z (m, width), codes (m,)."""
        K, V, m = self.n_experts, self.n_classes, len(Z)
        logits = weights @ Z.T
        experts = softmax_in_place(logits[: K * V].reshape(K, V, m), axis=1)
        gate = softmax_in_place(logits[K * V :], axis=0)
        joint = gate * experts[:, codes, np.arange(m)]
        total = joint.sum(axis=0)
        joint /= total
        return Posterior(experts, gate, joint, np.log(total))

    def expect(self, source: Source, parameters: Parameters) -> Expectation:
        """Log-likelihood, gradient of Q (and of the likelihood), curvature of each logit."""
        weights = parameters.weights
        keep = source.in_memory and source.n * len(weights) * weights.itemsize <= _KEPT_BYTES

        def tile(_: int, Z: Floats, codes: NDArray[Any]) -> Any:
            posterior = self.posterior(Z, codes, weights)
            gradient, curvature = self._derivatives(Z, codes, posterior)
            total = posterior.log_probability.sum(dtype=np.float64)
            return total, gradient, curvature, posterior if keep else None

        log_likelihood = 0.0
        gradient = np.zeros(weights.shape)
        curvature = np.zeros(len(weights))
        posteriors = []
        for part, part_gradient, part_curvature, posterior in source.each(tile):
            log_likelihood += part
            gradient += part_gradient
            curvature += part_curvature
            posteriors.append(posterior)
        gradient += self.prior.gradient(weights)
        penalised = log_likelihood + self.prior.log_density(weights)
        kept = posteriors if keep else None
        return Expectation(log_likelihood, penalised, gradient, curvature, kept)

    def _derivatives(
        self, Z: Floats, codes: NDArray[Any], posterior: Posterior
    ) -> tuple[Floats, Floats]:
        """Gradient of Q in the weights and Σ of second derivatives in each logit, of one tile."""
        K, V, m = self.n_experts, self.n_classes, len(Z)
        experts, gate, r = posterior[:3]
        residual = np.empty((K * V + K, m), dtype=Z.dtype)
        of_experts = residual[: K * V].reshape(K, V, m)
        np.multiply(experts, r[:, None], out=of_experts)
        curvature = np.empty(K * V + K)
        curvature[: K * V] = (
            of_experts.sum(axis=2) - np.einsum("kvm,kvm->kv", of_experts, experts)
        ).ravel()
        curvature[K * V :] = (gate * (1 - gate)).sum(axis=1)
        np.negative(of_experts, out=of_experts)
        of_experts[:, codes, np.arange(m)] += r
        np.subtract(r, gate, out=residual[K * V :])
        return residual @ Z, curvature

    def maximise(
        self,
        source: Source,
        parameters: Parameters,
        expectation: Expectation,
        memory: QuasiNewtonMemory,
    ) -> Callable[[float], Parameters]:
        """Newton step on Q for all experts and the gate, corrected by the steps before it."""
        weights = parameters.weights
        kept: list[Posterior] | None = expectation.statistics
        inverse = 1.0 / (expectation.curvature[:, None] + self.prior.precision)
        # Experts share a prior, so they are one system; the gate is another.
        systems = np.zeros(len(weights), dtype=np.intp)
        systems[-self.n_experts :] = 1

        def product(search: Floats) -> Floats:
            image = self._curved(source, weights, kept, search.astype(weights.dtype))
            image += self.prior.product(search)
            return image

        def solve(gradient: Floats) -> Floats:
            return conjugate_gradient(gradient, product, inverse, systems, self.n_conjugate)

        direction = memory.direction(np.asarray(expectation.gradient), solve)
        return lambda step: Parameters((weights + step * direction).astype(weights.dtype))

    def _curved(
        self, source: Source, weights: Floats, kept: list[Posterior] | None, search: Floats
    ) -> Floats:
        """Product of -∂²Q/∂W² (without the penalty) with ``search``, same shape."""
        K, V = self.n_experts, self.n_classes

        def tile(index: int, Z: Floats, codes: NDArray[Any]) -> Floats:
            posterior = self.posterior(Z, codes, weights) if kept is None else kept[index]
            experts, gate, r = posterior[:3]
            change = search @ Z.T
            of_experts = change[: K * V].reshape(experts.shape)
            of_experts *= experts
            of_experts -= experts * of_experts.sum(axis=1, keepdims=True)
            of_experts *= r[:, None]
            of_gate = change[K * V :]
            of_gate *= gate
            of_gate -= gate * of_gate.sum(axis=0)
            return change @ Z

        image = np.zeros(weights.shape)
        for part in source.each(tile):
            image += part
        return image

    def log_score(self, source: Source, parameters: Parameters) -> float:
        """Sum of log P(code | x)."""

        def tile(_: int, Z: Floats, codes: NDArray[Any]) -> float:
            posterior = self.posterior(Z, codes, parameters.weights)
            return float(posterior.log_probability.sum(dtype=np.float64))

        return sum(source.each(tile))

    def distribution(self, Z: Floats, parameters: Parameters) -> Floats:
        """P(y|x): Z (m, width) -> (m, n_classes)."""
        K, V = self.n_experts, self.n_classes
        logits = parameters.weights @ Z.T
        experts = softmax_in_place(logits[: K * V].reshape(K, V, len(Z)), axis=1)
        gate = softmax_in_place(logits[K * V :], axis=0)
        return np.einsum("km,kvm->mv", gate, experts)

    def joint(self, Z: Floats, codes: NDArray[Any], parameters: Parameters) -> Floats:
        """P(k | x, y): Z (m, width), codes (m,) -> (m, n_experts)."""
        return np.ascontiguousarray(self.posterior(Z, codes, parameters.weights).responsibilities.T)
