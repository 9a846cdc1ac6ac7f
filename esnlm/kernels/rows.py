# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Compiled operations on rows: sums of states by class, and softmax regression.

Totals are float64, codes intp. The exponentials of softmax regression are numpy's.
"""

import numpy as np

from esnlm.kernels.cache import kernel

_TILE = 32
_UNITS = 8
# Sums and maxima of so many columns side by side: one alone waits for its last addition.
_LANES = 4
# Probabilities below exp(-60) count as zero: products of smaller ones would be denormal numbers,
# on which a matrix product runs many times slower.
LEAST_LOG = -60.0


@kernel
def shift_rows(Z):
    """Subtract each row's maximum from logits Z (n, V), in place; tiny ones become -inf."""
    whole = Z.shape[1] // _LANES * _LANES
    largest = np.empty(_LANES, dtype=Z.dtype)
    for i in range(Z.shape[0]):
        row = Z[i]
        largest[:] = row[0]
        for v in range(0, whole, _LANES):
            for u in range(_LANES):
                largest[u] = max(largest[u], row[v + u])
        most = row[-1]
        for v in range(whole, row.shape[0]):
            most = max(most, row[v])
        for u in range(_LANES):
            most = max(most, largest[u])
        for v in range(row.shape[0]):
            shifted = row[v] - most
            row[v] = shifted if shifted > LEAST_LOG else -np.inf


@kernel
def normalise_rows(E):
    """Divide each row of E (n, V) by its sum, in place."""
    whole = E.shape[1] // _LANES * _LANES
    sums = np.empty(_LANES, dtype=E.dtype)
    for i in range(E.shape[0]):
        row = E[i]
        sums[:] = 0
        for v in range(0, whole, _LANES):
            for u in range(_LANES):
                sums[u] += row[v + u]
        total = row[0] * 0
        for u in range(_LANES):
            total += sums[u]
        for v in range(whole, row.shape[0]):
            total += row[v]
        scale = 1 / total
        for v in range(row.shape[0]):
            row[v] *= scale


@kernel
def residual_rows(E, targets, residual, losses):
    """Divide rows of E (n, V) by their sums, in place: probabilities p of ``targets`` (n,).

    ``residual`` (n, V) receives p less one at the target, ``losses`` (n,) the target's -log p, 1e4
    where p is zero.
    """
    normalise_rows(E)
    for i in range(E.shape[0]):
        row, rest = E[i], residual[i]
        for v in range(row.shape[0]):
            rest[v] = row[v]
        p = row[targets[i]]
        losses[i] = -np.log(p) if p > 0 else 1e4
        rest[targets[i]] = p - 1


@kernel
def discount_rows(residual, targets, shares, backoff):
    """Make residuals (n, V) those of targets (n,) whose ``shares`` (n,) go to ``backoff`` (V,)."""
    for i in range(residual.shape[0]):
        row, share = residual[i], shares[i]
        for v in range(row.shape[0]):
            row[v] -= share * backoff[v]
        row[targets[i]] += share


@kernel
def curvature_rows(P, U):
    """Set U (n, V) to (diag(p) - p pᵀ) u for each row p of P (n, V), in place."""
    for i in range(P.shape[0]):
        p, u = P[i], U[i]
        mean = p[0] * 0
        for v in range(p.shape[0]):
            mean += p[v] * u[v]
        for v in range(p.shape[0]):
            u[v] = p[v] * (u[v] - mean)


@kernel
def add_class_variances(total, P):
    """Add the sum over rows of p (1 - p) of P (n, V) to total (V,), in place."""
    for i in range(P.shape[0]):
        row = P[i]
        for v in range(row.shape[0]):
            total[v] += row[v] * (1 - row[v])


@kernel
def add_grouped_rows(sums, X, codes, first, last):
    """Add units first to last of row i of X (n, n_units) to ``sums[codes[i]]`` (V, n_units)."""
    for i in range(len(X)):
        row = sums[codes[i]]
        for j in range(first, last):
            row[j] += X[i, j]


@kernel
def add_grouped_columns(sums, X, codes, first, last):
    """Do as `add_grouped_rows`, some units at a time: X in F order, fewer classes than rows."""
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
