# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Compiled sums and steps of direct connections: rows of tables, picked by number."""

import numpy as np

from esnlm.kernels.cache import kernel


@kernel
def add_rows(Z, table, rows, places):
    """Add ``table[rows[i]]`` to ``Z[places[i]]`` for every i, in place: both (., P)."""
    for i in range(len(rows)):
        total, row = Z[places[i]], table[rows[i]]
        for j in range(len(total)):
            total[j] += row[j]


# Without a check of divisors, which would keep the loop from vector code.
@kernel(error_model="numpy")
def adagrad_rows(table, squares, rows, places, order, gradient, rate, least_root):
    """Take a step of AdaGrad on rows of a table (n, P), in place.

    The gradient of row ``rows[i]`` is the sum of its ``gradient[places[i]]``. ``order`` sorts
    rows; ``squares`` (n, P) are sums of squared gradients.
    """
    total = np.empty(table.shape[1], dtype=table.dtype)
    i = 0
    while i < len(order):
        number = rows[order[i]]
        total[:] = gradient[places[order[i]]]
        i += 1
        while i < len(order) and rows[order[i]] == number:
            part = gradient[places[order[i]]]
            for j in range(len(total)):
                total[j] += part[j]
            i += 1
        row, square = table[number], squares[number]
        for j in range(len(total)):
            square[j] += total[j] * total[j]
            row[j] -= rate * (total[j] / (np.sqrt(square[j]) + least_root))
