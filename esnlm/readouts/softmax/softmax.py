"""Multinomial logistic readout: Newton-CG on data that fits in memory, streaming beyond."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from esnlm.readouts.base.blocks import Blocks, blocks_rows, in_memory
from esnlm.readouts.base.buffer import BufferedReadout
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.passes import SamePasses
from esnlm.readouts.softmax.loss import log_softmax, logits, softmax
from esnlm.readouts.softmax.newton import newton_solution
from esnlm.readouts.softmax.sgd import (
    IncrementalSolver,
    SoftmaxPasses,
    check_states,
    decayed,
    frequencies_of,
    interleaved,
)
from esnlm.utils.arrays import Array, Arrays, Floats, Ints
from esnlm.utils.state_dict import saved, under_prefix
from esnlm.utils.sums import Sums
from esnlm.utils.validation import PENALTY, Count, Number, OneOf, check_parameters, limited

# Bytes of rows that "auto" holds for Newton's method, and operations (rows x units x classes)
# up to which it is preferred: about a minute on two cores.
_AUTO_BYTES = 1 << 28
_AUTO_WORK = 1 << 31
# Shares of the learning rate that are tried until training does not diverge, and how far above
# the loss of the frequencies alone it has ended where it did.
_SHARES_OF_RATE = 1.0, 0.3, 0.1, 0.03
_DIVERGED = 1.1
# Passes that bring Newton's method near the optimum: cheaper by far than its first steps.
_WARM_PASSES = 4
_NEWTON = OneOf(("auto", "newton-cg"))


@dataclass(eq=False, repr=False)
class SoftmaxReadout(BufferedReadout):
    """Softmax regression of the next token on the state (Rachez §3.3; eq. 33 for one expert).

    Minimises ``sum_i -log p(y_i | x_i) + alpha / 2 |W|²``, intercepts unpenalised: the
    objective of scikit-learn's ``LogisticRegression(C=1 / alpha)`` (two classes: ``C = 2 /
    alpha``). A class without rows keeps zero weights and an intercept that gives it the
    mass of half an occurrence.

    Parameters
    ----------
    alpha : float
        L2 penalty on the weights, on the scale of the summed loss.
    solver : "auto", "newton-cg" or "incremental"
        "newton-cg": Newton's method, each step from conjugate gradient, to ``tol``. The Gram
        matrix preconditions it, and soon each class's block of the Hessian, where all blocks
        fit 64 MiB. Its Hessian products come from a sample of rows when there are many.
        "incremental": ``n_passes`` passes of `IncrementalSolver`; memory does not depend
        on the number of rows. "auto": Newton for data that fits 256 MiB and takes about a
        minute at most, incremental beyond.
    tol : float
        Newton's method stops after a step whose estimated gain is below ``tol`` nats a row;
        the optimum is then usually a tenth of that away.
    max_iter : int
        Most Newton steps.
    n_passes : int
        Passes of the incremental solver; the rate falls linearly to zero over them.
    learning_rate, momentum : float
        Of the incremental solver; see `IncrementalSolver`. ``fit`` begins again with 0.3, 0.1
        and 0.03 of the rate where training diverged.
    buffer_size : int
        Rows that ``partial_fit`` keeps before it streams; see `BufferedReadout`.

    Attributes
    ----------
    coef_ : ndarray (V, n_units) float64
    intercept_ : ndarray (V,) float64, of mean zero
    n_iter_ : int
        Newton steps, or passes.
    history_ : list of float
        Newton: objective (nats a row) at the start and after each step. Incremental: held-out
        negative log-likelihood after each pass, where rows were held out.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> readout = SoftmaxReadout(alpha=0.1).fit(X, ["a", "a", "b", "b"])
    >>> readout.predict([[0.2], [2.9]])
    array(['a', 'b'], dtype='<U1')
    >>> readout.predict_proba([[1.5]]).round(3)
    array([[0.5, 0.5]])
    """

    _parameters: ClassVar[tuple[str, ...]] = ("coef_", "intercept_")
    _state: ClassVar[tuple[str, ...]] = ("n_iter_",)
    _training_state = saved(n_seen="_n_seen", solver="_incremental")
    _layouts: ClassVar[dict[str, str]] = {"coef_": "f V N", "intercept_": "f V", "n_iter_": "i"}

    _: KW_ONLY
    alpha: float = limited(1.0, PENALTY)
    solver: Literal["auto", "newton-cg", "incremental"] = limited(
        "auto", OneOf(("auto", "newton-cg", "incremental"))
    )
    tol: float = limited(1e-4, Number(0), solver=_NEWTON)
    max_iter: int = limited(100, Count(), solver=_NEWTON)
    n_passes: int = limited(2, Count(), solver=OneOf(("auto", "incremental")))
    learning_rate: float = limited(0.05, Number(0, open="low"))
    momentum: float = limited(0.9, Number(0, 1, open="high"))
    buffer_size: int = limited(65536, Count())

    def _start(self) -> None:
        check_parameters(self)
        self._incremental: IncrementalSolver | None = None
        self._passes: Any = None  # SoftmaxPasses, from `_begin` to the end of training
        self._n_seen = 0
        self.history_: list[float] = []

    def _plan(self, n_rows: int, counts: Array | None) -> None:
        if self.solver == "newton-cg":
            raise ValueError(
                "solver 'newton-cg' reads every row at each step, got a corpus in passes: choose"
                " 'incremental' or 'auto'"
            )
        self._passes = self._new_passes(n_rows, self.n_passes, counts)
        self._training_passes, self._sample_rows = self.n_passes, self._passes.sample_rows
        self._streaming = True

    def _new_passes(
        self, n_rows: int, n_passes: int, counts: Array | None, gram_rows: int | None = None
    ) -> SoftmaxPasses:
        survey = Moments(self.n_features_in_, len(self.classes_), gram_rows=gram_rows)
        return SoftmaxPasses(
            survey, n_rows, n_passes, counts, self.alpha, self.learning_rate, self.momentum
        )

    def _pass_moments(self, number: int) -> Moments | None:
        return None if self._passes is None else self._passes.survey

    def _enable_averaging(self, n_copies: int) -> bool:
        return self._passes is not None

    def _take_sums(self, number: int, sums: Sums) -> None:
        super()._take_sums(number, sums)
        self._stale = number > 0

    def _step(self, number: int) -> Callable[[Array, Ints], Any]:
        return self._learn if number else self._passes.survey.add

    def _learn(self, X: Array, codes: Ints) -> None:
        self._passes.learn(X, codes)
        self._stale = True

    def _end_pass(self, number: int, held_out: Blocks | None = None) -> None:
        if not number:
            check_states(self._passes.survey)
            self._passes.end_sample()
            return
        score = self._passes.end_pass(held_out)
        if score is not None:
            self.history_.append(score)
            self._stale = True

    def _finish(self, held_out: Blocks | None = None) -> None:
        self._stale = True  # also where training was resumed after its last row
        self._settle()
        passes, self._passes = self._passes, None
        self._incremental, self._n_seen = passes.solver, passes.n_seen
        self.n_iter_ = self.n_passes

    def _settle(self) -> None:
        if self._passes is None:
            super()._settle()
        elif self._stale:
            solver = self._passes.solver
            self._set(solver.weights, solver.intercept, solver.centre)
            self.n_iter_, self._stale = self.n_passes, False

    def _names(self, training: bool) -> Mapping[str, str]:
        amid_passes = training and self._passes is not None
        return {"passes": "_passes"} if amid_passes else super()._names(training)

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        if training and not under_prefix("passes", arrays):
            self._passes = None
        return super()._before_loading(arrays, training)

    def _make_part(self, name: str, arrays: Arrays, training: bool) -> IncrementalSolver:
        return IncrementalSolver.restored(arrays, momentum=self.momentum)

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Minimise by Newton-CG or in passes; after divergence, begin again at a lower rate."""
        n_units = self.n_features_in_
        rows: Blocks | None = blocks
        if self.solver == "auto":
            n_rows = _AUTO_WORK // (n_units * len(self.classes_))
            rows = in_memory(blocks, n_rows, _AUTO_BYTES)
        if self.solver == "incremental" or rows is None:
            for share in _SHARES_OF_RATE:
                self.history_ = []
                self._plan(blocks_rows(blocks), None)
                self._passes.learning_rate *= share
                for _ in self._stream(SamePasses(interleaved(blocks, n_units)), held_out):
                    pass
                self._n_seen //= self.n_passes
                # Too large a rate ends far above the loss of the frequencies, where training began.
                solver = self._incremental
                if solver is None or solver.loss < _DIVERGED * solver.chance:
                    break
            return
        n_rows = blocks_rows(rows)
        passes = self._new_passes(n_rows, _WARM_PASSES, None, gram_rows=16 * n_units + 16384)
        survey: Any = passes.survey
        weights, intercept, self.history_ = newton_solution(
            rows, held_out, passes, tol=self.tol, max_iter=self.max_iter
        )
        self.n_iter_ = max(1, len(self.history_) - 1)
        self._n_seen = n_rows
        self._set(weights, intercept, survey.mean)

    def _set(self, weights: Array, intercept: Floats, centre: Array) -> None:
        self.coef_ = np.ascontiguousarray(weights.T, dtype=np.float64)
        # A lower rank leaves out parts of the weights: at the mean state it says the same.
        intercept = intercept + centre @ (weights - self.coef_.T)
        self.intercept_ = intercept - intercept.mean()

    def _batch_rows(self) -> int:
        return 4096

    def _update(self, X: Array, codes: Ints) -> None:
        """Take steps at a decayed rate on new rows X (n, n_units), codes (n,)."""
        if self._incremental is None:
            moments = Moments(self.n_features_in_, len(self.classes_)).add(X, codes)
            check_states(moments)
            solver = IncrementalSolver(moments, frequencies_of(moments.counts), self.momentum)
            solver.weights[...] = self.coef_.T
            solver.offset[...] = self.intercept_ + solver.centre @ solver.weights
            self._incremental = solver
        solver = self._incremental
        self._n_seen += len(X)
        # What came before is solved, so a row counts as one of all: the rate falls as their number.
        rate = self.learning_rate * decayed(self._n_seen, solver.batch) ** 2
        solver.learn(X, codes, rate, self.alpha / self._n_seen)
        self._set(solver.weights, solver.intercept, solver.centre)

    def _linear(self, dtype: Any) -> Callable[[Array], Array]:
        """Logits (n, V) of states in that dtype, which the weights are cast to once."""
        weights = self.coef_.T.astype(dtype, copy=False)
        intercept = self.intercept_.astype(dtype, copy=False)
        return lambda X: logits(X, weights, intercept)

    def _probabilities(self, X: Array) -> Array:
        return softmax(self._linear(X.dtype)(X))

    def _log_probabilities(self, X: Array) -> Array:
        return log_softmax(self._linear(X.dtype)(X))

    def _predictor(self, dtype: Any) -> Callable[[Array], Array]:
        linear = self._linear(dtype)
        return lambda X: log_softmax(linear(X))
