# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Compiled steps of expectation-maximisation with softmax experts, on tiles of m rows.

Shapes: experts (K, V, m), responsibilities (K, m), codes (m,) intp. The exponentials are numpy's.
"""

import numpy as np

from esnlm.kernels.cache import kernel


@kernel
def shift_columns(logits, lowest):
    """Subtract the greatest of the V from logits (K, V, m), in place; none stays below lowest."""
    for k in range(logits.shape[0]):
        most = logits[k, 0].copy()
        for v in range(1, logits.shape[1]):
            row = logits[k, v]
            for j in range(len(row)):
                most[j] = max(most[j], row[j])
        for v in range(logits.shape[1]):
            row = logits[k, v]
            for j in range(len(row)):
                row[j] = max(row[j] - most[j], lowest)


@kernel
def normalise_columns(E):
    """Divide E (K, V, m) by its sums over V, in place."""
    for k in range(E.shape[0]):
        scale = E[k, 0].copy()
        for v in range(1, E.shape[1]):
            row = E[k, v]
            for j in range(len(row)):
                scale[j] += row[j]
        for j in range(len(scale)):
            scale[j] = 1 / scale[j]
        for v in range(E.shape[1]):
            row = E[k, v]
            for j in range(len(row)):
                row[j] *= scale[j]


@kernel(fastmath={"reassoc", "nsz"})
def weighted_residuals(experts, responsibilities, codes, residual, curvature):
    """Set residual (K V, m) to r (t - p), and curvature (K V,) to the sum over rows of r p (1 - p).

    t are one-hot targets, of ``codes``.
    """
    n_experts, n_classes, m = experts.shape
    for k in range(n_experts):
        r = responsibilities[k]
        for v in range(n_classes):
            p, out = experts[k, v], residual[k * n_classes + v]
            total = p[0] * 0
            for j in range(m):
                share = r[j] * p[j]
                out[j] = -share
                total += share * (1 - p[j])
            curvature[k * n_classes + v] = total
        for j in range(m):
            residual[k * n_classes + codes[j], j] += r[j]


@kernel
def weighted_curvature(experts, responsibilities, change):
    """Set change (K V, m) to r (diag(p) - p pᵀ) change, in place."""
    n_experts, n_classes, m = experts.shape
    mean = np.empty(m, dtype=experts.dtype)
    for k in range(n_experts):
        r = responsibilities[k]
        mean[:] = 0
        for v in range(n_classes):
            p, row = experts[k, v], change[k * n_classes + v]
            for j in range(m):
                row[j] *= p[j]
                mean[j] += row[j]
        for v in range(n_classes):
            p, row = experts[k, v], change[k * n_classes + v]
            for j in range(m):
                row[j] = (row[j] - p[j] * mean[j]) * r[j]
