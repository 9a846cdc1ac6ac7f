"""Counts of n-grams from rows of last tokens, and the tables of contexts that follow from them."""

from typing import Any, NamedTuple

import numpy as np

from esnlm.kernels import ngrams as kernels
from esnlm.ngrams.counts import estimate_discounts
from esnlm.readouts.base.last_tokens import NO_TOKEN
from esnlm.utils.arrays import Array, Arrays, Floats, Ints, Ints64, check_arrays
from esnlm.utils.state_dict import Stateful, saved

#: Parts of a text, each of which is left out of the counts where it is learned from.
N_PARTS = 8
# Rows that wait are merged when they are more than this, and than this part of what is counted.
_WAITING, _WAITING_SHARE = 1 << 20, 4
_HALF = 1 << 32


class NgramTables(NamedTuple):
    """Contexts of all lengths, each after the one without its oldest token.

    Context c is extended to the past by contexts ``children[c]`` to ``children[c + 1]``, whose
    oldest tokens (plus one; 0: none) are ``symbols``, rising; it is followed by the classes
    ``followers[pairs[c]:pairs[c + 1]]``, rising, with their ``counts``. Without part
    ``drop_parts[d]`` of the text entry e has a count smaller by ``drop_counts[d]``, d from
    ``drops[e]`` to ``drops[e + 1]``. ``discounts`` (K + 1, 3) are of counts 1, 2 and above.
    """

    children: Ints64
    symbols: Ints
    pairs: Ints64
    followers: Ints
    counts: Ints
    drops: Ints
    drop_parts: Ints
    drop_counts: Ints
    discounts: Floats


