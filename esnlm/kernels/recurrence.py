# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Compiled steps of a reservoir: h' = (1 - a) h + a f(W h + drive), drive = W_in u + b.

Sums run in the order of the entries of a row, for every stream alike, so the states of a stream do
not depend on which other streams share its tile.
"""

import numpy as np

from esnlm.kernels.activations import activated
from esnlm.kernels.cache import kernel
from esnlm.kernels.llvm_vectors import LINE_BYTES
from esnlm.kernels.simd import (
    fma,
    fma_each,
    load,
    load_each,
    splat,
    store,
    store_each,
    transpose_rows,
)

TILE = 16


@kernel
def run_gathered(
    first_entry, columns, weights, table, rows, carry, leak, code, state, work, out, column, like
):
    """Advance a tile of 16 streams whose connections are gathered row by row.

    first_entry (n_units + 1,), columns and weights (n_entries,): W by rows. table (n_rows,
    n_units): drives. rows (n_steps * 16,): row of the table for each step and stream. carry
    ((n_steps + 1) * 16,): 1, or 0 where the state before the step is zero; the last 16 belong to
    the next block. state and work (n_units * 16,): state is advanced in place. out (n_units, m):
    column ``column + 16 k + s`` gets the state of stream s after step k. like: a tuple of as many
    items as 16 streams take lanes.
    """
    n_units = len(leak)
    count = TILE // len(like)
    # Space for the sums of as many units as there are lanes.
    sums = np.empty(TILE * count, dtype=leak.dtype)
    flat = out.ravel()
    pitch = out.shape[1]
    n_steps = len(rows) // TILE
    for i in range(0, n_units * TILE, count):
        store(state, i, load(state, i) * load(carry, i % TILE))
    for k in range(n_steps):
        for block in range(0, n_units, count):
            units = min(count, n_units - block)
            if units == count:
                for s in range(0, TILE, count):
                    transpose_rows(table, rows, k * TILE + s, block, sums, s, TILE)
            else:
                for u in range(units):
                    for s in range(TILE):
                        sums[u * TILE + s] = table[rows[k * TILE + s], block + u]
            for u in range(units):
                total = load_each(sums, u * TILE, count, like)
                for e in range(first_entry[block + u], first_entry[block + u + 1]):
                    source = np.intp(columns[e]) * TILE
                    total = fma_each((splat(weights[e]),), state, source, count, total)
                store_each(sums, u * TILE, count, total)
            for u in range(units):
                i = block + u
                a = splat(leak[i])
                rest = splat(leak.dtype.type(1) - leak[i])
                for s in range(0, TILE, count):
                    value = activated(load(sums, u * TILE + s), code)
                    value = fma(a, value, rest * load(state, i * TILE + s))
                    store(flat, i * pitch + column + k * TILE + s, value)
                    store(work, i * TILE + s, value * load(carry, (k + 1) * TILE + s))
        state, work = work, state
    if n_steps % 2:
        for i in range(len(work)):  # a slice would compile numba's messages, for seconds
            work[i] = state[i]


@kernel
def run_cyclic(
    offsets, weights, table, rows, carry, leak, code, state, work, out, targets, like, units
):
    """Advance a tile of streams whose unit i is connected to units (i + s_k) mod n_units.

    offsets (degree,). weights: for every block of units, for every offset, the block's weights,
    padded with zeros. table (n_rows, n_units): drives. rows (n_steps * n_streams,), carry
    ((n_steps + 1) * n_streams,) as in ``run_gathered``. leak padded to whole blocks. state and work
    (n_streams, pitch) flat: a state followed by its beginning again for a block's length. out
    (n_rows, n_units): row ``targets[k * n_streams + s]`` gets the state of stream s after step k,
    none where it is negative. units: a tuple of as many items as a block of units takes lanes;
    like: of as many as the blocks of all streams take.
    """
    n_streams, n_units = len(like) // len(units), out.shape[1]
    zero = load_each(np.zeros(16, dtype=leak.dtype), 0, 0, like)
    count = LINE_BYTES // leak.itemsize
    size = len(units) * count
    sums = np.empty(n_streams * size, dtype=leak.dtype)
    drive = np.zeros(size, dtype=leak.dtype)
    flat, drives = out.ravel(), table.ravel()
    pitch = len(state) // n_streams
    n_steps = len(rows) // n_streams
    for s in range(n_streams):
        for i in range(s * pitch, (s + 1) * pitch):
            state[i] *= carry[s]
    for k in range(n_steps):
        place = 0
        for block in range(0, n_units, size):
            total = zero
            for o in range(len(offsets)):
                source = block + offsets[o]
                source -= n_units if source >= n_units else 0
                factors = load_each(weights, place, count, units)
                total = fma_each(factors, state, source, pitch, total)
                place += size
            store_each(sums, 0, count, total)
            whole = block + size <= n_units
            for s in range(n_streams):
                step = k * n_streams + s
                begin = rows[step] * n_units + block
                next_carry = splat(carry[step + n_streams])
                goal = targets[step] * n_units + block
                if not whole:
                    for i in range(n_units - block):
                        drive[i] = drives[begin + i]
                for i in range(0, size, count):
                    value = load(sums, s * size + i)
                    value = value + (load(drives, begin + i) if whole else load(drive, i))
                    value = activated(value, code)
                    a = load(leak, block + i)
                    rest = splat(leak.dtype.type(1)) - a
                    value = fma(a, value, rest * load(state, s * pitch + block + i))
                    store(work, s * pitch + block + i, value * next_carry)
                    if goal >= 0:
                        if whole:
                            store(flat, goal + i, value)
                        else:
                            store(sums, s * size + i, value)
                if goal >= 0 and not whole:
                    for i in range(n_units - block):
                        flat[goal + i] = sums[s * size + i]
        for s in range(n_streams):
            for i in range(s * pitch + n_units, s * pitch + n_units + size):
                work[i] = work[i - n_units]
        state, work = work, state
    if n_steps % 2:
        for i in range(len(work)):
            work[i] = state[i]


@kernel
def run_rows(first_entry, columns, weights, table, rows, leak, code, state, work, out):
    """Advance one stream by rows of W; state and work (n_units,) padded to whole lanes.

    out (n_steps, n_units) gets the states; the other arguments are those of ``run_gathered``.
    """
    n_steps, n_units = out.shape
    count = LINE_BYTES // leak.itemsize
    for k in range(n_steps):
        drive = table[rows[k]]
        for i in range(n_units):
            begin, end = first_entry[i], first_entry[i + 1]
            # Four sums: one alone would wait for each addition.
            a = drive[i]
            b = c = d = leak.dtype.type(0)
            for e in range(begin, begin + (end - begin) // 4 * 4, 4):
                a += weights[e] * state[columns[e]]
                b += weights[e + 1] * state[columns[e + 1]]
                c += weights[e + 2] * state[columns[e + 2]]
                d += weights[e + 3] * state[columns[e + 3]]
            for e in range(begin + (end - begin) // 4 * 4, end):
                a += weights[e] * state[columns[e]]
            work[i] = (a + b) + (c + d)
        for i in range(0, len(work), count):
            rate = load(leak, i)
            rest = splat(leak.dtype.type(1)) - rate
            value = fma(rate, activated(load(work, i), code), rest * load(state, i))
            store(state, i, value)
        for i in range(n_units):
            out[k, i] = state[i]


@kernel
def compact_columns(out, columns):
    """Move the given ascending columns of out (n_units, n) to its front, in place."""
    for i in range(out.shape[0]):
        row = out[i]
        for c in range(len(columns)):
            row[c] = row[columns[c]]
