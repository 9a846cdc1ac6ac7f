"""The last tokens read, as columns beside a state: the input of direct connections."""

import numpy as np

from esnlm.utils.arrays import Array, Ints64

#: In place of a token before the beginning of a text.
NO_TOKEN = -1


def last_tokens(
    tokens: Array,
    positions: Ints64,
    starts: Ints64 | None,
    n_last: int,
    before: Ints64 | None = None,
) -> Ints64:
    """Tokens read last at positions (n,), the newest first: (n, n_last), `NO_TOKEN` for none.

    Tokens before a start (sorted positions where a sequence begins; None: 0 alone) do not belong
    to its sequence. ``before`` (n_last,) are those before position 0 where none begins there.
    """
    first = np.zeros(len(positions), dtype=np.int64)
    if starts is not None and len(starts):
        first = starts[np.searchsorted(starts, positions, side="right") - 1]
    out = np.empty((len(positions), n_last), dtype=np.int64)
    for k in range(n_last):
        at = positions - k
        inside = at >= first
        out[:, k] = np.where(inside, tokens[np.where(inside, at, 0)].astype(np.int64), NO_TOKEN)
        if before is not None:
            early = at < 0
            out[early, k] = before[-at[early] - 1]
    return out


def append_tokens(last: Ints64, ids: Array) -> Ints64:
    """Return the last tokens (n_last,), the newest first, after more tokens ids (n,).

    >>> append_tokens(np.array([3, -1]), np.array([4]))
    array([4, 3])
    """
    return np.concatenate([np.asarray(ids, dtype=np.int64)[::-1], last])[: len(last)]


def n_state_columns(n_columns: int, n_direct: int) -> int:
    """Return the columns beside those of last tokens; ValueError where there are none."""
    if n_columns <= n_direct:
        raise ValueError(
            f"X must have states beside the {n_direct} columns of last tokens, got {n_columns}"
            " columns"
        )
    return n_columns - n_direct


def split_last_tokens(X: Array, n_direct: int, n_tokens: int) -> tuple[Array, Ints64]:
    """States (n, n_units) and last tokens (n, n_direct), which are the last columns of X.

    >>> states, last = split_last_tokens(np.array([[0.5, 3.0, -1.0]]), 2, 10)
    >>> states.tolist(), last.tolist()
    ([[0.5]], [[3, -1]])
    """
    if not n_direct:
        return X, np.empty((len(X), 0), dtype=np.int64)
    n_state_columns(X.shape[1], n_direct)
    columns = X[:, -n_direct:]
    last = columns.astype(np.int64)
    if (last != columns).any() or (last < NO_TOKEN).any() or (last >= n_tokens).any():
        raise ValueError(
            f"the last {n_direct} columns of X must be tokens, whole numbers from"
            f" {NO_TOKEN} (none) to {n_tokens - 1}, got {columns.min()} to {columns.max()}"
        )
    return X[:, :-n_direct], last
