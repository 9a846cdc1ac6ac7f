"""Base class of readouts: labels and blocks in, distributions over the classes out."""

import warnings
from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from esnlm.readouts.base.blocks import ArrayBlocks, Block, Blocks, MappedBlocks, rows_within
from esnlm.readouts.base.passes import PassLearner, divergence
from esnlm.utils.arrays import Array, Arrays, Ints, check_arrays
from esnlm.utils.state_dict import Linkable, Stateful, array_of, saved
from esnlm.utils.threads import OwnLock
from esnlm.utils.validation import check_parameters

_WITHOUT_STATE = (
    "this readout was loaded without its training state and cannot learn more rows: save it with"
    " training=True, or fit a clone on all of them"
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
        labels = np.unique(y[unknown])[:5].tolist()
        raise ValueError(
            f"y holds labels that are not among the {len(classes)} classes: {labels}; "
            "name every label in `classes` at the first call"
        )
    return codes.astype(np.intp, copy=False)


class StreamingReadout(PassLearner, Linkable, ClassifierMixin, BaseEstimator, ABC):
    """A classifier on (states, next tokens) that learns from arrays, chunks, blocks or a corpus.

    States X are (n, n_units) float32 or float64, C or F order; targets y (n,) are labels of any
    type that sorts. Column k of every prediction belongs to ``classes_[k]``, whether or not
    that class occurred. Probabilities are in X's dtype, natural logarithms throughout.

    A subclass computes `_probabilities` or `_log_probabilities` and the abstract methods. Codes
    are columns of ``classes_``. How it learns, `PassLearner` says; a solver that needs all rows at
    once overrides `_solve`. ``_parameters`` names the trained arrays, ``_state`` what else
    predictions need, ``_training_state`` (by saved names) what further learning continues from.
    """

    #: Whether a score along the way costs little beside its rows.
    _scores_are_cheap: ClassVar[bool] = True
    #: Whether ``fit_blocks`` needs one pass only.
    _reads_once: ClassVar[bool] = False
    _parameters: ClassVar[tuple[str, ...]] = ()
    _state: ClassVar[tuple[str, ...]] = ()
    _training_state: ClassVar[Mapping[str, str]] = {}
    #: Layouts of what predictions need, for `check_arrays`; V classes, N features.
    _layouts: ClassVar[Mapping[str, str]] = {}
    #: Letters of ``_layouts`` that stand for a parameter.
    _sizes: ClassVar[Mapping[str, str]] = {}

    classes_: Array
    n_features_in_: int
    #: False where it was loaded to predict, and has no state to learn from.
    _can_learn = True
    _settling = OwnLock()

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from states X (n, n_units) and targets y (n,), forgetting any earlier fit."""
        X, y = self._checked(X, y, reset=True)
        _check_labels(y)
        with self._fitting():
            self.classes_, codes = np.unique(y, return_inverse=True)
            self._forget(fitted=True)
            self._solve(ArrayBlocks(X, codes), None)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learn from one more chunk: X (n, n_units), y (n,).

        ``classes`` (V,) must name every label at the first call and may be left out later.
        Attributes such as ``coef_`` may be those before it until the next prediction.
        """
        first = not hasattr(self, "classes_")
        if first and classes is None:
            raise ValueError("classes must be given at the first call of partial_fit, got None")
        X, y = self._checked(X, y, reset=first)
        labels = self.classes_ if classes is None else _sorted_classes(classes)
        if first:
            _check_labels(labels)
        elif not np.array_equal(labels, self.classes_):
            raise ValueError(
                "classes differ from those of the first call of partial_fit: leave "
                "`classes` out, or fit a clone"
            )
        codes = encode_labels(y, labels)
        if first:
            self.classes_ = labels
            self._forget(fitted=False)
        if not self._can_learn:
            raise ValueError(_WITHOUT_STATE)
        check_parameters(self)
        self.make_writable()
        with divergence():
            self._absorb(X, codes)
        return self

    def fit_blocks(
        self, blocks: Blocks, classes: ArrayLike, *, held_out: Blocks | None = None
    ) -> Self:
        """Learn from a re-iterable of blocks (X (n, n_units), y (n,)), forgetting any earlier fit.

        Every ``iter(blocks)`` is a fresh pass. A block's memory may be reused for the next. An
        attribute ``n_rows``, the rows of a pass, lets a first pass plan its schedule. ``classes``
        (V,) are every label; column k of predictions is the k-th of them in sorted order.
        ``held_out`` blocks are kept out of training, to judge penalties and stopping points; a
        readout that has none to choose does not read them.
        """
        one_shot = iter(blocks) is blocks or isinstance(held_out, Iterator)
        if one_shot and not self._reads_once:
            raise TypeError(
                f"{type(self).__name__} needs several passes: got a one-shot iterator for "
                "blocks or held_out, give a list or an object whose __iter__ starts a fresh pass"
            )
        with self._fitting():
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            self.classes_ = _sorted_classes(classes)
            self._forget(fitted=True)
            coded = MappedBlocks(blocks, self._coded)
            if not one_shot and next(iter(coded), None) is None:
                raise ValueError("blocks have no rows: give at least one row to learn from")
            judges = None if held_out is None else MappedBlocks(held_out, self._coded)
            self._solve(coded, judges)
        return self

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probability of every class: X (n, n_units) -> (n, V), rows sum to one."""
        return self._probabilities(self._ready(X))

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Return the natural log-probability of every class: X (n, n_units) -> (n, V)."""
        return self._log_probabilities(self._ready(X))

    def predict_log_proba_of(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Return the natural log-probability (n,) of label y[i] after state X[i].

        Equals the entries of `predict_log_proba`, without an (n, V) array in memory.
        """
        return self._log_probabilities_of(*self._ready_pairs(X, y))

    def predict(self, X: ArrayLike) -> Array:
        """Return the most probable class of each row: X (n, n_units) -> (n,)."""
        best = np.argmax(self._log_probabilities(self._ready(X)), axis=1)
        return self.classes_[best]

    @property
    def n_parameters_(self) -> int:
        """Number of trained parameters."""
        check_is_fitted(self, "classes_")
        self._make_current()
        return sum(int(np.size(getattr(self, name))) for name in self._parameters)

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Be unfitted where a fit in the ``with`` block does not end, not half of two fits."""
        try:
            with divergence(self):
                yield
        except BaseException:
            self.__dict__.pop("classes_", None)
            raise

    def _make_current(self) -> None:
        """`_settle` in one thread at a time: others that predict wait for it."""
        with self._settling.lock:
            self._settle()

    def _forget(self, *, fitted: bool) -> None:
        """`_start` before rows come, or (``fitted``) before all parameters are set at once."""
        self._can_learn, self._settling = True, OwnLock()
        for name in ("_at_fit", *self._arrays()):
            self.__dict__.pop(name, None)
        self._start()
        self._at_fit = self.get_params(deep=False)

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

    def _arrays(self) -> tuple[str, ...]:
        return (*self._parameters, *self._state)

    def _before_saving(self, training: bool) -> None:
        if not training:
            check_is_fitted(self, "classes_")
            self._make_current()
        elif not self._can_learn:
            raise ValueError(_WITHOUT_STATE)

    def _names(self, training: bool) -> Mapping[str, str]:
        return (
            self._training_state
            if training
            else saved(*self._arrays(), "n_features_in_", "classes_")
        )

    def _required(self, arrays: Arrays, training: bool) -> Iterable[str]:
        return () if training else (*self._arrays(), "n_features_in_")

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        """Drop learned parts, and without ``training`` check layouts and set ``classes_``."""
        self._can_learn = True
        for attribute in self._training_state.values():
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
        codes = encode_labels(column_or_1d(y), self.classes_)
        if len(codes) != len(states):
            raise ValueError(f"X has {len(states)} rows and y {len(codes)}: give one label a row")
        return states, codes

    def _ready(self, X: ArrayLike) -> Array:
        """X validated for prediction, after the parameters were made current."""
        check_is_fitted(self, "classes_")
        states = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        with divergence():
            self._make_current()
        return states

    def _checked(self, X: ArrayLike, y: ArrayLike, reset: bool) -> Block:
        return validate_data(self, X, y, reset=reset, dtype=[np.float64, np.float32])

    def _coded(self, X: ArrayLike, y: ArrayLike) -> Block:
        """Return a block of `fit_blocks`, validated, with columns in place of labels."""
        X, y = self._checked(X, y, reset=not hasattr(self, "n_features_in_"))
        return X, encode_labels(y, self.classes_)


def _check_labels(y: Array) -> None:
    """Refuse targets of a regression. Text has many classes a row, so only floats are suspect."""
    if y.dtype.kind not in "biuUS":
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            check_classification_targets(y)


def _sorted_classes(classes: ArrayLike) -> Array:
    listed: Any = list(classes) if isinstance(classes, Set | Iterator) else classes
    labels = np.asarray(listed)
    if labels.ndim != 1:
        raise ValueError(f"classes must be a list of labels, got an array of shape {labels.shape}")
    if len(labels) == 0:
        raise ValueError("classes is empty: name every label")
    return np.unique(labels)
