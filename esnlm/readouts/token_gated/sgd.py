"""Gram-preconditioned stochastic gradient of many softmax regressions, each on rows of its own."""

from typing import Self

import numpy as np

from esnlm.readouts.base.moments import Moments
from esnlm.readouts.softmax import sgd
from esnlm.readouts.softmax.loss import logits, residuals
from esnlm.utils.arrays import Array, Arrays, Floats, Floats32, Ints, Ints64
from esnlm.utils.memory import check_memory
from esnlm.utils.state_dict import Stateful, saved, under_prefix, with_prefix

_GRAM_ROWS_A_UNIT = 6
# Steps that a rare gate makes in a pass, and the fewest rows of one.
_STEPS_A_PASS, _LEAST_BATCH = 50, 32


class GateMoments(Stateful):
    """`Moments` of the rows of each gate: states X (n, n_units), gates (n,) below ``n_gates``."""

    def __init__(self, n_gates: int, n_units: int) -> None:
        most = _GRAM_ROWS_A_UNIT * n_units
        what = f"a readout of {n_gates} gates and {n_units} units"
        check_memory(what, 16 * n_gates * n_units**2, "lower one, or take another readout")
        self.of = [Moments(n_units, 1, gram_rows=most) for _ in range(n_gates)]

    @property
    def counts(self) -> Ints64:
        """Rows of each gate (G,)."""
        return np.array([moments.n for moments in self.of])

    def add(self, X: Array, gates: Ints) -> None:
        """Add states X (n, n_units) to the moments of their gates (n,)."""
        for gate in np.unique(gates):
            rows = X[gates == gate]
            self.of[gate].add(rows, np.zeros(len(rows), dtype=np.intp))

    def means(self) -> Floats32:
        """Mean state of each gate (G, n_units); of all rows where it has none."""
        counts = self.counts
        sums = np.concatenate([moments.sums for moments in self.of])
        common = sums.sum(axis=0) / max(counts.sum(), 1)
        means = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], common)
        return means.astype(np.float32)

    def inverses(self, ridges: Floats) -> Floats32:
        """Damped inverses (G, n_units, n_units) of the states' covariance within each gate.

        That of a gate with few rows is drawn towards the mean over gates, by as many rows as there
        are units; ``ridges`` (G,) is added to its diagonal.
        """
        n_units = self.of[0].n_units
        total = sum(moments.centred_gram() for moments in self.of) / max(self.counts.sum(), 1)
        inverses = np.empty((len(self.of), n_units, n_units), dtype=np.float32)
        for gate, moments in enumerate(self.of):
            share = moments.n_gram / (moments.n_gram + n_units)
            covariance = moments.centred_gram() * (share / max(moments.n, 1))
            covariance += (1 - share) * total
            inverses[gate] = sgd.damped_inverse(covariance, ridges[gate], moments.rounding)
        return inverses

    def state_dict(self, *, training: bool = False) -> Arrays:
        """Return the moments of all gates, each under the gate's number."""
        arrays: Arrays = {}
        for gate, moments in enumerate(self.of):
            arrays |= with_prefix(str(gate), moments.state_dict())
        return arrays

    def load_state_dict(self, arrays: Arrays, *, training: bool = False) -> Self:
        """Load the moments of every gate, saved under its number."""
        for gate, moments in enumerate(self.of):
            moments.load_state_dict(under_prefix(str(gate), arrays))
        return self


