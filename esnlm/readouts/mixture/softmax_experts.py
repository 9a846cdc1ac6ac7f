"""A softmax gate over softmax experts: E-step, and M-step by Newton with conjugate gradient."""

from collections.abc import Callable
from typing import Any

import numpy as np

from esnlm.readouts.mixture.experts import Expectation, Experts, Posterior, softmax_in_place
from esnlm.readouts.mixture.optimize import LEAST_CURVATURE, QuasiNewtonMemory, conjugate_gradient
from esnlm.readouts.mixture.whitening import Source
from esnlm.utils.arrays import Array, Ints64

# Bytes of posteriors kept from the E-step for the products of the M-step.
_KEPT_BYTES = 1 << 28


class SoftmaxExperts(Experts):
    """P(y|x) = Σ_k P(k|x) P(y|x, k), all factors softmax (Rachez & Hagiwara, eq. 30-33)."""

    spread = 0.1

    def _intercepts(self, counts: Ints64) -> Array:
        return np.log(counts + 1.0)

    def posterior(self, Z: Array, codes: Array, weights: Array) -> Posterior:
        """Return the posterior of a tile by softmax factors: Z (m, width), codes (m,)."""
        experts, gate = self._factors(Z, weights)
        joint = gate * experts[:, codes, np.arange(len(Z))]
        total = joint.sum(axis=0)
        joint /= total
        return Posterior(experts, gate, joint, np.log(total))

    def e_step(self, source: Source, weights: Array) -> Expectation:
        """Sum log-likelihood, gradient and curvature of Q over all rows."""
        keep = source.in_memory and source.n * len(weights) * weights.itemsize <= _KEPT_BYTES

        def tile(_: int, Z: Array, codes: Array) -> Any:
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
        penalised = log_likelihood + sum(self.prior.log_density(weights))
        kept = posteriors if keep else None
        return Expectation(log_likelihood, penalised, gradient, curvature, kept)

    def _derivatives(self, Z: Array, codes: Array, posterior: Posterior) -> tuple[Array, Array]:
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

    def m_step(
        self, source: Source, weights: Array, expected: Expectation, memory: QuasiNewtonMemory
    ) -> Callable[[float], Array]:
        """Newton step on Q for all experts and the gate, corrected by the steps before it."""
        kept: list[Posterior] | None = expected.statistics
        inverse = 1.0 / np.maximum(
            expected.curvature[:, None] + self.prior.precision, LEAST_CURVATURE
        )
        # Experts share a prior, so they are one system; the gate is another.
        systems = np.zeros(len(weights), dtype=np.intp)
        systems[-self.n_experts :] = 1

        def product(search: Array) -> Array:
            image = self._curved(source, weights, kept, search.astype(weights.dtype))
            image += self.prior.product(search)
            return image

        def solve(gradient: Array) -> Array:
            return conjugate_gradient(gradient, product, inverse, systems, self.n_conjugate)

        direction = memory.direction(np.asarray(expected.gradient), solve)
        return lambda step: (weights + step * direction).astype(weights.dtype)

    def _curved(
        self, source: Source, weights: Array, kept: list[Posterior] | None, search: Array
    ) -> Array:
        """Product of -∂²Q/∂W² (without the penalty) with ``search``, same shape."""
        K, V = self.n_experts, self.n_classes

        def tile(index: int, Z: Array, codes: Array) -> Array:
            """Return the product over the rows of a tile, in the shape of ``search``."""
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

    def _log_probability(self, Z: Array, codes: Array, weights: Array) -> Array:
        return self.posterior(Z, codes, weights).log_probability

    def _factors(self, Z: Array, weights: Array) -> tuple[Array, Array]:
        """P(y | x, k) (K, V, m) and P(k | x) (K, m)."""
        logits, gate = super()._factors(Z, weights)
        return softmax_in_place(logits, axis=1), gate
