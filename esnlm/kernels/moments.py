# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Compiled sums over rows of states; totals are float64, codes intp."""

import numpy as np

from esnlm.kernels.cache import kernel

_TILE = 32
_UNITS = 8


@kernel
def add_grouped_rows(sums, X, codes, first, last):
    """Add units first to last of row i of X (n, n_units) to ``sums[codes[i]]`` (V, n_units)."""
    for i in range(len(X)):
        row = sums[codes[i]]
        for j in range(first, last):
            row[j] += X[i, j]


@kernel
def add_grouped_columns(sums, X, codes, first, last):
    """As `add_grouped_rows`, some units at a time: for X in F order and fewer classes than rows."""
    n_classes = len(sums)
    total = np.empty((n_classes, _UNITS))
    whole = first + (last - first) // _UNITS * _UNITS
    for j in range(first, whole, _UNITS):
        total.fill(0)
        for i in range(len(X)):
            row = total[codes[i]]
            for u in range(_UNITS):
                row[u] += X[i, j + u]
        for c in range(n_classes):
            for u in range(_UNITS):
                sums[c, j + u] += total[c, u]
    for j in range(whole, last):
        for i in range(len(X)):
            sums[codes[i], j] += X[i, j]


@kernel
def add_upper_triangle(total, part):
    """Add the upper triangle of ``part`` (n, n) to that of ``total`` (n, n), in place.

    Both are C ordered.
    """
    n = total.shape[0]
    for i in range(n):
        for j in range(i, n):
            total[i, j] += part[i, j]


@kernel
def mirror_upper_triangle(matrix):
    """Copy the upper triangle of ``matrix`` (n, n) to its lower one, in place, by tiles."""
    n = matrix.shape[0]
    for top in range(0, n, _TILE):
        for left in range(top, n, _TILE):
            for i in range(top, min(n, top + _TILE)):
                for j in range(max(left, i + 1), min(n, left + _TILE)):
                    matrix[j, i] = matrix[i, j]
