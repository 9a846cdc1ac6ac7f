"""Class-factored readout: P(w|x) = P(class(w)|x) P(w|class(w), x) (Rachez eq. 35)."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from esnlm.readouts import joint_state
from esnlm.readouts.base import ArrayBlocks, Block, Blocks, StreamingReadout, blocks_rows
from esnlm.readouts.buffered import BufferedReadout
from esnlm.readouts.canonical import canonical_directions, word_vectors
from esnlm.readouts.clusters import (
    default_n_classes,
    frequency_classes,
    frequent_words_and_clusters,
    given_classes,
    state_clusters,
)
from esnlm.readouts.factored_state import factored_arrays, restore_factored
from esnlm.readouts.incremental import Interleaved
from esnlm.readouts.joint_factors import FactorSettings, JointFactors
from esnlm.readouts.mixture import MixtureOfExpertsReadout
from esnlm.readouts.ridge import RidgeReadout
from esnlm.readouts.softmax import SoftmaxReadout
from esnlm.readouts.within_class import ClassLayout
from esnlm.statistics import Moments
from esnlm.validation import check_count

_SEPARATE_WORDS = 256
_MEMORY = 1 << 28
_KINDS = {"softmax": SoftmaxReadout, "ridge": RidgeReadout, "moe": MixtureOfExpertsReadout}
# Parameters of factors that are named alone, where they are learned jointly.
_JOINT_SOFTMAX = SoftmaxReadout(alpha=10.0, n_passes=1, learning_rate=0.2)
_JOINT_EXPERTS = 4
# Classes for each √V where frequent words have their own, and the part that these are.
_CLASSES_WITH_WORDS, _SINGLE_WORDS = 4.5, 2 / 3
_WITHOUT_STATE = (
    "this readout was loaded without its statistics and cannot learn more rows: fit a clone on"
    " all of them"
)


class ClassFactoredReadout(BufferedReadout):
    """Two small readouts in place of a large one: a word's class, then the word in its class.

    The supervised mixture of experts of Rachez & Hagiwara (2014, §3.3.2), after Morin & Bengio
    (2005): with about √V classes of about √V words, a row trains one classifier of √V outputs
    for its class and one for the word among its class, so a row costs √V times less than over
    V words.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes (at most; at least one). None: the nearest to √V.
    clustering : "auto", "clusters", "words", "frequency", mapping or sequence
        How words are put into classes. "clusters": spherical k-means on the mean of the states
        that each word follows, in classes of bounded size. "words": two thirds of the classes
        are a frequent word each, the others clusters; ``n_classes`` is then 4.5 √V where it is
        None. "frequency": bins of equal mass, frequent words first, none of more than three
        times the mean size. "auto": "clusters", and "words" for more than 256 words. A mapping
        of every label to its class, or the classes in the order of ``classes_``: those
        (``n_classes`` is not used).
    class_readout, word_readout : "softmax", "ridge", "moe" or a readout
        What predicts the class, and the word within it; a readout is cloned.
    solver : "auto", "separate" or "joint"
        "separate": a readout for the class, and one for the words of each class, on its rows.
        "joint": all factors on ``n_components`` linear maps of the state, see `JointFactors`:
        ridge solved from one set of moments, softmax in ``n_passes`` passes of steps on
        batches. Of a readout that is given, it takes the penalty (ridge: chosen by
        cross-validation unless ``selection`` is None), learning rate, momentum and passes; of
        a mixture ``n_experts``. Its words are softmax or ridge. "auto": joint for more than 256
        words or 256 MiB of rows, and for passes over a corpus; separate for readouts of other
        kinds, and otherwise.
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
    joint_ : JointFactors ("joint")
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

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        clustering: Any = "auto",
        class_readout: Any = "softmax",
        word_readout: Any = "softmax",
        solver: Literal["auto", "separate", "joint"] = "auto",
        n_components: int = 512,
        buffer_size: int = 65536,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_classes = n_classes
        self.clustering = clustering
        self.class_readout = class_readout
        self.word_readout = word_readout
        self.solver = solver
        self.n_components = n_components
        self.buffer_size = buffer_size
        self.random_state = random_state

    @property
    def n_parameters_(self) -> int:
        """Number of trained parameters of all factors."""
        self.to_arrays()
        if self.joint_ is not None:
            return joint_state.n_parameters(self.joint_)
        nested = [self.class_factor_, *self.word_factors_.values()]
        return sum(f.n_parameters_ for f in nested if f is not None)

    @property
    def scores_are_cheap(self) -> bool:  # type: ignore[override]
        """Whether a score along the way needs no solving: of softmax factors and mixtures."""
        return not any(isinstance(f, RidgeReadout) for f in (self._class, self._words))

    @property
    def training_passes(self) -> int:
        """Passes over the corpus that it wants; asked after `begin`, more where rows are few."""
        joint = self.__dict__.get("joint_")
        return 1 if joint is None else joint.n_passes

    @property
    def survey_rows(self) -> int:
        """Rows that components and classes are made from."""
        joint = self.__dict__.get("joint_")
        return 0 if joint is None else joint.survey_rows

    def begin(
        self,
        classes: ArrayLike,
        n_units: int,
        *,
        n_rows: int,
        counts: NDArray[np.int64] | None = None,
        dtype: str = "float32",
    ) -> Self:
        """See `StreamingReadout.begin`; factors are learned jointly where that is possible."""
        super().begin(classes, n_units, n_rows=n_rows, counts=counts, dtype=dtype)
        if self.solver != "separate" and self._may_be_joint():
            self._streaming = True
            self._begin_joint(n_rows, counts)
        return self

    def survey(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Rows for components and classes."""
        self._joint_made().survey(X, codes)

    def end_survey(self) -> None:
        """Solve the components, and make the classes."""
        self._joint_made().end_survey()

    def learn(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Learn from the next rows of the pass."""
        if self.joint_ is None:
            super().learn(X, codes)
        else:
            self.joint_.learn(X, codes.astype(np.intp, copy=False))

    def end_pass(self, held_out: Iterable[Block] | None = None) -> bool:
        """Note the held-out loss of joint factors."""
        if self.joint_ is not None and held_out is not None:
            self.joint_.settle()
            total = n = 0.0
            for X, codes in held_out:
                total -= float(self.joint_.log_probability_of(X, codes).sum(dtype=np.float64))
                n += len(codes)
            self.history_.append(total / max(n, 1.0))
        return True

    def finish(self, held_out: Iterable[Block] | None = None) -> None:
        """Learn the rows still waiting, and solve."""
        if self.joint_ is None:
            super().finish(held_out)
        else:
            self._finish_joint()

    def _start(self) -> None:
        if self.solver not in ("auto", "separate", "joint"):
            raise ValueError(f"solver must be 'auto', 'separate' or 'joint', got {self.solver!r}")
        for name in ("buffer_size", "n_components"):
            check_count(name, getattr(self, name))
        if self.n_classes is not None:
            check_count("n_classes", self.n_classes)
        self._words = _factor(self.word_readout, "word_readout")
        self._class = _factor(self.class_readout, "class_readout")
        self._can_learn = True
        self.history_: list[float] = []
        self.joint_: JointFactors | None = None
        self.class_factor_: Any = None
        self.word_factors_: dict[int, Any] = {}
        if self.solver == "joint" and not self._may_be_joint():
            raise ValueError(
                "solver 'joint' takes words by softmax or ridge, and classes by these or a mixture"
                f" of softmax experts, got {type(self._words).__name__} for words and"
                f" {type(self._class).__name__} for classes: choose 'separate'"
            )

    def _may_be_joint(self) -> bool:
        """Whether the joint solver knows factors of these kinds."""
        mixture = isinstance(self._class, MixtureOfExpertsReadout)
        known = isinstance(self._class, RidgeReadout | SoftmaxReadout)
        known = known or (mixture and self._class.experts == "softmax")
        return known and isinstance(self._words, RidgeReadout | SoftmaxReadout)

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        if self.solver == "joint" or (
            self.solver == "auto"
            and self._may_be_joint()
            and (len(self.classes_) > _SEPARATE_WORDS or not self._fits_memory(blocks))
        ):
            self._solve_jointly(blocks, held_out)
            return
        moments = _moments(blocks, len(self.classes_))
        self.n_features_in_ = moments.n_units
        self._set_classes(self._assign_separate(moments))
        if self._layout.n_classes > 1:
            self.class_factor_ = clone(self._class).fit_blocks(
                _ClassOf(blocks, self.word_class_),
                np.arange(self._layout.n_classes),
                None if held_out is None else _ClassOf(held_out, self.word_class_),
            )
        if not self._fits_memory(blocks):
            for X, codes in blocks:
                self._update_separate(X, codes)
            return
        parts = _by_class(blocks, self._layout)
        judges = {} if held_out is None else _by_class(held_out, self._layout)
        for c, part in parts.items():
            words = self._layout.words(c)
            if len(words) > 1:
                self.word_factors_[c] = clone(self._words).fit_blocks(part, words, judges.get(c))

    def _fits_memory(self, blocks: Blocks) -> bool:
        """Whether copies of the rows stay within 256 MiB."""
        n_bytes = 0
        for X, _ in blocks:
            n_bytes += X.nbytes
            if n_bytes > _MEMORY:
                return False
        return True

    def _solve_jointly(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Passes over the rows, which are interleaved where they are arrays."""
        blocks = self._held(blocks)
        n_rows, counts = blocks_rows(blocks), None
        if isinstance(blocks, ArrayBlocks):
            counts = np.bincount(blocks.y, minlength=len(self.classes_))
            blocks = Interleaved(blocks.X, blocks.y, min(blocks.block_size, n_rows))
        elif not n_rows:
            n_rows = sum(len(codes) for _, codes in blocks)
        joint = self._begin_joint(n_rows, counts)
        surveyed = 0
        for X, codes in blocks:
            joint.survey(X, codes)
            surveyed += len(X)
            if surveyed >= joint.survey_rows:
                break
        joint.end_survey()
        for _ in range(joint.n_passes):
            for X, codes in blocks:
                joint.learn(X, codes)
            self.end_pass(held_out)
        self._finish_joint()

    def _held(self, blocks: Blocks) -> Blocks:
        """The rows as arrays where ``partial_fit`` would hold them all."""
        if isinstance(blocks, ArrayBlocks):
            return blocks
        parts: list[Block] = []
        n_rows = 0
        for X, codes in blocks:
            parts.append((X.copy(), codes.copy()))
            n_rows += len(X)
            if n_rows > self._capacity(np.float64):
                return blocks
        return ArrayBlocks(
            np.concatenate([X for X, _ in parts]), np.concatenate([codes for _, codes in parts])
        )

    def _begin_joint(self, n_rows: int, counts: NDArray[Any] | None) -> JointFactors:
        sizes = self.n_features_in_, len(self.classes_), n_rows
        self.joint_ = JointFactors(self._settings(), self._assign, *sizes, counts)
        self.joint_.begin_survey()
        return self.joint_

    def _finish_joint(self) -> None:
        joint = self._joint_made()
        joint.finish()
        self._set_classes(joint.layout.word_class)

    def _joint_made(self) -> JointFactors:
        assert self.joint_ is not None, "begin comes first"
        return self.joint_

    def _settings(self) -> FactorSettings:
        """What the joint solver takes from the readouts for the factors."""
        named = isinstance(self.class_readout, str), isinstance(self.word_readout, str)
        classes, words = (
            _JOINT_SOFTMAX if is_named and isinstance(factor, SoftmaxReadout) else factor
            for is_named, factor in zip(named, (self._class, self._words), strict=True)
        )
        n_experts = int(isinstance(classes, SoftmaxReadout))
        if isinstance(classes, MixtureOfExpertsReadout):
            n_experts = _JOINT_EXPERTS if named[0] else classes.n_experts
            classes = words if isinstance(words, SoftmaxReadout) else _JOINT_SOFTMAX
        softmax = [f for f in (classes, words) if isinstance(f, SoftmaxReadout)]
        steps = softmax[0] if softmax else _JOINT_SOFTMAX
        return FactorSettings(
            self.n_components,
            n_experts,
            isinstance(words, SoftmaxReadout),
            _penalty(classes),
            _penalty(words),
            steps.learning_rate,
            steps.momentum,
            max([factor.n_passes for factor in softmax], default=1),
            self._seed(),
        )

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _assign(self, counts: NDArray[Any], vectors: NDArray[Any]) -> NDArray[np.intp]:
        """Classes (V,) of words that occurred counts (V,) times, after states like vectors."""
        if not isinstance(self.clustering, str):
            return given_classes(self.clustering, self.classes_)
        n_words = len(self.classes_)
        kind = self._clustering()
        n_classes = min(n_words, self.n_classes or self._default_n_classes(kind))
        if kind == "frequency":
            return frequency_classes(counts, n_classes)
        n_single = round(_SINGLE_WORDS * n_classes) if kind == "words" else 0
        n_clusters = max(1, n_classes - n_single)
        return frequent_words_and_clusters(counts, vectors, n_single, n_clusters, self._seed())

    def _assign_separate(self, moments: Moments) -> NDArray[np.intp]:
        if self._clustering() == "clusters":
            n_words = len(self.classes_)
            n_classes = min(n_words, self.n_classes or default_n_classes(n_words))
            return state_clusters(moments, n_classes, self._seed())
        vectors: NDArray[Any] = np.zeros((moments.n_classes, 1))
        if self._clustering() == "words":
            vectors = word_vectors(moments, canonical_directions(moments, 64)[0])
        return self._assign(moments.counts, vectors)

    def _clustering(self) -> str:
        """The kind of clustering; "given" where the caller gave classes."""
        if not isinstance(self.clustering, str):
            return "given"
        if self.clustering not in ("auto", "clusters", "words", "frequency"):
            raise ValueError(
                "clustering must be 'auto', 'clusters', 'words', 'frequency' or a class for every"
                f" word, got {self.clustering!r}"
            )
        if self.clustering != "auto":
            return self.clustering
        return "words" if len(self.classes_) > _SEPARATE_WORDS else "clusters"

    def _default_n_classes(self, kind: str) -> int:
        n_words = len(self.classes_)
        if kind == "words":
            return max(1, round(_CLASSES_WITH_WORDS * float(np.sqrt(n_words))))
        return default_n_classes(n_words)

    def _set_classes(self, word_class: NDArray[np.intp]) -> None:
        self.word_class_ = word_class
        self._layout = ClassLayout(word_class)
        self.n_classes_used_ = self._layout.n_classes
        self._column = self._layout.position - self._layout.starts[word_class]

    def _update(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        if self.joint_ is not None:
            if not self._can_learn:
                raise ValueError(_WITHOUT_STATE)
            self.joint_.learn_later(X, codes)
            return
        if self.class_factor_ is not None:
            self.class_factor_.partial_fit(X, self.word_class_[codes])
        self._update_separate(X, codes)

    def _settle(self) -> None:
        super()._settle()
        if self.joint_ is not None:
            self.joint_.settle()

    def _update_separate(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        for c, rows in self._layout.rows_by_class(self.word_class_[codes]):
            words = self._layout.words(c)
            if len(words) > 1:
                factor = self.word_factors_.setdefault(c, clone(self._words))
                factor.partial_fit(X[rows], codes[rows], classes=words)

    def _log_class(self, X: NDArray[Any]) -> NDArray[Any]:
        """log P(class | x): (n, n_classes)."""
        if self.class_factor_ is None:
            return np.zeros((len(X), 1), dtype=X.dtype)
        logs: NDArray[Any] = self.class_factor_.predict_log_proba(X)
        return logs

    def _within(self, c: int, X: NDArray[Any]) -> NDArray[Any]:
        """log P(w | class c, x) over the words of class c, ascending; uniform if none was seen."""
        if c in self.word_factors_:
            logs: NDArray[Any] = self.word_factors_[c].predict_log_proba(X)
            return logs
        n_words = len(self._layout.words(c))
        return np.full((len(X), n_words), -np.log(n_words), dtype=X.dtype)

    def _log_probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        if self.joint_ is not None:
            return self.joint_.log_probabilities(X)
        log_class = self._log_class(X)
        out = np.empty((len(X), len(self.classes_)), dtype=X.dtype)
        for c in range(self._layout.n_classes):
            out[:, self._layout.words(c)] = log_class[:, c, None] + self._within(c, X)
        return out

    def _log_probabilities_of(self, X: NDArray[Any], codes: NDArray[np.intp]) -> NDArray[Any]:
        """Computes the classes, and the words of one class a row: not the whole vocabulary."""
        if self.joint_ is not None:
            return self.joint_.log_probability_of(X, codes)
        classes = self.word_class_[codes]
        total = self._log_class(X)[np.arange(len(codes)), classes]
        for c, rows in self._layout.rows_by_class(classes):
            inside = self._within(c, X[rows])
            total[rows] += inside[np.arange(len(rows)), self._column[codes[rows]]]
        return total

    def _learner_arrays(self) -> dict[str, NDArray[Any]]:
        if self.joint_ is None:
            return factored_arrays(self)
        if not self._can_learn:
            raise ValueError(_WITHOUT_STATE)
        return {f"joint.{k}": a for k, a in joint_state.training_arrays(self.joint_).items()}

    def _restore_learner(self, arrays: dict[str, NDArray[Any]]) -> None:
        own = {k.removeprefix("joint."): a for k, a in arrays.items() if k.startswith("joint.")}
        if not own:
            restore_factored(self, arrays)
            return
        sizes = self.n_features_in_, len(self.classes_)
        self.joint_ = joint_state.restored(self._settings(), self._assign, *sizes, own)
        self._can_learn = True
        if self.joint_.surveyed is None:
            self._set_classes(self.joint_.layout.word_class)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that predictions need; see `joint_state.parameter_arrays`.

        Separate factors' arrays stand under ``class.`` and, for the words of a class, ``word0.``
        """
        arrays = super().to_arrays()
        if self.joint_ is not None:
            return arrays | joint_state.parameter_arrays(self.joint_)
        arrays["word_class_"] = self.word_class_
        nested = {f"word{c}": factor for c, factor in self.word_factors_.items()}
        if self.class_factor_ is not None:
            nested["class"] = self.class_factor_
        for prefix, factor in nested.items():
            arrays |= {f"{prefix}.{name}": a for name, a in factor.to_arrays().items()}
        return arrays

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(arrays)
        if "directions_" in arrays:
            self.joint_ = joint_state.with_parameters(self._settings(), self._assign, arrays)
            self._can_learn = False
            self._set_classes(self.joint_.layout.word_class)
            return
        self._set_classes(np.asarray(arrays["word_class_"]).astype(np.intp))
        nested: dict[str, dict[str, NDArray[Any]]] = {}
        for name, array in arrays.items():
            prefix, _, rest = name.partition(".")
            if rest:
                nested.setdefault(prefix, {})[rest] = array
        for prefix, part in nested.items():
            template = self._class if prefix == "class" else self._words
            factor = type(template).from_arrays(template.get_params(deep=False), part)
            if prefix == "class":
                self.class_factor_ = factor
            else:
                self.word_factors_[int(prefix.removeprefix("word"))] = factor


def joint_softmax(alpha: float | None = None, n_passes: int | None = None) -> SoftmaxReadout:
    """A factor that is learned jointly as one named "softmax", but for penalty or passes.

    Examples
    --------
    >>> joint_softmax(n_passes=3)
    SoftmaxReadout(alpha=10.0, learning_rate=0.2, n_passes=3)
    """
    factor = clone(_JOINT_SOFTMAX)
    given = {"alpha": alpha, "n_passes": n_passes}
    return factor.set_params(**{name: v for name, v in given.items() if v is not None})


def _factor(readout: Any, name: str) -> Any:
    """A readout for a factor: the caller's, or the default one of its name."""
    if isinstance(readout, str):
        if readout in _KINDS:
            return _KINDS[readout]()
    elif isinstance(readout, StreamingReadout):
        return readout
    raise ValueError(f"{name} must be 'softmax', 'ridge', 'moe' or a readout, got {readout!r}")


def _penalty(factor: Any) -> float | None:
    """The penalty of a factor; None where ridge is to choose it."""
    if isinstance(factor, RidgeReadout) and factor.selection is not None:
        return None
    return float(factor.alpha)


def _moments(blocks: Blocks, n_words: int) -> Moments:
    """Statistics of one pass over the blocks."""
    moments: Moments | None = None
    for X, codes in blocks:
        if moments is None:
            moments = Moments(X.shape[1], n_words)
        moments.add(X, codes)
    if moments is None:
        raise ValueError("no rows to learn from: got 0 rows, give at least one")
    return moments


class _ClassOf:
    """Blocks of (X, word) as blocks of (X, class of the word)."""

    def __init__(self, blocks: Blocks, word_class: NDArray[np.intp]) -> None:
        self.blocks = blocks
        self.word_class = word_class

    def __iter__(self) -> Iterator[Block]:
        for X, codes in self.blocks:
            yield X, self.word_class[codes]


def _by_class(blocks: Blocks, layout: ClassLayout) -> dict[int, ArrayBlocks]:
    """The rows of each class that occurs, copied together."""
    parts: dict[int, list[Block]] = {}
    for X, codes in blocks:
        for c, rows in layout.rows_by_class(layout.word_class[codes]):
            parts.setdefault(c, []).append((X[rows], codes[rows]))
    return {
        c: ArrayBlocks(
            np.concatenate([X for X, _ in part]), np.concatenate([codes for _, codes in part])
        )
        for c, part in sorted(parts.items())
    }
