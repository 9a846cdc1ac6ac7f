"""Counts of n-grams from rows of last tokens, and the tables of contexts that follow from them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from esnlm.ngrams.counts import estimate_discounts
from esnlm.readouts.base.last_tokens import NO_TOKEN
from esnlm.utils.array_shapes import check_arrays
from esnlm.utils.arrays import Array, Arrays, Floats, Ints, Ints64
from esnlm.utils.state_dict import Stateful, saved

# Rows that wait are merged when they are more than this, and than this part of what is counted.
_WAITING, _WAITING_SHARE = 1 << 20, 4


class NgramTables(NamedTuple):
    """Contexts of all lengths, each after the one without its oldest token.

    Context c is extended to the past by contexts ``children[c]`` to ``children[c + 1]``, whose
    oldest tokens (plus one; 0: none) are ``symbols``, rising; it is followed by the classes
    ``followers[pairs[c]:pairs[c + 1]]``, rising, with their ``counts``. ``children`` and ``pairs``
    are (n_contexts + 1,) int64, ``discounts`` (K + 1, 3) of counts 1, 2 and above by length.
    """

    children: Ints64
    symbols: Ints
    pairs: Ints64
    followers: Ints
    counts: Ints
    discounts: Floats


class WindowCounts(Stateful):
    """How often each window of last tokens and the next one was met, exactly.

    A window of ``n_last`` tokens and the class that follows is one number, in which the class has
    the last digit and the newest token the first: sorted windows lie together by context.

    >>> counts = WindowCounts(2, n_tokens=3, n_classes=3)
    >>> counts.add(np.array([[1, 0], [1, 0], [0, -1]]), np.array([2, 2, 1]))
    >>> counts.times.tolist(), counts.n_rows
    ([1, 2], 3)
    """

    _saved = saved("windows", "times")

    def __init__(self, n_last: int, n_tokens: int, n_classes: int) -> None:
        self.n_last, self.n_tokens, self.n_classes = n_last, n_tokens, n_classes
        self._windows: Ints64 = np.empty(0, dtype=np.int64)
        self._times: Ints64 = np.empty(0, dtype=np.int64)
        self._waiting: list[Ints64] = []
        self._n_waiting = self._n_merged = 0
        most = 0
        while n_classes * (n_tokens + 1) ** (most + 1) < 1 << 63:
            most += 1
        if n_last > most:
            raise ValueError(
                f"n_direct must be at most {most} with {n_tokens} tokens and {n_classes} classes"
                f" (a window is a number of 63 bits), got {n_last}"
            )

    @property
    def windows(self) -> Ints64:
        """The distinct windows (n,), rising."""
        self._merge()
        return self._windows

    @windows.setter
    def windows(self, windows: Ints64) -> None:
        self._windows, self._waiting, self._n_waiting = windows, [], 0

    @property
    def times(self) -> Ints64:
        """How often each was met (n,), in the narrowest type."""
        self._merge()
        return self._times.astype(np.min_scalar_type(self._times.max(initial=0)))

    @times.setter
    def times(self, times: Array) -> None:
        self._times = times.astype(np.int64)
        self._n_merged = int(self._times.sum())

    @property
    def n_rows(self) -> int:
        """Rows counted."""
        return self._n_merged + self._n_waiting

    def add(self, last: Array, codes: Ints) -> None:
        """Count rows of last tokens (n, n_last), newest first, and their classes (n,)."""
        numbers = np.zeros(len(last), dtype=np.int64)
        for column in last.T:
            numbers = numbers * (self.n_tokens + 1) + (column - NO_TOKEN)
        self._waiting.append(numbers * self.n_classes + codes)
        self._n_waiting += len(codes)
        if self._n_waiting > max(_WAITING, self._n_merged // _WAITING_SHARE):
            self._merge()

    def _merge(self) -> None:
        if not self._waiting:
            return
        windows, times = np.unique(np.concatenate(self._waiting), return_counts=True)
        both = np.concatenate([self._windows, windows])
        self.windows, places = np.unique(both, return_inverse=True)
        both = np.concatenate([self._times, times])
        self.times = np.bincount(places, both, len(self._windows))

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        check_arrays(arrays, {"windows": "i W", "times": "i W"})
        if "windows" in arrays:
            windows, times = arrays["windows"], arrays["times"]
            most = self.n_classes * (self.n_tokens + 1) ** self.n_last
            rising = (windows[1:] > windows[:-1]).all()
            if len(windows) and not (rising and windows[0] >= 0 and windows[-1] < most):
                raise ValueError(f"windows must rise within [0, {most})")
            if len(times) and not 0 < times.min() <= times.max() < 1 << 31:
                raise ValueError(f"times must lie in [1, 2^31), got {times.min()} to {times.max()}")
        return arrays


def tables_of(counted: WindowCounts) -> NgramTables:
    """Contexts of every length up to that of the windows, with Kneser-Ney's counts.

    The longest contexts count occurrences, shorter ones what stands before the n-gram; where
    nothing does, as at the beginning of a text, an occurrence counts (as in SRILM and KenLM).
    """
    symbols_of = counted.n_tokens + 1
    contexts, followers = np.divmod(counted.windows, counted.n_classes)
    counts = counted.times.astype(np.int64)
    levels = []
    for length in range(counted.n_last, -1, -1):
        first = np.flatnonzero(np.diff(contexts, prepend=-1))
        distinct, cut_off = contexts[first], contexts % symbols_of == 0
        real = counts[~cut_off] if length else counts
        n_followers = np.diff(np.append(first, len(contexts)))
        parts = distinct // symbols_of, distinct % symbols_of, n_followers, followers, counts
        levels.append((*parts, np.array(estimate_discounts(real, "modified"))))
        if length:
            numbers = contexts // symbols_of * counted.n_classes + followers
            numbers, places = np.unique(numbers, return_inverse=True)
            passed_on = np.where(cut_off, counts, 1)
            counts = np.bincount(places, passed_on, len(numbers)).astype(np.int64)
            contexts, followers = np.divmod(numbers, counted.n_classes)
    levels.reverse()
    return _joined(levels, symbols_of, counted.n_classes)


def _joined(levels: Sequence[tuple[Array, ...]], n_symbols: int, n_classes: int) -> NgramTables:
    """The tables of contexts by length, from those of each length in their order."""
    n_children: list[Array] = []
    for parents, *_ in levels[1:]:
        n_children.append(np.diff(np.flatnonzero(np.diff(parents, prepend=-1, append=-2))))
    n_contexts = [len(parents) for parents, *_ in levels]
    n_children.append(np.zeros(n_contexts[-1], dtype=np.int64))
    _, symbols, n_followers, followers, counts, discounts = zip(*levels, strict=True)
    starts = 1 + np.cumsum(np.concatenate([[0], *n_children]))
    return NgramTables(
        children=starts,
        symbols=np.concatenate(symbols).astype(np.min_scalar_type(n_symbols)),
        pairs=np.cumsum(np.concatenate([[0], *n_followers])),
        followers=np.concatenate(followers).astype(np.min_scalar_type(n_classes)),
        counts=np.concatenate(counts).astype(np.int32),
        discounts=np.stack(discounts),
    )
