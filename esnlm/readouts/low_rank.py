"""Low-rank readout for large vocabularies: canonical variables, then classes, then words."""

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from esnlm.last_tokens import NO_TOKEN
from esnlm.readouts.base import ArrayBlocks, Block, Blocks, blocks_rows
from esnlm.readouts.buffered import BufferedReadout
from esnlm.readouts.canonical import canonical_directions, word_vectors
from esnlm.readouts.clusters import frequent_words_and_clusters
from esnlm.readouts.direct import PairCounts
from esnlm.readouts.incremental import Interleaved
from esnlm.readouts.two_level import Rates, Rows, TwoLevelSolver
from esnlm.readouts.within_class import ClassLayout
from esnlm.statistics import Moments
from esnlm.validation import check_count, check_finite

# Rows of the survey, in all and of which products are taken for each unit.
_SURVEY_ROWS = 1 << 20
_GRAM_ROWS, _GRAM_ROWS_A_UNIT = 1 << 16, 32
# Sums of states are kept for as many words, the most frequent.
_SUM_BYTES = 1 << 30
_CLUSTERED_DIRECTIONS = 64
_LARGEST_BATCH, _LEAST_BATCH = 4096, 16
_BATCHES_A_PASS, _LEAST_STEPS = 64, 512
_RATE, _RATE_POWER = 7.3, -0.84
_LATER_RATE = 0.1
_LEAST_SCALE = 0.02
_TILE = 1024


