"""Rows that wait until there are enough of them for a batch, whatever the calls that bring them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Rows = tuple[NDArray[Any], NDArray[np.intp]]

_KEPT_BYTES = 1 << 28


class WaitingRows:
    """Cuts rows (Z, codes), which are kept and not to be changed, into batches of ``n_rows``.

    Examples
    --------
    >>> waiting = WaitingRows(2)
    >>> [codes.tolist() for _, codes in waiting.cut(np.zeros((3, 1)), np.arange(3))]
    [[0, 1]]
    >>> [codes.tolist() for _, codes in waiting.rest()]
    [[2]]
    """

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self._parts: list[Rows] = []
        self._n_waiting = 0

    def cut(self, Z: NDArray[Any], codes: NDArray[np.intp]) -> Iterator[Rows]:
        """Batches that rows Z (n, P), codes (n,) make full."""
        start = 0
        while start < len(Z):
            stop = min(len(Z), start + self.n_rows - self._n_waiting)
            self._parts.append((Z[start:stop], codes[start:stop]))
            self._n_waiting += stop - start
            start = stop
            if self._n_waiting == self.n_rows:
                yield from self.rest()

    def rest(self) -> Iterator[Rows]:
        """The rows still waiting, if there are any."""
        if self._parts:
            Z = np.concatenate([Z for Z, _ in self._parts])
            codes = np.concatenate([codes for _, codes in self._parts])
            self._parts, self._n_waiting = [], 0
            yield Z, codes

    def to_arrays(self) -> Arrays:
        """The rows, by name."""
        if not self._parts:
            return {}
        return {
            "Z": np.concatenate([Z for Z, _ in self._parts]),
            "codes": np.concatenate([codes for _, codes in self._parts]),
        }

    def restore(self, arrays: Arrays) -> None:
        """Take over what `to_arrays` gave."""
        if arrays:
            self._parts = [(arrays["Z"], arrays["codes"].astype(np.intp, copy=False))]
            self._n_waiting = len(arrays["Z"])


class Interleaved:
    """Arrays as blocks of rows far apart, ``k, k + m, k + 2m ...``: a fixed kind of shuffle.

    Blocks of small arrays are gathered once, those of large ones anew in every pass.
    """

    def __init__(self, X: NDArray[Any], codes: NDArray[np.intp], rows: int) -> None:
        self.X = X
        self.codes = codes
        self.n_blocks = max(1, len(X) // rows)
        self._kept = list(self._gathered()) if X.nbytes <= _KEPT_BYTES else None

    def __iter__(self) -> Iterator[tuple[NDArray[Any], NDArray[np.intp]]]:
        return self._gathered() if self._kept is None else iter(self._kept)

    def _gathered(self) -> Iterator[tuple[NDArray[Any], NDArray[np.intp]]]:
        for k in range(self.n_blocks):
            part = slice(k, None, self.n_blocks)
            yield np.ascontiguousarray(self.X[part]), self.codes[part]
