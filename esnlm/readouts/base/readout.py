"""What every readout shares: labels and blocks in, distributions over the classes out."""

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from esnlm.readouts.base.streamed import Block, Blocks, StreamedTraining

__all__ = ["ArrayBlocks", "Block", "Blocks", "StreamingReadout"]

_BLOCK_BYTES = 1 << 24
_PREDICTION_BYTES = 1 << 26


class ArrayBlocks:
    """Arrays in memory as a re-iterable of ``(X, y)`` blocks: views, no copies.

    Parameters
    ----------
    X : ndarray (n, n_units)
    y : ndarray (n,)
    block_size : int, optional
        Rows a block; about 16 MiB of states when left out.

    Examples
    --------
    >>> blocks = ArrayBlocks(np.zeros((5, 2)), np.arange(5), block_size=2)
    >>> [len(y) for _, y in blocks], [len(y) for _, y in blocks]
    ([2, 2, 1], [2, 2, 1])
    """

    def __init__(self, X: NDArray[Any], y: NDArray[Any], block_size: int | None = None) -> None:
        if len(X) != len(y):
            raise ValueError(f"X has {len(X)} rows and y {len(y)}: give one target a row")
        if block_size is not None and block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        self.X = X
        self.y = y
        self.n_rows = len(X)
        self.block_size = block_size or rows_within(_BLOCK_BYTES, X.shape[1], X.dtype)

    def __iter__(self) -> Iterator[Block]:
        for start in range(0, len(self.X), self.block_size):
            stop = start + self.block_size
            yield self.X[start:stop], self.y[start:stop]


def blocks_rows(blocks: Any) -> int:
    """Rows of one pass where blocks tell them as ``n_rows``, else 0: schedules profit from it."""
    return int(getattr(blocks, "n_rows", 0))


