# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Compiled steps of Adam for the vectors of tokens that a batch has read."""

import numpy as np

from esnlm.kernels.cache import kernel


@kernel(error_model="numpy")
def adam_rows(table, first, second, ids, order, gradients, betas, rate, epsilon):
    """Take a step of Adam with the rows of table (V, D) that have a gradient, in place.

    Row i of gradients (n, D) is one of row ``ids[i]``; those of one row add up. ``order`` (n,)
    sorts ids. ``first`` and ``second`` (V, D) are the moments, ``rate`` has their corrections.
    """
    rest = 1 - betas
    total = np.empty(table.shape[1], table.dtype)
    place = 0
    while place < len(order):
        row = ids[order[place]]
        total[:] = gradients[order[place]]
        place += 1
        while place < len(order) and ids[order[place]] == row:
            gradient = gradients[order[place]]
            for j in range(len(total)):
                total[j] += gradient[j]
            place += 1
        weight, m, v = table[row], first[row], second[row]
        for j in range(len(total)):
            g = total[j]
            m[j] += rest[0] * (g - m[j])
            v[j] += rest[1] * (g * g - v[j])
            weight[j] -= rate * m[j] / (np.sqrt(v[j]) + epsilon)


@kernel(error_model="numpy")
def decayed_sums(values, decay, ends, backwards):
    """Add to each row of values (n, N) the one before it times decay (N,), in place, in order.

    ``ends`` (n_seq,) are the places after the last row of each sequence, whose first row stays.
    ``backwards``: from the last row of a sequence to the first, which is the gradient of the sums.
    """
    first = 0
    for end in ends:
        for step in range(1, end - first):
            row = values[end - 1 - step if backwards else first + step]
            before = values[end - step if backwards else first + step - 1]
            for j in range(len(decay)):
                row[j] += decay[j] * before[j]
        first = end
