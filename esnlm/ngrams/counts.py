"""Counts of n-grams as sorted integer keys, and the discounts estimated from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from esnlm.utils.sums import union

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
        discounted = discounts[np.minimum(counts, 3) - 1]
        freed = np.bincount(contexts, weights=discounted, minlength=n_contexts)
        self.left_over = np.ones(n_contexts)
        np.divide(freed, self.totals, out=self.left_over, where=self.totals > 0)

    def own(self, ids: Ints, contexts: Ints) -> Floats:
        """Return (c - D(c)) / c(context) of the n-grams ``ids`` (n,), 0 where an id is -1."""
        result = np.zeros(len(ids))
        positions = np.flatnonzero(ids >= 0)
        counts = self.counts[ids[positions]]
        masses = counts - self.discounts[np.minimum(counts, 3) - 1]
        result[positions] = masses / self.totals[contexts[positions]]
        return result


@dataclass(frozen=True)
class NgramCounts:
    """The distinct n-grams of a text, to be added to those of other texts.

    ``keys`` are those of `Table`, for each order; the context of a pair is its first token itself.
    ``at_start``: how often a document began with them, of the orders from the second to the last
    but one. ``n_longest``: how often those of the longest order occurred.
    """

    n_tokens: int
    keys: list[Ints]
    at_start: list[Ints]
    n_longest: Ints

    @classmethod
    def of(cls, tokens: Ints, offsets: Ints, order: int, n_tokens: int) -> Self:
        """Count tokens (T,), whose `places` in their documents are the offsets (T,)."""
        keys: list[Ints] = [np.unique(tokens[offsets > 0]).astype(np.int64)]
        at_start: list[Ints] = []
        ids: Ints = tokens.astype(np.int32)
        for k in range(2, order + 1):
            if k > 2:
                at_start.append(_counted(ids[offsets == k - 2], len(keys[-1])))
            longer, ids = next_order(ids, tokens, offsets, k, n_tokens)
            keys.append(longer)
        ending = ids[offsets >= max(order - 1, 1)]
        if order == 1:
            ending = np.searchsorted(keys[0], ending)
        return cls(n_tokens, keys, at_start, _counted(ending, len(keys[-1])))

    def __add__(self, other: Self) -> Self:
        """Return the counts of both texts together, over the union of their n-grams."""
        tables: list[Ints] = [union(self.keys[0], other.keys[0])]
        places = [np.searchsorted(tables[0], each.keys[0]) for each in (self, other)]
        at_start = []
        for k in range(1, len(self.keys)):
            keys = [each.keys[k] for each in (self, other)]
            if k > 1:  # contexts by their places in the table of both
                for i, where in enumerate(places):
                    contexts, tokens = np.divmod(keys[i], self.n_tokens)
                    keys[i] = where[contexts] * self.n_tokens + tokens
            tables.append(union(*keys))
            places = [np.searchsorted(tables[-1], each) for each in keys]
            if 0 < k < len(self.keys) - 1:
                both = self.at_start[k - 1], other.at_start[k - 1]
                at_start.append(_scattered(places, both, len(tables[-1])))
        longest = _scattered(places, (self.n_longest, other.n_longest), len(tables[-1]))
        return type(self)(self.n_tokens, tables, at_start, longest)

    def types(self) -> Iterator[tuple[Ints, Ints, int]]:
        """Yield keys, counts and number of contexts of each order, as `KneserNey` takes them.

        Shorter n-grams count the tokens that they were met after, and documents they begin.
        """
        n_contexts, last = 1, len(self.keys) - 1
        below: Ints = np.empty(0, dtype=np.int64)  # of each n-gram, the one less its first token
        for k, keys in enumerate(self.keys):
            if k == last:
                yield keys, self.n_longest, n_contexts
                return
            contexts, tokens = np.divmod(self.keys[k + 1], self.n_tokens)
            size = len(keys) if k else self.n_tokens
            if k == 0:
                below = tokens
            else:
                tokens += below[contexts].astype(np.int64) * self.n_tokens
                below = _places_in(keys, tokens)
            del contexts, tokens
            counts = _counted(below, size)
            yield keys, counts + self.at_start[k - 1] if k else counts[keys], n_contexts
            n_contexts = size

    def __sizeof__(self) -> int:
        return sum(int(a.nbytes) for a in (*self.keys, *self.at_start, self.n_longest))


def _places_in(keys: Ints, queries: Ints) -> Ints:
    """Return the positions of ``queries``, which all are there, in the sorted ``keys``.

    In their order, so that each search begins near where the one before ended.
    """
    by_key = np.argsort(queries)
    positions = np.empty(len(queries), dtype=np.int32)
    positions[by_key] = np.searchsorted(keys, queries[by_key])
    return positions


def _counted(ids: Ints, size: int) -> Ints:
    """Count how often each of ``size`` ids occurs, in half of what `numpy.bincount` holds."""
    return np.bincount(ids, minlength=size).astype(np.int32)


def _scattered(places: Sequence[Ints], counts: Sequence[Ints], size: int) -> Ints:
    """Return the sum (size,) of counts that stand at these places."""
    total = np.zeros(size, dtype=np.int32)
    for where, each in zip(places, counts, strict=True):
        total[where] += each
    return total


def next_order(
    ids: Ints, tokens: Ints, offsets: Ints, order: int, n_tokens: int
) -> tuple[Ints, Ints]:
    """Return the keys of n-grams of ``order``, and which one ends at each position (or -1).

    ``ids`` (T,) are the n-grams one shorter that end at each position: the context is at t - 1.
    """
    ends = np.flatnonzero(offsets >= order - 1)
    # With integers of 64 bits without a sign the sum would be a float.
    keys = ids[ends - 1].astype(np.int64) * n_tokens + tokens[ends].astype(np.int64)
    by_key = np.argsort(keys)
    keys = keys[by_key]
    first = np.empty(len(keys), dtype=bool)
    first[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    longer = np.full(len(tokens), -1, dtype=np.int32)
    longer[ends[by_key]] = np.cumsum(first, dtype=np.int32) - 1
    return keys[first], longer


def estimate_discounts(counts: Ints, kind: str) -> tuple[float, float, float]:
    """Estimate discounts of counts 1, 2 and above from how many n-grams counted 1 to 4 times.

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
    estimates = (1 - 2 * share * n2 / n1, 2 - 3 * share * n3 / n2, 3 - 4 * share * n4 / n3)
    usable = all(0 < discount < count for count, discount in enumerate(estimates, start=1))
    return estimates if usable else FALLBACK_DISCOUNTS


