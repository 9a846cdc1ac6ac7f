"""Base class of iterative readouts: rows are buffered, so that chunks give the result of `fit`."""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.base.blocks import ArrayBlocks, Block, rows_within
from esnlm.readouts.base.readout import StreamingReadout
from esnlm.utils.state_dict import Arrays

_BUFFER_BYTES = 1 << 28


class BufferedReadout(StreamingReadout):
    """A readout whose solver needs several passes, with a first buffer of rows in memory.

    ``partial_fit`` keeps up to ``buffer_size`` rows (256 MiB at most). While all rows fit, a
    prediction first solves exactly what ``fit`` solves. A full buffer is solved once, and later
    rows are learned by `_update` in batches of ``_batch_rows()``: cuts lie at fixed counts of
    rows since the first one, whatever the caller's chunks, except that a prediction absorbs
    the rows still waiting.
    """

    buffer_size: int
    _waiting: list[Block]
    _streaming = False
    _stale = False

    @abstractmethod
    def _update(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        """One incremental step from the present parameters on X (n, n_units), codes (n,)."""

    def _batch_rows(self) -> int:
        return min(4096, self._capacity(np.float64))

    def _capacity(self, dtype: Any) -> int:
        most = rows_within(_BUFFER_BYTES, self.n_features_in_, dtype)
        return max(1, min(int(self.buffer_size), most))

    def _forget(self, *, fitted: bool) -> None:
        self._waiting, self._streaming, self._stale = [], fitted, False
        super()._forget(fitted=fitted)

    def _absorb(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        while len(X):
            room = self._room(X.dtype)
            self._waiting.append((X[:room].copy(), codes[:room].copy()))
            self._stale = True
            X, codes = X[room:], codes[room:]
            if self._room(X.dtype) == 0:
                self._flush()

    def _room(self, dtype: Any) -> int:
        """Rows that still fit before the next solve or update."""
        size = self._batch_rows() if self._streaming else self._capacity(dtype)
        return size - sum(len(codes) for _, codes in self._waiting)

    def _flush(self) -> None:
        X, codes = map(np.concatenate, zip(*self._waiting, strict=True))
        if self._streaming:
            self._update(X, codes)
        else:
            self._start()
            self._solve(ArrayBlocks(X, codes), None)
        self._waiting, self._streaming, self._stale = [], True, False

    def _settle(self) -> None:
        if self._stale:
            waiting, streaming = self._waiting, self._streaming
            self._flush()
            if not streaming:  # the rows are solved again with those to come
                self._waiting, self._streaming = waiting, False

    def state_dict(self) -> Arrays:
        arrays = super().state_dict()
        arrays["buffer.streaming"] = np.asarray(self._streaming)
        arrays["buffer.stale"] = np.asarray(self._stale)
        if self._waiting:
            X, codes = zip(*self._waiting, strict=True)
            arrays |= {"buffer.X": np.concatenate(X), "buffer.codes": np.concatenate(codes)}
        return arrays

    def load_state_dict(self, arrays: Arrays) -> None:
        self._streaming = bool(arrays["buffer.streaming"])
        self._stale = bool(arrays["buffer.stale"])
        self._waiting = []
        if "buffer.X" in arrays:
            self._waiting = [(arrays["buffer.X"], arrays["buffer.codes"].astype(np.intp))]
        super().load_state_dict(arrays)

    def _restore(self, arrays: Arrays) -> None:
        super()._restore(arrays)
        self._can_learn = True  # `_update` starts from the parameters

    def _learner_arrays(self) -> Arrays:
        names = [name for name in self._arrays() if name in self.__dict__]
        return {f"learner.{name}": np.asarray(getattr(self, name)) for name in names}

    def _restore_learner(self, arrays: Arrays) -> None:
        for name in self._arrays():
            if (value := arrays.get(f"learner.{name}")) is not None:
                setattr(self, name, value if value.ndim else value.item())