class WindowCounts(Stateful):
    """How often each window of last tokens and the next one was met in each part of a text.

    A window of ``n_last`` tokens, the class that follows and the part are one number, in which the
    part has the last digit and the newest token the first: sorted windows lie together by context.

    >>> counts = WindowCounts(2, n_tokens=3, n_classes=3)
    >>> counts.add(np.array([[1, 0], [1, 0], [0, -1]]), np.array([2, 2, 1]), np.array([0, 0, 1]))
    >>> counts.times.tolist(), counts.n_rows
    ([1, 2], 3)
    """

    _saved = saved("times", windows="halves")

    def __init__(self, n_last: int, n_tokens: int, n_classes: int) -> None:
        """Start with no windows, or raise ValueError where a window exceeds 63 bits."""
        self.n_last, self.n_tokens, self.n_classes = n_last, n_tokens, n_classes
        self._windows: Ints64 = np.empty(0, dtype=np.int64)
        self._times: Ints64 = np.empty(0, dtype=np.int64)
        self._waiting: list[Ints64] = []
        self._n_waiting = self._n_merged = 0
        most = 0
        while n_classes * N_PARTS * (n_tokens + 1) ** (most + 1) < 1 << 63:
            most += 1
        if n_last > most:
            raise ValueError(
                f"n_direct must be at most {most} with {n_tokens} tokens and {n_classes} classes"
                f" (a window is a number of 63 bits), got {n_last}"
            )

    @property
    def windows(self) -> Ints64:
        """The distinct windows and parts (n,), rising."""
        self._merge()
        return self._windows

    @property
    def halves(self) -> Array:
        """High and low 32 bits of the windows (n, 2): files hold no integers past 2^53."""
        return np.stack(np.divmod(self.windows, _HALF), axis=1).astype(np.uint32)

    @halves.setter
    def halves(self, halves: Array) -> None:
        self._windows, self._waiting, self._n_waiting = _whole(halves), [], 0

    @property
    def times(self) -> Ints:
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

    def add(self, last: Array, codes: Ints, parts: Ints) -> None:
        """Count rows of last tokens (n, n_last), newest first, their classes and parts (n,)."""
        self._waiting.append(self._numbers(last, codes) + parts)
        self._n_waiting += len(codes)
        if self._n_waiting > max(_WAITING, self._n_merged // _WAITING_SHARE):
            self._merge()

    def parts_of(self, last: Array, codes: Ints, draws: Array) -> Ints64:
        """Return a part (n,) in which each row was met, drawn by how often; -1: in none.

        ``draws`` (n,) in [0, 1) decide. Rows that were counted get the part they came in with the
        right frequencies, without its being known of each.
        """
        numbers = self._numbers(last, codes)
        windows, parts = self.windows, np.empty(len(numbers), dtype=np.int64)
        first = np.searchsorted(windows, numbers)
        kernels.draw_parts(windows, self._times, numbers, first, N_PARTS, draws, parts)
        return parts

    def _numbers(self, last: Array, codes: Ints) -> Ints64:
        """Windows (n,) as numbers, in part 0."""
        numbers = np.zeros(len(last), dtype=np.int64)
        for column in last.T:
            numbers = numbers * (self.n_tokens + 1) + (column - NO_TOKEN)
        return (numbers * self.n_classes + codes) * N_PARTS

    def _merge(self) -> None:
        if not self._waiting:
            return
        windows, times = np.unique(np.concatenate(self._waiting), return_counts=True)
        both = np.concatenate([self._windows, windows])
        self._windows, places = np.unique(both, return_inverse=True)
        self._waiting, self._n_waiting = [], 0
        both = np.concatenate([self._times, times])
        self.times = np.bincount(places, both, len(self._windows))

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        """Return ``arrays``; raise ValueError unless windows rise and all values are in range."""
        check_arrays(arrays, {"windows": "i W H", "times": "i W"}, H=2)
        if "windows" in arrays:
            windows, times = _whole(arrays["windows"]), arrays["times"]
            most = self.n_classes * N_PARTS * (self.n_tokens + 1) ** self.n_last
            rising = (windows[1:] > windows[:-1]).all()
            if len(windows) and not (rising and windows[0] >= 0 and windows[-1] < most):
                raise ValueError(f"windows must rise within [0, {most})")
            if len(times) and not 0 < times.min() <= times.max() < 1 << 31:
                raise ValueError(f"times must lie in [1, 2^31), got {times.min()} to {times.max()}")
        return arrays


def _whole(halves: Array) -> Ints64:
    """Numbers (n,) from their high and low 32 bits (n, 2)."""
    high, low = halves.astype(np.int64).T
    return high * _HALF + low


def tables_of(counted: WindowCounts) -> NgramTables:
    """Contexts of every length up to that of the windows, with Kneser-Ney's counts.

    The longest contexts count occurrences, shorter ones what stands before the n-gram; where
    nothing does, as at the beginning of a text, an occurrence counts (as in SRILM and KenLM). So a
    shorter one loses by a part what stood before it there alone.
    """
    n_symbols, n_classes = counted.n_tokens + 1, counted.n_classes
    numbers, drop_parts = np.divmod(counted.windows, N_PARTS)
    drop_counts = counted.times.astype(np.int64)
    numbers, losing = np.unique(numbers, return_inverse=True)
    counts = np.bincount(losing, drop_counts, len(numbers)).astype(np.int64)
    levels: list[dict[str, Array]] = []
    for length in range(counted.n_last, -1, -1):
        contexts, followers = np.divmod(numbers, n_classes)
        first = np.flatnonzero(np.diff(contexts, prepend=-1))
        cut_off = (contexts % n_symbols == 0) & (length > 0)
        parents, symbols = np.divmod(contexts[first], n_symbols)
        level = {
            "parents": parents,
            "symbols": symbols,
            "n_followers": np.diff(np.append(first, len(contexts))),
            "followers": followers,
            "counts": counts,
            "n_drops": np.bincount(losing, minlength=len(counts)),
            "drop_parts": drop_parts,
            "drop_counts": drop_counts,
            "discounts": np.array([estimate_discounts(counts[~cut_off], "modified")]),
        }
        levels.insert(0, level)
        if length:
            numbers = contexts // n_symbols * n_classes + followers
            numbers, places = np.unique(numbers, return_inverse=True)
            losses = np.where(cut_off[losing], drop_counts, drop_counts == counts[losing])
            counts = np.bincount(places, np.where(cut_off, counts, 1), len(numbers))
            counts = counts.astype(np.int64)
            pieces = places[losing] * N_PARTS + drop_parts
            pieces, where = np.unique(pieces[losses > 0], return_inverse=True)
            drop_counts = np.bincount(where, losses[losses > 0], len(pieces)).astype(np.int64)
            losing, drop_parts = np.divmod(pieces, N_PARTS)

    def joined(name: str, dtype: Any) -> Array:
        return np.concatenate([level[name] for level in levels]).astype(dtype)

    def starts(lengths: Array, first: int = 0) -> Ints64:
        return np.cumsum(np.concatenate([[first], lengths]))

    n_children = [
        np.diff(np.flatnonzero(np.diff(level["parents"], prepend=-1, append=-2)))
        for level in levels[1:]
    ]
    n_children.append(np.zeros(len(levels[-1]["parents"]), dtype=np.int64))
    return NgramTables(
        children=starts(np.concatenate(n_children), 1),
        symbols=joined("symbols", np.min_scalar_type(n_symbols)),
        pairs=starts(joined("n_followers", np.int64)),
        followers=joined("followers", np.min_scalar_type(n_classes)),
        counts=joined("counts", np.int32),
        drops=starts(joined("n_drops", np.int64)).astype(np.uint32),
        drop_parts=joined("drop_parts", np.int8),
        drop_counts=joined("drop_counts", np.int32),
        discounts=joined("discounts", np.float64),
    )
