"""What every readout shares: labels and blocks in, distributions over the classes out.

`StreamingReadout` is the scikit-learn surface. `BufferedReadout` adds what iterative readouts
need so that ``partial_fit`` on small data gives what ``fit`` gives, however the data was cut.
"""

import json
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

Block = tuple[NDArray[Any], NDArray[Any]]

_BLOCK_BYTES = 1 << 24
_BUFFER_BYTES = 1 << 28


class Blocks(Protocol):
    """A re-iterable: each ``iter()`` is a fresh pass over ``(X, y)`` blocks in reused memory."""

    def __iter__(self) -> Iterator[Block]: ...


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


class StreamingReadout(ClassifierMixin, BaseEstimator):
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

    def _start(self) -> None:
        """Forget what was learned; ``classes_`` are known, ``n_features_in_`` maybe not yet."""
        raise NotImplementedError

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Learn from scratch from re-iterable blocks of (X, codes), and settle."""
        raise NotImplementedError

    def _absorb(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        """Take one more chunk; may put off the solving to `_settle`."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Make the parameters current with everything absorbed."""
        raise NotImplementedError

    def _probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        """Rows of X (n, n_units) -> distributions (n, V)."""
        return np.exp(self._log_probabilities(X))

    def _log_probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(divide="ignore"):
            return np.log(self._probabilities(X))

    def _ready(self, X: ArrayLike) -> NDArray[Any]:
        """X validated for prediction, after the parameters were made current."""
        check_is_fitted(self, "classes_")
        states = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        self._settle()
        return states

    def _checked(self, X: ArrayLike, y: ArrayLike, reset: bool) -> Block:
        return validate_data(self, X, y, reset=reset, dtype=[np.float64, np.float32])


class BufferedReadout(StreamingReadout):
    """A readout whose solver needs several passes, with a first buffer of rows in memory.

    ``partial_fit`` keeps up to ``buffer_size`` rows (256 MiB at most). While everything seen fits,
    a prediction first solves exactly what ``fit`` on those rows solves. When the buffer is full
    it is solved once, and later rows are learned in batches of ``_batch_rows()`` through
    `_update`: cuts lie at fixed counts of rows since the first one, whatever the caller's
    chunks, except that a prediction absorbs the rows still waiting.

    A subclass has a parameter ``buffer_size`` and computes `_start`, `_solve`, `_update` and
    predictions.
    """

    buffer_size: int
    _waiting: list[Block]
    _n_waiting: int
    _streaming: bool
    _stale: bool

    def _update(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        """One incremental step from the present parameters on X (n, n_units), codes (n,)."""
        raise NotImplementedError

    def _batch_rows(self) -> int:
        """Rows of one incremental step."""
        return min(4096, self._capacity(np.float64))

    def _capacity(self, dtype: Any) -> int:
        most = rows_within(_BUFFER_BYTES, self.n_features_in_, dtype)
        return max(1, min(int(self.buffer_size), most))

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from states X (n, n_units) and targets y (n,), forgetting any earlier fit."""
        self._clear_buffer(streaming=True)
        return super().fit(X, y)

    def fit_blocks(
        self,
        blocks: Iterable[Block],
        classes: ArrayLike,
        held_out: Iterable[Block] | None = None,
    ) -> Self:
        if iter(blocks) is blocks:
            raise TypeError(
                f"{type(self).__name__} needs several passes: got a one-shot iterator for "
                "blocks, give a list or an object whose __iter__ starts a fresh pass"
            )
        self._clear_buffer(streaming=True)
        return super().fit_blocks(blocks, classes, held_out)

    fit_blocks.__doc__ = StreamingReadout.fit_blocks.__doc__

    def _absorb(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        if "_waiting" not in self.__dict__:
            self._clear_buffer(streaming=False)
        start = 0
        while start < len(X):
            stop = min(len(X), start + self._room(X.dtype))
            self._waiting.append((X[start:stop].copy(), codes[start:stop].copy()))
            self._n_waiting += stop - start
            self._stale = True
            start = stop
            if self._room(X.dtype) <= 0:
                self._flush()

    def _room(self, dtype: Any) -> int:
        """Rows that still fit before the next solve or update."""
        size = self._batch_rows() if self._streaming else self._capacity(dtype)
        return size - self._n_waiting

    def _flush(self) -> None:
        """Learn the waiting rows: the first buffer by a solve, later batches by an update."""
        X = np.concatenate([block for block, _ in self._waiting])
        codes = np.concatenate([codes for _, codes in self._waiting])
        if self._streaming:
            self._update(X, codes)
        else:
            self._start()
            self._solve(ArrayBlocks(X, codes), None)
        self._clear_buffer(streaming=True)

    def _settle(self) -> None:
        if not self.__dict__.get("_stale", False):
            return
        if self._streaming:
            self._flush()
            return
        waiting, n_waiting = self._waiting, self._n_waiting
        self._flush()
        self._waiting, self._n_waiting, self._streaming = waiting, n_waiting, False

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._clear_buffer(streaming=True)
        super()._restore(arrays)

    def _clear_buffer(self, streaming: bool) -> None:
        self._waiting = []
        self._n_waiting = 0
        self._streaming = streaming
        self._stale = False


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
    known = np.unique(np.asarray(classes))
    if len(known) == 0:
        raise ValueError("classes is empty: name every label")
    return known