class LowRankReadout(BufferedReadout):
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
        Passes over the rows; more where rows are few.
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
        ``classes_``, or -1 for none (`esnlm.last_tokens`); `LanguageModel` puts them there.
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
        Pairs with a vector, as `esnlm.readouts.direct.pair_keys` numbers them.
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
        self._surveyed: Moments | None = None
        self._can_learn = True
        self._n_seen = self._n_rows = 0
        self._total_passes = self.n_passes
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
        return self.__dict__.get("_total_passes", self.n_passes)

    @property
    def survey_rows(self) -> int:
        """Rows that directions and classes are made from."""
        return min(_SURVEY_ROWS, self._n_rows)

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
        self._surveyed.add(states, self._rank[codes])
        if self.n_pairs:
            self._pair_counts.add(last)

    def end_survey(self) -> None:
        """Solve the directions, and make the classes."""
        moments, rank = self._surveyed, self._rank
        assert moments is not None, "the survey is over"
        directions, correlations = canonical_directions(moments, self.n_components)
        vectors = word_vectors(moments, directions)
        # A component counts for as much as it tells: most of many tell little but noise.
        scale = np.maximum(correlations / max(float(correlations[0]), 1e-6), _LEAST_SCALE)
        directions *= scale.astype(np.float32)
        counts = moments.counts[rank] if self._counts is None else self._counts
        if moments.n_classes < len(counts):
            vectors[-1] = 0  # of many rare words together
        n_words = len(counts)
        root = float(np.sqrt(n_words))
        classes = frequent_words_and_clusters(
            counts,
            vectors[rank, :_CLUSTERED_DIRECTIONS],
            round(3 * root) if self.n_frequent is None else self.n_frequent,
            max(1, round(1.5 * root)) if self.n_classes is None else self.n_classes,
            int(check_random_state(self.random_state).randint(2**31 - 1)),
        )
        shift = (moments.mean @ directions).astype(np.float32)
        self._surveyed = None
        self.pairs_ = self._pair_counts.most_frequent(self.n_pairs)
        self._set_solver(directions, shift, classes, counts, float(np.mean(scale**2)))

    def learn(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Steps on the next rows of the pass."""
        if self._solver is None:
            self.end_survey()
        self._learn(X, codes, self._rates())
        self._n_seen += len(X)

    def end_pass(self, held_out: Iterable[Block] | None = None) -> bool:
        """Note the held-out loss."""
        if held_out is not None:
            total = n = 0.0
            for X, codes in held_out:
                total -= float(self._log_probabilities_of(X, codes).sum(dtype=np.float64))
                n += len(codes)
            self.history_.append(total / max(n, 1.0))
        return True

    def finish(self, held_out: Iterable[Block] | None = None) -> None:
        """Learn the rows still waiting."""
        self._solver_made().flush(self._rates())

    def _plan(self, n_rows: int, counts: NDArray[Any] | None) -> None:
        """Sizes of batches, passes and the survey for passes of n_rows rows."""
        self._n_rows, self._counts, self._n_seen = n_rows, counts, 0
        self._batch = int(np.clip(n_rows // _BATCHES_A_PASS, _LEAST_BATCH, _LARGEST_BATCH))
        steps = max(1, n_rows // self._batch)
        self._total_passes = max(self.n_passes, -(-_LEAST_STEPS // steps))
        n_words, n_units = len(self.classes_), self.n_features_in_ - self.n_direct
        if n_units < 1:
            raise ValueError(
                f"X must have states beside the {self.n_direct} columns of last tokens, got"
                f" {self.n_features_in_} columns"
            )
        self._rank = np.arange(n_words)
        n_sums = n_words
        if counts is not None:
            n_sums = min(n_words, max(2, _SUM_BYTES // (8 * n_units)))
            self._rank[np.argsort(-counts, kind="stable")] = np.minimum(
                np.arange(n_words), n_sums - 1
            )
        gram_rows = max(_GRAM_ROWS, _GRAM_ROWS_A_UNIT * n_units)
        self._surveyed = Moments(n_units, n_sums, gram_rows)
        self._pair_counts = PairCounts(n_words)

    def _rates(self) -> Rates:
        left = max(0.0, 1 - self._n_seen / max(1, self._n_rows * self._total_passes))
        return self._rates_of(left, self._batch)

    def _rates_of(self, share: float, n_rows: int) -> Rates:
        """A share of the learning rates, for steps on so many rows."""
        size = min(1.0, n_rows / self.n_features_in_)
        rate = self.learning_rate
        if rate is None:
            steps = max(1, self._n_rows // self._batch) * self._total_passes
            rate = _RATE * steps**_RATE_POWER
        return Rates(share * size * rate, share * self.direct_rate)

    def _set_solver(
        self,
        directions: NDArray[Any],
        shift: NDArray[Any],
        word_class: NDArray[np.intp],
        counts: NDArray[Any],
        variance: float = 1.0,
    ) -> None:
        """Begin with components of a mean variance."""
        self.directions_, self.shift_ = directions, shift
        self.word_class_ = word_class
        solver = TwoLevelSolver(
            ClassLayout(word_class),
            directions.shape[1],
            counts,
            batch=self._batch,
            momentum=self.momentum,
            prior=self.prior * variance,
            penalty=self.alpha / max(1, self._n_rows),
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

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        blocks = self._held(blocks)
        n_rows, counts = blocks_rows(blocks), None
        if isinstance(blocks, ArrayBlocks):
            counts = np.bincount(blocks.y, minlength=len(self.classes_))
            blocks = Interleaved(blocks.X, blocks.y, min(blocks.block_size, n_rows))
        elif not n_rows:
            n_rows = sum(len(codes) for _, codes in blocks)
        self._plan(n_rows, counts)
        surveyed = 0
        for X, codes in blocks:
            self.survey(X, codes)
            surveyed += len(X)
            if surveyed >= self.survey_rows:
                break
        self.end_survey()
        for _ in range(self._total_passes):
            for X, codes in blocks:
                self.learn(X, codes)
            self.end_pass(held_out)
        self.finish()

    def _held(self, blocks: Blocks) -> Blocks:
        """The rows as arrays where ``partial_fit`` would hold them all, which are interleaved."""
        if isinstance(blocks, ArrayBlocks):
            return blocks
        parts: list[Block] = []
        room = self._capacity(np.float64) - blocks_rows(blocks)
        for X, codes in blocks if room >= 0 else ():
            parts.append((X.copy(), codes.copy()))
            if sum(len(part) for part, _ in parts) > self._capacity(np.float64):
                return blocks
        if not parts:
            return blocks
        return ArrayBlocks(
            np.concatenate([X for X, _ in parts]), np.concatenate([codes for _, codes in parts])
        )

    def _update(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        if not self._can_learn:
            raise ValueError(
                "this readout was loaded without its training state and cannot learn more rows: "
                "fit a clone on all of them"
            )
        rates = self._rates_of(_LATER_RATE, len(X))
        self._learn(X, codes, rates)
        self._solver_made().flush(rates)

    def _learn(self, X: NDArray[Any], codes: NDArray[Any], rates: Rates) -> None:
        states, last = self._split(X.astype(np.float32, copy=False))
        rows = Rows(self._canonical(states), codes.astype(np.intp, copy=False), last)
        self._solver_made().learn(rows, rates)

    def _split(self, X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """States (n, n_units) and last tokens (n, n_direct), the columns of X."""
        if not self.n_direct:
            return X, np.empty((len(X), 0), dtype=np.int64)
        given, n_tokens = X[:, -self.n_direct :], len(self.classes_)
        last = given.astype(np.int64)
        if (last != given).any() or (last < NO_TOKEN).any() or (last >= n_tokens).any():
            raise ValueError(
                f"the last {self.n_direct} columns of X must be tokens, whole numbers from"
                f" {NO_TOKEN} (none) to {n_tokens - 1}, got {given.min()} to {given.max()}"
            )
        return X[:, : -self.n_direct], last

    def _canonical(self, states: NDArray[Any]) -> NDArray[Any]:
        """Canonical variables (n, P) of states (n, n_units), in their dtype."""
        Z: NDArray[Any] = states @ self.directions_.astype(states.dtype, copy=False)
        Z -= self.shift_.astype(states.dtype, copy=False)
        return Z

    def _components(self, X: NDArray[Any]) -> NDArray[Any]:
        """What both softmaxes read, (n, P): canonical variables and what last tokens add."""
        states, last = self._split(X)
        Z = self._canonical(states)
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
        self._batch, self._can_learn = _LARGEST_BATCH, False
        trained = {name: getattr(self, name) for name in self._parameters}
        classes = np.asarray(self.word_class_).astype(np.intp)
        self._set_solver(self.directions_, self.shift_, classes, np.zeros(len(classes)))
        solver = self._solver_made()
        solver.class_coef, solver.class_offset = trained["class_coef_"], trained["class_intercept_"]
        solver.word_coef, solver.word_offset = trained["word_coef_"], trained["word_intercept_"]
        solver.direct.coef, solver.direct.pair_coef = trained["direct_coef_"], trained["pair_coef_"]
        self._take(solver)

    def _learner_arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {
            "n_seen": np.asarray(self._n_seen),
            "n_rows": np.asarray(self._n_rows),
        }
        if self._counts is not None:
            arrays["counts"] = self._counts
        if self._surveyed is not None:
            arrays |= {f"survey.{k}": a for k, a in self._surveyed.to_arrays().items()}
            arrays["pair_counts"] = self._pair_counts.totals()
        if self._solver is not None:
            arrays |= {"directions": self.directions_, "shift": self.shift_}
            arrays["word_class"] = self.word_class_
            arrays["pairs"] = self.pairs_
            arrays |= {f"solver.{k}": a for k, a in self._solver.to_arrays().items()}
        if self.history_:
            arrays["history"] = np.array(self.history_)
        return arrays

    def _restore_learner(self, arrays: dict[str, NDArray[Any]]) -> None:
        counts = arrays.get("counts")
        self._start()
        if "n_seen" in arrays and int(arrays["n_rows"]):
            self._plan(int(arrays["n_rows"]), counts)
            self._n_seen = int(arrays["n_seen"])
        survey, solved = (
            {k.removeprefix(start): a for k, a in arrays.items() if k.startswith(start)}
            for start in ("survey.", "solver.")
        )
        if survey:
            gram_rows = None if self._surveyed is None else self._surveyed.gram_rows
            self._surveyed = Moments.from_arrays(survey, gram_rows)
            self._pair_counts.restore(arrays["pair_counts"])
        if solved:
            self._surveyed = None
            classes = arrays["word_class"].astype(np.intp)
            self.pairs_ = arrays["pairs"]
            self._set_solver(arrays["directions"], arrays["shift"], classes, np.zeros(len(classes)))
            solver = self._solver_made()
            solver.restore(solved)
            self._take(solver)
        self.history_ = arrays.get("history", np.zeros(0)).tolist()
