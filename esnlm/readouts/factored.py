"""Class-factored readout: P(w|x) = P(class(w)|x) P(w|class(w), x) (Rachez eq. 35)."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from esnlm.readouts.base import ArrayBlocks, Block, Blocks, StreamingReadout
from esnlm.readouts.buffered import BufferedReadout
from esnlm.readouts.clusters import (
    default_n_classes,
    frequency_classes,
    given_classes,
    state_clusters,
)
from esnlm.readouts.factored_state import factored_arrays, restore_factored
from esnlm.readouts.ridge import RidgeReadout
from esnlm.readouts.softmax import SoftmaxReadout
from esnlm.readouts.within_class import (
    ClassLayout,
    SoftmaxWordSolver,
    WordFactors,
    shared_ridge,
)
from esnlm.statistics import Moments
from esnlm.validation import check_count

_SEPARATE_WORDS = 256
_MEMORY = 1 << 28


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
    clustering : "clusters", "frequency", mapping or sequence
        How words are put into classes. "clusters": spherical k-means on the mean of the states
        that each word follows, at most ``1.5 V / n_classes`` words a class. "frequency":
        bins of equal mass, frequent words first. A mapping of every label to its class, or the
        classes in the order of ``classes_``: those (``n_classes`` is not used).
    class_readout, word_readout : "softmax", "ridge" or a readout
        What predicts the class, and the word within it; a readout is cloned.
    solver : "auto", "separate" or "joint"
        How words within classes are learned. "separate": a readout for each class, on its rows.
        "joint": every class in one set of matrices: ridge from one matrix of products shared by
        the classes, softmax in ``n_passes`` (of the word readout) passes of steps on batches of
        rows, fewer if the loss of held-out rows rises. "auto": separate up to 256 words
        (softmax: and 256 MiB of rows), and for readouts of other kinds.
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
    class_factor_ : readout for the class (None when there is one class only)
    word_factors_ : dict of class -> readout ("separate"; classes of one word have none)

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
        clustering: Any = "clusters",
        class_readout: Any = "softmax",
        word_readout: Any = "softmax",
        solver: Literal["auto", "separate", "joint"] = "auto",
        buffer_size: int = 65536,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_classes = n_classes
        self.clustering = clustering
        self.class_readout = class_readout
        self.word_readout = word_readout
        self.solver = solver
        self.buffer_size = buffer_size
        self.random_state = random_state

    @property
    def n_parameters_(self) -> int:
        """Number of trained parameters of all factors."""
        arrays = self.to_arrays()
        nested = [self.class_factor_, *self.word_factors_.values()]
        own = sum(int(arrays[k].size) for k in ("coef_", "intercept_") if k in arrays)
        return own + sum(f.n_parameters_ for f in nested if f is not None)

    def _start(self) -> None:
        if self.solver not in ("auto", "separate", "joint"):
            raise ValueError(f"solver must be 'auto', 'separate' or 'joint', got {self.solver!r}")
        check_count("buffer_size", self.buffer_size)
        if self.n_classes is not None:
            check_count("n_classes", self.n_classes)
        self._words = _factor(self.word_readout, "word_readout")
        self._class = _factor(self.class_readout, "class_readout")
        self.class_factor_: Any = None
        self.word_factors_: dict[int, Any] = {}
        self._joint: WordFactors | None = None
        self._softmax_solver: SoftmaxWordSolver | None = None
        self._moments: Moments | None = None
        self._joint_behind = False

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        moments = _moments(blocks, len(self.classes_))
        self.n_features_in_ = moments.n_units
        self._set_classes(self._assign(moments))
        if self._layout.n_classes > 1:
            self.class_factor_ = clone(self._class).fit_blocks(
                _ClassOf(blocks, self.word_class_),
                np.arange(self._layout.n_classes),
                None if held_out is None else _ClassOf(held_out, self.word_class_),
            )
        if not self._is_separate(moments):
            self._solve_jointly(moments, blocks, held_out)
            return
        if not _fits_memory(moments):
            for X, codes in _batches(blocks, self._batch_rows()):
                self._update_separate(X, codes)
            return
        parts = _by_class(blocks, self._layout)
        judges = {} if held_out is None else _by_class(held_out, self._layout)
        for c, part in parts.items():
            words = self._layout.words(c)
            if len(words) > 1:
                self.word_factors_[c] = clone(self._words).fit_blocks(part, words, judges.get(c))

    def _assign(self, moments: Moments) -> NDArray[np.intp]:
        if not isinstance(self.clustering, str):
            return given_classes(self.clustering, self.classes_)
        n_words = len(self.classes_)
        n_classes = min(n_words, self.n_classes or default_n_classes(n_words))
        if self.clustering == "frequency":
            return frequency_classes(moments.counts, n_classes)
        if self.clustering == "clusters":
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            return state_clusters(moments, n_classes, seed)
        raise ValueError(
            "clustering must be 'clusters', 'frequency' or a class for every word, "
            f"got {self.clustering!r}"
        )

    def _set_classes(self, word_class: NDArray[np.intp]) -> None:
        self.word_class_ = word_class
        self._layout = ClassLayout(word_class)
        self.n_classes_used_ = self._layout.n_classes
        starts = np.array([run.start for run in self._layout.runs])
        self._column = self._layout.position - starts[word_class]

    def _is_separate(self, moments: Moments) -> bool:
        if not isinstance(self._words, (RidgeReadout, SoftmaxReadout)):
            return True
        if self.solver != "auto":
            return self.solver == "separate"
        bounded = isinstance(self._words, RidgeReadout) or _fits_memory(moments)
        return moments.n_classes <= _SEPARATE_WORDS and bounded

    def _solve_jointly(self, moments: Moments, blocks: Blocks, held_out: Blocks | None) -> None:
        if isinstance(self._words, RidgeReadout):
            self._moments = moments
            self._solve_ridge()
            return
        solver = SoftmaxWordSolver(moments, self._layout, self._words.alpha)
        self._softmax_solver = solver
        best = np.inf
        for _ in range(self._words.n_passes):
            for X, codes in _batches(blocks, self._batch_rows()):
                solver.step(X, codes)
            factors = solver.factors()
            if held_out is not None:
                loss = -sum(float(factors.log_probability_of(X, w).sum()) for X, w in held_out)
                if loss >= best:
                    break
                best = loss
            self._joint = factors

    def _solve_ridge(self) -> None:
        assert self._moments is not None
        alpha = self._words.alpha if self._words.selection is None else None
        self._joint, _ = shared_ridge(self._moments, self._layout, alpha)

    def _update(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        if self._joint is not None and self._moments is None and self._softmax_solver is None:
            raise ValueError(
                "this readout was loaded without its statistics and cannot learn more rows: "
                "fit a clone on all of them"
            )
        if self.class_factor_ is not None:
            self.class_factor_.partial_fit(X, self.word_class_[codes])
        if self._moments is not None:
            self._moments.add(X, codes)
            self._joint_behind = True
        elif self._softmax_solver is not None:
            self._softmax_solver.n_rows += len(X)
            self._softmax_solver.step(X, codes)
            self._joint_behind = True
        else:
            self._update_separate(X, codes)

    def _settle(self) -> None:
        super()._settle()
        if self._joint_behind and self._moments is not None:
            self._solve_ridge()
        elif self._joint_behind and self._softmax_solver is not None:
            self._joint = self._softmax_solver.factors()
        self._joint_behind = False

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
        log_class = self._log_class(X)
        if self._joint is not None:
            return self._joint.log_probabilities(X, log_class)
        out = np.empty((len(X), len(self.classes_)), dtype=X.dtype)
        for c in range(self._layout.n_classes):
            out[:, self._layout.words(c)] = log_class[:, c, None] + self._within(c, X)
        return out

    def _log_probabilities_of(self, X: NDArray[Any], codes: NDArray[np.intp]) -> NDArray[Any]:
        """Computes the classes, and the words of one class a row: not the whole vocabulary."""
        classes = self.word_class_[codes]
        total = self._log_class(X)[np.arange(len(codes)), classes]
        if self._joint is not None:
            return total + self._joint.log_probability_of(X, codes)
        for c, rows in self._layout.rows_by_class(classes):
            inside = self._within(c, X[rows])
            total[rows] += inside[np.arange(len(rows)), self._column[codes[rows]]]
        return total

    def _learner_arrays(self) -> dict[str, NDArray[Any]]:
        return factored_arrays(self)

    def _restore_learner(self, arrays: dict[str, NDArray[Any]]) -> None:
        restore_factored(self, arrays)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that predictions need; a factor's arrays stand under ``class.``, ``word0.``"""
        arrays = super().to_arrays()
        arrays["word_class_"] = self.word_class_
        if self._joint is not None:
            arrays["coef_"], arrays["intercept_"] = self._joint.coef, self._joint.intercept
            if self._joint.floor is not None:
                arrays["floor_"] = self._joint.floor
        nested = {f"word{c}": factor for c, factor in self.word_factors_.items()}
        if self.class_factor_ is not None:
            nested["class"] = self.class_factor_
        for prefix, factor in nested.items():
            arrays |= {f"{prefix}.{name}": a for name, a in factor.to_arrays().items()}
        return arrays

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(arrays)
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
        if "coef_" in arrays:
            self._joint = WordFactors(
                self._layout,
                np.asarray(arrays["coef_"]),
                np.asarray(arrays["intercept_"]),
                arrays.get("floor_"),
            )


