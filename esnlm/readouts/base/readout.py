"""Base class of readouts: labels and blocks in, distributions over the classes out."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from esnlm.readouts.base.averaging import averaged, changes
from esnlm.readouts.base.blocks import (
    ArrayBlocks,
    Block,
    Blocks,
    MappedBlocks,
    Passes,
    Progress,
    SamePasses,
    blocks_rows,
    exhaust,
    rows_within,
)
from esnlm.readouts.base.moments import Moments
from esnlm.utils.arrays import Array, Arrays, Ints, check_arrays
from esnlm.utils.linking import Linkable
from esnlm.utils.state_dict import Stateful, array_of, saved
from esnlm.utils.sums import Sums
from esnlm.utils.validation import DivergenceError

_WITHOUT_STATE = (
    "this readout was loaded without its training state and cannot learn more rows: save it with"
    " training=True, or fit a clone on all of them"
)

_DIVERGED = (
    "the readout diverged, its {} are not finite: lower learning_rate, or give a penalty alpha and"
    " states of ordinary size"
)

_PREDICTION_BYTES = 1 << 26


def encode_labels(y: Array, classes: Array) -> Ints:
    """Labels (n,) -> their columns in sorted ``classes`` (V,): (n,) intp.

    >>> encode_labels(np.array(["b", "a"]), np.array(["a", "b", "c"]))
    array([1, 0])
    """
    codes = np.searchsorted(classes, y)
    codes[codes == len(classes)] = 0
    unknown = classes[codes] != y
    if np.any(unknown):
        found = np.unique(y[unknown])[:5].tolist()
        raise ValueError(
            f"y holds labels that are not among the {len(classes)} classes: {found}; "
            "name every label in `classes` at the first call"
        )
    return codes.astype(np.intp, copy=False)


class StreamingReadout(Stateful, Linkable, ClassifierMixin, BaseEstimator, ABC):
    """A classifier on (states, next tokens) that learns from arrays, chunks, blocks or a corpus.

    States X are (n, n_units) float32 or float64, C or F order; targets y (n,) are labels of any
    type that sorts. Column k of every prediction belongs to ``classes_[k]``, whether or not
    that class occurred. Probabilities are in X's dtype, natural logarithms throughout.

    A subclass computes `_probabilities` or `_log_probabilities` and the abstract methods. Codes
    are columns of ``classes_``. For passes there are `_plan`, `_sample`, `_end_sample`, `_learn`,
    `_end_pass` and `_finish`, called by `_train` in this order; a solver that needs all rows at
    once overrides `_solve`. ``_parameters`` names the trained arrays, ``_state`` what else
    predictions need, ``_learned`` (by saved names) what further learning continues from.
    """

    #: Whether a score along the way costs little beside its rows.
    _scores_are_cheap: ClassVar[bool] = True
    #: Whether ``fit_blocks`` needs one pass only.
    _reads_once: ClassVar[bool] = False

    classes_: Array
    n_features_in_: int
    #: False where it was loaded to predict, and has no state to learn from.
    _can_learn = True
    _parameters: ClassVar[tuple[str, ...]] = ()
    _state: ClassVar[tuple[str, ...]] = ()
    _learned: ClassVar[Mapping[str, str]] = {}
    #: Layouts of what predictions need, for `check_arrays`; V classes, N features.
    _layouts: ClassVar[Mapping[str, str]] = {}
    #: Letters of ``_layouts`` that stand for a parameter.
    _sizes: ClassVar[Mapping[str, str]] = {}

    @property
    def _training_passes(self) -> int:
        """Number of passes over the rows; final after `_begin`."""
        return 1

    @property
    def _sample_rows(self) -> int:
        """Rows of the pilot sample before the first pass; final after `_begin`."""
        return 0

    @property
    def _samples_in_order(self) -> bool:
        """Whether a pilot sample of all rows is to come in the order of the text."""
        return False

    def _begin(
        self, classes: ArrayLike, n_units: int, *, n_rows: int, counts: Array | None = None
    ) -> Self:
        """Forget any earlier fit, and prepare for `_train` with passes of ``n_rows`` rows.

        ``counts`` (V,) are the occurrences of each class in one pass, where they are known.
        """
        self.classes_ = np.unique(np.asarray(classes))
        self.n_features_in_ = int(n_units)
        self._forget(fitted=False)
        self._plan(n_rows, counts)
        return self

    def _train(self, passes: Passes, held_out: Blocks | None = None) -> Iterator[Progress]:
        """Learn in passes over chunks of rows, yielding after each chunk and between passes.

        Rows are states X (n, n_units), C or F order, in memory that is used again; codes (n,) are
        columns of ``classes_``. Nothing is validated here. Pass 0 is the pilot sample, 1 the
        first one over all rows; ``held_out`` rows judge passes and choose penalties. After a
        chunk, a readout after the same `_begin` continues from ``state_dict(training=True)``, bit
        for bit. Rows at hand are given to `_solve`, which may read them as often as it likes.
        """
        with _divergence():
            if passes.rows is None:
                yield from self._stream(passes, held_out)
            else:
                self._solve(passes.rows, held_out)
        for name in self._parameters:
            if not np.isfinite(getattr(self, name)).all():
                raise DivergenceError(_DIVERGED.format(name))

    def _stream(self, passes: Passes, held_out: Blocks | None) -> Iterator[Progress]:
        """`_train` over passes where only one block is at hand at a time."""
        for number in range(passes.first, self._training_passes + 1):
            if number == 0 and not self._sample_rows:
                continue
            for chunk in passes.read(number, n_rows=None if number else self._sample_rows):
                if isinstance(chunk, Sums):
                    self._take_sums(number, chunk)
                else:
                    self._read_chunk(number, chunk)
                yield Progress(number)
            if number == 0:
                self._end_sample()
                continue
            self._end_pass(held_out)
            if number < self._training_passes:
                yield Progress(number, ended=True)
        self._finish(held_out)

    def _read_chunk(self, number: int, chunk: Blocks) -> None:
        """Learn the blocks of a chunk of pass ``number``; 0 is the pilot sample."""
        step = self._learn if number else self._sample
        for X, codes in chunk:
            step(X, np.asarray(codes, dtype=np.intp))

    def _pass_moments(self, number: int) -> Moments | None:
        """Moments of the rows of pass ``number``, where it does nothing but add them up."""
        return None

    def _enable_averaging(self, n_copies: int) -> bool:
        """Prepare for averaging the steps of so many copies; False where that is impossible."""
        return False

    def _end_part(self) -> None:
        """Learn the rows that wait: a copy that took steps has read its part."""

    def _pass_sums(self, number: int, before: Arrays | None = None) -> Sums:
        """Return what pass ``number`` added up over the rows read, or changed since ``before``."""
        moments = self._pass_moments(number)
        if moments is not None:
            return moments.to_sums()
        assert before is not None, "steps change what was before them"
        return changes(before, self.state_dict(training=True))

    def _take_sums(self, number: int, sums: Sums) -> None:
        """Take the sums of all rows of pass ``number``, or the changes of all copies."""
        moments = self._pass_moments(number)
        if moments is not None:
            moments.replace(sums)
            return
        before = self.state_dict(training=True)
        self.load_state_dict(averaged(before, sums), training=True)

    def _sample(self, X: Array, codes: Ints) -> None:
        """Read a block of the pilot sample, whose rows come again in the first pass."""

    def _end_sample(self) -> None:
        """End the pilot sample."""

    def _learn(self, X: Array, codes: Ints) -> None:
        """Learn from the next block of the pass."""
        self._absorb(X, codes)

    def _end_pass(self, held_out: Blocks | None = None) -> None:
        """End a pass; ``held_out`` are rows to judge it by."""

    def _finish(self, held_out: Blocks | None = None) -> None:
        """Make the parameters final; ``held_out`` are rows to choose penalties by."""
        self._settle()

    def _before_saving(self, training: bool) -> None:
        if not training:
            check_is_fitted(self, "classes_")
            self._settle()
        elif not self._can_learn:
            raise ValueError(_WITHOUT_STATE)

    def _names(self, training: bool) -> Mapping[str, str]:
        return self._learned if training else saved(*self._arrays(), "n_features_in_", "classes_")

    def _required(self, arrays: Arrays, training: bool) -> Iterable[str]:
        return () if training else (*self._arrays(), "n_features_in_")

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        """Drop learned parts, and without ``training`` check layouts and set ``classes_``."""
        self._can_learn = True
        for attribute in self._learned.values():
            if isinstance(getattr(self, attribute, None), Stateful):
                setattr(self, attribute, None)  # made again where there is one
        if not training:
            labels = array_of(arrays, "classes_")
            if labels is None:
                raise KeyError("classes_")
            lengths = {"V": len(labels), "N": int(arrays["n_features_in_"])}
            lengths |= {letter: int(getattr(self, name)) for letter, name in self._sizes.items()}
            check_arrays(arrays, self._layouts, **lengths)
            self.classes_ = labels
            self._forget(fitted=True)
        return arrays

    def _loaded(self, training: bool) -> None:
        if not training:
            self._can_learn = False

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from states X (n, n_units) and targets y (n,), forgetting any earlier fit."""
        X, y = self._checked(X, y, reset=True)
        _check_labels(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self._forget(fitted=True)
        exhaust(self._train(SamePasses(ArrayBlocks(X, codes))))
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learn from one more chunk: X (n, n_units), y (n,).

        ``classes`` (V,) must name every label at the first call and may be left out later.
        """
        first = not hasattr(self, "classes_")
        if first and classes is None:
            raise ValueError("classes must be given at the first call of partial_fit, got None")
        X, y = self._checked(X, y, reset=first)
        if classes is not None:
            known = _sorted_classes(classes)
            if first:
                _check_labels(known)
                self.classes_ = known
                self._forget(fitted=False)
            elif not np.array_equal(known, self.classes_):
                raise ValueError(
                    "classes differ from those of the first call of partial_fit: leave "
                    "`classes` out, or fit a clone"
                )
        if not self._can_learn:
            raise ValueError(_WITHOUT_STATE)
        with _divergence():
            self._absorb(X, encode_labels(y, self.classes_))
        return self

    def fit_blocks(
        self, blocks: Blocks, classes: ArrayLike, *, held_out: Blocks | None = None
    ) -> Self:
        """Learn from a re-iterable of blocks (X (n, n_units), y (n,)), forgetting any earlier fit.

        Every ``iter(blocks)`` is a fresh pass. A block's memory may be reused for the next. An
        attribute ``n_rows``, the rows of a pass, lets a first pass plan its schedule. ``classes``
        (V,) are every label; column k of predictions is the k-th of them in sorted order.
        ``held_out`` blocks are kept out of training, to judge penalties and stopping points.
        """
        one_shot = iter(blocks) is blocks
        if one_shot and not self._reads_once:
            raise TypeError(
                f"{type(self).__name__} needs several passes: got a one-shot iterator for "
                "blocks, give a list or an object whose __iter__ starts a fresh pass"
            )
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        self.classes_ = _sorted_classes(classes)
        self._forget(fitted=True)
        coded = MappedBlocks(blocks, self._coded)
        if not one_shot and next(iter(coded), None) is None:
            raise ValueError("blocks have no rows: give at least one row to learn from")
        judges = None if held_out is None else MappedBlocks(held_out, self._coded)
        exhaust(self._train(SamePasses(coded), judges))
        return self

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of every class: X (n, n_units) -> (n, V), rows sum to one."""
        return self._probabilities(self._ready(X))

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Natural log-probability of every class: X (n, n_units) -> (n, V)."""
        return self._log_probabilities(self._ready(X))

    def predict_log_proba_of(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Natural log-probability (n,) of label y[i] after state X[i].

        Equals the entries of `predict_log_proba`, without an (n, V) array in memory.
        """
        return self._log_probabilities_of(*self._ready_pairs(X, y))

    def predict(self, X: ArrayLike) -> Array:
        """Most probable class of each row: X (n, n_units) -> (n,)."""
        best = np.argmax(self._log_probabilities(self._ready(X)), axis=1)
        return self.classes_[best]

    @property
    def n_parameters_(self) -> int:
        """Number of trained parameters."""
        check_is_fitted(self, "classes_")
        self._settle()
        return sum(int(np.size(getattr(self, name))) for name in self._parameters)

    def _arrays(self) -> tuple[str, ...]:
        return (*self._parameters, *self._state)

    def _forget(self, *, fitted: bool) -> None:
        """`_start` before rows come, or (``fitted``) before all parameters are set at once."""
        self._can_learn = True
        for name in self._arrays():
            self.__dict__.pop(name, None)
        self._start()

    @abstractmethod
    def _start(self) -> None:
        """Forget any earlier fit; ``classes_`` are known, ``n_features_in_`` maybe not yet."""

    def _plan(self, n_rows: int, counts: Array | None) -> None:
        """Prepare for passes of n_rows rows, with counts (V,) of the classes or None."""

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """`_train` from scratch on re-iterable blocks of (X, codes)."""
        self._plan(blocks_rows(blocks) or sum(len(codes) for _, codes in blocks), None)
        self._read_in_passes(blocks, held_out)

    def _read_in_passes(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """All of `_stream` over passes that are alike."""
        exhaust(self._stream(SamePasses(blocks), held_out))

    @abstractmethod
    def _absorb(self, X: Array, codes: Ints) -> None:
        """Take one more chunk; may put off the solving to `_settle`."""

    @abstractmethod
    def _settle(self) -> None:
        """Make the parameters current with everything absorbed."""

    def _probabilities(self, X: Array) -> Array:
        return np.exp(self._log_probabilities(X))

    def _log_probabilities(self, X: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self._probabilities(X))

    def _log_probabilities_of(self, X: Array, codes: Ints) -> Array:
        out = np.empty(len(X), dtype=X.dtype)
        rows = rows_within(_PREDICTION_BYTES, len(self.classes_), np.float64)
        predict = self._predictor(X.dtype)
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            logs = predict(X[part])
            out[part] = logs[np.arange(len(logs)), codes[part]]
        return out

    def _predictor(self, dtype: Any) -> Callable[[Array], Array]:
        """`_log_probabilities` of many parts of one array of that dtype, made ready once."""
        return self._log_probabilities

    def _ready_pairs(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Ints]:
        states = self._ready(X)
        codes = encode_labels(np.asarray(y), self.classes_)
        if len(codes) != len(states):
            raise ValueError(f"X has {len(states)} rows and y {len(codes)}: give one label a row")
        return states, codes

    def _ready(self, X: ArrayLike) -> Array:
        """X validated for prediction, after the parameters were made current."""
        check_is_fitted(self, "classes_")
        states = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        with _divergence():
            self._settle()
        return states

    def _checked(self, X: ArrayLike, y: ArrayLike, reset: bool) -> Block:
        return validate_data(self, X, y, reset=reset, dtype=[np.float64, np.float32])

    def _coded(self, X: ArrayLike, y: ArrayLike) -> Block:
        """Return a block of `fit_blocks`, validated, with columns in place of labels."""
        X, y = self._checked(X, y, reset=not hasattr(self, "n_features_in_"))
        return X, encode_labels(y, self.classes_)


@contextmanager
def _divergence() -> Iterator[None]:
    """Raise DivergenceError on division by zero in kernels."""
    try:
        yield
    except ZeroDivisionError as error:
        raise DivergenceError(_DIVERGED.format("probabilities")) from error


def _check_labels(y: Array) -> None:
    """Refuse targets of a regression. Text has many classes a row, so only floats are suspect."""
    if y.dtype.kind not in "biuUS":
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            check_classification_targets(y)


def _sorted_classes(classes: ArrayLike) -> Array:
    known = np.unique(np.asarray(list(classes) if isinstance(classes, Set) else classes))
    if len(known) == 0:
        raise ValueError("classes is empty: name every label")
    return known
