"""Recurrence of a reservoir over one stream or over tiles of parallel streams."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.drive import Drive
from esnlm.kernels import recurrence as kernels
from esnlm.streams import Step
from esnlm.threads import TileMap

_TILE = 16
_LIMIT = 1e8
_CODES = {"tanh": kernels.TANH, "relu": kernels.RELU, "identity": kernels.IDENTITY}

BlockRun = Callable[[Drive, NDArray[Any], Step, TileMap], tuple[NDArray[Any], NDArray[np.int64]]]


class Recurrence:
    """W (n_units, n_units) CSR and leak rates in the form that the kernels read."""

    def __init__(self, W: Any, leak: NDArray[Any], activation: str) -> None:
        self._sparse = (W.indptr.astype(np.int32), W.indices.astype(np.int32), W.data)
        self._leak = leak
        self._activation = activation
        self.n_units = W.shape[0]

    def run(self, drive: Drive, tokens: NDArray[Any], state: NDArray[Any]) -> NDArray[Any]:
        """States (T, n_units) of one stream from ``state`` (n_units,), which is overwritten."""
        out = np.empty((len(tokens), self.n_units), dtype=state.dtype)
        if len(tokens):
            table, rows = drive.rows(tokens)
            restart = np.zeros(len(tokens), dtype=np.bool_)
            code = _CODES[self._activation]
            kernels.run_rows(*self._sparse, table, rows, restart, self._leak, code, state, out)
        return out

    def streams(self, n_streams: int, n_steps: int, initial_state: NDArray[Any] | None) -> BlockRun:
        """A function that advances ``n_streams`` streams by a block and keeps their states.

        The block (n, n_units) is a view into memory of ``n_streams * n_steps`` rows that the next
        call overwrites.
        """
        dtype, n_tiles = self._leak.dtype, -(-n_streams // _TILE)
        state = np.zeros((n_tiles, self.n_units, _TILE), dtype=dtype)
        if initial_state is not None:
            state[0, :, 0] = initial_state
        work = np.empty_like(state)
        # A cache line more than the block: rows of a power of two would share cache sets.
        columns = n_tiles * _TILE * n_steps
        out = np.empty((self.n_units, columns + 64 // dtype.itemsize), dtype=dtype)

        def run(
            drive: Drive, text: NDArray[Any], step: Step, over: TileMap
        ) -> tuple[NDArray[Any], NDArray[np.int64]]:
            positions, restart, keep = (
                _by_tile(array, n_tiles) for array in (step.positions, step.restart, step.keep)
            )
            table, rows = drive.rows(text[positions])
            width = rows.shape[1] * _TILE

            def advance(tile: int) -> None:
                block = out[:, tile * width : (tile + 1) * width]
                arguments = (rows[tile], restart[tile], self._leak, _CODES[self._activation])
                kernels.run_tile(*self._sparse, table, *arguments, state[tile], work[tile], block)

            over(advance, range(n_tiles))
            kept = np.flatnonzero(keep)
            if len(kept) < n_tiles * width:
                over(
                    lambda part: kernels.compact_columns(out[part], kept),
                    _parts(self.n_units, n_tiles),
                )
            return out[:, : len(kept)].T, positions.ravel()[kept]

        return run

    def bounded(self, states: NDArray[Any]) -> bool:
        """Whether states are numbers of reasonable size; tanh of finite drives always is."""
        if self._activation == "tanh":
            return True
        return bool(kernels.all_within(states.T if states.flags.f_contiguous else states, _LIMIT))


def _by_tile(array: NDArray[Any], n_tiles: int) -> NDArray[Any]:
    """(n_streams, n_steps) -> (n_tiles, n_steps, tile), zeros for streams that do not exist."""
    padded = np.zeros((n_tiles * _TILE, array.shape[1]), dtype=array.dtype)
    padded[: len(array)] = array
    tiles = padded.reshape(n_tiles, _TILE, -1).transpose(0, 2, 1)
    return np.ascontiguousarray(tiles)


def _parts(n: int, count: int) -> list[slice]:
    bounds = [n * part // count for part in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(bounds)]
