"""Experts whose choice is known for every training row (Rachez & Hagiwara, section 3.3.2)."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from esnlm.readouts.base.blocks import Block, Blocks, blocks_rows
from esnlm.readouts.mixture.em import Expectation, Posterior
from esnlm.readouts.mixture.experts import SoftmaxExperts
from esnlm.readouts.mixture.optimize import QuasiNewtonMemory
from esnlm.readouts.mixture.whitening import Source, TrainingRows
from esnlm.utils.arrays import Array, Ints

#: Steps of conjugate gradient in a Newton step: with fewer the last iterations gain little.
LEAST_CONJUGATE = 8


class SupervisedExperts(SoftmaxExperts):
    """Softmax experts and gate where codes say the expert z and the class y: z V + y.

    The E-step has nothing to estimate: the gate learns z, and an expert learns y on its rows.
    Held-out rows are scored by P(y|x), which knows no z.
    """

    def start(self, rows: TrainingRows, rng: np.random.RandomState) -> Array:
        """First weights: class frequencies in the intercepts. Nothing is to be told apart."""
        K, V = self.n_experts, self.n_classes
        counts = rows.counts.reshape(K, V)
        weights = np.zeros((K * V + K, rows.whitening.map.shape[0] + 1))
        weights[: K * V, -1] = np.tile(self._intercepts(counts.sum(axis=0)), K)
        weights[K * V :, -1] = self._intercepts(counts.sum(axis=1))
        return weights.astype(rows.whitening.map.dtype)

    def m_step(
        self, source: Source, weights: Array, expected: Expectation, memory: QuasiNewtonMemory
    ) -> Callable[[float], Array]:
        """Newton step as it is: no missing responsibilities make the curvature too large."""
        return super().m_step(source, weights, expected, QuasiNewtonMemory(1))

    def posterior(self, Z: Array, codes: Array, weights: Array) -> Posterior:
        """Return one-hot responsibilities and log P(z, y|x): Z (m, width), codes (m,)."""
        experts, gate = self._factors(Z, weights)
        z, y = np.divmod(codes, self.n_classes)
        rows = np.arange(len(Z))
        responsibilities = np.zeros_like(gate)
        responsibilities[z, rows] = 1
        return Posterior(
            experts, gate, responsibilities, np.log(gate[z, rows] * experts[z, y, rows])
        )

    def _derivatives(self, Z: Array, codes: Array, posterior: Posterior) -> tuple[Array, Array]:
        return super()._derivatives(Z, codes % self.n_classes, posterior)

    def _log_probability(self, Z: Array, codes: Array, weights: Array) -> Array:
        return super().posterior(Z, codes % self.n_classes, weights).log_probability


class AssignedBlocks:
    """Blocks (states, codes) as blocks (states, z V + codes), z of each row in order."""

    def __init__(self, blocks: Blocks, assignment: Ints, n_classes: int) -> None:
        self.blocks, self.assignment, self.n_classes = blocks, assignment, n_classes
        self.n_rows = blocks_rows(blocks)

    def __iter__(self) -> Iterator[Block]:
        first = 0
        for X, codes in self.blocks:
            z = self.assignment[first : first + len(X)]
            first += len(X)
            if len(z) == len(X):
                yield X, z * self.n_classes + codes
        if first != len(self.assignment):
            raise ValueError(
                f"assignment has {len(self.assignment)} experts and the rows are {first}: give one"
                " expert a row"
            )


def check_assignment(assignment: ArrayLike, n_experts: int, experts: str) -> Ints:
    """Return experts of rows (n,) as integers below ``n_experts``, or raise ValueError."""
    if experts != "softmax":
        raise ValueError(f"assignment needs experts='softmax', got experts={experts!r}")
    z: Any = np.asarray(assignment)
    if (
        z.ndim != 1
        or z.dtype.kind not in "iu"
        or (z.size and not 0 <= z.min() <= z.max() < n_experts)
    ):
        raise ValueError(
            f"assignment must be one integer from 0 to {n_experts - 1} a row, got an array of shape"
            f" {z.shape} and type {z.dtype}" + (f" from {z.min()} to {z.max()}" if z.size else "")
        )
    return z.astype(np.intp)
