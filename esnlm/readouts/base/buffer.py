"""What iterative readouts share: rows buffered so that chunks give what one fit gives."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esnlm.readouts.base.readout import ArrayBlocks, Block, StreamingReadout, rows_within
from esnlm.utils.state_dict import Arrays

_BUFFER_BYTES = 1 << 28


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

    @abstractmethod
    def _update(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        """One incremental step from the present parameters on X (n, n_units), codes (n,)."""

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

    def state_dict(self) -> Arrays:
        if "_waiting" not in self.__dict__:
            self._clear_buffer(streaming=False)
        arrays = self._learner_arrays()
        arrays["buffer.streaming"] = np.asarray(self._streaming)
        arrays["buffer.stale"] = np.asarray(self._stale)
        if self._waiting:
            arrays["buffer.X"] = np.concatenate([X for X, _ in self._waiting])
            arrays["buffer.codes"] = np.concatenate([codes for _, codes in self._waiting])
        return arrays

    state_dict.__doc__ = StreamingReadout.state_dict.__doc__

    def load_state_dict(self, arrays: Arrays) -> None:
        self._clear_buffer(streaming=bool(arrays["buffer.streaming"]))
        self._stale = bool(arrays["buffer.stale"])
        if "buffer.X" in arrays:
            self._waiting = [(arrays["buffer.X"], arrays["buffer.codes"].astype(np.intp))]
            self._n_waiting = len(arrays["buffer.X"])
        self._restore_learner(arrays)

    load_state_dict.__doc__ = StreamingReadout.load_state_dict.__doc__

    def _learner_arrays(self) -> Arrays:
        """What `_update` goes on from: the parameters, where there are any yet."""
        names = [name for name in self._arrays() if name in self.__dict__]
        return {f"learner.{name}": np.asarray(getattr(self, name)) for name in names}

    def _restore_learner(self, arrays: Arrays) -> None:
        for name in self._arrays():
            value = arrays.get(f"learner.{name}")
            if value is not None:
                setattr(self, name, value if value.ndim else value.item())

    def begin(self, *args: Any, **options: Any) -> Self:
        self._clear_buffer(streaming=False)
        return super().begin(*args, **options)

    begin.__doc__ = StreamingReadout.begin.__doc__

    def _restore(self, arrays: Arrays) -> None:
        self._clear_buffer(streaming=True)
        super()._restore(arrays)

    def _clear_buffer(self, streaming: bool) -> None:
        self._waiting = []
        self._n_waiting = 0
        self._streaming = streaming
        self._stale = False
