"""Softmax regression over passes whose rows are never held: survey, schedule, and saved state."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.state_dict import Arrays, after_start, with_start
from esnlm.readouts.softmax.sgd import IncrementalSolver, batch_rows

_SOLVER_ARRAYS = (
    "weights", "offset", "_velocity", "_offset_velocity", "inverse", "centre", "variances"
)  # fmt: skip
_SURVEY_ROWS_A_UNIT = 8
_LEAST_SURVEY = 16384


def solver_arrays(solver: IncrementalSolver) -> Arrays:
    """Parameters, velocities, preconditioner and counters of an incremental solver, as views."""
    arrays = {name: np.asarray(getattr(solver, name)) for name in _SOLVER_ARRAYS}
    arrays["n_steps"] = np.asarray(solver.n_steps)
    return arrays


def restored_solver(arrays: Arrays, momentum: float) -> IncrementalSolver:
    """The solver that `solver_arrays` described; the arrays are taken over."""
    solver = IncrementalSolver.__new__(IncrementalSolver)
    for name in _SOLVER_ARRAYS:
        setattr(solver, name, arrays[name])
    solver.batch = batch_rows(len(solver.weights))
    solver.momentum = momentum
    solver.n_steps = int(arrays["n_steps"])
    return solver


class Rates(NamedTuple):
    """Parameters of `SoftmaxReadout` that its steps need."""

    alpha: float
    learning_rate: float
    momentum: float


class SoftmaxPasses:
    """`IncrementalSolver` fed block by block, its rate falling linearly to zero over all passes.

    Parameters
    ----------
    n_units, n_classes : int
    n_rows : int
        Rows of one pass.
    n_passes : int
    counts : ndarray (n_classes,), optional
        Occurrences of each class in a pass; default: in the survey.
    rates : Rates

    Examples
    --------
    >>> passes = SoftmaxPasses(1, 2, 4, 1, None, Rates(0.1, 0.05, 0.9))
    >>> X, codes = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
    >>> passes.survey(X, codes)
    >>> passes.learn(X, codes)
    >>> passes.solver.weights.shape, passes.n_seen
    ((1, 2), 4)
    """

    def __init__(
        self,
        n_units: int,
        n_classes: int,
        n_rows: int,
        n_passes: int,
        counts: NDArray[Any] | None,
        rates: Rates,
    ) -> None:
        self.n_rows = max(n_rows, 1)
        self.n_passes = n_passes
        self.counts = counts
        self.rates = rates
        self.n_seen = 0
        self._surveyed: Moments | None = Moments(n_units, n_classes)
        self._solver: IncrementalSolver | None = None
        self.best_score = np.inf
        self.best: tuple[NDArray[Any], NDArray[Any]] | None = None

    @property
    def survey_rows(self) -> int:
        """Rows of the survey: enough for a steady matrix of products."""
        n_units = self._surveyed.n_units if self._surveyed else len(self.solver.weights)
        return max(_SURVEY_ROWS_A_UNIT * n_units, _LEAST_SURVEY)

    def survey(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        """Add rows to the sample that the preconditioner is made from."""
        assert self._surveyed is not None, "the survey is over"
        self._surveyed.add(X, codes)

    @property
    def solver(self) -> IncrementalSolver:
        """The solver; made from the survey at first use."""
        if self._solver is None:
            assert self._surveyed is not None, "a survey comes before the first rows"
            counts = self._surveyed.counts if self.counts is None else self.counts
            frequencies = (counts + 0.5) / (counts.sum() + 0.5 * len(counts))
            ridge = self.rates.alpha / self.n_rows
            self._solver = IncrementalSolver(
                self._surveyed, frequencies, self.rates.momentum, ridge=ridge
            )
            self._surveyed = None
        return self._solver

    def learn(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        """Steps on one block."""
        left = max(0.0, 1 - self.n_seen / (self.n_rows * self.n_passes))
        self.solver.learn(X, codes, self.rates.learning_rate * left, self.rates.alpha / self.n_rows)
        self.n_seen += len(X)

    def judge(self, score: float, last: bool) -> None:
        """Take the held-out loss after a pass; the parameters of the best one are kept."""
        if score < self.best_score:
            self.best_score = score
            solver = self.solver
            self.best = None if last else (solver.weights.copy(), solver.offset.copy())
        if last and self.best is not None:
            self.solver.weights, self.solver.offset = self.best
            self.best = None

    def to_arrays(self) -> Arrays:
        """Everything that further blocks change or need, as views."""
        arrays: Arrays = {
            "n_rows": np.asarray(self.n_rows),
            "n_passes": np.asarray(self.n_passes),
            "n_seen": np.asarray(self.n_seen),
            "best_score": np.asarray(self.best_score),
        }
        if self.counts is not None:
            arrays["counts"] = self.counts
        if self._surveyed is not None:
            arrays |= with_start("survey.", self._surveyed.to_arrays())
        if self._solver is not None:
            arrays |= with_start("solver.", solver_arrays(self._solver))
        if self.best is not None:
            arrays["best.weights"], arrays["best.offset"] = self.best
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays, rates: Rates) -> "SoftmaxPasses":
        """What `to_arrays` described; the arrays are taken over."""
        sizes = int(arrays["n_rows"]), int(arrays["n_passes"])
        made = cls(1, 1, *sizes, arrays.get("counts"), rates)
        made.n_seen = int(arrays["n_seen"])
        made.best_score = float(arrays["best_score"])
        made._surveyed = None
        if survey := after_start("survey.", arrays):
            made._surveyed = Moments.from_arrays(survey)
        if solver := after_start("solver.", arrays):
            made._solver = restored_solver(solver, rates.momentum)
        if "best.weights" in arrays:
            made.best = arrays["best.weights"], arrays["best.offset"]
        return made
