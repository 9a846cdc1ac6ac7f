# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Compiled single steps from many states at once: where streams branch off from one another.

Each row of ``out`` is the state ``states[sources[row]]`` after one more token, computed by the
kernels of streams, tile by tile.
"""

import numpy as np
from numba import njit

from esnlm.kernels.llvm_vectors import LINE_BYTES
from esnlm.kernels.recurrence import TILE, run_cyclic, run_gathered
from esnlm.kernels.simd import transpose_rows


@njit(nogil=True, cache=True)
def branch_gathered(
    first_entry,
    columns,
    weights,
    table,
    rows,
    leak,
    code,
    states,
    sources,
    out,
    first,
    last,
    work,
    like,
):
    """Fill rows first to last of out (n, n_units), gathering connections as ``run_gathered``.

    rows (n,) intp: row of the table for each row of out. states (m, n_units), sources (n,) intp.
    work (3, n_units * 16).
    """
    n_units = len(leak)
    count = TILE // len(like)
    carry = np.ones(2 * TILE, dtype=leak.dtype)
    chosen, drives = np.empty(TILE, dtype=np.intp), np.empty(TILE, dtype=np.intp)
    units = np.arange(n_units)
    state, spare, made = work[0], work[1], work[2].reshape(n_units, TILE)
    whole = n_units // count * count
    flat = out.ravel()
    for begin in range(first, last, TILE):
        n_rows = min(TILE, last - begin)
        for s in range(TILE):
            row = begin + min(s, n_rows - 1)
            chosen[s], drives[s] = sources[row], rows[row]
        for s in range(0, TILE, count):
            for unit in range(0, whole, count):
                transpose_rows(states, chosen, s, unit, state, unit * TILE + s, TILE)
        for unit in range(whole, n_units):
            for s in range(TILE):
                state[unit * TILE + s] = states[chosen[s], unit]
        run_gathered(
            first_entry,
            columns,
            weights,
            table,
            drives,
            carry,
            leak,
            code,
            state,
            spare,
            made,
            0,
            like,
        )
        blocks = whole if n_rows == TILE else 0
        for s in range(0, TILE, count):
            for unit in range(0, blocks, count):
                transpose_rows(made, units, unit, s, flat, (begin + s) * n_units + unit, n_units)
        for s in range(n_rows):
            for unit in range(blocks, n_units):
                out[begin + s, unit] = made[unit, s]


@njit(nogil=True, cache=True)
def branch_cyclic(
    offsets,
    weights,
    table,
    rows,
    leak,
    code,
    states,
    sources,
    out,
    first,
    last,
    old,
    work,
    like,
    units,
):
    """Fill rows first to last of out (n, n_units), connected by offsets as ``run_cyclic``.

    rows (n,) intp: row of the table for each row of out. states (m, n_units), sources (n,) intp.
    old and work (n_streams, pitch) flat, like and units: those of ``run_cyclic``.
    """
    n_streams, n_units = len(like) // len(units), out.shape[1]
    size = len(units) * LINE_BYTES // leak.itemsize
    pitch = len(old) // n_streams
    carry = np.ones(2 * n_streams, dtype=leak.dtype)
    targets, drives = np.empty(n_streams, dtype=np.intp), np.empty(n_streams, dtype=np.intp)
    for begin in range(first, last, n_streams):
        n_rows = min(n_streams, last - begin)
        for s in range(n_streams):
            row = begin + min(s, n_rows - 1)
            targets[s] = row if s < n_rows else -1
            drives[s] = rows[row]
            state = states[sources[row]]
            place = s * pitch
            old[place : place + n_units] = state
            for i in range(size):
                old[place + n_units + i] = state[i % n_units]
        run_cyclic(
            offsets,
            weights,
            table,
            drives,
            carry,
            leak,
            code,
            old,
            work,
            out,
            targets,
            like,
            units,
        )
