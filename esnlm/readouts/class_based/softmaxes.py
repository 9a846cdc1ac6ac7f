"""Softmaxes over classes, and over the words of every class, trained on mini-batches."""

from functools import reduce
from operator import iadd

import numpy as np

from esnlm.kernels.rows import add_class_variances, discount_rows
from esnlm.readouts.base.blocks import rows_within
from esnlm.readouts.class_based.word_factors import TASKS, ClassLayout, WordFactors
from esnlm.readouts.softmax.loss import log_softmax, logits, residuals
from esnlm.readouts.softmax.sgd import class_rates, heavy_ball, warmed_up
from esnlm.utils.arrays import Array, Bools, Floats32, Ints
from esnlm.utils.state_dict import Stateful, saved
from esnlm.utils.threads import map_tiles

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
        n_threads: int | None,
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
        parts = map_tiles(tile, range(0, len(Z), rows), n_threads)
        # Tiles are added in their order: the sums do not depend on the threads.
        gradient, variances, *of_gate = (reduce(iadd, each) for each in zip(*parts, strict=True))
        size = warmed_up(rate, self.n_steps) / len(Z)
        if self.gated:
            gate_gradient = of_gate[0]
            gate_gradient *= np.float32(size)
            heavy_ball(self.gate, self.gate_velocity, gate_gradient, self.momentum)
            if self.n_experts > 1:
                by_expert = gradient.reshape(len(gradient), self.n_experts, self.n_classes)
                common = by_expert.sum(axis=1, keepdims=True)
                by_expert *= np.float32(np.sqrt(self.n_experts))
                by_expert += common
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
        """Gradient of the summed loss in the weights, and sums of p (1 - p) by class."""
        _, P, R = residuals(_linear(Z, self.weights), classes)
        if discounts is not None:
            discount_rows(R, classes, *discounts)
        if in_z is not None:
            np.matmul(R, self.weights[:-1].T, out=in_z)
        variances = np.zeros(P.shape[1])
        add_class_variances(variances, P)
        return _gradient(Z, R), variances

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


class WordSoftmax(WordFactors, Stateful):
    """Stochastic minimiser of ``-log P(w | class(w), z)`` over rows z, of all classes at once.

    Most rows say nothing of a word, so steps are AdaGrad's (Duchi et al. 2011) with one rate a
    word: its gradient g, divided by the root of the sum of |g|² |z|² over all steps so far, |z|²
    the mean over rows by their squared residuals. So the k-th row that pulls a word moves its
    logit by ``rate / sqrt(k)`` at most, however long the row is and however often it recurs, as
    the beginning of sentences does with direct connections.

    ``counts`` (V,) are the words' occurrences, for the first intercepts; ``prior`` the rows that a
    word's sum starts with, in units of the components' variance; ``penalty`` that of half the
    squared weights, for each row.
    """

    _saved = saved("coef", "intercept", "squares")

    def __init__(
        self, layout: ClassLayout, n_components: int, counts: Array, prior: float, penalty: float
    ) -> None:
        mass = counts + 0.5
        of_class = np.bincount(layout.word_class, mass, layout.n_classes)
        shares = (mass / of_class[layout.word_class])[layout.order]
        coef = np.zeros((len(counts), n_components), dtype=np.float32)
        super().__init__(layout, coef, np.log(shares).astype(np.float32))
        self.penalty = penalty
        self.squares = np.full(len(counts), (prior * n_components) ** 2, dtype=np.float32)

    def step(
        self,
        Z: Floats32,
        words: Ints,
        n_rows: int,
        rate: float,
        n_threads: int | None,
        in_z: Floats32 | None = None,
        discounts: Floats32 | None = None,
    ) -> None:
        """One step of the words of every class that occurs in rows Z (n, P), words (n,).

        ``rate`` is in nats. Of ``n_rows`` rows, those whose word is alone in its class may be left
        out. ``in_z`` (n, P) receives the gradient of the summed loss in Z, before the step;
        ``discounts`` (n,) are shares of the rows' targets that go to all words of the class alike.
        """
        decay = np.float32(self.penalty * n_rows)
        parts = self.layout.rows_by_class(self.layout.word_class[words])

        def classes(first: int) -> None:
            for c, rows in parts[first::TASKS]:
                z, run = Z[rows], self.layout.runs[c]
                targets = self.layout.position[words[rows]] - run.start
                _, _, R = residuals(logits(z, self.coef[run].T, self.intercept[run]), targets)
                if discounts is not None:
                    alike = np.full(R.shape[1], 1 / R.shape[1], dtype=R.dtype)
                    discount_rows(R, targets, discounts[rows], alike)
                if in_z is not None:
                    in_z[rows] = R @ self.coef[run]
                self._move(z, run, R, np.float32(rate), decay)

        map_tiles(classes, range(min(TASKS, len(parts))), n_threads)

    def _move(self, z: Array, run: slice, R: Array, rate: np.float32, decay: np.float32) -> None:
        """Step of the words of a class, whose rows (n, P) have residuals R."""
        coef, intercept, squares = self.coef[run], self.intercept[run], self.squares[run]
        gradient = R.T @ z
        weights = np.square(R)
        lengths = (np.einsum("ij,ij->i", z, z) @ weights) / np.maximum(weights.sum(axis=0), 1e-30)
        squares += lengths * np.einsum("vj,vj->v", gradient, gradient)
        rates = rate / np.sqrt(squares)
        gradient *= rates[:, None]
        coef -= gradient
        coef /= (1 + rates * decay)[:, None]
        intercept -= rates * R.sum(axis=0)


def _linear(Z: Array, weights: Array) -> Array:
    """Z (n, P) times weights (P + 1, m), the last row added: (n, m) in the dtype of Z."""
    return logits(Z, weights[:-1], weights[-1])


def _gradient(Z: Array, residual: Array) -> Array:
    """Gradient (P + 1, m) of weights whose outputs have the residual (n, m)."""
    gradient = np.empty((Z.shape[1] + 1, residual.shape[1]), dtype=Z.dtype)
    np.matmul(Z.T, residual, out=gradient[:-1])
    residual.sum(axis=0, out=gradient[-1])
    return gradient
