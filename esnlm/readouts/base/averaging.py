"""Steps that copies of a readout took from the same weights, averaged (local SGD).

Each row is averaged over the copies that changed it. So vectors of rare words, which few copies
met, move as far as where one copy learns alone (Stich 2019). McMahan et al. (2017) average all
copies, which holds such rows back.
"""

import numpy as np

from esnlm.utils.arrays import Array, Arrays
from esnlm.utils.sums import Keyed, Sums

# Counters of steps are averaged, as their weights are; counters of rows are added.
_AVERAGED = "n_steps"


def changes(before: Arrays, after: Arrays) -> Sums:
    """Return what one copy changed, row by row: to be added to that of others.

    >>> before = {"W": np.zeros((3, 2)), "n_seen": np.array(4)}
    >>> first = changes(before, {"W": np.array([[2.0, 2], [0, 0], [4, 4]]), "n_seen": np.array(7)})
    >>> other = changes(before, {"W": np.array([[4.0, 4], [0, 0], [0, 0]]), "n_seen": np.array(6)})
    >>> after = averaged(before, first + other)
    >>> after["W"].tolist(), int(after["n_seen"])
    ([[3.0, 3.0], [0.0, 0.0], [4.0, 4.0]], 9)
    """
    plain: Arrays = {"copies": np.array(1)}
    rows: dict[str, Keyed] = {}
    for name, old in before.items():
        new = np.asarray(after[name])
        if not old.ndim:
            if old.dtype.kind in "iu":
                plain[name] = np.asarray(new - old)
        elif old.dtype.kind == "f":
            was, now = _rows(old), _rows(new)
            moved = np.flatnonzero((was != now).any(axis=1))
            rows[name] = Keyed(moved, [now[moved] - was[moved], np.ones(len(moved), dtype=int)])
    return Sums(plain, rows)


def averaged(before: Arrays, moved: Sums) -> Arrays:
    """Return the arrays after the changes of all copies."""
    after = dict(before)
    n_copies = int(moved.plain["copies"])
    for name, total in moved.plain.items():
        if name in before:
            mean = name.endswith(_AVERAGED)
            after[name] = before[name] + (round(int(total) / n_copies) if mean else total)
    for name, rows in moved.keyed.items():
        total, times = rows.values
        array = before[name].copy()
        _rows(array)[rows.keys] += total / times[:, None].astype(total.dtype)
        after[name] = array
    return after


def _rows(array: Array) -> Array:
    """Return a view (n, m) of an array: rows along its last axis, or its entries."""
    return array.reshape(-1, array.shape[-1] if array.ndim > 1 else 1)
