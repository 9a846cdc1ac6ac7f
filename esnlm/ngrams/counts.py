"""Counts of n-grams as sorted integer keys, and the discounts estimated from them."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.integer[Any]]

#: Discounts where the counts of counts are too few to estimate them (as KenLM falls back).
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)


class Table:
    """All k-grams of one order, sorted by context and then by token.

    ``keys`` (n_grams,) int64: context * n_tokens + token, where the context is the position of
    the (k - 1)-gram in its own table (its token for k = 2, 0 for k = 1). ``counts`` (n_grams,)
    int32. ``discounts`` (3,): of counts 1, 2 and above. ``totals`` (n_contexts,) float64:
    c(context). ``left_over`` (n_contexts,) float64: weight of the next shorter context, from the
    mass that discounts free (Chen & Goodman, 4.31); 1 where nothing follows.
    """

    def __init__(
        self, keys: Ints, counts: Ints, discounts: Floats, n_contexts: int, n_tokens: int
    ) -> None:
        self.keys, self.counts, self.discounts = keys, counts.astype(np.int32), discounts
        contexts = keys // n_tokens
        self.totals = np.bincount(contexts, counts, n_contexts).astype(np.float64)
        taken = discounts[np.minimum(counts, 3) - 1]
        freed = np.bincount(contexts, weights=taken, minlength=n_contexts)
        self.left_over = np.ones(n_contexts)
        np.divide(freed, self.totals, out=self.left_over, where=self.totals > 0)

    def own(self, ids: Ints, contexts: Ints) -> Floats:
        """(c - D(c)) / c(context) of the n-grams ``ids`` (n,), 0 where an id is -1."""
        result = np.zeros(len(ids))
        seen = np.flatnonzero(ids >= 0)
        counts = self.counts[ids[seen]]
        kept = counts - self.discounts[np.minimum(counts, 3) - 1]
        result[seen] = kept / self.totals[contexts[seen]]
        return result


def next_order(
    ids: Ints, tokens: Ints, offsets: Ints, order: int, n_tokens: int
) -> tuple[Ints, Ints]:
    """Distinct keys of the n-grams of ``order``, and which one ends at each position (or -1).

    ``ids`` (T,) are the n-grams one shorter that end at each position: the context is at t - 1.
    """
    ends = np.flatnonzero(offsets >= order - 1)
    keys = ids[ends - 1].astype(np.int64) * n_tokens + tokens[ends]
    by_key = np.argsort(keys)
    keys = keys[by_key]
    first = np.empty(len(keys), dtype=bool)
    first[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    longer = np.full(len(tokens), -1, dtype=np.int32)
    longer[ends[by_key]] = np.cumsum(first, dtype=np.int32) - 1
    return keys[first], longer


def estimate_discounts(counts: Ints, kind: str) -> tuple[float, float, float]:
    """Discounts of counts 1, 2 and above, from the numbers of n-grams counted 1 to 4 times.

    ``kind`` "modified": three (Chen & Goodman, equation 4.33); "single": one for all.
    """
    n1, n2, n3, n4 = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].astype(float)
    if not (n1 and n2):
        return FALLBACK_DISCOUNTS if kind == "modified" else (0.5, 0.5, 0.5)
    share = n1 / (n1 + 2 * n2)
    if kind == "single":
        return share, share, share
    if not n3:
        return FALLBACK_DISCOUNTS
    found = (1 - 2 * share * n2 / n1, 2 - 3 * share * n3 / n2, 3 - 4 * share * n4 / n3)
    usable = all(0 < discount < count for count, discount in enumerate(found, start=1))
    return found if usable else FALLBACK_DISCOUNTS


def find(keys: Ints, wanted: Ints) -> Ints:
    """Positions of ``wanted`` in the sorted ``keys``, -1 where missing.

    >>> find(np.array([2, 5, 9]), np.array([5, 6]))
    array([ 1, -1])
    """
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.searchsorted(keys, wanted)
    np.minimum(at, len(keys) - 1, out=at)
    return np.where(keys[at] == wanted, at, -1)


def places(starts: Ints, n: int, order: int) -> NDArray[np.int16]:
    """Place (n,) of each token in its document, cut at ``order``.

    >>> places(np.array([0, 4]), 6, 3)
    array([0, 1, 2, 3, 0, 1], dtype=int16)
    """
    offsets = np.full(n, order, dtype=np.int16)
    for place in reversed(range(order)):  # a shorter document's end gives way to the next start
        inside = starts + place
        offsets[inside[inside < n]] = place
    return offsets
