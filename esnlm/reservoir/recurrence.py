"""Drive and recurrence of a reservoir, over one stream or over tiles of parallel streams."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from esnlm.kernels import recurrence as kernels
from esnlm.kernels.activations import IDENTITY, RELU, TANH
from esnlm.kernels.llvm_vectors import LINE_BYTES
from esnlm.reservoir.parallel_streams import Step
from esnlm.utils.arrays import Array, Bools, Ints64
from esnlm.utils.threads import TileMap

#: Activation -> its code in compiled functions.
ACTIVATIONS = {"tanh": TANH, "relu": RELU, "identity": IDENTITY}
# Streams of a tile and lanes in a block of units; 16 sums stay in registers.
_CYCLIC_TILE = 4
_CYCLIC_UNITS = 4
_CYCLIC_UNITS_ALONE = 8

_TABLE_BYTES = 256 << 20

BlockRun = Callable[["Drive", Array, Step, TileMap], tuple[Array, Ints64]]


class Drive:
    """Drive W_in u + b (n_units,) of each token, as rows of a table.

    W_in (n_units, n_inputs) lies column by column in memory, or is a CSC matrix. features
    (n_tokens, n_inputs) are input vectors of tokens; without them a token is a column of W_in.
    """

    def __init__(self, W_in: Any, bias: Array, features: Array | None = None) -> None:
        self._W_in, self._bias = W_in, bias
        self._features = features
        self.n_tokens = W_in.shape[1] if features is None else len(features)
        self._sparse = scipy.sparse.issparse(W_in)
        self._table: Array | None = None
        if features is None and not self._sparse and not bias.any():
            # Compiled code takes a read-only array for another type.
            self._table = np.require(W_in.T, requirements=["C", "W"])
        elif self.n_tokens * bias.nbytes <= _TABLE_BYTES:
            self._table = self._of(np.arange(self.n_tokens))

    def rows(self, tokens: Array) -> tuple[Array, Ints64]:
        """Return a table (n_rows, n_units) and the row of each token, in the shape of tokens.

        Compiled code reads rows without checks, and the array of tokens may have changed since it
        was checked: a copy is checked again.
        """
        rows = tokens.astype(np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < self.n_tokens:
            raise ValueError(f"the tokens changed while they were read: {rows.max()} is none")
        if self._table is not None:
            return self._table, rows
        distinct, inverse = np.unique(rows, return_inverse=True)
        return self._of(distinct), inverse.reshape(tokens.shape)

    def _of(self, tokens: Array) -> Array:
        if self._features is not None:
            vectors = self._features[tokens].astype(self._bias.dtype, copy=False)
            return np.ascontiguousarray((self._W_in @ vectors.T).T + self._bias)
        columns = self._W_in[:, tokens]
        return np.ascontiguousarray((columns.toarray() if self._sparse else columns).T + self._bias)


class Recurrence(ABC):
    """W and leak rates in the form that the kernels of one pattern of connections read."""

    def __init__(self, W: Any, leak: Array, activation: str) -> None:
        self._leak, self._n_units, self._code = leak.copy(), W.shape[0], ACTIVATIONS[activation]
        self._count = LINE_BYTES // leak.itemsize

    @abstractmethod
    def run(self, drive: Drive, tokens: Array, state: Array) -> Array:
        """Return the states (T, n_units) of one stream from ``state`` (n_units,)."""

    @abstractmethod
    def streams(self, n_streams: int, n_steps: int, initial_state: Array | None) -> BlockRun:
        """Return a function that advances streams by a block of at most ``n_steps`` steps.

        It returns the states kept (n, n_units), a view into memory that the next call overwrites,
        and the positions (n,) of their tokens. ``initial_state`` is the first stream's.
        """


def recurrence_of(W: Any, leak: Array, activation: str) -> Recurrence:
    """Return the fastest form of W (n_units, n_units) CSR with sorted indices."""
    offsets = cyclic_offsets(W)
    if offsets is None:
        return GatheredRecurrence(W, leak, activation)
    return CyclicRecurrence(W, offsets, leak, activation)


def cyclic_offsets(W: Any) -> Ints64 | None:
    """Return offsets s (degree,) if every unit i is connected to (i + s_k) mod n_units alone."""
    n = W.shape[0]
    degree = int(W.indptr[1])
    if not degree or not (np.diff(W.indptr) == degree).all():
        return None
    expected = np.sort(W.indices[:degree].astype(np.int64))
    for first in range(0, n, 4096):
        units = np.arange(first, min(first + 4096, n), dtype=np.int64)[:, None]
        columns = W.indices[first * degree : (first + len(units)) * degree].reshape(-1, degree)
        if not (np.sort((columns - units) % n, axis=1) == expected).all():
            return None
    return expected


class GatheredRecurrence(Recurrence):
    """Any sparse W: rows of a (n_units, 16 streams) state are gathered, a cache line each."""

    def __init__(self, W: Any, leak: Array, activation: str) -> None:
        super().__init__(W, leak, activation)
        narrow = np.uint16 if W.shape[0] <= 1 << 16 else np.uint32
        self._W = (W.indptr.astype(np.uint32), W.indices.astype(narrow), W.data.copy())

    def run(self, drive: Drive, tokens: Array, state: Array) -> Array:
        """Return states (T, n_units) of one stream from ``state`` (n_units,)."""
        out = np.empty((len(tokens), self._n_units), dtype=self._leak.dtype)
        if len(tokens):
            table, rows = drive.rows(tokens)
            padded = -(-self._n_units // self._count) * self._count
            old, work, leak = (_padded(x, padded) for x in (state, state, self._leak))
            kernels.run_rows(*self._W, table, rows, leak, self._code, old, work, out)
        return out

    def streams(self, n_streams: int, n_steps: int, initial_state: Array | None) -> BlockRun:
        """Return a function that advances tiles of 16 streams by at most ``n_steps`` steps."""
        width, dtype, n_units = kernels.TILE, self._leak.dtype, self._n_units
        n_tiles = -(-n_streams // width)
        state = aligned((n_tiles, n_units * width), dtype)
        if initial_state is not None:
            state[0, ::width] = initial_state
        work = aligned(state.shape, dtype)
        # A cache line more than the block: rows of a power of two would share cache sets.
        out = aligned((n_units, n_tiles * width * n_steps + self._count), dtype)
        like = (0,) * (width // self._count)

        def run(drive: Drive, text: Array, step: Step, over: TileMap) -> tuple[Array, Ints64]:
            """Advance all tiles by a block; return kept states (n, n_units) and positions (n,)."""
            positions, keep, carry = _tiled(step, n_tiles, width, dtype)
            table, rows = drive.rows(text[positions])

            def advance(tile: int) -> None:
                tile_rows = rows[tile], carry[tile], self._leak, self._code
                column = tile * rows.shape[1]
                kernels.run_gathered(
                    *self._W, table, *tile_rows, state[tile], work[tile], out, column, like
                )

            over(advance, range(n_tiles))
            kept = np.flatnonzero(keep)
            if len(kept) < keep.size:
                parts = np.array_split(out, n_tiles)
                over(lambda part: kernels.compact_columns(part, kept), parts)
            return out[:, : len(kept)].T, positions.ravel()[kept]

        return run


class CyclicRecurrence(Recurrence):
    """W[i, (i + s_k) mod n_units]: every read is contiguous and sums run over units."""

    def __init__(self, W: Any, offsets: Ints64, leak: Array, activation: str) -> None:
        super().__init__(W, leak, activation)
        self._offsets = offsets
        units = np.arange(W.shape[0])[:, None]
        order = np.argsort((W.indices.reshape(len(units), -1) - units) % len(units), axis=1)
        self._weights = np.take_along_axis(W.data.reshape(order.shape), order, axis=1)
        self._blocked: dict[int, Array] = {}

    def run(self, drive: Drive, tokens: Array, state: Array) -> Array:
        """Return states (T, n_units) of one stream from ``state`` (n_units,)."""
        out = np.empty((len(tokens), self._n_units), dtype=self._leak.dtype)
        table, rows = drive.rows(tokens)
        carry = np.ones(len(tokens) + 1, dtype=out.dtype)
        size = _CYCLIC_UNITS_ALONE * self._count
        old, work = self._states(1, size)
        self._begin(old, state, size)
        self._advance(1, table, rows, carry, old, work, out, np.arange(len(tokens)))
        return out

    def streams(self, n_streams: int, n_steps: int, initial_state: Array | None) -> BlockRun:
        """Return a function that advances one stream, or tiles of 4, by ``n_steps`` at most."""
        width = 1 if n_streams == 1 else _CYCLIC_TILE
        dtype, n_tiles = self._leak.dtype, -(-n_streams // width)
        size = self._lanes(width) * self._count
        states = [self._states(width, size) for _ in range(n_tiles)]
        if initial_state is not None:
            self._begin(states[0][0], initial_state, size)
        out = aligned((n_streams * n_steps, self._n_units), dtype)

        def run(drive: Drive, text: Array, step: Step, over: TileMap) -> tuple[Array, Ints64]:
            """Advance all tiles by a block; return kept states (n, n_units) and positions (n,)."""
            positions, keep, carry = _tiled(step, n_tiles, width, dtype)
            table, rows = drive.rows(text[positions])
            targets = np.where(keep, np.cumsum(keep).reshape(keep.shape) - 1, -1)

            def advance(tile: int) -> None:
                self._advance(
                    width, table, rows[tile], carry[tile], *states[tile], out, targets[tile]
                )

            over(advance, range(n_tiles))
            kept = positions[keep]
            return out[: len(kept)], kept

        return run

    def _advance(self, width: int, table: Any, rows: Any, carry: Any, *arrays: Any) -> None:
        lanes = self._lanes(width)
        weights, leak = self._in_blocks(lanes)
        shapes = (0,) * (lanes * width), (0,) * lanes
        kernels.run_cyclic(
            self._offsets, weights, table, rows, carry, leak, self._code, *arrays, *shapes
        )

    @staticmethod
    def _lanes(width: int) -> int:
        return _CYCLIC_UNITS_ALONE if width == 1 else _CYCLIC_UNITS

    def _states(self, width: int, size: int) -> tuple[Array, Array]:
        pitch = (-(-self._n_units // size) + 1) * size
        # Pitches of a power of two would put all streams into the same cache sets.
        pitch += self._count if pitch * self._leak.itemsize % 1024 == 0 else 0
        shape = (width * pitch,)
        return aligned(shape, self._leak.dtype), aligned(shape, self._leak.dtype)

    def _begin(self, states: Array, state: Array, size: int) -> None:
        states[: self._n_units + size] = np.resize(state, self._n_units + size)

    def _in_blocks(self, lanes: int) -> tuple[Array, Array]:
        """Return the weights block of units by block, and leak rates, padded with zeros."""
        if lanes not in self._blocked:
            size = lanes * self._count
            n_blocks, degree = -(-self._n_units // size), len(self._offsets)
            padded = np.zeros((n_blocks * size, degree), dtype=self._leak.dtype)
            padded[: self._n_units] = self._weights
            blocks = aligned((n_blocks, degree, size), self._leak.dtype)
            blocks[:] = padded.reshape(n_blocks, size, degree).transpose(0, 2, 1)
            self._blocked[lanes] = blocks.ravel()
        weights = self._blocked[lanes]
        return weights, _padded(self._leak, len(weights) // len(self._offsets))


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return zeros that begin at a cache line, so that no aligned group of lanes straddles two."""
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(n_bytes + LINE_BYTES, dtype=np.uint8)
    skip = -memory.ctypes.data % LINE_BYTES
    return memory[skip : skip + n_bytes].view(dtype).reshape(shape)


def _padded(vector: Array, size: int) -> Array:
    out = aligned((size,), vector.dtype)
    out[: len(vector)] = vector
    return out


def _tiled(
    step: Step, n_tiles: int, width: int, dtype: np.dtype[Any]
) -> tuple[Ints64, Bools, Array]:
    """Return positions and keep (n_tiles, steps * width) of a step, and the carry of its states.

    The last is the factor of the state before each step and after the last, 0 or 1,
    (n_tiles, (steps + 1) * width). Streams that do not exist are zeros.
    """

    def by_tile(array: Array) -> Array:
        padded = np.zeros((n_tiles * width, array.shape[1]), dtype=array.dtype)
        padded[: len(array)] = array
        return padded.reshape(n_tiles, width, -1).transpose(0, 2, 1).reshape(n_tiles, -1)

    positions, keep, restart = map(by_tile, (step.positions, step.keep, step.restart))
    after = np.zeros((n_tiles, width), dtype=np.bool_)
    carry = 1 - np.concatenate((restart, after), axis=1).astype(dtype)
    return positions, keep, carry
