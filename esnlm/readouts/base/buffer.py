"""Base class of iterative readouts: rows are buffered, so that chunks give the result of `fit`."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from esnlm.readouts.base.blocks import ArrayBlocks, Rows, rows_within
from esnlm.readouts.base.readout import StreamingReadout
from esnlm.utils.arrays import Array, Ints

_BUFFER_BYTES = 1 << 28
#: Saved names of waiting rows, and their attributes.
BUFFER = {"buffer": "_waiting", "buffer.streaming": "_streaming", "buffer.stale": "_stale"}


class BufferedReadout(StreamingReadout):
    """A readout whose solver needs several passes, with a first buffer of rows in memory.

    ``partial_fit`` keeps up to ``buffer_size`` rows (256 MiB at most). While all rows fit, a
    prediction first solves exactly what ``fit`` solves. A full buffer is solved once, and later
    rows are learned by `_update` in batches of ``_batch_rows()``: cuts lie at fixed counts of
    rows since the first one, whatever the caller's chunks, except that a prediction absorbs
    the rows still waiting.
    """

    buffer_size: int
    _waiting: Rows
    _streaming = False
    _stale = False

    @abstractmethod
    def _update(self, X: Array, codes: Ints) -> None:
        """One incremental step from the present parameters on X (n, n_units), codes (n,)."""

    def _batch_rows(self) -> int:
        return min(4096, self._capacity(np.float64))

    def _capacity(self, dtype: Any) -> int:
        most = rows_within(_BUFFER_BYTES, self.n_features_in_, dtype)
        return max(1, min(int(self.buffer_size), most))

    def _forget(self, *, fitted: bool) -> None:
        self._waiting, self._streaming, self._stale = Rows("X", "codes"), fitted, False
        super()._forget(fitted=fitted)

    def _absorb(self, X: Array, codes: Ints) -> None:
        while len(X):
            size = self._batch_rows() if self._streaming else self._capacity(X.dtype)
            room = max(0, size - self._waiting.n)
            self._waiting.add(X[:room].copy(), codes[:room].copy())
            self._stale = True
            X, codes = X[room:], codes[room:]
            if self._waiting.n >= size:
                self._flush()

    def _flush(self) -> None:
        X, codes = self._waiting.joined()
        if self._streaming:
            self._update(X, codes)
        else:
            self._start()
            self._solve(ArrayBlocks(X, codes), None)
        self._waiting, self._streaming, self._stale = Rows("X", "codes"), True, False

    def _settle(self) -> None:
        if self._stale:
            self.make_writable()
            waiting, streaming = self._waiting, self._streaming
            self._flush()
            if not streaming:  # the rows are solved again with those to come
                self._waiting, self._streaming = waiting, False

    def _names(self, training: bool) -> Mapping[str, str]:
        if not training:
            return super()._names(training)
        fitted = {f"learner.{name}": name for name in self._arrays()}
        return BUFFER | fitted | dict(self._training_state)

    def _loaded(self, training: bool) -> None:
        """Nothing is missing for more rows: `_update` starts from the parameters."""
