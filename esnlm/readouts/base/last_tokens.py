"""The last tokens read, as columns beside a state: what direct connections of a readout read."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Stands where there was no token, before the beginning of a text.
NO_TOKEN = -1


def last_tokens(
    tokens: NDArray[Any],
    positions: NDArray[np.int64],
    starts: NDArray[np.int64] | None,
    n_last: int,
    before: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Tokens read last at each position, the newest first: (n, n_last), `NO_TOKEN` for none.

    Parameters
    ----------
    tokens : ndarray (T,)
    positions : ndarray (n,)
        Of the tokens just read.
    starts : sorted ndarray, optional
        Positions where a sequence begins: what lies before is not its own. None: at 0 alone.
    n_last : int
    before : ndarray (n_last,), optional
        Tokens before position 0, the newest first, where no sequence begins there.

    Examples
    --------
    >>> last_tokens(np.array([5, 6, 7, 8]), np.array([0, 1, 3]), np.array([0, 2]), 2)
    array([[ 5, -1],
           [ 6,  5],
           [ 8,  7]])
    """
    first = np.zeros(len(positions), dtype=np.int64)
    if starts is not None and len(starts):
        first = starts[np.searchsorted(starts, positions, side="right") - 1]
    out = np.empty((len(positions), n_last), dtype=np.int64)
    for k in range(n_last):
        at = positions - k
        found = at >= first
        read = tokens[np.where(found, at, 0)].astype(np.int64)
        out[:, k] = np.where(found, read, NO_TOKEN)
        if before is not None:
            early = at < 0
            out[early, k] = before[-at[early] - 1]
    return out


def read_on(last: NDArray[np.int64], ids: NDArray[Any]) -> NDArray[np.int64]:
    """The last tokens (n_last,), the newest first, after more tokens ids (n,).

    Examples
    --------
    >>> read_on(np.array([3, -1]), np.array([4]))
    array([4, 3])
    """
    return np.concatenate([np.asarray(ids, dtype=np.int64)[::-1], last])[: len(last)]


def beside(states: NDArray[Any], last: NDArray[np.int64]) -> NDArray[Any]:
    """States (n, n_units) and last tokens (n, n_last) as one array, in the dtype of the states.

    float32 holds tokens up to 2^24 exactly.

    Examples
    --------
    >>> beside(np.zeros((1, 2), dtype=np.float32), np.array([[7]]))
    array([[0., 0., 7.]], dtype=float32)
    """
    return np.concatenate([states, last.astype(states.dtype)], axis=1)
