# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Compiled row operations of softmax regression; the exponentials between them are numpy's."""

import numpy as np

from esnlm.kernels.cache import kernel

# Probabilities below exp(-60) count as zero: products of smaller ones would be denormal numbers,
# on which a matrix product runs many times slower.
LEAST_LOG = -60.0


@kernel
def shift_rows(Z):
    """Subtract each row's maximum from logits Z (n, V), in place; tiny ones become -inf."""
    for i in range(Z.shape[0]):
        row = Z[i]
        most = row[0]
        for v in range(1, row.shape[0]):
            most = max(most, row[v])
        for v in range(row.shape[0]):
            shifted = row[v] - most
            row[v] = shifted if shifted > LEAST_LOG else -np.inf


@kernel
def normalise_rows(E, sums):
    """Divide each row of E (n, V) by its sum, in place; sums (n,) receives those."""
    for i in range(E.shape[0]):
        row = E[i]
        total = row[0] * 0
        for v in range(row.shape[0]):
            total += row[v]
        sums[i] = total
        scale = 1 / total
        for v in range(row.shape[0]):
            row[v] *= scale


@kernel
def curvature_rows(P, U):
    """U (n, V) <- (diag(p) - p pᵀ) u for each row p of P (n, V), in place."""
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