def find(keys: Ints, queries: Ints) -> Ints:
    """Return the positions of ``queries`` in the sorted ``keys``, -1 where missing.

    >>> find(np.array([2, 5, 9]), np.array([5, 6]))
    array([ 1, -1])
    """
    if not len(keys):
        return np.full(len(queries), -1, dtype=np.int64)
    at = np.searchsorted(keys, queries)
    np.minimum(at, len(keys) - 1, out=at)
    return np.where(keys[at] == queries, at, -1)


def find_contexts(
    tables: Sequence[Ints], contexts: Sequence[Ints], n_tokens: int
) -> Iterator[Ints]:
    """Yield, for each length from 1, the positions (n,) of the last tokens of n contexts.

    They are those in the sorted keys of that order, -1 where a context is missing or shorter.
    """
    longest = min(len(tables) - 1, max(map(len, contexts), default=0))
    last = np.full((len(contexts), longest), -1, dtype=np.int64)
    for row, context in zip(last, contexts, strict=True):
        n = min(longest, len(context))
        row[longest - n :] = context[len(context) - n :]
    for length in range(1, longest + 1):
        ids: Ints = last[:, longest - length]
        for keys, words in zip(tables[1:], last.T[longest - length + 1 :], strict=False):
            ids = find(keys, ids * n_tokens + words)  # below zero, and in no table, after a -1
        yield ids


def followers(keys: Ints, contexts: Ints, n_tokens: int) -> tuple[Ints, Ints]:
    """Return the n-grams (m,) of contexts (n,), and the place among these of each one's context.

    >>> followers(np.array([1, 7, 8]), np.array([1, 0]), 5)
    (array([1, 2, 0]), array([0, 0, 1]))
    """
    firsts, ends = np.searchsorted(keys, [contexts * n_tokens, (contexts + 1) * n_tokens])
    sizes = ends - firsts
    owners = np.repeat(np.arange(len(contexts)), sizes)
    return np.arange(len(owners)) + np.repeat(ends - np.cumsum(sizes), sizes), owners


def find_ngrams(
    tables: Sequence[Ints], tokens: Ints, offsets: Ints, n_tokens: int
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield, for each order from 2, what the sorted keys of all orders know of tokens (T,) int64.

    ``positions`` (n,): positions whose context is in the table one shorter. ``contexts`` (n,): its
    position there. ``ids`` (n,): position of the n-gram that ends at the token, or -1.
    """
    last = tokens
    for order, keys in enumerate(tables[1:], start=2):
        contexts = np.concatenate([[-1], last[:-1]])
        contexts[offsets < order - 1] = -1
        positions = np.flatnonzero(contexts >= 0)
        ids = find(keys, contexts[positions] * n_tokens + tokens[positions])
        last = np.full(len(tokens), -1, dtype=np.int64)
        last[positions] = ids
        yield positions, contexts[positions], ids


def places(starts: Ints, n: int, order: int) -> NDArray[np.int16]:
    """Return the place (n,) of each token in its document, cut at ``order``.

    >>> places(np.array([0, 4]), 6, 3)
    array([0, 1, 2, 3, 0, 1], dtype=int16)
    """
    offsets = np.full(n, order, dtype=np.int16)
    for place in reversed(range(order)):  # a shorter document's end gives way to the next start
        inside = starts + place
        offsets[inside[inside < n]] = place
    return offsets
