"""Low-rank readout for large vocabularies: canonical variables, then classes, then words."""

from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

import numpy as np

from esnlm.readouts.class_based.readout import TwoLevelReadout
from esnlm.readouts.class_based.solver import TwoLevelLearner, TwoLevelSettings
from esnlm.readouts.class_based.word_clusters import frequent_words_and_clusters
from esnlm.utils.arrays import Array, Floats32, Ints
from esnlm.utils.validation import Count, Number, limited

_RATE, _RATE_POWER = 7.3, -0.84
# Batches of a pass; with direct connections as many as all passes would have at least.
_BATCHES, _DIRECT_BATCHES = 64, 512
# Fewer rows want a larger penalty (reports/search).
_FEW_ROWS, _PENALTY_OF_FEW_ROWS, _PENALTY = 1 << 18, 100.0, 10.0
_NGRAMS = 1 << 18


@dataclass(eq=False, repr=False)
class LowRankReadout(TwoLevelReadout):
    """Softmax of low rank over classes of words and the words of a class (Rachez eq. 35).

    Made for vocabularies of tens of thousands of words. Three steps:

    1. From the moments of a sample of rows, in closed form: the ``n_components`` linear maps of
       a state that tell the next words apart best (`canonical_directions`), uncorrelated, each
       scaled by its canonical correlation, so that a penalty weighs on those that tell little.
    2. Classes: the ``n_frequent`` most frequent words have one each, the others are clustered by
       the states that they follow.
    3. Passes over all rows train the softmax over classes and those over the words of a class on
       the components. These are uncorrelated, so every step over classes is a
       Gram-preconditioned one at no cost. The targets of rare words are discounted in favour of
       all words (absolute discounting), so that those that never occurred keep their share.

    Every distribution is interpolated with the discounted unigrams (Jelinek & Mercer 1980): theirs
    is the share that is likeliest on held-out rows, or a thousandth where there are none.

    A row costs ``2 N P + 4 P (K + words in its class)`` operations for P components and K
    classes: 7 million at N = 4096 and V = 50 257, a sixtieth of a full softmax's. A trained
    low-rank output is Ueda's (rank 512); here the first factor is solved, not descended.

    Parameters
    ----------
    n_components : int
        Rank P; at most the number of units.
    alpha : float, optional
        Penalty on half the squared weights of the components, beside the summed loss. None: 100
        for up to 262 144 rows, 10 for more.
    n_frequent, n_classes : int, optional
        Words that are classes of their own, and classes of the others. None: 3 √V, 1.5 √V.
    n_passes : int
        Passes over the rows; more where rows are few (with direct connections: very few).
    learning_rate : float, optional
        Of the softmax over classes; falls linearly to zero over all passes. None: 7.3 s^-0.84
        for s steps, which was found best for 10^2 to 10^3 of them.
    momentum : float
    prior : float
        Rows of mean length in the squared gradients that a word within a class starts with: the
        more, the shorter are its first steps.
    n_direct : int
        Last tokens that the components also depend on, past the reservoir: direct connections
        from input to output (Jaeger 2001), one trained vector (P,) a token and place. The last
        ``n_direct`` columns of X are then these tokens, the newest first, as columns of
        ``classes_``, or -1 for none; `LanguageModel` puts them there.
    n_ngrams : int, optional
        Most frequent n-grams of the last two and three tokens that have a vector of their own,
        beside those of the tokens (Mikolov et al. 2011); needs ``n_direct`` of 2 at least. None:
        262 144 where ``n_direct`` is that large, else 0.
    direct_rate : float
        Learning rate (AdaGrad) of the direct connections; falls linearly to zero.
    buffer_size : int
        See `BufferedReadout`.
    random_state : int, RandomState instance or None
        Starts the clustering.

    Attributes
    ----------
    directions_ : ndarray (n_units, P) float32
        Of states without the columns of last tokens.
    direct_coef_ : ndarray (n_direct, V + 1, P) float32
        Vectors added to the components; the last row is that of no token.
    ngram_coef_ : ndarray (number of n-grams, P) float32
    ngrams_ : ndarray (number of n-grams,) int64
        N-grams with a vector, as `direct_connections.ngram_keys` numbers them.
    unigram_ : ndarray (V,) float32
        Unigram probabilities times their share in every distribution.
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
    >>> readout = LowRankReadout(n_components=2, random_state=0).fit(X, y)
    >>> readout.predict([[2.0, 2.0, 0.0, 0.0], [-2.0, 2.0, 0.0, 0.0]])
    array([3, 1])
    >>> readout.directions_.shape
    (4, 2)
    """

    _parameters: ClassVar[tuple[str, ...]] = (
        "directions_", "direct_coef_", "ngram_coef_",
        "class_coef_", "class_intercept_", "word_coef_", "word_intercept_",
    )  # fmt: skip
    _state: ClassVar[tuple[str, ...]] = ("shift_", "word_class_", "ngrams_", "unigram_")
    _layouts: ClassVar[dict[str, str]] = {
        "directions_": "f U P", "shift_": "f P", "word_class_": "i V", "unigram_": "f V",
        "class_coef_": "f P C", "class_intercept_": "f C",
        "word_coef_": "f V P", "word_intercept_": "f V",
        "direct_coef_": "f D V+1 P", "ngrams_": "i Q", "ngram_coef_": "f Q P",
    }  # fmt: skip

    _: KW_ONLY
    n_components: int = limited(384, Count())
    alpha: float | None = limited(None, Number(0, 1e12, none=True))
    n_frequent: int | None = limited(None, Count(0, none=True))
    n_classes: int | None = limited(None, Count(none=True))
    n_passes: int = limited(1, Count())
    learning_rate: float | None = limited(None, Number(0, open="low", none=True))
    momentum: float = limited(0.9, Number(0, 1, open="high"))
    prior: float = limited(1.0, Number(0, 1e12, open="low"))
    n_direct: int = limited(0, Count(0))
    n_ngrams: int | None = limited(None, Count(0, none=True), n_direct=Count(2))
    direct_rate: float = limited(0.1, Number(0, open="low"), n_direct=Count())
    buffer_size: int = limited(65536, Count())
    random_state: int | np.random.RandomState | None = None

    unigram_: Floats32 | None = field(default=None, init=False)

    def _penalty(self, n_rows: int) -> float:
        if self.alpha is not None:
            return self.alpha
        return _PENALTY_OF_FEW_ROWS if n_rows <= _FEW_ROWS else _PENALTY

    def _settings(self, n_rows: int) -> TwoLevelSettings:
        """Return settings for softmax classes and words, with the penalty for ``n_rows`` rows."""
        alpha, n_ngrams = self._penalty(n_rows), self.n_ngrams
        if n_ngrams is None:
            n_ngrams = _NGRAMS if self.n_direct > 1 else 0
        return TwoLevelSettings(
            self.n_components,
            n_experts=None,
            softmax_words=True,
            alpha=alpha,
            word_alpha=alpha,
            rate=self._rate,
            momentum=self.momentum,
            n_passes=self.n_passes,
            prior=self.prior,
            n_direct=self.n_direct,
            n_ngrams=n_ngrams,
            direct_rate=self.direct_rate,
            # A second look at an n-gram is mostly one at what its vector knows by heart.
            batches=_DIRECT_BATCHES if self.n_direct else _BATCHES,
            discounted=True,
        )

    def _assign(self, counts: Array, vectors: Array) -> Ints:
        root = float(np.sqrt(len(counts)))
        n_frequent = round(3 * root) if self.n_frequent is None else self.n_frequent
        n_classes = max(1, round(1.5 * root)) if self.n_classes is None else self.n_classes
        return frequent_words_and_clusters(counts, vectors, n_frequent, n_classes, self._seed())

    def _rate(self, share: float, n_rows: int, n_components: int, n_steps: int) -> float:
        """See `TwoLevelSettings`: less for batches of fewer rows than components."""
        rate = self.learning_rate
        if rate is None:
            rate = _RATE * n_steps**_RATE_POWER
        return share * min(1.0, n_rows / n_components) * rate

    def _show(self) -> None:
        learner = self._trained
        self.directions_, self.shift_ = learner.directions, learner.shift
        self.word_class_, self.ngrams_ = learner.layout.word_class, learner.direct.ngrams
        self.class_coef_ = learner.class_solver.weights[:-1]
        self.class_intercept_ = learner.class_solver.weights[-1]
        self.word_coef_, self.word_intercept_ = learner.words.coef, learner.words.intercept
        self.direct_coef_, self.ngram_coef_ = learner.direct.coef, learner.direct.ngram_coef
        self.unigram_ = learner.unigrams

    def _use(self, learner: TwoLevelLearner) -> None:
        assert learner.class_solver is not None
        learner.class_solver.weights = np.vstack([self.class_coef_, self.class_intercept_])
        learner.words.coef, learner.words.intercept = self.word_coef_, self.word_intercept_
        learner.direct.coef, learner.direct.ngram_coef = self.direct_coef_, self.ngram_coef_
        learner.direct.ngrams = self.ngrams_
        learner.unigrams = self.unigram_
