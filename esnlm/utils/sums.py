"""Sums over the rows of a corpus that were made apart, part by part, and are added in pairs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, TypeAlias, TypeVar

import numpy as np

from esnlm.utils.arrays import Array, Arrays, Tokens

T = TypeVar("T")
Item = TypeVar("Item")
#: ``reduce(name, function, options, items, done)`` adds ``function(options, item)`` of all items in
#: the tree of `in_pairs`. Tasks are shown by the name; ``done`` is called with each finished item.
Reduce: TypeAlias = Callable[..., Any]
# Bytes of rows that are added before the next ones.
_CACHED = 1 << 19


def union(a: Tokens, b: Tokens) -> Tokens:
    """Return the distinct numbers of two sorted arrays, sorted: runs are merged, not sorted anew.

    >>> union(np.array([1, 4]), np.array([2, 4]))
    array([1, 2, 4])
    """
    both = np.concatenate((a, b))
    both.sort(kind="stable")
    return both[np.append(True, both[1:] != both[:-1])[: len(both)]]


@dataclass(frozen=True)
class Keyed:
    """Rows of ``values``, arrays (k, ...) each, by sorted ``keys`` (k,); rows left out are zero.

    >>> a, b = Keyed(np.array([1, 4]), [np.array([2, 3])]), Keyed(np.array([4]), [np.array([5])])
    >>> (a + b).keys.tolist(), (a + b).values[0].tolist()
    ([1, 4], [2, 8])
    """

    keys: Tokens
    values: Sequence[Array]

    def __add__(self, other: "Keyed") -> "Keyed":
        keys = union(self.keys, other.keys)
        here, there = (np.searchsorted(keys, each.keys) for each in (self, other))
        pairs = zip(self.values, other.values, strict=True)
        return Keyed(keys, [_added(len(keys), here, a, there, b) for a, b in pairs])


def _added(n: int, here: Tokens, a: Array, there: Tokens, b: Array) -> Array:
    """Return zeros (n, ...) plus ``a`` at the rows ``here`` and ``b`` at ``there``, both sorted."""
    total = np.zeros((n, *a.shape[1:]), dtype=a.dtype)
    # A few rows at a time, which stay in the cache from one step to the next.
    at_once = max(1, _CACHED // max(1, total[:1].nbytes))
    firsts = range(0, n, at_once)
    ends = [np.searchsorted(places, (*firsts, n)) for places in (here, there)]
    for number, first in enumerate(firsts):
        of_a, of_b = (slice(*end[number : number + 2]) for end in ends)
        block = total[first : first + at_once]
        block[here[of_a] - first] = a[of_a]
        block[there[of_b] - first] += b[of_b]
    return total


@dataclass(frozen=True)
class Sums:
    """Arrays that are added entry by entry, and rows that are added by their keys.

    Nothing is changed in place: a sum that was sent to another process may be sent again.
    """

    plain: Arrays = field(default_factory=dict)
    keyed: Mapping[str, Keyed] = field(default_factory=dict)

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            {name: np.asarray(array + other.plain[name]) for name, array in self.plain.items()},
            {name: rows + other.keyed[name] for name, rows in self.keyed.items()},
        )

    def __sizeof__(self) -> int:
        rows = [array for each in self.keyed.values() for array in (each.keys, *each.values)]
        return sum(int(array.nbytes) for array in (*self.plain.values(), *rows))


@dataclass(frozen=True)
class Total:
    """Numbers and arrays that are added place by place in double precision; None stays None."""

    values: tuple[Any, ...]

    def __add__(self, other: "Total") -> "Total":
        pairs = zip(self.values, other.values, strict=True)
        return Total(tuple(None if a is None else np.add(a, b, dtype=float) for a, b in pairs))

    def __sizeof__(self) -> int:
        return sum(int(np.asarray(value).nbytes) for value in self.values)


def in_pairs(n: int, leaf: Callable[[int], T], add: Callable[[T, T], T]) -> T:
    """Reduce ``leaf(0)`` to ``leaf(n - 1)`` in pairs: neighbours, then pairs of neighbours, ...

    The tree depends on n alone, so that sums of floats do too; at most log2(n) + 1 of them wait.

    >>> in_pairs(5, str, lambda a, b: f"({a}{b})")
    '(((01)(23))4)'
    """

    def over(first: int, count: int) -> T:
        if count == 1:
            return leaf(first)
        left = 1 << (count - 1).bit_length() - 1
        return add(over(first, left), over(first + left, count - left))

    return over(0, n)


def runs(n: int, most: int) -> list[range]:
    """Return at most ``most`` runs of ``n`` neighbours that the tree of `in_pairs` adds first.

    >>> runs(5, 3), runs(5, 1)
    ([range(0, 2), range(2, 4), range(4, 5)], [range(0, 5)])
    """
    size = 1
    while n > size * most:
        size *= 2
    return [range(first, min(first + size, n)) for first in range(0, n, size)]


def reduce_here(
    name: str,
    function: Callable[[Any, Item], T],
    options: Any,
    items: Sequence[Item],
    progress: Callable[[Item], None] = lambda item: None,
) -> T:
    """Apply a `Reduce` in this process, one item after the other.

    >>> reduce_here("squares", lambda options, item: options * item**2, 2, [1, 2, 3])
    28
    """

    def leaf(number: int) -> T:
        total = function(options, items[number])
        progress(items[number])
        return total

    return in_pairs(len(items), leaf, add)
