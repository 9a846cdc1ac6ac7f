"""Sequences that share beginnings as a tree of prefixes, so that each prefix is read once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass
class Level:
    """The distinct prefixes of one length, which is their depth in the tree.

    ``tokens`` (n,): the last token of each. ``parents`` (n,): the prefix without it, by its number
    among the prefixes of the level before that go on. ``goes_on`` (n,) bool: whether a sequence
    has more tokens. ``sequences`` (m,) and ``nodes`` (m,): the sequences of at least this length,
    and the prefix of each.
    """

    tokens: Ints
    parents: Ints
    goes_on: NDArray[np.bool_]
    sequences: Ints
    nodes: Ints


def levels(sequences: Sequence[NDArray[np.integer]]) -> Iterator[Level]:
    """Prefixes of length 1, 2, ... of sequences (n,) that are in lexicographic order.

    Examples
    --------
    >>> for level in levels([np.array([5, 1]), np.array([5, 1, 2]), np.array([5, 3])]):
    ...     print(level.tokens, level.parents, level.goes_on)
    [5] [0] [ True]
    [1 3] [0 0] [ True False]
    [2] [0] [False]
    """
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    table = np.full((len(lengths), int(lengths.max(initial=0))), -1, dtype=np.int64)
    for row, sequence in zip(table, sequences, strict=True):
        row[: len(sequence)] = sequence
    shared = np.zeros(len(lengths), dtype=np.int64)
    same = (table[1:] == table[:-1]) & (table[1:] >= 0)
    shared[1:] = np.cumprod(same, axis=1).sum(axis=1)
    numbers = np.zeros(len(lengths), dtype=np.int64)
    for depth in range(table.shape[1]):
        alive = lengths > depth
        new = alive & (shared <= depth)
        parents = numbers[new]
        nodes = np.cumsum(new) - 1
        longer = lengths > depth + 1
        goes_on = np.bincount(nodes[longer], minlength=int(new.sum())) > 0
        yield Level(table[new, depth], parents, goes_on, np.flatnonzero(alive), nodes[alive])
        numbers = (np.cumsum(goes_on) - 1)[nodes]


def in_order(sequences: Sequence[NDArray[np.integer]]) -> tuple[list[NDArray[np.int64]], Ints]:
    """The distinct sequences in lexicographic order, and the place of each one given (n,).

    Examples
    --------
    >>> ordered, places = in_order([np.array([2, 1]), np.array([2]), np.array([2, 1])])
    >>> [sequence.tolist() for sequence in ordered], places
    ([[2], [2, 1]], array([1, 0, 1]))
    """
    keys = [np.asarray(sequence).astype(">u4").tobytes() for sequence in sequences]
    distinct = sorted(set(keys))
    place = {key: k for k, key in enumerate(distinct)}
    ordered = [np.frombuffer(key, dtype=">u4").astype(np.int64) for key in distinct]
    return ordered, np.array([place[key] for key in keys], dtype=np.int64)
