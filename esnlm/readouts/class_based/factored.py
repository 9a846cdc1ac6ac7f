"""Class-factored readout: P(w|x) = P(class(w)|x) P(w|class(w), x) (Rachez eq. 35)."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from esnlm.readouts.base.blocks import Blocks
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.class_based import factors, word_clusters
from esnlm.readouts.class_based.cca import canonical_directions, word_vectors
from esnlm.readouts.class_based.readout import TwoLevelReadout
from esnlm.readouts.class_based.separate import SeparateFactors, fits_memory
from esnlm.readouts.class_based.solver import TwoLevelLearner, TwoLevelSettings
from esnlm.readouts.class_based.word_factors import ClassLayout, WordFactors
from esnlm.readouts.linear.ridge import RidgeReadout
from esnlm.utils.arrays import Array, Arrays, Ints
from esnlm.utils.state_dict import saved
from esnlm.utils.validation import Count, OneOf, limited

# Classes for each √V where frequent words have their own, and the share of such classes.
_CLASSES_WITH_WORDS, _SINGLE_WORDS = 4.5, 2 / 3
_JOINT_NEEDS = "directions_", "shift_", "word_class_", "coef_", "intercept_"
_RIDGE_CLASSES = "class_coef_", "class_intercept_", "class_floor_"
_JOINT = (*_JOINT_NEEDS, "floor_", *_RIDGE_CLASSES, "class_weights_", "gate_")
_NOT_TRAINED = "shift_", "word_class_", "floor_", "class_floor_", "n_features_in_", "classes_"


@dataclass(eq=False, repr=False)
class ClassFactoredReadout(TwoLevelReadout):
    """Two small readouts in place of a large one: a word's class, then the word in its class.

    The supervised mixture of experts of Rachez & Hagiwara (2014, §3.3.2), after Morin & Bengio
    (2005): with about √V classes of about √V words, a row trains one classifier of √V outputs
    for its class and one for the word among its class, so a row costs √V times less than over
    V words.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes of the words that are seen in training (at most; at least one). None:
        the nearest to √V. Words that are not seen have further classes where there are more
        than 256 words, or with "words".
    clustering : "auto", "clusters", "words", "frequency", mapping or sequence
        How words are put into classes. "clusters": spherical k-means on the mean of the states
        that each word follows, in classes of bounded size. "words": two thirds of the classes
        are a frequent word each, the others clusters; ``n_classes`` is then 4.5 √V where it is
        None. "frequency": bins of equal mass, frequent words first, none of more than three
        times the mean size. "auto": "clusters", and "words" for more than 256 words. A mapping
        of every label to its class, or the classes in the order of ``classes_``: those, and
        ``n_classes`` is refused.
    class_readout, word_readout : "softmax", "ridge", "moe" or a readout
        Predicts the class, and the word within it; a readout is cloned. A name stands for the
        defaults of its class; "joint" takes softmax with ``alpha=10``, one pass and a learning rate
        of 0.2, and 4 experts.
    solver : "auto", "separate" or "joint"
        "separate": a readout for the class, and one for the words of each class, on its rows.
        "joint": all factors on ``n_components`` linear maps of the state, see `TwoLevelLearner`:
        ridge solved from one set of moments, softmax in ``n_passes`` passes of steps on
        batches. Of a readout that is given, it takes the penalty (ridge: chosen by
        cross-validation where ``alpha`` is None), learning rate, momentum and passes; of
        a mixture ``n_experts``; it refuses others. Its words are softmax or ridge. "auto": joint
        for more than 256 words or 256 MiB of rows, and for passes over a corpus; separate for
        readouts of other kinds, and otherwise.
    n_components : int
        Of the joint solver; at most the number of units.
    buffer_size : int
        Rows that ``partial_fit`` keeps before it learns from them and forgets them (at most
        256 MiB). Classes are made from these rows.
    random_state : int, RandomState instance or None
        Starts the clustering.

    Attributes
    ----------
    word_class_ : ndarray (V,)
        Class of each word.
    n_classes_used_ : int
    class_factor_ : readout for the class ("separate"; None when there is one class only)
    word_factors_ : dict of class -> readout ("separate"; classes of one word have none)
    directions_, shift_ : ndarrays (n_units, P), (P,) ("joint")
        The linear maps of a state, and the mean state along them.
    class_weights_, gate_ : ndarrays (P + 1, K * C), (P + 1, K) ("joint", softmax and mixture)
        Intercepts last; without a gate for one expert.
    class_coef_, class_intercept_, class_floor_ : ndarrays (C, P), (C,), (C,) ("joint", ridge)
    coef_, intercept_, floor_ : ndarrays (V, P), (V,), (V,) ("joint")
        Words in the order of their classes; only ridge has floors.
    joint_ : TwoLevelLearner ("joint")
    history_ : list of float
        Mean held-out loss after each pass ("joint", where there are held-out rows).

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> X = random.standard_normal((500, 4))
    >>> y = 2 * (X[:, 0] > 0) + (X[:, 1] > 0)
    >>> readout = ClassFactoredReadout(clustering=[0, 0, 1, 1]).fit(X, y)
    >>> readout.predict([[2.0, 2.0, 0.0, 0.0], [-2.0, 2.0, 0.0, 0.0]])
    array([3, 1])
    >>> round(float(readout.predict_proba(X[:1]).sum()), 6)
    1.0
    """

    _layouts: ClassVar[dict[str, str]] = {
        "word_class_": "i V", "directions_": "f N P", "shift_": "f P",
        "coef_": "f V P", "intercept_": "f V", "floor_": "f V",
        "class_weights_": "f P+1 M", "gate_": "f P+1 K",
        "class_coef_": "f C P", "class_intercept_": "f C", "class_floor_": "f C",
    }  # fmt: skip

    _: KW_ONLY
    n_classes: int | None = limited(None, Count(none=True))
    clustering: Any = "auto"
    class_readout: Any = "softmax"
    word_readout: Any = "softmax"
    solver: Literal["auto", "separate", "joint"] = limited(
        "auto", OneOf(("auto", "separate", "joint"))
    )
    n_components: int = limited(512, Count(), solver=OneOf(("auto", "joint")))
    buffer_size: int = limited(65536, Count())
    random_state: int | np.random.RandomState | None = None

    @property
    def n_parameters_(self) -> int:
        """Number of trained parameters of all factors."""
        arrays = self.state_dict()
        if self._separate is not None:
            return sum(factor.n_parameters_ for factor in self._separate.readouts.values())
        trained = arrays.keys() - {*_NOT_TRAINED, "classes_json"}
        return sum(arrays[name].size for name in trained)

    @property
    def joint_(self) -> TwoLevelLearner | None:
        """The learner of all factors, None where they are separate."""
        return self._learner

    @property
    def class_factor_(self) -> Any:
        """The separate readout for the class, None where there is none."""
        return None if self._separate is None else self._separate.readouts.get("class")

    @property
    def word_factors_(self) -> dict[int, Any]:
        """The separate readouts for the words of a class, by class."""
        readouts = {} if self._separate is None else self._separate.readouts
        return {int(name[4:]): each for name, each in readouts.items() if name != "class"}

    @property
    def _scores_are_cheap(self) -> bool:  # type: ignore[override]
        """Whether a score between passes needs no solving: of softmax factors and mixtures."""
        return not any(isinstance(f, RidgeReadout) for f in (self._classes, self._words))

    def _start(self) -> None:
        """Check the parameters, set the readouts of both factors and forget any earlier fit."""
        super()._start()
        if self.n_classes is not None and not isinstance(self.clustering, str):
            raise ValueError(
                f"n_classes={self.n_classes} has no effect, as clustering names the class of every"
                " word: leave out n_classes, or clustering"
            )
        self._classes = factors.factor_readout(
            "class_readout", self.class_readout, self.random_state
        )
        self._words = factors.factor_readout("word_readout", self.word_readout, self.random_state)
        self._separate: SeparateFactors | None = None
        if self.solver == "joint" and not self._may_be_joint:
            raise ValueError(
                "solver 'joint' takes words by softmax or ridge, and classes by these or a mixture"
                f" of softmax experts, got {type(self._words).__name__} for words and"
                f" {type(self._classes).__name__} for classes: choose 'separate'"
            )

    @property
    def _may_be_joint(self) -> bool:
        return self.solver != "separate" and factors.are_joint(self._classes, self._words)

    def _settings(self, n_rows: int) -> TwoLevelSettings:
        return factors.joint_settings(
            self.class_readout, self.word_readout, self.n_components, self._seed()
        )

    def _number_of_classes(self, factor: float) -> int:
        """Return a multiple of √V (Morin & Bengio 2005) unless it is given."""
        n_words = len(self.classes_)
        return min(n_words, self.n_classes or max(1, round(factor * float(np.sqrt(n_words)))))

    def _assign(self, counts: Array, vectors: Array) -> Ints:
        """Return classes (V,) by ``clustering``, from counts (V,) and vectors (V, P) of words."""
        kind = word_clusters.clustering_kind(self.clustering, len(self.classes_))
        if kind == "given":
            return word_clusters.given_classes(self.clustering, self.classes_)
        n_classes = self._number_of_classes(_CLASSES_WITH_WORDS if kind == "words" else 1.0)
        if kind == "frequency":
            return word_clusters.frequency_classes(counts, n_classes)
        n_single = min(round(_SINGLE_WORDS * n_classes), n_classes - 1) if kind == "words" else 0
        n_clusters = n_classes - n_single
        return word_clusters.frequent_words_and_clusters(
            counts, vectors, n_single, n_clusters, self._seed()
        )

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Train all factors jointly, or assign classes from moments and fit separate readouts."""
        if self.solver == "joint" or (
            self._may_be_joint
            and (len(self.classes_) > word_clusters.MANY_WORDS or not fits_memory(blocks))
        ):
            super()._solve(blocks, held_out)
            return
        moments = Moments(self.n_features_in_, len(self.classes_))
        for X, codes in blocks:
            moments.add(X, codes)
        kind = word_clusters.clustering_kind(self.clustering, len(self.classes_))
        if kind == "clusters":
            n_classes = self._number_of_classes(1.0)
            word_class = word_clusters.state_clusters(moments, n_classes, self._seed())
        else:
            vectors: Array = np.zeros((moments.n_classes, 1))
            if kind == "words":
                directions, _ = canonical_directions(moments, word_clusters.CLUSTERED_DIRECTIONS)
                vectors = word_vectors(moments, directions)
            word_class = self._assign(moments.counts, vectors)
        self._begin_separate(word_class).fit(blocks, held_out)

    def _begin_separate(self, word_class: Ints) -> SeparateFactors:
        self._separate = SeparateFactors(word_class, self._classes, self._words)
        self._show()
        return self._separate

    def _show(self) -> None:
        """Set the classes and, of joint factors, all learned arrays as attributes."""
        self.word_class_ = self._trained.layout.word_class
        self.n_classes_used_ = self._trained.layout.n_classes
        if self._separate is not None:
            return
        learner = self._trained
        self.directions_, self.shift_ = learner.directions, learner.shift
        if (solver := learner.class_solver) is not None:
            self.class_weights_ = solver.weights
            self.gate_ = solver.gate if solver.n_experts > 1 else None
        elif (classes := getattr(learner, "classes", None)) is not None:
            self.class_coef_, self.class_intercept_ = classes.coef, classes.intercept
            self.class_floor_ = classes.floor
        if (words := getattr(learner, "words", None)) is not None:
            self.coef_, self.intercept_, self.floor_ = words.coef, words.intercept, words.floor

    def _use(self, learner: TwoLevelLearner) -> None:
        """Set the learner's word and class weights to the learned attributes."""
        floor = getattr(self, "floor_", None)
        learner.words = WordFactors(learner.layout, self.coef_, self.intercept_, floor)
        if learner.class_solver is None:
            one_class = ClassLayout(np.zeros(learner.layout.n_classes, dtype=np.intp))
            learner.classes = WordFactors(
                one_class, self.class_coef_, self.class_intercept_, self.class_floor_
            )
            return
        learner.class_solver.weights = self.class_weights_
        if (gate := getattr(self, "gate_", None)) is not None:
            learner.class_solver.gate = gate

    @property
    def _trained(self) -> Any:
        return super()._trained if self._separate is None else self._separate

    def state_dict(self, *, training: bool = False) -> Arrays:
        """Return what predictions need, or with ``training`` what further rows are added to.

        Separate factors have the arrays of their readouts as "class." and, of words, "word0.".
        """
        arrays = super().state_dict(training=training)
        if self._separate is not None:
            arrays |= self._separate.state_dict(training=training)
        return arrays

    def _names(self, training: bool) -> Mapping[str, str]:
        joint = not training and self._separate is None
        return dict(super()._names(training)) | (saved(*_JOINT) if joint else {})

    def _required(self, arrays: Arrays, training: bool) -> Iterable[str]:
        if training or self._separate is not None:
            return super()._required(arrays, training)
        kind = _RIDGE_CLASSES if isinstance(self._classes, RidgeReadout) else ("class_weights_",)
        return (*super()._required(arrays, training), *_JOINT_NEEDS, *kind)

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        """Forget separate factors, and load those that ``arrays`` hold."""
        self._separate = None
        arrays = super()._before_loading(arrays, training)
        name = "word_class" if training else "word_class_"
        if name in arrays and "directions_" not in arrays:
            separate = self._begin_separate(arrays[name].astype(np.intp))
            if not training:
                self.n_features_in_ = int(arrays["n_features_in_"])
            separate.n_units = self.n_features_in_
            separate.load_state_dict(arrays, training=training)
        return arrays

    def _loaded(self, training: bool) -> None:
        if self._separate is None:
            super()._loaded(training)
