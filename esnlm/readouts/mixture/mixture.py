"""Mixture of experts: a gate chooses, state by state, whose distribution to trust."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from esnlm.readouts.base.blocks import Blocks, rows_within
from esnlm.readouts.base.buffer import BufferedReadout
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.passes import Passes
from esnlm.readouts.mixture.em import Experts, Prior
from esnlm.readouts.mixture.experts import LinearExperts, SoftmaxExperts
from esnlm.readouts.mixture.optimize import ConvergenceMonitor, QuasiNewtonMemory
from esnlm.readouts.mixture.supervised import (
    LEAST_CONJUGATE,
    AssignedBlocks,
    SupervisedExperts,
    check_assignment,
)
from esnlm.readouts.mixture.whitening import Parts, Source, Whitening, prepare
from esnlm.utils.arrays import Array, Floats, Ints
from esnlm.utils.sums import Sums
from esnlm.utils.threads import map_tiles, one_blas_thread
from esnlm.utils.validation import (
    PENALTY,
    Count,
    DivergenceError,
    Flag,
    Number,
    OneOf,
    at_fit,
    check_parameters,
    limited,
)

# Steps of EM that the quasi-Newton correction remembers.
_MEMORY = 10
_PREDICTION_BYTES = 1 << 22
_STOPS = OneOf((True,))


@dataclass(eq=False, repr=False)
class MixtureOfExpertsReadout(BufferedReadout):
    """P(y|x) = Σ_z P(z|x) P(y|x, z): K experts on the same state, and a softmax gate over them.

    Fitted by generalised expectation-maximisation on the penalised log-likelihood (maximum a
    posteriori). The E-step computes responsibilities P(z|x, y); the M-step takes one Newton step
    on the expected log-likelihood Q, solved by truncated conjugate gradient for the gate and
    every expert at once, corrected by the curvature along earlier steps (quasi-Newton
    acceleration), and halves it until the penalised log-likelihood does not fall. Experts share a
    prior that draws them together, and held-out rows decide which iteration to keep: without the
    two the mixture overfits at once.

    Where the caller knows the expert of each training row, such as the position of the word in its
    sentence, ``assignment`` makes this the supervised mixture of Rachez & Hagiwara (2014, §3.3.2).
    `ClassFactoredReadout` is the one whose experts have a part of the labels each.

    Parameters
    ----------
    n_experts : int
        K; 10 in that paper.
    experts : {"softmax", "linear"}
        Linear experts are Gaussian regressions on one-hot targets; their M-step is closed form,
        and prediction floors and normalises the mixture's mean as `RidgeReadout` does.
    alpha, common_alpha, gate_alpha : float
        Precisions of Gaussian priors on weights: of each expert around what the experts have in
        common, of that around zero, and of the gate. States count as scaled to a total variance
        of one, so 1/alpha is the prior variance of a logit, whatever n_units. The more rows there
        are, the less the priors count. A large ``alpha`` makes the mixture one softmax (or ridge)
        readout.
    variance : float
        Of linear experts around their means. It is not estimated: a small variance, which is
        what maximum likelihood finds, lets experts specialise in outcomes instead of in states.
    max_iter, tol : int, float
        Most EM iterations; one that gains less than ``tol`` nats a row is the last.
    n_conjugate : int
        Steps of conjugate gradient in each M-step; 8 at least with an ``assignment``. Of many rows
        (over 16 384, and 64 a unit), every second to fourth tile of 512 stands for all in them; the
        E-step reads every row.
    n_restarts : int
        Runs from different random starts; the best by held-out, or else by penalised
        log-likelihood, is kept.
    early_stopping : bool
        Keep the iteration that is best on held-out rows, and stop ``patience`` iterations after
        it. Held-out rows are those given to `fit_blocks`, or ``validation_fraction`` of the
        training rows, taken in stretches of 64 consecutive rows; with fewer than 256 of them
        every row trains.
    validation_fraction, patience : float, int
    buffer_size : int
        Rows kept in memory (1 GiB at most). More rows are streamed: every pass of EM reads the
        blocks again.
    n_threads : int, optional
        Threads over tiles of rows; results do not depend on it.
    random_state : int, RandomState or None
    verbose : bool
        Print every iteration to standard error.

    Attributes
    ----------
    expert_coef_ : ndarray (n_experts, V, n_units + 1)
        Weights on whitened states, intercept last.
    gate_coef_ : ndarray (n_experts, n_units + 1)
    whitening_mean_, whitening_map_ : ndarrays (n_units,), (n_units, n_units)
    monitors_ : list of ConvergenceMonitor
        The history of each run; ``monitor_`` is that of the kept one.
    n_iter_ : int

    References
    ----------
    A. Rachez and M. Hagiwara (2014), Augmented echo state networks, eq. 30-34.
    M. I. Jordan and R. A. Jacobs (1994), Hierarchical mixtures of experts and the EM algorithm.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((400, 2))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)  # no single softmax expert can tell
    >>> readout = MixtureOfExpertsReadout(n_experts=4, alpha=0.1, gate_alpha=0.1, random_state=0)
    >>> readout.fit(X, y).score(X, y) > 0.9
    True
    >>> readout.gate_proba(X).shape, readout.responsibilities(X, y).shape
    ((400, 4), (400, 4))
    """

    _scores_are_cheap: ClassVar[bool] = False
    _parameters = ("expert_coef_", "gate_coef_")
    _state = ("whitening_mean_", "whitening_map_", "curvature_", "n_iter_")
    _sizes: ClassVar[dict[str, str]] = {"K": "n_experts"}
    _layouts: ClassVar[dict[str, str]] = {
        "expert_coef_": "f K V M+1", "gate_coef_": "f K M+1", "curvature_": "f C",
        "whitening_mean_": "f N", "whitening_map_": "f N M", "n_iter_": "i",
    }  # fmt: skip

    _assignment = cast("Ints | None", None)  # no parameter: a dataclass skips what has no type

    _: KW_ONLY
    n_experts: int = limited(10, Count())
    experts: str = limited("softmax", OneOf(("linear", "softmax")))
    alpha: float = limited(0.3, PENALTY)
    common_alpha: float = limited(0.01, PENALTY)
    gate_alpha: float = limited(0.3, PENALTY)
    max_iter: int = limited(50, Count())
    tol: float = limited(1e-4, Number(0))
    variance: float = limited(0.25, Number(0, open="low"), experts=OneOf(("linear",)))
    n_conjugate: int = limited(2, Count())
    n_restarts: int = limited(1, Count())
    early_stopping: bool = limited(True, Flag())
    validation_fraction: float = limited(0.1, Number(1e-9, 0.5), early_stopping=_STOPS)
    patience: int = limited(5, Count(), early_stopping=_STOPS)
    buffer_size: int = limited(1 << 20, Count())
    n_threads: int | None = None
    random_state: Any = None
    verbose: bool = False

    def fit(self, X: ArrayLike, y: ArrayLike, *, assignment: ArrayLike | None = None) -> Self:
        """Learn from states X (n, n_units) and targets y (n,), forgetting any earlier fit.

        ``assignment`` (n,): the expert of each row, 0 .. n_experts - 1; None: EM estimates it.
        """
        with self._assigned(assignment):
            return super().fit(X, y)

    def fit_blocks(
        self,
        blocks: Blocks,
        classes: ArrayLike,
        *,
        held_out: Blocks | None = None,
        assignment: ArrayLike | None = None,
    ) -> Self:
        """Learn from blocks, see `StreamingReadout.fit_blocks`.

        ``assignment`` is that of `fit`, for the rows of all blocks in order.
        """
        with self._assigned(assignment):
            return super().fit_blocks(blocks, classes, held_out=held_out)

    @contextmanager
    def _assigned(self, assignment: ArrayLike | None) -> Iterator[None]:
        """Train with this assignment of experts in the ``with`` block."""
        if assignment is not None:
            self._assignment = check_assignment(assignment, self.n_experts, self.experts)
        try:
            yield
        finally:
            self._assignment = None

    def gate_proba(self, X: ArrayLike) -> Array:
        """Return P(z|x), of the gate before the label is seen: X (n, n_units) -> (n, n_experts)."""
        states = self._ready(X)
        experts, weights = self._experts(), self._weights()
        return np.concatenate([experts.gate(Z, weights) for _, Z in self._tiles(states)])

    def responsibilities(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Return P(z|x, y), given the label: X (n, n_units), y (n,) -> (n, n_experts)."""
        states, codes = self._ready_pairs(X, y)
        experts, weights = self._experts(), self._weights()
        tiles = self._tiles(states)
        r = [experts.posterior(Z, codes[tile], weights).responsibilities for tile, Z in tiles]
        return np.ascontiguousarray(np.concatenate(r, axis=1).T)

    def _start(self) -> None:
        check_parameters(self)
        self._moments: Moments | None = None
        for name in ("monitor_", "monitors_"):
            self.__dict__.pop(name, None)

    def _stream(self, passes: Passes, held_out: Blocks | None) -> Iterator[tuple[int, bool]]:
        """In parts, expectation-maximisation whose sums over rows are shared out."""
        share = getattr(passes, "share", None)
        if share is None:
            yield from super()._stream(passes, held_out)
            return
        for sums in passes.read(1):
            assert isinstance(sums, Sums), "parts were read elsewhere"
            self._take_sums(1, sums)
            self._solve(Parts(self._pass_moments(1), share), held_out)
            self._moments, self._streaming = None, True
            yield 1, False

    def _step(self, number: int) -> Callable[[Array, Ints], Any]:
        return self._absorb if self._moments is None else self._moments.add

    def _pass_moments(self, number: int) -> Moments:
        """Moments of all rows, by which parts whiten theirs: from now on rows are added to them."""
        if self._moments is None:
            self._moments = Moments(self.n_features_in_, len(self.classes_))
        return self._moments

    def _solve(self, blocks: Blocks | Parts, held_out: Blocks | None) -> None:
        """Set the likeliest parameters that EM reaches from several starts."""
        stops, n_labels = self.early_stopping, len(self.classes_)
        if self._assignment is not None:
            assert not isinstance(blocks, Parts)
            blocks = AssignedBlocks(blocks, self._assignment, n_labels)
            n_labels *= int(at_fit(self)["n_experts"])
        with one_blas_thread():
            rows = prepare(
                blocks,
                held_out if stops else None,
                sizes=(self.n_features_in_, n_labels),
                buffer_size=self.buffer_size,
                hold_out_every=round(1 / self.validation_fraction) if stops else 0,
                n_threads=self.n_threads,
            )
            self.whitening_mean_, self.whitening_map_ = rows.whitening.mean, rows.whitening.map
            experts, rng = self._experts(), check_random_state(self.random_state)
            self.monitors_: list[ConvergenceMonitor] = []
            for _ in range(self.n_restarts):
                monitor = ConvergenceMonitor(self.tol, self.max_iter, self.patience, self.verbose)
                memory = QuasiNewtonMemory(_MEMORY)
                weights = experts.start(rows, rng)
                expected = experts.e_step(rows.train, weights)
                monitor.report(*experts.scores(rows, weights, expected))
                best, curvature = weights, expected.curvature
                while not monitor.done:
                    step_to = experts.m_step(rows.train, weights, expected, memory)
                    weights, expected = experts.e_step_uphill(
                        rows.train, weights, expected, step_to, memory
                    )
                    monitor.report(*experts.scores(rows, weights, expected))
                    if monitor.is_best:
                        best, curvature = weights, expected.curvature
                if not self.monitors_ or monitor.score > self.monitor_.score:
                    self.monitor_: ConvergenceMonitor = monitor
                    self._set_weights(best, curvature)
                self.monitors_.append(monitor)
        self.n_iter_ = max(self.monitor_.n_iter, 1)

    def _update(self, X: Array, codes: Ints) -> None:
        """One step of EM on new rows, the earlier weights being the prior (running Laplace)."""
        Z = self._whitening()(X)
        most = float(np.finfo(Z.dtype).eps ** -0.5)  # its square still adds to the intercept's
        if (farthest := float(np.abs(Z).max())) > most:
            raise DivergenceError(
                f"X has states {farthest:.1g} standard deviations from the first rows, and at most"
                f" {most:.1g} keep the precision of {Z.dtype}: scale them, or fit a clone on all"
            )
        weights = self._weights()
        precision = self._prior().precision + self.curvature_[:, None]
        prior = Prior(precision, int(at_fit(self)["n_experts"]), mean=weights)
        experts = self._experts(prior)
        memory = QuasiNewtonMemory(_MEMORY)
        with one_blas_thread():
            batch = Source([(Z, codes)], len(Z), self.n_threads)
            expected = experts.e_step(batch, weights)
            step_to = experts.m_step(batch, weights, expected, memory)
            weights, expected = experts.e_step_uphill(batch, weights, expected, step_to, memory)
        self._set_weights(weights, self.curvature_ + expected.curvature)

    def _probabilities(self, X: Array) -> Array:
        """Return P(y | x) (n, V), with tiles of rows shared out among the threads."""
        experts, weights, whitening = self._experts(), self._weights(), self._whitening()
        P = np.empty((len(X), len(self.classes_)), dtype=X.dtype)

        def fill(tile: slice) -> None:
            P[tile] = experts.distribution(whitening(X[tile]), weights)

        # Tiles are what is parallel: BLAS threads of their own would fight for the same cores.
        with one_blas_thread():
            map_tiles(fill, self._slices(len(X)), self.n_threads)
        P /= P.sum(axis=1, keepdims=True)
        return P

    def _slices(self, n: int) -> list[slice]:
        logits = len(self.gate_coef_) * len(self.classes_)
        step = min(1024, rows_within(_PREDICTION_BYTES, logits, np.float32))
        return [slice(start, start + step) for start in range(0, n, step)]

    def _tiles(self, X: Array) -> Iterator[tuple[slice, Array]]:
        return ((tile, self._whitening()(X[tile])) for tile in self._slices(len(X)))

    def _whitening(self) -> Whitening:
        return Whitening(self.whitening_mean_, self.whitening_map_)

    def _prior(self) -> Prior:
        fitted = at_fit(self)
        return Prior.of_weights(
            int(fitted["n_experts"]),
            len(self.classes_),
            self._whitening().shares,
            **{name: fitted[name] for name in ("alpha", "common_alpha", "gate_alpha")},
        )

    def _experts(self, prior: Prior | None = None) -> Experts:
        fitted = at_fit(self)
        sizes = int(fitted["n_experts"]), len(self.classes_), prior or self._prior()
        if fitted["experts"] == "linear":
            variance = fitted["variance"]
            return LinearExperts(*sizes, n_conjugate=self.n_conjugate, variance=variance)
        if self._assignment is not None:
            return SupervisedExperts(*sizes, n_conjugate=max(self.n_conjugate, LEAST_CONJUGATE))
        return SoftmaxExperts(*sizes, n_conjugate=self.n_conjugate)

    def _weights(self) -> Array:
        check_is_fitted(self, "expert_coef_")
        width = self.gate_coef_.shape[1]
        return np.concatenate([self.expert_coef_.reshape(-1, width), self.gate_coef_])

    def _set_weights(self, weights: Array, curvature: Floats) -> None:
        n_experts = at_fit(self)["n_experts"]
        experts, self.gate_coef_ = np.split(weights, [-n_experts])
        self.expert_coef_ = experts.reshape(n_experts, -1, weights.shape[1])
        self.curvature_ = curvature
