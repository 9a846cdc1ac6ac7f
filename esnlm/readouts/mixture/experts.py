"""Softmax and linear experts behind a softmax gate: their E-steps and M-steps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from esnlm.kernels import mixture as kernels
from esnlm.readouts.linear.simplex import floor_rows, least_output
from esnlm.readouts.mixture.em import (
    LOWEST_LOGIT,
    Expectation,
    Experts,
    Posterior,
    softmax_in_place,
)
from esnlm.readouts.mixture.optimize import LEAST_CURVATURE, QuasiNewtonMemory, conjugate_gradient
from esnlm.readouts.mixture.whitening import Source
from esnlm.utils.arrays import Array, Ints64

# Bytes of posteriors kept from the E-step for the products of the M-step.
_KEPT_BYTES = 1 << 28
# Fewest rows in the products of the M-step, in all and for each unit, and the largest stride.
_CURVATURE_ROWS, _CURVATURE_ROWS_A_UNIT, _LARGEST_STRIDE = 8192, 32, 4
# Rounds of (experts given what they share, what they share given the experts).
_COMMON_ROUNDS = 3


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
        stride = _curvature_stride(source.n, weights.shape[1])
        n_kept = source.n // stride * len(weights)
        keep = source.in_memory and n_kept * weights.itemsize <= _KEPT_BYTES
        posteriors: dict[int, Posterior] | None = {} if keep else None

        def tile(index: int, Z: Array, codes: Array) -> tuple[Array, ...]:
            posterior = self.posterior(Z, codes, weights)
            if posteriors is not None and index % stride == 0:
                posteriors[index] = posterior
            total = posterior.log_probability.sum(dtype=np.float64)
            return total, *self._derivatives(Z, codes, posterior)

        total, gradient = np.zeros(()), np.zeros(weights.shape)
        curvature = np.zeros(len(weights))
        source.add_up(tile, total, gradient, curvature)
        gradient += self.prior.gradient(weights)
        log_likelihood = float(total)
        penalised = log_likelihood + sum(self.prior.log_density(weights))
        return Expectation(log_likelihood, penalised, gradient, curvature, posteriors)

    def _derivatives(self, Z: Array, codes: Array, posterior: Posterior) -> tuple[Array, Array]:
        """Gradient of Q in the weights and Σ of second derivatives in each logit, of one tile."""
        n_rows = self.n_experts * self.n_classes
        experts, gate, r = posterior[:3]
        residual = np.empty((n_rows + self.n_experts, len(Z)), dtype=Z.dtype)
        curvature = np.empty(len(residual))
        kernels.weighted_residuals(experts, r, codes, residual[:n_rows], curvature[:n_rows])
        np.subtract(r, gate, out=residual[n_rows:])
        curvature[n_rows:] = (gate * (1 - gate)).sum(axis=1)
        return residual @ Z, curvature

    def m_step(
        self, source: Source, weights: Array, expected: Expectation, memory: QuasiNewtonMemory
    ) -> Callable[[float], Array]:
        """Newton step on Q for all experts and the gate, corrected by the steps before it."""
        inverse = 1.0 / np.maximum(
            expected.curvature[:, None] + self.prior.precision, LEAST_CURVATURE
        )
        # Experts share a prior, so they are one system; the gate is another.
        systems = np.zeros(len(weights), dtype=np.intp)
        systems[-self.n_experts :] = 1

        def product(search: Array) -> Array:
            narrow = search.astype(weights.dtype)
            image = self._curved(source, weights, expected.statistics, narrow)
            image += self.prior.product(search)
            return image

        def solve(gradient: Array) -> Array:
            return conjugate_gradient(gradient, product, inverse, systems, self.n_conjugate)

        direction = memory.direction(np.asarray(expected.gradient), solve)
        return lambda step: (weights + step * direction).astype(weights.dtype)

    def _curved(
        self, source: Source, weights: Array, posteriors: dict[int, Posterior] | None, search: Array
    ) -> Array:
        """Product of -∂²Q/∂W² (without the penalty) with ``search``, same shape.

        Where there are many rows for each unit, some tiles stand for all.
        """
        n_rows = self.n_experts * self.n_classes
        image, n = np.zeros(weights.shape), np.zeros(())

        def tile(index: int, Z: Array, codes: Array) -> tuple[Array, ...]:
            posterior = None if posteriors is None else posteriors[index]
            experts, gate, r, _ = posterior or self.posterior(Z, codes, weights)
            change = search @ Z.T
            kernels.weighted_curvature(experts, r, change[:n_rows])
            of_gate = change[n_rows:]
            of_gate *= gate
            of_gate -= gate * of_gate.sum(axis=0)
            return change @ Z, np.asarray(len(Z))

        source.add_up(tile, image, n, stride=_curvature_stride(source.n, weights.shape[1]))
        image *= source.n / n
        return image

    def _factors(self, Z: Array, weights: Array) -> tuple[Array, Array]:
        """P(y | x, k) (K, V, m) and P(k | x) (K, m)."""
        experts, gate = super()._factors(Z, weights)
        kernels.shift_columns(experts, experts.dtype.type(LOWEST_LOGIT))
        np.exp(experts, out=experts)
        kernels.normalise_columns(experts)
        return experts, gate


def _curvature_stride(n: int, width: int) -> int:
    """Return of how many tiles one is in the products of the M-step, for n rows of ``width``."""
    return min(max(n // max(_CURVATURE_ROWS, _CURVATURE_ROWS_A_UNIT * width), 1), _LARGEST_STRIDE)


class _Statistics(NamedTuple):
    """Weighted Grams (K, D, D), cross moments (K, V, D), the gate's gradient (K, D) and shares."""

    grams: Array
    cross: Array
    gate_gradient: Array
    gates: dict[int, Array] | None


