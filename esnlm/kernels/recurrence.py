"""Compiled steps of a reservoir: h' = (1 - a) h + a f(W h + drive), drive = W_in u + b."""

import math
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

TANH, RELU, IDENTITY = 0, 1, 2


def smooth_tanh(x: Any) -> Any:
    """Hyperbolic tangent: rational, error 3e-7, in float32; the library's in float64."""
    return np.tanh(x)


@overload(smooth_tanh, inline="always")
def _smooth_tanh(x: Any) -> Any:
    if getattr(x, "bitwidth", 64) == 32:

        def rational(x: Any) -> Any:
            one = np.float32(7.90531110763549805)
            x = min(max(x, -one), one)
            s = x * x
            p = np.float32(-2.76076847742355e-16) * s + np.float32(2.00018790482477e-13)
            p = p * s + np.float32(-8.60467152213735e-11)
            p = p * s + np.float32(5.12229709037114e-08)
            p = p * s + np.float32(1.48572235717979e-05)
            p = p * s + np.float32(6.37261928875436e-04)
            p = p * s + np.float32(4.89352455891786e-03)
            q = np.float32(1.19825839466702e-06) * s + np.float32(1.18534705686654e-04)
            q = q * s + np.float32(2.26843463243900e-03)
            q = q * s + np.float32(4.89352518554385e-03)
            return x * p / q

        return rational

    def library(x: Any) -> Any:
        return math.tanh(x)

    return library


@njit(nogil=True, cache=True)
def run_rows(indptr, indices, data, table, rows, restart, leak, activation, state, out):  # type: ignore[no-untyped-def]
    """One stream: state (n_units,) in place, rows (n_steps,) of table, out (n_steps, n_units)."""
    n_steps, n_units = out.shape
    old = state.copy()
    one = leak.dtype.type(1)
    for k in range(n_steps):
        if restart[k]:
            old[:] = 0
        drive = table[rows[k]]
        new = out[k]
        for i in range(n_units):
            total = drive[i]
            for e in range(indptr[i], indptr[i + 1]):
                total += data[e] * old[indices[e]]
            if activation == TANH:
                total = smooth_tanh(total)
            elif activation == RELU:
                total = max(total, total * 0)
            new[i] = (one - leak[i]) * old[i] + leak[i] * total
        old[:] = new
    state[:] = old


@njit(nogil=True, cache=True)
def run_tile(indptr, indices, data, table, rows, restart, leak, activation, state, work, out):  # type: ignore[no-untyped-def]
    """A tile of streams: state (n_units, n_streams) in place, out (n_units, n_steps * n_streams).

    rows and restart (n_steps, n_streams); work has the shape of state.
    """
    n_steps, n_streams = rows.shape
    n_units = state.shape[0]
    one = leak.dtype.type(1)
    total = np.empty(n_streams, dtype=state.dtype)
    for k in range(n_steps):
        for s in range(n_streams):
            if restart[k, s]:
                state[:, s] = 0
            drive = table[rows[k, s]]
            for i in range(n_units):
                work[i, s] = drive[i]
        for i in range(n_units):
            for s in range(n_streams):
                total[s] = work[i, s]
            for e in range(indptr[i], indptr[i + 1]):
                weight = data[e]
                j = indices[e]
                for s in range(n_streams):
                    total[s] += weight * state[j, s]
            a = leak[i]
            for s in range(n_streams):
                value = total[s]
                if activation == TANH:
                    value = smooth_tanh(value)
                elif activation == RELU:
                    value = max(value, value * 0)
                value = (one - a) * state[i, s] + a * value
                work[i, s] = value
                out[i, k * n_streams + s] = value
        state[:] = work


@njit(nogil=True, cache=True)
def compact_columns(out, columns):  # type: ignore[no-untyped-def]
    """Move the given ascending columns of out (n_units, n) to its front, in place."""
    for i in range(out.shape[0]):
        row = out[i]
        for c in range(len(columns)):
            row[c] = row[columns[c]]


@njit(nogil=True, cache=True)
def all_within(values, limit):  # type: ignore[no-untyped-def]
    """Whether every entry of a two-dimensional array is a number of size at most limit."""
    fine = True
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            fine &= abs(values[i, j]) <= limit
    return fine
