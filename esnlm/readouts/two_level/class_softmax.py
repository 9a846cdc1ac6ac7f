"""Softmax over classes, or a mixture of several behind a gate, learned in batches of components."""

from functools import reduce
from operator import iadd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.kernels.multinomial import normalise_rows, shift_rows, subtract_targets
from esnlm.readouts.base.readout import rows_within
from esnlm.readouts.softmax.loss import log_softmax
from esnlm.utils.threads import TileMap

Arrays = dict[str, NDArray[Any]]

# Rows that one thread works on at a time: so many, and so many bytes of their logits.
_TILE, _TILE_BYTES = 1024, 1 << 24
_WARM_UP = 20
_CURVATURE_MEMORY = 0.05
_LEAST_CURVATURE = 1e-6
_GATE_SPREAD = 0.5
# Steps of the gate, and of what an expert adds to the common softmax, beside the common ones.
_GATE_RATE, _OWN_RATE = 1.0, 1.0
_NEVER = -1e4
_ARRAYS = ("weights", "velocity", "gate", "gate_velocity", "variances")


class GatedSolver:
    """Incremental minimiser of ``-log Σ_k P(k|z) P(c|z, k)`` over rows z: a gate and K softmaxes.

    One expert is a plain softmax. Rows z (n, P) are taken to be centred, and their columns
    uncorrelated and of variance one at most, so that a gradient is a Gram-preconditioned one as
    it stands. A step is one of generalised EM (Rachez eq. 30-34) on a batch: responsibilities
    ``P(k|z, c)`` weigh the rows of each expert's softmax regression and are the gate's targets.
    Steps are heavy-ball ones of ``rate / sqrt(v)``, v the running mean of p (1 - p) of a class.

    Experts are a common softmax and what each adds to it: a row moves all of them, and those
    that explain it more. So a mixture learns from few rows what one softmax would.

    Parameters
    ----------
    n_components : int
        P.
    n_experts : int
        K.
    counts : ndarray (C,)
        Occurrences of the classes, more than 0, for the first intercepts.
    momentum : float
    penalty : float
        Of half the squared weights, for each row.
    told : ndarray (P,) bool, optional
        Components that the gate's first, random weights are on: those that differ in earnest,
        while directions that tell nothing are any basis of their space. None: all of them.
    seed : int
        Of these weights.

    Attributes
    ----------
    weights : ndarray (P + 1, K * C) float32
        One expert's classes beside the other's; intercepts in the last row.
    gate : ndarray (P + 1, K) float32

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> Z = random.standard_normal((8192, 2)).astype(np.float32)
    >>> classes = (Z[:, 0] * Z[:, 1] > 0).astype(int)  # no single softmax can tell
    >>> solver = GatedSolver(2, 4, np.ones(2))
    >>> from esnlm.utils.threads import tile_map
    >>> with tile_map(1) as over:
    ...     for _ in range(4):
    ...         for k in range(0, 8192, 64):
    ...             solver.step(Z[k : k + 64], classes[k : k + 64], 0.1, over)
    >>> bool((solver.log_probabilities(Z).argmax(axis=1) == classes).mean() > 0.9)
    True
    """

    def __init__(
        self,
        n_components: int,
        n_experts: int,
        counts: NDArray[Any],
        *,
        momentum: float = 0.9,
        penalty: float = 0.0,
        told: NDArray[np.bool_] | None = None,
        seed: int = 0,
    ) -> None:
        self.n_experts, self.n_classes = n_experts, len(counts)
        self.momentum, self.penalty = momentum, penalty
        self.n_steps = 0
        frequencies = counts / counts.sum()
        self.weights = np.zeros((n_components + 1, n_experts * len(counts)), dtype=np.float32)
        self.weights[-1] = np.tile(np.log(frequencies), n_experts)
        self.velocity = np.zeros_like(self.weights)
        self.variances = frequencies * (1 - frequencies)
        self.gate = np.zeros((n_components + 1, n_experts), dtype=np.float32)
        if n_experts > 1:  # experts that begin alike stay alike: the gate tells them apart
            random = np.random.default_rng(seed)
            self.gate[:-1] = _GATE_SPREAD * random.standard_normal((n_components, n_experts))
            if told is not None:
                self.gate[:-1][~told] = 0
        self.gate_velocity = np.zeros_like(self.gate)

    def log_probabilities(self, Z: NDArray[Any]) -> NDArray[Any]:
        """log P(class | z): (n, C), in the dtype of Z."""
        logs = log_softmax(_linear(Z, self.weights).reshape(-1, self.n_classes))
        if self.n_experts == 1:
            return logs
        joint: NDArray[Any] = logs.reshape(len(Z), self.n_experts, self.n_classes)
        joint += log_softmax(_linear(Z, self.gate))[:, :, None]
        most: NDArray[Any] = joint.max(axis=1)
        joint -= most[:, None]
        np.exp(joint, out=joint)
        most += np.log(joint.sum(axis=1))
        return most

    def step(
        self, Z: NDArray[np.float32], classes: NDArray[np.intp], rate: float, over: TileMap
    ) -> None:
        """One step on rows Z (n, P), whose classes are (n,)."""

        def tile(start: int) -> tuple[NDArray[Any], ...]:
            return self._derivatives(Z[start : start + rows], classes[start : start + rows])

        rows = min(_TILE, rows_within(_TILE_BYTES, self.weights.shape[1], np.float32))
        parts = over(tile, range(0, len(Z), rows))
        # Tiles are added in their order: the sums do not depend on the threads.
        gradient, gate_gradient, variances = (
            reduce(iadd, [part[k] for part in parts]) for k in range(3)
        )
        memory = max(_CURVATURE_MEMORY, 1 / (self.n_steps + 2))
        self.variances += memory * (variances / len(Z) - self.variances)
        size = rate * min(1.0, (self.n_steps + 1) / _WARM_UP) / len(Z)
        scale = size / np.sqrt(np.maximum(self.variances, 0) + _LEAST_CURVATURE)
        self._descend(self._shared(gradient), scale.astype(np.float32), len(Z))
        if self.n_experts > 1:
            self.gate_velocity *= np.float32(self.momentum)
            self.gate_velocity -= np.float32(_GATE_RATE * size) * gate_gradient
            self.gate += self.gate_velocity
        self.n_steps += 1

    def _descend(self, gradient: NDArray[Any], scale: NDArray[Any], n_rows: int) -> None:
        """A heavy-ball step of the experts; the penalty's part of it is implicit, hence stable."""
        scales = np.tile(scale, self.n_experts)
        gradient *= scales
        self.velocity *= np.float32(self.momentum)
        self.velocity -= gradient
        self.weights += self.velocity
        # Momentum makes steps 1 / (1 - m) as long.
        decay = np.float32(self.penalty * n_rows / (1 - self.momentum))
        self.weights[:-1] /= 1 + scales * decay

    def _shared(self, gradient: NDArray[Any]) -> NDArray[Any]:
        """Gradient (P + 1, K * C) of each expert, beside that of what experts have in common."""
        if self.n_experts == 1:
            return gradient
        by_expert = gradient.reshape(len(gradient), self.n_experts, self.n_classes)
        common = by_expert.sum(axis=1, keepdims=True)
        by_expert *= np.float32(_OWN_RATE * np.sqrt(self.n_experts))
        by_expert += common
        return gradient

    def _derivatives(self, Z: NDArray[Any], classes: NDArray[np.intp]) -> tuple[NDArray[Any], ...]:
        """Gradients of the summed loss in weights and gate, and sums of r p (1 - p) by class."""
        n, K = len(Z), self.n_experts
        P = _linear(Z, self.weights).reshape(-1, self.n_classes)
        targets = np.repeat(classes, K)
        shift_rows(P)
        chosen = np.maximum(P[np.arange(n * K), targets], _NEVER)
        np.exp(P, out=P)
        sums = np.empty(n * K, dtype=P.dtype)
        normalise_rows(P, sums)
        gate = log_softmax(_linear(Z, self.gate))
        joint = gate + (chosen - np.log(sums)).reshape(n, K)
        joint = log_softmax(joint)
        r = np.exp(joint).ravel()
        variances = r @ P
        variances -= np.einsum("i,iv,iv->v", r, P, P)
        subtract_targets(P, targets, r)
        residual = P.reshape(n, -1)
        of_gate = np.exp(gate)
        of_gate -= r.reshape(n, K)
        return _gradient(Z, residual), _gradient(Z, of_gate), variances

    def to_arrays(self) -> Arrays:
        """Parameters, velocities and counters: all that `step` goes on from, as views."""
        arrays = {name: np.asarray(getattr(self, name)) for name in _ARRAYS}
        arrays["n_steps"] = np.asarray(self.n_steps)
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """Take over what `to_arrays` gave."""
        for name in _ARRAYS:
            setattr(self, name, arrays[name])
        self.n_steps = int(arrays["n_steps"])


def _linear(Z: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """Z (n, P) times weights (P + 1, m), the last row added: (n, m) in the dtype of Z."""
    weights = weights.astype(Z.dtype, copy=False)
    out: NDArray[Any] = Z @ weights[:-1]
    out += weights[-1]
    return out


def _gradient(Z: NDArray[Any], residual: NDArray[Any]) -> NDArray[Any]:
    """Gradient (P + 1, m) of weights whose outputs have the residual (n, m)."""
    gradient = np.empty((Z.shape[1] + 1, residual.shape[1]), dtype=Z.dtype)
    np.matmul(Z.T, residual, out=gradient[:-1])
    residual.sum(axis=0, out=gradient[-1])
    return gradient
