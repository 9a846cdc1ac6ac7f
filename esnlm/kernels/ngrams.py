# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Compiled Kneser-Ney distributions as what each longer context adds to the one before it."""

import numpy as np

from esnlm.kernels.cache import kernel

# Contexts are grouped by their total count (powers of two up to 2^7 and above) and by the number of
# classes that follow them (1, 2, up to 4, up to 11, more); the classes by their own count (1, 2, 3,
# 4, up to 8, more).
N_TOTALS, N_SPREADS, N_COUNTS = 8, 5, 6


@kernel
def find(values, first, end, value):
    """Return the position of ``value`` in sorted ``values[first:end]``, -1 where it is missing."""
    low, high = first, end
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low if low < end and values[low] == value else -1


@kernel
def find_contexts(last, children, symbols, contexts):
    """Find contexts of a row's last tokens (K,), newest first: ids (K + 1,), first the empty one.

    Returns the length of the longest that is known; see `NgramTables` for the other arrays.
    """
    contexts[0] = 0
    for length in range(last.shape[0]):
        if last[length] < 0:
            return length
        here = contexts[length]
        longer = find(symbols, children[here], children[here + 1], last[length] + 1)
        if longer < 0:
            return length
        contexts[length + 1] = longer
    return last.shape[0]


@kernel
def draw_parts(windows, times, queries, first, n_parts, draws, parts):
    """Draw for windows ``queries`` (n,) one of the ``parts`` (n,) they were met in; -1: in none.

    Entry e of sorted ``windows`` was met ``times[e]`` times in part ``windows[e] - queries[i]``;
    ``first`` (n,) are the places of the first of each. A part is drawn by ``draws`` (n,) in [0, 1)
    with a probability proportional to its times.
    """
    for i in range(queries.shape[0]):
        total, end = 0, first[i]
        while end < windows.shape[0] and windows[end] < queries[i] + n_parts:
            total += times[end]
            end += 1
        parts[i] = -1
        rest = draws[i] * total
        for e in range(first[i], end):
            rest -= times[e]
            if rest < 0:
                parts[i] = windows[e] - queries[i]
                break


@kernel
def kept_counts(first, end, part, counts, drops, drop_parts, drop_counts, remainder):
    """Count entries ``first`` to ``end`` without those of a part (-1: all): total, classes.

    ``remainder`` (n_classes,) receives them.
    """
    total, spread = 0, 0
    for e in range(first, end):
        count = counts[e]
        if part >= 0:
            for d in range(drops[e], drops[e + 1]):
                if drop_parts[d] == part:
                    count -= drop_counts[d]
        remainder[e - first] = count
        total += count
        spread += count > 0
    return total, spread


@kernel
def lifts(
    last, parts, children, symbols, pairs, followers, counts, drops, drop_parts, drop_counts,
    discounts, n_classes, ends, classes, values, kinds,
):  # fmt: skip
    """Set ``log p_k(v) - log p_(k-1)(v)``, up to a constant, for each of the last tokens (n, K).

    p_k is the interpolated Kneser-Ney distribution after the last k tokens, p_(-1) uniform over
    ``n_classes``. What was met in ``parts`` (n,) is left out of the counts, unless they are -1.
    ``ends`` (n,) receives where the entries of each row end: ``classes`` v, ``values`` and
    ``kinds``, which number length, total, spread and count.
    """
    contexts = np.zeros(last.shape[1] + 1, dtype=np.int64)
    remainder = np.empty(n_classes, dtype=np.int64)
    p = np.empty(n_classes)
    m = 0
    for i in range(last.shape[0]):
        longest = find_contexts(last[i], children, symbols, contexts)
        p[:] = 1 / n_classes
        for k in range(longest + 1):
            first, end = pairs[contexts[k]], pairs[contexts[k] + 1]
            total, spread = kept_counts(
                first, end, parts[i], counts, drops, drop_parts, drop_counts, remainder
            )
            if total == 0:
                break
            freed = 0.0
            for e in range(end - first):
                if remainder[e] > 0:
                    freed += discounts[k, min(remainder[e], 3) - 1]
            share = freed / total
            for v in range(n_classes):
                p[v] *= share
            size = 0
            while size < N_TOTALS - 1 and total >= 2 << size:
                size += 1
            group = min(spread, 3) - 1 if spread < 5 else 3 if spread < 12 else 4
            kind = ((k * N_TOTALS + size) * N_SPREADS + group) * N_COUNTS
            for e in range(end - first):
                count = remainder[e]
                if count > 0:
                    v = followers[first + e]
                    before = p[v]
                    p[v] += (count - discounts[k, min(count, 3) - 1]) / total
                    classes[m] = v
                    values[m] = np.log(p[v] / before)
                    kinds[m] = kind + (count - 1 if count < 5 else 4 if count < 9 else 5)
                    m += 1
        ends[i] = m


@kernel
def add_lifts(Z, ends, classes, values, kinds, trust, bias):
    """Add ``trust[kind] * value + bias[kind]`` of each entry to its logit in Z (n, V), in place."""
    e = 0
    for i in range(Z.shape[0]):
        while e < ends[i]:
            Z[i, classes[e]] += trust[kinds[e]] * values[e] + bias[kinds[e]]
            e += 1


@kernel
def add_gradients(R, ends, classes, values, kinds, trust, bias):
    """Add to gradients ``trust`` and ``bias`` (n_kinds,) those of residuals R (n, V), in place."""
    e = 0
    for i in range(R.shape[0]):
        while e < ends[i]:
            r = R[i, classes[e]]
            trust[kinds[e]] += r * values[e]
            bias[kinds[e]] += r
            e += 1
