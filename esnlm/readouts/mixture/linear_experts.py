"""A softmax gate over linear (Gaussian) experts: closed-form M-steps for the experts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from esnlm.readouts.linear.simplex import floor_rows, least_output
from esnlm.readouts.mixture.experts import Expectation, Experts, Posterior, softmax_in_place
from esnlm.readouts.mixture.optimize import LEAST_CURVATURE, QuasiNewtonMemory, conjugate_gradient
from esnlm.readouts.mixture.whitening import Source
from esnlm.utils.arrays import Array, Ints64

# Rounds of (experts given what they share, what they share given the experts).
_COMMON_ROUNDS = 3


class _Statistics(NamedTuple):
    """Weighted Grams (K, D, D), cross moments (K, V, D), the gate's gradient (K, D) and shares."""

    grams: Array
    cross: Array
    gate_gradient: Array
    gate: list[Array] | None


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
        keep = source.in_memory

        def tile(_: int, Z: Array, codes: Array) -> Any:
            """Return the sums of a tile, and its gate (K, m) where batches are in memory."""
            gate, r, log_density = self.posterior(Z, codes, weights)[1:]
            m = len(Z)
            targets = np.zeros((K, V, m), dtype=Z.dtype)
            targets[:, codes, np.arange(m)] = r
            grams = np.stack([(Z.T * r[k]) @ Z for k in range(K)])
            cross = (targets.reshape(K * V, m) @ Z).reshape(K, V, width)
            total = log_density.sum(dtype=np.float64)
            curvature = (gate * (1 - gate)).sum(axis=1)
            kept = gate if keep else None
            return total, curvature, grams, cross, r.sum(axis=1), (r - gate) @ Z, kept

        log_density, curvature = 0.0, np.zeros(K)
        grams, cross = np.zeros((K, width, width)), np.zeros((K, V, width))
        shares, gate_gradient, gates = np.zeros(K), np.zeros((K, width)), []
        for part in source.each(tile):
            log_density += part[0]
            sums = (curvature, grams, cross, shares, gate_gradient)
            for total, addend in zip(sums, part[1:6], strict=True):
                total += addend
            if keep:
                gates.append(part[6])
        statistics = _Statistics(grams, cross, gate_gradient, gates if keep else None)
        experts_prior, gate_prior = self.prior.log_density(weights)
        penalised = log_density + experts_prior / self.variance + gate_prior
        curvature = np.concatenate([np.repeat(shares, V), curvature])
        return Expectation(log_density, penalised, None, curvature, statistics)

    def m_step(
        self, source: Source, weights: Array, expected: Expectation, memory: QuasiNewtonMemory
    ) -> Callable[[float], Array]:
        """Experts in closed form; a Newton step for the gate, of any length."""
        statistics: _Statistics = expected.statistics
        n_rows = self.n_experts * self.n_classes
        old = np.asarray(weights, dtype=np.float64)
        experts = self._closed_form(statistics, old)
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
        gates = expected.statistics.gate

        def product(search: Array) -> Array:
            """Return the gate's negative Hessian, with the penalty, times ``search`` (K, width)."""
            narrow = search.astype(rows.dtype)

            def tile(index: int, Z: Array, codes: Array) -> Array:
                gate = softmax_in_place(rows @ Z.T, axis=0) if gates is None else gates[index]
                change = narrow @ Z.T
                change -= (gate * change).sum(axis=0)
                change *= gate
                return change @ Z

            image = precision * search
            for part in source.each(tile):
                image += part
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