def _factor(readout: Any, name: str) -> Any:
    """A readout for a factor: the caller's, or the default one of its name."""
    if isinstance(readout, str):
        kinds = {"softmax": SoftmaxReadout, "ridge": RidgeReadout}
        if readout in kinds:
            return kinds[readout]()
    elif isinstance(readout, StreamingReadout):
        return readout
    raise ValueError(f"{name} must be 'softmax', 'ridge' or a readout, got {readout!r}")


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


def _fits_memory(moments: Moments) -> bool:
    """Whether every row may be kept at once."""
    return moments.n * moments.n_units * 8 <= _MEMORY


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


def _batches(blocks: Blocks, n_rows: int) -> Iterator[Block]:
    """Rows of the blocks in batches of n_rows, the last one shorter, whatever the blocks."""
    waiting: list[Block] = []
    n_waiting = 0
    for X, codes in blocks:
        start = 0
        while start < len(X):
            stop = min(len(X), start + n_rows - n_waiting)
            waiting.append((X[start:stop].copy(), codes[start:stop].copy()))
            n_waiting += stop - start
            start = stop
            if n_waiting == n_rows:
                yield _joined(waiting)
                waiting, n_waiting = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Block]) -> Block:
    return np.concatenate([X for X, _ in parts]), np.concatenate([codes for _, codes in parts])
