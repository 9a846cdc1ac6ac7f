"""Rows that wait to be learned from."""

from typing import Self

import numpy as np

from esnlm.utils.arrays import Array, Arrays
from esnlm.utils.state_dict import Stateful


class Rows(Stateful):
    """Arrays of as many rows each, by name, collected in parts that are not to be changed.

    >>> rows = Rows("X", "codes")
    >>> rows.add(np.zeros((2, 3)), np.array([0, 1]))
    >>> rows.add(np.ones((1, 3)), np.array([2]))
    >>> rows.n, rows.joined()[1]
    (3, array([0, 1, 2]))
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        self.parts: list[tuple[Array, ...]] = []

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(len(first) for first, *_ in self.parts)

    def add(self, *arrays: Array) -> None:
        """Add rows of every array."""
        self.parts.append(arrays)

    def joined(self) -> tuple[Array, ...]:
        """Rows one after another, in memory of their own."""
        return tuple(np.concatenate(arrays) for arrays in zip(*self.parts, strict=True))

    def state_dict(self, *, training: bool = False) -> Arrays:
        """Return the joined arrays by name, or an empty dict before any rows."""
        return dict(zip(self.names, self.joined(), strict=True)) if self.parts else {}

    def load_state_dict(self, arrays: Arrays, *, training: bool = False) -> Self:
        """Replace all rows by those of ``arrays``, or by none where a name is missing."""
        known = all(name in arrays for name in self.names)
        self.parts = [tuple(arrays[name] for name in self.names)] if known else []
        return self