def rows_within(n_bytes: int, n_columns: int, dtype: Any) -> int:
    """Rows of ``n_columns`` values of ``dtype`` that fit in ``n_bytes``; at least one."""
    return max(1, n_bytes // max(1, n_columns * np.dtype(dtype).itemsize))


def encode_labels(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Labels (n,) -> their columns in sorted ``classes`` (V,): (n,) intp.

    Raises
    ------
    ValueError
        A label is not among the classes.

    Examples
    --------
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


class StreamingReadout(StreamedTraining, ClassifierMixin, BaseEstimator, ABC):
    """A classifier on (states, next tokens) that learns from arrays, chunks or blocks.

    States X are (n, n_units) float32 or float64, C or F order; targets y (n,) are labels of any
    type that sorts. Column k of every prediction belongs to ``classes_[k]``, whether or not
    that class occurred. Probabilities are in X's dtype, natural logarithms throughout.

    A subclass computes: `_start` forgets what was learned, `_solve` learns from a re-iterable of
    (X, codes), `_absorb` takes one chunk, `_settle` makes parameters current, and
    `_probabilities` (or `_log_probabilities`) predicts. Codes are columns of ``classes_``.
    ``_parameters`` names the trained arrays, ``_state`` whatever else `to_arrays` must keep.
    """

    classes_: NDArray[Any]
    n_features_in_: int
    _parameters: ClassVar[tuple[str, ...]] = ()
    _state: ClassVar[tuple[str, ...]] = ()

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from states X (n, n_units) and targets y (n,), forgetting any earlier fit."""
        X, y = self._checked(X, y, reset=True)
        _check_labels(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self._start()
        self._solve(ArrayBlocks(X, codes), None)
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
                self._start()
            elif not np.array_equal(known, self.classes_):
                raise ValueError(
                    "classes differ from those of the first call of partial_fit: leave "
                    "`classes` out, or fit a clone"
                )
        self._absorb(X, encode_labels(y, self.classes_))
        return self

    def fit_blocks(
        self,
        blocks: Iterable[Block],
        classes: ArrayLike,
        held_out: Iterable[Block] | None = None,
    ) -> Self:
        """Learn from a re-iterable of ``(X, y)`` blocks, forgetting any earlier fit.

        Parameters
        ----------
        blocks : re-iterable of (X (n, n_units), y (n,))
            Every ``iter(blocks)`` is a fresh pass. A block's memory may be reused for the next.
            An attribute ``n_rows``, the rows of a pass, lets a first pass plan its schedule.
        classes : array (V,)
            Every label; column k of predictions is the k-th of them in sorted order.
        held_out : same kind as blocks, optional
            Rows kept out of training: what penalties and stopping points are judged on.
        """
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        self.classes_ = _sorted_classes(classes)
        self._start()
        coded = _CodedBlocks(self, blocks)
        if iter(blocks) is not blocks and next(iter(coded), None) is None:
            raise ValueError("blocks have no rows: give at least one row to learn from")
        self._solve(coded, None if held_out is None else _CodedBlocks(self, held_out))
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Probability of every class: X (n, n_units) -> (n, V), rows sum to one."""
        return self._probabilities(self._ready(X))

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Natural log-probability of every class: X (n, n_units) -> (n, V)."""
        return self._log_probabilities(self._ready(X))

    def predict_log_proba_of(self, X: ArrayLike, y: ArrayLike) -> NDArray[Any]:
        """Natural log-probability (n,) of label y[i] after state X[i].

        Equals the entries of `predict_log_proba`, without an (n, V) array in memory.
        """
        return self._log_probabilities_of(*self._ready_pairs(X, y))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Most probable class of each row: X (n, n_units) -> (n,)."""
        best = np.argmax(self._log_probabilities(self._ready(X)), axis=1)
        return self.classes_[best]

    @property
    def n_parameters_(self) -> int:
        """Number of trained parameters."""
        check_is_fitted(self, "classes_")
        self._settle()
        return sum(int(np.size(getattr(self, name))) for name in self._parameters)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that predictions need, as plain arrays; labels that are text as JSON."""
        check_is_fitted(self, "classes_")
        self._settle()
        arrays = {name: np.asarray(getattr(self, name)) for name in self._arrays()}
        arrays["n_features_in_"] = np.asarray(self.n_features_in_)
        if self.classes_.dtype.kind in "biuf":
            arrays["classes_"] = self.classes_
        else:
            text = json.dumps(self.classes_.tolist()).encode()
            arrays["classes_json"] = np.frombuffer(text, dtype=np.uint8)
        return arrays

    @classmethod
    def from_arrays(cls, params: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The readout that ``to_arrays`` described; ``params`` are its ``get_params()``."""
        readout = cls(**params)
        if "classes_json" in arrays:
            readout.classes_ = np.asarray(json.loads(bytes(arrays["classes_json"])))
        else:
            readout.classes_ = np.asarray(arrays["classes_"])
        readout.n_features_in_ = int(arrays["n_features_in_"])
        readout._restore(arrays)
        return readout

    def _arrays(self) -> tuple[str, ...]:
        return (*self._parameters, *self._state)

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Set learned attributes from ``arrays``; ``classes_`` and widths are already there."""
        self._start()
        for name in self._arrays():
            value = np.asarray(arrays[name])
            setattr(self, name, value if value.ndim else value.item())

    @abstractmethod
    def _start(self) -> None:
        """Forget what was learned; ``classes_`` are known, ``n_features_in_`` maybe not yet."""

    @abstractmethod
    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Learn from scratch from re-iterable blocks of (X, codes), and settle."""

    @abstractmethod
    def _absorb(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        """Take one more chunk; may put off the solving to `_settle`."""

    @abstractmethod
    def _settle(self) -> None:
        """Make the parameters current with everything absorbed."""

    def _probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        """Rows of X (n, n_units) -> distributions (n, V)."""
        return np.exp(self._log_probabilities(X))

    def _log_probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(divide="ignore"):
            return np.log(self._probabilities(X))

    def _log_probabilities_of(self, X: NDArray[Any], codes: NDArray[np.intp]) -> NDArray[Any]:
        """Log-probability (n,) of one class a row, a bounded part of the rows at a time."""
        out = np.empty(len(X), dtype=X.dtype)
        rows = rows_within(_PREDICTION_BYTES, len(self.classes_), np.float64)
        predict = self._predictor(X.dtype)
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            logs = predict(X[part])
            out[part] = logs[np.arange(len(logs)), codes[part]]
        return out

    def _predictor(self, dtype: Any) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """`_log_probabilities` of many parts of one array of that dtype, made ready once."""
        return self._log_probabilities

    def _ready_pairs(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """`_ready` states, and the columns of their labels."""
        states = self._ready(X)
        codes = encode_labels(np.asarray(y), self.classes_)
        if len(codes) != len(states):
            raise ValueError(f"X has {len(states)} rows and y {len(codes)}: give one label a row")
        return states, codes

    def _ready(self, X: ArrayLike) -> NDArray[Any]:
        """X validated for prediction, after the parameters were made current."""
        check_is_fitted(self, "classes_")
        states = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        self._settle()
        return states

    def _checked(self, X: ArrayLike, y: ArrayLike, reset: bool) -> Block:
        return validate_data(self, X, y, reset=reset, dtype=[np.float64, np.float32])


class _CodedBlocks:
    """Blocks of (X, y), validated against a readout, as blocks of (X, codes)."""

    def __init__(self, readout: StreamingReadout, blocks: Iterable[Block]) -> None:
        self.readout = readout
        self.blocks = blocks
        self.n_rows = blocks_rows(blocks)

    def __iter__(self) -> Iterator[Block]:
        readout = self.readout
        for X, y in self.blocks:
            if len(y) == 0:
                continue
            first = not hasattr(readout, "n_features_in_")
            X, y = readout._checked(X, y, reset=first)
            yield X, encode_labels(y, readout.classes_)


def _check_labels(y: NDArray[Any]) -> None:
    """Refuse targets of a regression. Text has many classes a row, so only floats are suspect."""
    if y.dtype.kind not in "biuUS":
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            check_classification_targets(y)


def _sorted_classes(classes: ArrayLike) -> NDArray[Any]:
    known = np.unique(np.asarray(list(classes) if isinstance(classes, Set) else classes))
    if len(known) == 0:
        raise ValueError("classes is empty: name every label")
    return known