class GatedPasses(Stateful):
    """G softmax regressions; the gate of a row names the one that learns it.

    Steps are those of `IncrementalSolver`, each gate with a preconditioner of its own. A
    regression makes a step when its gradients are of ``batch`` rows, however they were cut into
    blocks. ``moments`` are of a sample of rows, ``counts`` (G,) the rows of each gate in a pass,
    positive relative ``frequencies`` (V,) of the targets the first intercepts; ``alpha`` is the
    penalty on the squared weights of each regression, on the scale of its summed loss.
    """

    _saved = saved(
        "inverse", "centre", "weights", "offset", "velocity", "offset_velocity", "variances",
        "gradient", "offset_gradient", "waiting_variances", "waiting", "steps", "batch", "rows",
    )  # fmt: skip

    def __init__(
        self, moments: GateMoments, counts: Array, frequencies: Array, alpha: float, momentum: float
    ) -> None:
        """Compute each gate's preconditioner, and set intercepts to log frequencies."""
        n_gates, n_units, n_classes = len(counts), moments.of[0].n_units, len(frequencies)
        self.alpha, self.momentum = alpha, momentum
        self.rows = np.maximum(np.asarray(counts, dtype=np.float64), 1)
        variance = float((frequencies * (1 - frequencies)).mean()) + 1e-12
        self.centre = moments.means()
        self.inverse = moments.inverses(alpha / self.rows / variance)
        self.weights = np.zeros((n_gates, n_units, n_classes), dtype=np.float32)
        self.offset = np.tile(np.log(frequencies).astype(np.float32), (n_gates, 1))
        self.velocity, self.offset_velocity = map(np.zeros_like, (self.weights, self.offset))
        self.variances = np.tile(frequencies * (1 - frequencies), (n_gates, 1))
        # Of the rows since a regression's last step.
        self.gradient, self.offset_gradient = map(np.zeros_like, (self.weights, self.offset))
        self.waiting_variances = np.zeros_like(self.variances)
        self.waiting = np.zeros(n_gates, dtype=np.int64)
        self.steps = np.zeros(n_gates, dtype=np.int64)
        few = (self.rows // _STEPS_A_PASS).astype(np.int64)
        self.batch = np.clip(few, _LEAST_BATCH, sgd.batch_rows(n_units))

    @property
    def intercept(self) -> Floats32:
        """Intercepts (G, V) for states that are not centred."""
        return self.offset - np.einsum("gn,gnv->gv", self.centre, self.weights)

    def learn(self, X: Array, gates: Ints, codes: Ints, rate: float, Z: Array) -> None:
        """Learn from rows X (n, n_units), their gates (n,) and target columns (n,).

        ``Z`` (n, V) is added to their logits, and receives their residuals.
        """
        order = np.argsort(gates, kind="stable")
        bounds = np.searchsorted(gates[order], np.arange(len(self.batch) + 1))
        for gate in range(len(self.batch)):
            rows = order[bounds[gate] : bounds[gate + 1]]
            while len(rows):
                room = int(self.batch[gate] - self.waiting[gate])
                part, rows = rows[:room], rows[room:]
                Z[part] = self._add(gate, X[part], codes[part], Z[part])
                if self.waiting[gate] >= self.batch[gate]:
                    self._step(gate, rate)

    def _add(self, gate: int, X: Array, codes: Ints, Z: Array) -> Array:
        """Take in rows of a gate, whose logits begin as Z (n, V); their residuals (n, V)."""
        weights = self.weights[gate]
        x = np.asarray(X, dtype=np.float32)
        intercept = self.offset[gate] - self.centre[gate] @ weights
        Z += logits(x, weights, intercept)
        _, P, R = residuals(Z, codes)
        self.gradient[gate] += (R.T @ x).T
        self.offset_gradient[gate] += R.sum(axis=0)
        self.waiting_variances[gate] += P.sum(axis=0) - np.einsum("iv,iv->v", P, P)
        self.waiting[gate] += len(X)
        return R

    def _step(self, gate: int, rate: float) -> None:
        """Take a heavy-ball step of one gate with its gradient sums, and set these to zero."""
        n, n_units = int(self.waiting[gate]), self.weights.shape[1]
        gradient, offset_gradient = self.gradient[gate], self.offset_gradient[gate]
        gradient -= np.outer(self.centre[gate], offset_gradient)
        gradient /= n
        offset_gradient /= n
        gradient += np.float32(self.alpha / self.rows[gate]) * self.weights[gate]
        n_steps = int(self.steps[gate])
        size = sgd.warmed_up(rate * min(1.0, n / n_units), n_steps)
        observed = self.waiting_variances[gate] / n
        rates = sgd.class_rates(self.variances[gate], observed, n_steps, size)
        move = self.inverse[gate] @ gradient
        move *= rates
        sgd.heavy_ball(self.weights[gate], self.velocity[gate], move, self.momentum)
        change = offset_gradient * rates
        sgd.heavy_ball(self.offset[gate], self.offset_velocity[gate], change, self.momentum)
        for waiting in (self.gradient, self.offset_gradient, self.waiting_variances, self.waiting):
            waiting[gate] = 0
        self.steps[gate] += 1
