"""Low-rank readout for large vocabularies: canonical variables, then classes, then words."""

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esnlm.readouts.base.readout import Block
from esnlm.readouts.base.streamed import WITHOUT_STATE
from esnlm.readouts.factored import low_rank_state
from esnlm.readouts.two_level.cca import canonical_variables
from esnlm.readouts.two_level.direct_connections import PairCounts, split_last_tokens
from esnlm.readouts.two_level.pilot_sample import Findings, Survey
from esnlm.readouts.two_level.schedule import LATER_RATE, Schedule
from esnlm.readouts.two_level.surveyed import SurveyedReadout
from esnlm.readouts.two_level.two_level import Rates, Rows, TwoLevelSolver
from esnlm.readouts.two_level.word_clusters import frequent_words_and_clusters
from esnlm.readouts.two_level.word_factors import ClassLayout
from esnlm.utils.validation import check_count, check_finite

_RATE, _RATE_POWER = 7.3, -0.84
# Batches of a pass; with direct connections as many as all passes would have at least.
_BATCHES, _DIRECT_BATCHES = 64, 512


class LowRankReadout(SurveyedReadout):
    """Softmax of low rank over classes of words and the words of a class (Rachez eq. 35).

    Made for vocabularies of tens of thousands of words. Three steps:

    1. From the moments of a sample of rows, in closed form: the ``n_components`` linear maps of
       a state that tell the next words apart best (`canonical_directions`), uncorrelated, each
       scaled by its canonical correlation, so that a penalty weighs on those that tell little.
    2. Classes: the ``n_frequent`` most frequent words have one each, the others are clustered by
       the states that they follow.
    3. Passes over all rows train the softmax over classes and those over the words of a class on
       the components. These are uncorrelated, so every step is a Gram-preconditioned one at
       no cost.

    A row costs ``2 N P + 4 P (K + words in its class)`` operations for P components and K
    classes: 7 million at N = 4096 and V = 50 257, a sixtieth of a full softmax's. A trained
    low-rank output is Ueda's (rank 512); here the first factor is solved, not descended.

    Parameters
    ----------
    n_components : int
        Rank P; at most the number of units.
    alpha : float
        Penalty on half the squared weights of the components, beside the summed loss.
    n_frequent : int, optional
        Words that are classes of their own. None: 3 √V.
    n_classes : int, optional
        Classes of the other words. None: 1.5 √V.
    n_passes : int
        Passes over the rows; more where rows are few (with direct connections: very few).
    learning_rate : float, optional
        Of the softmax over classes; falls linearly to zero over all passes. None: 7.3 s^-0.84
        for s steps, which was found best for 10^2 to 10^3 of them.
    momentum : float
    prior : float
        Curvature that a word within a class starts with, in units of the components' variance.
    n_direct : int
        Last tokens that the components also depend on, past the reservoir: direct connections
        from input to output (Jaeger 2001), one trained vector (P,) a token and place. The last
        ``n_direct`` columns of X are then these tokens, the newest first, as columns of
        ``classes_``, or -1 for none; `LanguageModel` puts them there.
    n_pairs : int
        Most frequent pairs of the last two tokens that have a vector of their own, beside those
        of the two (n-gram features, Mikolov et al. 2011); needs ``n_direct`` of 2 at least.
    direct_rate : float
        Learning rate (AdaGrad) of the direct connections; falls linearly to zero.
    buffer_size : int
        Rows that ``partial_fit`` keeps before it learns from them and forgets them.
    random_state : int, RandomState instance or None
        Starts the clustering.

    Attributes
    ----------
    directions_ : ndarray (n_units, P) float32
        Of states without the columns of last tokens.
    direct_coef_ : ndarray (n_direct, V + 1, P) float32
        What tokens add to the components; the last row is that of no token.
    pair_coef_ : ndarray (number of pairs, P) float32
    pairs_ : ndarray (number of pairs,) int64
        Pairs with a vector, as `direct_connections.pair_keys` numbers them.
    word_class_ : ndarray (V,)
    class_coef_, class_intercept_ : ndarrays (P, K), (K,)
    word_coef_, word_intercept_ : ndarrays (V, P), (V,)
        Words in the order of their classes.
    history_ : list of float
        Mean held-out loss after each pass, where there are held-out rows.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> X = random.standard_normal((2000, 4))
    >>> y = 2 * (X[:, 0] > 0) + (X[:, 1] > 0)
    >>> readout = LowRankReadout(2, random_state=0).fit(X, y)
    >>> readout.predict([[2.0, 2.0, 0.0, 0.0], [-2.0, 2.0, 0.0, 0.0]])
    array([3, 1])
    >>> readout.directions_.shape
    (4, 2)
    """

    _parameters: ClassVar[tuple[str, ...]] = (
        "directions_", "direct_coef_", "pair_coef_",
        "class_coef_", "class_intercept_", "word_coef_", "word_intercept_",
    )  # fmt: skip
    _state: ClassVar[tuple[str, ...]] = ("shift_", "word_class_", "pairs_")

    def __init__(
        self,
        n_components: int = 512,
        *,
        alpha: float = 10.0,
        n_frequent: int | None = None,
        n_classes: int | None = None,
        n_passes: int = 1,
        learning_rate: float | None = None,
        momentum: float = 0.9,
        prior: float = 1.0,
        n_direct: int = 0,
        n_pairs: int = 0,
        direct_rate: float = 0.1,
        buffer_size: int = 65536,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.n_frequent = n_frequent
        self.n_classes = n_classes
        self.n_passes = n_passes
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.prior = prior
        self.n_direct = n_direct
        self.n_pairs = n_pairs
        self.direct_rate = direct_rate
        self.buffer_size = buffer_size
        self.random_state = random_state

    def _start(self) -> None:
        self._check_parameters()
        self._solver: TwoLevelSolver | None = None
        self._surveyed: Survey | None = None
        self._can_learn = True
        self._n_seen = 0
        self._schedule = Schedule(0, self.n_passes)
        self._counts: NDArray[Any] | None = None
        self.history_: list[float] = []

    def _check_parameters(self) -> None:
        for name in ("n_components", "n_passes", "buffer_size"):
            check_count(name, getattr(self, name))
        for name in ("n_frequent", "n_classes"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), least=0 if name == "n_frequent" else 1)
        for name in ("n_direct", "n_pairs"):
            check_count(name, getattr(self, name), least=0)
        if self.n_pairs and self.n_direct < 2:
            raise ValueError(
                f"n_pairs needs the last two tokens, n_direct of 2 at least, got {self.n_direct}"
            )
        for name in ("alpha", "learning_rate", "momentum", "prior", "direct_rate"):
            if (name, getattr(self, name)) == ("learning_rate", None):
                continue
            check_finite(name, getattr(self, name))
        if self.alpha < 0:
            raise ValueError(f"alpha must not be negative, got {self.alpha}")
        for name in ("learning_rate", "prior", "direct_rate"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum}")

    @property
    def training_passes(self) -> int:
        """Passes over the corpus that it wants; asked after `begin`, more where rows are few."""
        schedule = self.__dict__.get("_schedule")
        return self.n_passes if schedule is None else schedule.n_passes

    @property
    def survey_rows(self) -> int:
        """Rows that directions and classes are made from."""
        return self._schedule.survey_rows

    def begin(
        self,
        classes: ArrayLike,
        n_units: int,
        *,
        n_rows: int,
        counts: NDArray[np.int64] | None = None,
        dtype: str = "float32",
    ) -> Self:
        """See `StreamingReadout.begin`."""
        super().begin(classes, n_units, n_rows=n_rows, counts=counts, dtype=dtype)
        self._streaming = True
        self._plan(n_rows, counts)
        return self

    def survey(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Rows for directions and classes."""
        assert self._surveyed is not None, "begin comes first"
        states, last = self._split(X)
        self._surveyed.add(states, codes)
        if self.n_pairs:
            self._pair_counts.add(last)

    def end_survey(self) -> None:
        """Solve the directions, and make the classes."""
        assert self._surveyed is not None, "the survey is over"
        findings = self._surveyed.solve(self.n_components, self._assign)
        self._surveyed = None
        self.pairs_ = self._pair_counts.most_frequent(self.n_pairs)
        self._set_solver(findings)

    def _assign(self, counts: NDArray[Any], vectors: NDArray[Any]) -> NDArray[np.intp]:
        """Classes (V,) of words that occurred counts (V,) times, after states like vectors."""
        root = float(np.sqrt(len(counts)))
        n_frequent = round(3 * root) if self.n_frequent is None else self.n_frequent
        n_classes = max(1, round(1.5 * root)) if self.n_classes is None else self.n_classes
        return frequent_words_and_clusters(counts, vectors, n_frequent, n_classes, self._seed())

    def learn(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Steps on the next rows of the pass."""
        if self._solver is None:
            self.end_survey()
        self._learn(X, codes, self._rates())
        self._n_seen += len(X)

    def end_pass(self, held_out: Iterable[Block] | None = None) -> bool:
        """Note the held-out loss."""
        if held_out is not None:
            self.history_.append(self._mean_loss(held_out))
        return True

    def finish(self, held_out: Iterable[Block] | None = None) -> None:
        """Learn the rows still waiting."""
        self._solver_made().flush(self._rates())

    def _plan(self, n_rows: int, counts: NDArray[Any] | None) -> None:
        # A second look at a pair of tokens is mostly one at what its vector knows by heart.
        batches = _DIRECT_BATCHES if self.n_direct else _BATCHES
        self._schedule = Schedule(n_rows, self.n_passes, batches)
        self._counts, self._n_seen = counts, 0
        n_words, n_units = len(self.classes_), self.n_features_in_ - self.n_direct
        if n_units < 1:
            raise ValueError(
                f"X must have states beside the {self.n_direct} columns of last tokens, got"
                f" {self.n_features_in_} columns"
            )
        self._surveyed = Survey(n_units, n_words, counts)
        self._pair_counts = PairCounts(n_words)

    def _rates(self) -> Rates:
        return self._rates_of(self._schedule.share_left(self._n_seen), self._schedule.batch)

    def _rates_of(self, share: float, n_rows: int) -> Rates:
        """A share of the learning rates, for steps on so many rows: less for fewer than rank."""
        size = min(1.0, n_rows / self.directions_.shape[1])
        rate = self.learning_rate
        if rate is None:
            rate = _RATE * self._schedule.n_steps**_RATE_POWER
        return Rates(share * size * rate, share * self.direct_rate)

    def _set_solver(self, findings: Findings) -> None:
        """Begin with components and classes of which nothing was learned."""
        self.directions_, self.shift_ = findings.directions, findings.shift
        self.word_class_ = findings.word_class
        solver = TwoLevelSolver(
            ClassLayout(findings.word_class),
            len(findings.shift),
            findings.counts,
            batch=self._schedule.batch,
            momentum=self.momentum,
            prior=self.prior * findings.variance,
            penalty=self.alpha / max(1, self._schedule.n_rows),
            n_direct=self.n_direct,
            pairs=self.pairs_,
        )
        self._take(solver)

    def _take(self, solver: TwoLevelSolver) -> None:
        """Show the solver's arrays, which it changes in place, as attributes."""
        self._solver = solver
        self.class_coef_, self.class_intercept_ = solver.class_coef, solver.class_offset
        self.word_coef_, self.word_intercept_ = solver.word_coef, solver.word_offset
        self.direct_coef_, self.pair_coef_ = solver.direct.coef, solver.direct.pair_coef

    def _solver_made(self) -> TwoLevelSolver:
        assert self._solver is not None, "no rows were learned"
        return self._solver

    def _update(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        if not self._can_learn:
            raise ValueError(WITHOUT_STATE)
        rates = self._rates_of(LATER_RATE, len(X))
        self._learn(X, codes, rates)
        self._solver_made().flush(rates)

    def _learn(self, X: NDArray[Any], codes: NDArray[Any], rates: Rates) -> None:
        states, last = self._split(X.astype(np.float32, copy=False))
        Z = canonical_variables(states, self.directions_, self.shift_)
        rows = Rows(Z, codes.astype(np.intp, copy=False), last)
        self._solver_made().learn(rows, rates)

    def _split(self, X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return split_last_tokens(X, self.n_direct, len(self.classes_))

    def _components(self, X: NDArray[Any]) -> NDArray[Any]:
        """What both softmaxes read, (n, P): canonical variables and what last tokens add."""
        states, last = self._split(X)
        Z = canonical_variables(states, self.directions_, self.shift_)
        self._solver_made().direct.add_to(Z, last)
        return Z

    def _log_probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        Z, solver = self._components(X), self._solver_made()
        return solver.words.log_probabilities(Z, solver.log_classes(Z))

    def _log_probabilities_of(self, X: NDArray[Any], codes: NDArray[np.intp]) -> NDArray[Any]:
        """Computes the classes, and the words of one class a row: not the whole vocabulary."""
        return self._solver_made().log_probability_of(self._components(X), codes)

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(arrays)
        self._can_learn = False
        low_rank_state.restore_parameters(self, arrays)

    def _learner_arrays(self) -> dict[str, NDArray[Any]]:
        if not self._can_learn:
            raise ValueError(WITHOUT_STATE)
        return low_rank_state.training_arrays(self)

    def _restore_learner(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._start()
        low_rank_state.restore(self, arrays)
