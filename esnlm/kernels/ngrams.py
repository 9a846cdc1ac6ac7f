# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Compiled Kneser-Ney distributions as what each longer context adds to the one before it."""

import numba
import numpy as np

# Contexts are told apart by how often they were met (powers of two up to 2^7 and above) and by how
# many classes follow them (1, 2, up to 4, up to 11, more); these by their count (1, 2, 3, 4, up to
# 8, more).
N_TOTALS, N_SPREADS, N_COUNTS = 8, 5, 6


@numba.njit(nogil=True, cache=True)
def find(values, first, end, wanted):
    """Position of ``wanted`` in the sorted ``values[first:end]``, -1 where it is missing."""
    low, high = first, end
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < end and values[low] == wanted else -1


@numba.njit(nogil=True, cache=True)
def find_contexts(last, children, symbols, contexts):
    """Contexts of a row's last tokens (K,), newest first: ids (K + 1,), the empty one first.

    Returns the length of the longest that is known; see `NgramTables` for the other arrays.
    """
    contexts[0] = 0
    for length in range(last.shape[0]):
        if last[length] < 0:
            return length
        here = contexts[length]
        found = find(symbols, children[here], children[here + 1], last[length] + 1)
        if found < 0:
            return length
        contexts[length + 1] = found
    return last.shape[0]


@numba.njit(nogil=True, cache=True)
def left_out(longest, contexts, target, pairs, followers, counts, less):
    """Mark in ``less`` (K + 1,) the contexts in which one occurrence of the target is not counted.

    Only the longest context counts occurrences; a shorter one counts what stands before it, and
    has one less where the longer one has nothing left.
    """
    less[:] = 0
    for length in range(longest, -1, -1):
        here = contexts[length]
        found = find(followers, pairs[here], pairs[here + 1], target)
        if found >= 0:
            less[length] = 1
            if counts[found] > 1:
                return


@numba.njit(nogil=True, cache=True)
def lifts(
    last, targets, children, symbols, pairs, followers, counts, discounts, n_classes,
    ends, classes, values, kinds,
):  # fmt: skip
    """What contexts add, ``log p_k(v) - log p_(k-1)(v)`` up to a constant, of last tokens (n, K).

    p_k is the interpolated Kneser-Ney distribution after the last k tokens, p_(-1) uniform over
    ``n_classes``. Where targets (n,) are not -1, one occurrence of each after its own tokens is
    left out of the counts. ``ends`` (n,) receives where the entries of each row end: ``classes``
    v, ``values`` and ``kinds``, which number length, total,
    spread and count.
    """
    n_last = last.shape[1]
    contexts = np.zeros(n_last + 1, dtype=np.int64)
    less = np.zeros(n_last + 1, dtype=np.int64)
    p = np.empty(n_classes)
    m = 0
    for i in range(last.shape[0]):
        longest = find_contexts(last[i], children, symbols, contexts)
        less[:] = 0
        if targets[i] >= 0:
            left_out(longest, contexts, targets[i], pairs, followers, counts, less)
        p[:] = 1 / n_classes
        for k in range(longest + 1):
            first, end = pairs[contexts[k]], pairs[contexts[k] + 1]
            total, spread, freed = 0, 0, 0.0
            for e in range(first, end):
                count = counts[e] - (less[k] if followers[e] == targets[i] else 0)
                total += count
                if count > 0:
                    spread += 1
                    freed += discounts[k, min(count, 3) - 1]
            if total == 0:
                continue
            share = freed / total
            for v in range(n_classes):
                p[v] *= share
            size = 0
            while size < N_TOTALS - 1 and total >= 2 << size:
                size += 1
            group = min(spread, 3) - 1 if spread < 5 else 3 if spread < 12 else 4
            kind = ((k * N_TOTALS + size) * N_SPREADS + group) * N_COUNTS
            for e in range(first, end):
                v = followers[e]
                count = counts[e] - (less[k] if v == targets[i] else 0)
                if count > 0:
                    before = p[v]
                    p[v] += (count - discounts[k, min(count, 3) - 1]) / total
                    classes[m] = v
                    values[m] = np.log(p[v] / before)
                    kinds[m] = kind + (count - 1 if count < 5 else 4 if count < 9 else 5)
                    m += 1
        ends[i] = m


@numba.njit(nogil=True, cache=True)
def add_lifts(Z, ends, classes, values, kinds, trust, bias):
    """Add ``trust[kind] * value + bias[kind]`` of each entry to its logit in Z (n, V), in place."""
    e = 0
    for i in range(Z.shape[0]):
        while e < ends[i]:
            Z[i, classes[e]] += trust[kinds[e]] * values[e] + bias[kinds[e]]
            e += 1


@numba.njit(nogil=True, cache=True)
def add_gradients(R, ends, classes, values, kinds, trust, bias):
    """Add to gradients ``trust`` and ``bias`` (n_kinds,) those of residuals R (n, V), in place."""
    e = 0
    for i in range(R.shape[0]):
        while e < ends[i]:
            r = R[i, classes[e]]
            trust[kinds[e]] += r * values[e]
            bias[kinds[e]] += r
            e += 1