@dataclass
class LinearExperts(Experts):
    """Under expert k the one-hot target is N(B_k x, σ² I); a softmax gate mixes the densities.

    EM raises that density. Prediction is the mean of the mixture, Σ_k P(k|x) B_k x, which is the
    model's expectation of the one-hot target; as in ridge, entries below a floor are set to it
    and the row is divided by its sum.

    σ² is fixed, and precisions of expert weights are in units of 1/σ²: their M-step is a weighted
    ridge regression; the gate takes one Newton step.
    """

    spread = 0.01

    variance: float = field(kw_only=True)

    def _intercepts(self, counts: Ints64) -> Array:
        return counts / counts.sum()

    def posterior(self, Z: Array, codes: Array, weights: Array) -> Posterior:
        """Return the posterior of a tile by Gaussian densities: Z (m, width), codes (m,)."""
        means, gate = self._factors(Z, weights)
        hit = means[:, codes, np.arange(len(Z))]
        squared = 1.0 - 2.0 * hit + np.einsum("kvm,kvm->km", means, means)
        joint = np.log(gate) - squared / (2 * self.variance)
        top = joint.max(axis=0)
        joint -= top
        np.exp(np.maximum(joint, -60.0, out=joint), out=joint)
        total = joint.sum(axis=0)
        joint /= total
        constant = 0.5 * self.n_classes * np.log(2 * np.pi * self.variance)
        return Posterior(means, gate, joint, np.log(total) + top - constant)

    def e_step(self, source: Source, weights: Array) -> Expectation:
        """Sum log-density, Grams, cross moments and the gate's gradient over all rows."""
        K, V = self.n_experts, self.n_classes
        width = weights.shape[1]
        gates: dict[int, Array] | None = {} if source.in_memory else None

        def tile(index: int, Z: Array, codes: Array) -> tuple[Array, ...]:
            _, gate, r, log_density = self.posterior(Z, codes, weights)
            if gates is not None:
                gates[index] = gate
            m = len(Z)
            targets = np.zeros((K, V, m), dtype=Z.dtype)
            targets[:, codes, np.arange(m)] = r
            grams = np.stack([(Z.T * r[k]) @ Z for k in range(K)])
            cross = (targets.reshape(K * V, m) @ Z).reshape(K, V, width)
            total = log_density.sum(dtype=np.float64)
            curvature = (gate * (1 - gate)).sum(axis=1)
            return total, curvature, grams, cross, r.sum(axis=1), (r - gate) @ Z

        total, curvature, shares = np.zeros(()), np.zeros(K), np.zeros(K)
        grams, cross = np.zeros((K, width, width)), np.zeros((K, V, width))
        gate_gradient = np.zeros((K, width))
        source.add_up(tile, total, curvature, grams, cross, shares, gate_gradient)
        log_density, (of_experts, of_gate) = float(total), self.prior.log_density(weights)
        penalised = log_density + of_experts / self.variance + of_gate
        curvature = np.concatenate([np.repeat(shares, V), curvature])
        statistics = _Statistics(grams, cross, gate_gradient, gates)
        return Expectation(log_density, penalised, None, curvature, statistics)

    def m_step(
        self, source: Source, weights: Array, expected: Expectation, memory: QuasiNewtonMemory
    ) -> Callable[[float], Array]:
        """Experts in closed form; a Newton step for the gate, of any length."""
        n_rows = self.n_experts * self.n_classes
        old = np.asarray(weights, dtype=np.float64)
        experts = self._closed_form(expected.statistics, old)
        direction = self._gate_direction(source, weights, expected)

        def step_to(step: float) -> Array:
            gate = old[n_rows:] + step * direction
            return np.concatenate([experts, gate]).astype(weights.dtype)

        return step_to

    def _closed_form(self, statistics: _Statistics, old: Array) -> Array:
        """Ridge regression of every expert towards what they share: (n_experts * V, width)."""
        K, V, width = self.n_experts, self.n_classes, old.shape[1]
        precision = self.prior.precision[: K * V].reshape(K, V, width)[:, 0]
        factors = []
        for gram, diagonal in zip(statistics.grams, precision, strict=True):
            system = gram.copy()
            system.flat[:: len(system) + 1] += diagonal
            factors.append(cho_factor(system))
        weights = old.copy()
        for _ in range(_COMMON_ROUNDS):
            centre = self.prior.centre(weights)[: K * V].reshape(K, V, width)
            solved = [
                cho_solve(factor, (cross + diagonal * towards).T).T
                for factor, cross, diagonal, towards in zip(
                    factors, statistics.cross, precision, centre, strict=True
                )
            ]
            weights[: K * V] = np.concatenate(solved)
        return weights[: K * V]

    def _gate_direction(self, source: Source, weights: Array, expected: Expectation) -> Array:
        """Return the gate's Newton direction (K, width), solved by conjugate gradient."""
        K, n_rows = self.n_experts, self.n_experts * self.n_classes
        rows = weights[n_rows:]
        precision = self.prior.precision[n_rows:]
        gates = expected.statistics.gates

        def product(search: Array) -> Array:
            """Return the gate's negative Hessian, with the penalty, times ``search`` (K, width)."""
            narrow = search.astype(rows.dtype)

            def tile(index: int, Z: Array, codes: Array) -> tuple[Array]:
                gate = softmax_in_place(rows @ Z.T, axis=0) if gates is None else gates[index]
                change = narrow @ Z.T
                change -= (gate * change).sum(axis=0)
                change *= gate
                return (change @ Z,)

            image = precision * search
            source.add_up(tile, image)
            return image

        gradient = expected.statistics.gate_gradient
        gradient = gradient + self.prior.gradient(weights)[n_rows:]
        inverse = 1.0 / np.maximum(expected.curvature[n_rows:, None] + precision, LEAST_CURVATURE)
        return conjugate_gradient(
            gradient, product, inverse, np.zeros(K, dtype=np.intp), self.n_conjugate
        )

    def _log_probability(self, Z: Array, codes: Array, weights: Array) -> Array:
        return np.log(self.distribution(Z, weights)[np.arange(len(Z)), codes])

    def distribution(self, Z: Array, weights: Array) -> Array:
        """P(y|x): Z (m, width) -> (m, n_classes), floored and normalised."""
        return floor_rows(super().distribution(Z, weights), least_output(self.n_classes))
