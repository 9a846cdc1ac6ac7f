"""Mixture of experts: a gate chooses, state by state, whose distribution to trust."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from esnlm.readouts.base.buffer import BufferedReadout
from esnlm.readouts.base.readout import Blocks, rows_within
from esnlm.readouts.mixture.convergence import ConvergenceMonitor
from esnlm.readouts.mixture.em import Experts, Parameters, Prior, iterate, run_em
from esnlm.readouts.mixture.linear_experts import LinearExperts
from esnlm.readouts.mixture.optimize import QuasiNewtonMemory
from esnlm.readouts.mixture.softmax_experts import SoftmaxExperts
from esnlm.readouts.mixture.whitening import Source, TrainingRows, Whitening, prepare
from esnlm.utils.threads import TileMap, one_blas_thread, tile_map
from esnlm.utils.validation import check_choice, check_count, check_finite

# Fewer held-out rows than this say too little about when to stop.
_FEWEST_HELD_OUT = 256
_PREDICTION_BYTES = 1 << 22
_EXPERTS = ("linear", "softmax")


class MixtureOfExpertsReadout(BufferedReadout):
    """P(y|x) = Σ_z P(z|x) P(y|x, z): K experts on the same state, and a softmax gate over them.

    Fitted by generalised expectation-maximisation on the penalised log-likelihood (maximum a
    posteriori). The E-step computes responsibilities P(z|x, y); the M-step takes one Newton step
    on the expected log-likelihood Q, solved by truncated conjugate gradient for the gate and
    every expert at once, corrected by what earlier steps showed (quasi-Newton acceleration), and
    halves it until the penalised log-likelihood does not fall. Experts share a prior that draws
    them together, and held-out rows say which iteration to keep: without the two the mixture
    overfits at once.

    Parameters
    ----------
    n_experts : int
        K; 10 in the paper.
    experts : {"softmax", "linear"}
        Linear experts are Gaussian regressions on one-hot targets; their M-step is closed form,
        and prediction floors and normalises the mixture's mean as `RidgeReadout` does. The gate
        is softmax either way.
    alpha, common_alpha, gate_alpha : float
        Precisions of Gaussian priors on weights: of each expert around what the experts have in
        common, of that around zero, and of the gate. States count as scaled to a total variance
        of one, so 1/alpha is the prior variance of a logit, whatever n_units. The more rows there
        are, the less the priors count. A large ``alpha`` makes the mixture one softmax (or ridge)
        readout.
    variance : float
        Of linear experts around their means. It is not estimated: a small variance, which is
        what maximum likelihood finds, lets experts specialise in outcomes instead of in states.
    max_iter : int
        Most EM iterations.
    tol : float
        Stop when an iteration gains less than this many nats a row.
    n_conjugate : int
        Steps of conjugate gradient in each M-step.
    n_restarts : int
        Runs from different random starts; the best by held-out, or else by penalised
        log-likelihood, is kept.
    early_stopping : bool
        Keep the iteration that is best on held-out rows, and stop ``patience`` iterations after
        it. Held-out rows are those given to `fit_blocks`, or ``validation_fraction`` of the
        training rows, taken in stretches of 64 consecutive rows; with fewer than 256 of them
        every row trains.
    validation_fraction : float
    patience : int
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
    whitening_mean_ : ndarray (n_units,), whitening_map_ : ndarray (n_units, n_units)
    monitor_ : ConvergenceMonitor
        History of the kept run.
    monitors_ : list of ConvergenceMonitor
        One a restart.
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
    >>> readout = MixtureOfExpertsReadout(4, alpha=0.1, gate_alpha=0.1, random_state=0)
    >>> readout.fit(X, y).score(X, y) > 0.9
    True
    >>> readout.gate_proba(X).shape, readout.responsibilities(X, y).shape
    ((400, 4), (400, 4))
    """

    scores_are_cheap: ClassVar[bool] = False
    _parameters = ("expert_coef_", "gate_coef_")
    _state = ("whitening_mean_", "whitening_map_", "curvature_", "n_iter_")

    def __init__(
        self,
        n_experts: int = 10,
        *,
        experts: str = "softmax",
        alpha: float = 0.3,
        common_alpha: float = 0.01,
        gate_alpha: float = 0.3,
        max_iter: int = 50,
        tol: float = 1e-4,
        variance: float = 0.25,
        n_conjugate: int = 2,
        n_restarts: int = 1,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        patience: int = 5,
        buffer_size: int = 1 << 20,
        n_threads: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_experts = n_experts
        self.experts = experts
        self.alpha = alpha
        self.common_alpha = common_alpha
        self.gate_alpha = gate_alpha
        self.variance = variance
        self.max_iter = max_iter
        self.tol = tol
        self.n_conjugate = n_conjugate
        self.n_restarts = n_restarts
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.buffer_size = buffer_size
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def gate_proba(self, X: ArrayLike) -> NDArray[Any]:
        """P(z|x), what the gate says before the label is seen: X (n, n_units) -> (n, n_experts)."""
        states = self._ready(X)
        model, parameters = self._model(), self._fitted()
        return np.concatenate([model.gate(Z, parameters) for _, Z in self._tiles(states)])

    def responsibilities(self, X: ArrayLike, y: ArrayLike) -> NDArray[Any]:
        """P(z|x, y), which expert explains each label: X (n, n_units), y (n,) -> (n, n_experts)."""
        states, codes = self._ready_pairs(X, y)
        model, parameters = self._model(), self._fitted()
        return np.concatenate(
            [model.joint(Z, codes[tile], parameters) for tile, Z in self._tiles(states)]
        )

    def _start(self) -> None:
        self._check_parameters()
        for name in (*self._arrays(), "monitor_", "monitors_"):
            self.__dict__.pop(name, None)

    def _check_parameters(self) -> None:
        check_choice("experts", self.experts, _EXPERTS)
        counts = "n_experts", "max_iter", "n_conjugate", "n_restarts", "patience", "buffer_size"
        for name in counts:
            check_count(name, getattr(self, name))
        for name in ("alpha", "common_alpha", "gate_alpha", "tol"):
            check_finite(name, getattr(self, name))
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("variance", "validation_fraction"):
            check_finite(name, getattr(self, name))
        if self.variance <= 0:
            raise ValueError(f"variance must be positive, got {self.variance}")
        if not 0 < self.validation_fraction <= 0.5:
            raise ValueError(
                f"validation_fraction must lie in (0, 0.5], got {self.validation_fraction}"
            )

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        with self._workers() as over:
            rows = self._prepare(blocks, held_out, over)
            self.whitening_mean_ = rows.whitening.mean
            self.whitening_map_ = rows.whitening.map
            model = self._model()
            rng = check_random_state(self.random_state)
            self.monitors_: list[ConvergenceMonitor] = []
            best = -np.inf
            for _ in range(self.n_restarts):
                monitor = ConvergenceMonitor(self.tol, self.max_iter, self.patience, self.verbose)
                parameters, curvature = run_em(model, rows, monitor, rng)
                self.monitors_.append(monitor)
                if monitor.score > best:
                    best, self.monitor_ = monitor.score, monitor
                    self._keep(parameters, curvature)
        self.n_iter_ = max(self.monitor_.n_iter, 1)

    def _prepare(self, blocks: Blocks, held_out: Blocks | None, over: TileMap) -> TrainingRows:
        if not self.early_stopping:
            held_out = None

        def rows(every: int) -> TrainingRows:
            return prepare(
                blocks,
                held_out,
                n_classes=len(self.classes_),
                capacity=self._kept_rows,
                hold_out_every=every,
                over=over,
            )

        ready = rows(round(1 / self.validation_fraction) if self.early_stopping else 0)
        if held_out is None and ready.held_out is not None and ready.held_out.n < _FEWEST_HELD_OUT:
            return rows(0)
        return ready

    def _kept_rows(self, n_units: int, dtype: Any) -> int:
        return min(int(self.buffer_size), rows_within(1 << 30, n_units, dtype))

    def _update(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        """A step on new rows, with what was learned as their prior (running Laplace)."""
        fitted = self._fitted()
        prior = self._weight_prior()
        precision = prior.precision + self.curvature_[:, None]
        prior = Prior(precision, self.n_experts, mean=fitted.weights)
        model = self._model(prior)
        Z = self._whitening()(X)
        with self._workers() as over:
            batch = Source(lambda: iter([(Z, codes)]), len(Z), over, True)
            expectation = model.expect(batch, fitted)
            memory = QuasiNewtonMemory(0)
            parameters, expectation = iterate(model, batch, fitted, expectation, memory)
        self._keep(parameters, self.curvature_ + expectation.curvature)

    def _probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        model, parameters = self._model(), self._fitted()
        P = np.empty((len(X), len(self.classes_)), dtype=X.dtype)
        with self._workers() as over:

            def fill(tile: slice) -> None:
                P[tile] = model.distribution(self._whitening()(X[tile]), parameters)

            over(fill, list(self._slices(len(X))))
        P /= P.sum(axis=1, keepdims=True)
        return P

    def _slices(self, n: int) -> Iterator[slice]:
        logits = self.n_experts * len(self.classes_)
        step = min(1024, rows_within(_PREDICTION_BYTES, logits, np.float32))
        return (slice(start, start + step) for start in range(0, n, step))

    def _tiles(self, X: NDArray[Any]) -> Iterator[tuple[slice, NDArray[Any]]]:
        whitening = self._whitening()
        return ((tile, whitening(X[tile])) for tile in self._slices(len(X)))

    @contextmanager
    def _workers(self) -> Iterator[TileMap]:
        # Tiles are what is parallel: BLAS threads of their own would fight for the same cores.
        with one_blas_thread(), tile_map(self.n_threads) as over:
            yield over

    def _whitening(self) -> Whitening:
        return Whitening(self.whitening_mean_, self.whitening_map_)

    def _weight_prior(self) -> Prior:
        return Prior.of_weights(
            self.n_experts,
            len(self.classes_),
            self._whitening().shares,
            alpha=self.alpha,
            common_alpha=self.common_alpha,
            gate_alpha=self.gate_alpha,
        )

    def _model(self, prior: Prior | None = None) -> Experts:
        sizes = self.n_experts, len(self.classes_)
        prior = prior or self._weight_prior()
        if self.experts == "linear":
            return LinearExperts(
                *sizes, prior, variance=self.variance, n_conjugate=self.n_conjugate
            )
        return SoftmaxExperts(*sizes, prior, n_conjugate=self.n_conjugate)

    def _keep(self, parameters: Parameters, curvature: NDArray[np.float64]) -> None:
        n_rows = self.n_experts * len(self.classes_)
        weights = parameters.weights
        self.expert_coef_ = weights[:n_rows].reshape(self.n_experts, -1, weights.shape[1])
        self.gate_coef_ = weights[n_rows:]
        self.curvature_ = curvature

    def _fitted(self) -> Parameters:
        check_is_fitted(self, "expert_coef_")
        width = self.gate_coef_.shape[1]
        weights = np.concatenate([self.expert_coef_.reshape(-1, width), self.gate_coef_])
        return Parameters(weights)
