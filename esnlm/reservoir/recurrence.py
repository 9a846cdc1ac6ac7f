"""Drive and recurrence of a reservoir, over one stream or over tiles of parallel streams."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse

from esnlm.kernels import recurrence as kernels
from esnlm.kernels.activations import IDENTITY, RELU, TANH
from esnlm.kernels.llvm_vectors import LINE_BYTES
from esnlm.reservoir.parallel_streams import StreamPlan
from esnlm.utils.arrays import Array, Ints64, checked_tokens
from esnlm.utils.threads import map_tiles

#: Activation -> its code in compiled functions.
ACTIVATIONS = {"tanh": TANH, "relu": RELU, "identity": IDENTITY}
# Streams of a tile and lanes in a block of units; 16 sums stay in registers.
_CYCLIC_TILE = 4
_CYCLIC_UNITS = 4
_CYCLIC_UNITS_ALONE = 8

_TABLE_BYTES = 256 << 20
#: State of each tile, and memory to work in.
_States: TypeAlias = list[tuple[Array, Array]]


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
            with np.errstate(over="ignore", invalid="ignore"):
                vectors = self._features[tokens].astype(self._bias.dtype, copy=False)
                drives = np.ascontiguousarray((self._W_in @ vectors.T).T + self._bias)
            if not np.isfinite(drives).all():  # inf - inf has no sign, which tanh would need
                raise ValueError(
                    f"input vectors are too large for {self._bias.dtype}: scale them, got up to"
                    f" {np.abs(self._features.astype(np.float64)).max():g}"
                )
            return drives
        columns = self._W_in[:, tokens]
        return np.ascontiguousarray((columns.toarray() if self._sparse else columns).T + self._bias)


class _Block(NamedTuple):
    """Steps of all streams, ``width`` of them a tile: arguments of the kernels, tile by tile."""

    width: int
    table: Array
    rows: Ints64
    carry: Array
    targets: Ints64


class Recurrence(ABC):
    """W and leak rates in the form that the kernels of one pattern of connections read."""

    def __init__(self, W: Any, leak: Array, activation: str) -> None:
        self._leak, self._n_units, self._code = leak.copy(), W.shape[0], ACTIVATIONS[activation]
        self._count = LINE_BYTES // leak.itemsize

    @abstractmethod
    def run(self, drive: Drive, tokens: Array, state: Array) -> Array:
        """Return the states (T, n_units) of one stream from ``state`` (n_units,)."""

    def blocks(
        self,
        drive: Drive,
        text: Array,
        plan: StreamPlan,
        block_size: int,
        *,
        initial_state: Array | None,
        n_threads: int | None,
        check: Callable[[Array], Array],
    ) -> Iterator[tuple[Array, Ints64, Ints64]]:
        """Yield states (n, n_units), next tokens (n,) and positions (n,) of the tokens read.

        States went through ``check``, and are a view into memory that the next block overwrites.
        ``initial_state`` (n_units,) is the first stream's.
        """
        if plan.n_pairs < 1:
            return
        n_steps = max(1, min(block_size // plan.n_streams, plan.n_steps))
        width = self._width(plan.n_streams)
        states, out = self._memory(plan.n_streams, n_steps, initial_state)
        for first in range(0, plan.n_steps, n_steps):
            step = plan.step(first, min(n_steps, plan.n_steps - first))
            # A first sequence of one token has no pair: the first pair is then another one's.
            if first == 0 and initial_state is not None and step.positions[0, 0] == 0:
                step.restart[0, 0] = False
            positions, targets, carry = step.tiled(len(states), width, out.dtype)
            block = _Block(width, *drive.rows(text[positions]), carry, targets)
            map_tiles(partial(self._advance, states, out, block), range(len(states)), n_threads)
            positions = positions[targets >= 0]
            if len(positions):
                following = checked_tokens(text[positions + 1], drive.n_tokens).astype(np.int64)
                yield check(self._columns(out, targets, n_threads)), following, positions

    @abstractmethod
    def _width(self, n_streams: int) -> int:
        """Return the streams of a tile."""

    @abstractmethod
    def _memory(self, n_streams: int, n_steps: int, state: Array | None) -> tuple[_States, Array]:
        """Return state and working memory of each tile, and an array for the states of a block.

        ``state`` (n_units,) is the first stream's.
        """

    @abstractmethod
    def _advance(self, states: _States, out: Array, block: _Block, tile: int) -> None:
        """Advance a tile by a block, and put into ``out`` the states that have targets."""

    @abstractmethod
    def _columns(self, out: Array, targets: Ints64, n_threads: int | None) -> Array:
        """Return the states (n, n_units) that have targets, as a view of ``out``."""


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

    def _width(self, n_streams: int) -> int:
        return kernels.TILE

    def _memory(self, n_streams: int, n_steps: int, state: Array | None) -> tuple[_States, Array]:
        dtype, n_units, width = self._leak.dtype, self._n_units, kernels.TILE
        n_tiles = -(-n_streams // width)
        old, work = (aligned((n_tiles, n_units * width), dtype) for _ in range(2))
        if state is not None:
            old[0, ::width] = state
        # A cache line more than the block: rows of a power of two would share cache sets.
        out = aligned((n_units, n_tiles * width * n_steps + self._count), dtype)
        return list(zip(old, work, strict=True)), out

    def _advance(self, states: _States, out: Array, block: _Block, tile: int) -> None:
        like = (0,) * (block.width // self._count)
        kernels.run_gathered(
            *self._W, block.table, block.rows[tile], block.carry[tile], self._leak, self._code,
            *states[tile], out, tile * block.rows.shape[1], like,
        )  # fmt: skip

    def _columns(self, out: Array, targets: Ints64, n_threads: int | None) -> Array:
        columns = np.flatnonzero(targets >= 0)
        if len(columns) < targets.size:
            parts = np.array_split(out, len(targets))
            map_tiles(lambda part: kernels.compact_columns(part, columns), parts, n_threads)
        return out[:, : len(columns)].T


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
        carry = np.ones((1, len(tokens) + 1), dtype=out.dtype)
        states, _ = self._memory(1, 0, state)
        block = _Block(1, table, rows[None], carry, np.arange(len(tokens))[None])
        self._advance(states, out, block, 0)
        return out

    def _width(self, n_streams: int) -> int:
        return 1 if n_streams == 1 else _CYCLIC_TILE

    def _memory(self, n_streams: int, n_steps: int, state: Array | None) -> tuple[_States, Array]:
        width = self._width(n_streams)
        size = self._lanes(width) * self._count
        states = [self._states(width, size) for _ in range(-(-n_streams // width))]
        if state is not None:
            states[0][0][: self._n_units + size] = np.resize(state, self._n_units + size)
        return states, aligned((n_streams * n_steps, self._n_units), self._leak.dtype)

    def _advance(self, states: _States, out: Array, block: _Block, tile: int) -> None:
        lanes = self._lanes(block.width)
        weights, leak = self._in_blocks(lanes)
        kernels.run_cyclic(
            self._offsets, weights, block.table, block.rows[tile], block.carry[tile], leak,
            self._code, *states[tile], out, block.targets[tile], (0,) * (lanes * block.width),
            (0,) * lanes,
        )  # fmt: skip

    def _columns(self, out: Array, targets: Ints64, n_threads: int | None) -> Array:
        return out[: int(targets.max()) + 1]

    @staticmethod
    def _lanes(width: int) -> int:
        return _CYCLIC_UNITS_ALONE if width == 1 else _CYCLIC_UNITS

    def _states(self, width: int, size: int) -> tuple[Array, Array]:
        pitch = (-(-self._n_units // size) + 1) * size
        # Pitches of a power of two would put all streams into the same cache sets.
        pitch += self._count if pitch * self._leak.itemsize % 1024 == 0 else 0
        shape = (width * pitch,)
        return aligned(shape, self._leak.dtype), aligned(shape, self._leak.dtype)

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
