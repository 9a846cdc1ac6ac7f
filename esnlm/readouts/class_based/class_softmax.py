"""Softmax over classes, or a mixture of softmaxes behind a gate, trained on mini-batches."""

from functools import reduce
from operator import iadd

import numpy as np

from esnlm.readouts.base.blocks import rows_within
from esnlm.readouts.softmax.loss import discount, log_softmax, logits, residuals
from esnlm.readouts.softmax.sgd import class_rates, heavy_ball, warmed_up
from esnlm.utils.arrays import Array, Bools, Floats32, Ints
from esnlm.utils.state_dict import Stateful, saved
from esnlm.utils.threads import TileMap

# Rows that one thread works on at a time, at most, and bytes of their logits.
_TILE, _TILE_BYTES = 1024, 1 << 24
_GATE_SPREAD = 0.5


class ClassSoftmax(Stateful):
    """Stochastic minimiser of ``-log P(c|z)``, or of ``-log Σ_k P(k|z) P(c|z, k)``, over rows z.

    Rows z (n, P) are taken to be centred, and their columns uncorrelated and of variance one at
    most, so that the gradient needs no preconditioner; columns of less variance are learned
    later, and penalised more. Steps are heavy-ball ones of ``rate / sqrt(v)``, v the running
    mean of p (1 - p) of a class.

    A step of a mixture is one of generalised EM (Rachez eq. 30-34) on a batch: responsibilities
    ``P(k|z, c)`` weigh the rows of each expert's softmax regression and are the gate's targets.
    An expert's gradient is the sum of all experts' plus √K times its own: so a mixture learns
    from few rows what one softmax would.

    ``n_experts`` None is a softmax without a gate. ``counts`` (C,), more than 0, set the first
    intercepts. ``penalty`` is that of half the squared weights, for each row. The gate's first,
    random weights are zero but for ``informative`` components (P,). ``weights`` (P + 1, K * C) and
    ``gate`` (P + 1, K) are float32, intercepts in their last rows; the columns of one expert's
    classes stand beside the next one's.
    """

    _saved = saved("weights", "velocity", "gate", "gate_velocity", "variances", "n_steps")

    def __init__(
        self,
        n_components: int,
        n_experts: int | None,
        counts: Array,
        *,
        momentum: float,
        penalty: float,
        informative: Bools,
        seed: int,
    ) -> None:
        """Set intercepts to log frequencies, and draw the weights of a gate of several experts."""
        self.gated = n_experts is not None
        self.n_experts, self.n_classes = n_experts or 1, len(counts)
        self.momentum, self.penalty = momentum, penalty
        self.n_steps = 0
        frequencies = counts / counts.sum()
        shape = n_components + 1, self.n_experts
        self.weights = np.zeros((shape[0], self.n_experts * len(counts)), dtype=np.float32)
        self.weights[-1] = np.tile(np.log(frequencies), self.n_experts)
        self.velocity = np.zeros_like(self.weights)
        self.variances = frequencies * (1 - frequencies)
        self.gate = np.zeros(shape, dtype=np.float32)
        if self.n_experts > 1:  # equal experts would stay equal: the gate breaks the symmetry
            random = np.random.default_rng(seed)
            self.gate[:-1] = _GATE_SPREAD * random.standard_normal((n_components, self.n_experts))
            self.gate[:-1][~informative] = 0
        self.gate_velocity = np.zeros_like(self.gate)

    def log_probabilities(self, Z: Array) -> Array:
        """Return log P(class | z): (n, C), in the dtype of Z."""
        logs = log_softmax(_linear(Z, self.weights).reshape(-1, self.n_classes))
        if self.n_experts == 1:
            return logs
        joint: Array = logs.reshape(len(Z), self.n_experts, self.n_classes)
        joint += log_softmax(_linear(Z, self.gate))[:, :, None]
        most: Array = joint.max(axis=1)
        joint -= most[:, None]
        np.exp(joint, out=joint)
        most += np.log(joint.sum(axis=1))
        return most

    def step(
        self,
        Z: Floats32,
        classes: Ints,
        rate: float,
        over: TileMap,
        in_z: Floats32 | None = None,
        discounts: tuple[Floats32, Floats32] | None = None,
    ) -> None:
        """One step on rows Z (n, P), whose classes are (n,).

        ``discounts`` are shares (n,) of the rows' targets that are taken from their classes, and
        the distribution (C,) that they go to. ``in_z`` (n, P) receives the gradient of the summed
        loss with respect to Z, before the step. Both only without a gate.
        """

        def tile(start: int) -> tuple[Array, ...]:
            part = slice(start, start + rows)
            if self.gated:
                return self._mixture_derivatives(Z[part], classes[part])
            less = None if discounts is None else (discounts[0][part], discounts[1])
            out = None if in_z is None else in_z[part]
            return self._derivatives(Z[part], classes[part], less, out)

        rows = min(_TILE, rows_within(_TILE_BYTES, self.weights.shape[1], np.float32))
        parts = over(tile, range(0, len(Z), rows))
        # Tiles are added in their order: the sums do not depend on the threads.
        gradient, *rest = (reduce(iadd, arrays) for arrays in zip(*parts, strict=True))
        size = warmed_up(rate, self.n_steps) / len(Z)
        if self.gated:
            variances, gate_gradient = rest
            gate_gradient *= np.float32(size)
            heavy_ball(self.gate, self.gate_velocity, gate_gradient, self.momentum)
            if self.n_experts > 1:
                by_expert = gradient.reshape(len(gradient), self.n_experts, self.n_classes)
                common = by_expert.sum(axis=1, keepdims=True)
                by_expert *= np.float32(np.sqrt(self.n_experts))
                by_expert += common
        else:
            mean, squares = rest
            variances = (mean - squares).astype(np.float64)
        rates = class_rates(self.variances, variances / len(Z), self.n_steps, size)
        rates = np.tile(rates, self.n_experts)
        gradient *= rates
        heavy_ball(self.weights, self.velocity, gradient, self.momentum)
        # The penalty's part of the step is implicit, hence stable; momentum makes steps
        # 1 / (1 - m) as long.
        decay = np.float32(self.penalty * len(Z) / (1 - self.momentum))
        self.weights[:-1] /= 1 + rates * decay
        self.n_steps += 1

    def _derivatives(
        self, Z: Array, classes: Ints, discounts: tuple[Array, Array] | None, in_z: Array | None
    ) -> tuple[Array, ...]:
        """Gradient of the summed loss in the weights, and sums of p and p² by class."""
        _, P, R = residuals(_linear(Z, self.weights), classes)
        if discounts is not None:
            discount(R, classes, *discounts)
        if in_z is not None:
            np.matmul(R, self.weights[:-1].T, out=in_z)
        return _gradient(Z, R), P.sum(axis=0), np.einsum("iv,iv->v", P, P)

    def _mixture_derivatives(self, Z: Array, classes: Ints) -> tuple[Array, ...]:
        """Gradients of the summed loss in weights and gate; sums of r p (1 - p) in between."""
        n, K = len(Z), self.n_experts
        of_experts = _linear(Z, self.weights).reshape(-1, self.n_classes)
        losses, P, R = residuals(of_experts, np.repeat(classes, K))
        gate = log_softmax(_linear(Z, self.gate))
        r = np.exp(log_softmax(gate - losses.reshape(n, K))).ravel()
        variances = r @ P
        variances -= np.einsum("i,iv,iv->v", r, P, P)
        R *= r[:, None]
        of_gate = np.exp(gate)
        of_gate -= r.reshape(n, K)
        return _gradient(Z, R.reshape(n, -1)), variances, _gradient(Z, of_gate)


def _linear(Z: Array, weights: Array) -> Array:
    """Z (n, P) times weights (P + 1, m), the last row added: (n, m) in the dtype of Z."""
    return logits(Z, weights[:-1], weights[-1])


def _gradient(Z: Array, residual: Array) -> Array:
    """Gradient (P + 1, m) of weights whose outputs have the residual (n, m)."""
    gradient = np.empty((Z.shape[1] + 1, residual.shape[1]), dtype=Z.dtype)
    np.matmul(Z.T, residual, out=gradient[:-1])
    residual.sum(axis=0, out=gradient[-1])
    return gradient
