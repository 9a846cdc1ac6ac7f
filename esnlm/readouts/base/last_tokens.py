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
        found = at >= first
        out[:, k] = np.where(found, tokens[np.where(found, at, 0)].astype(np.int64), NO_TOKEN)
        if before is not None:
            early = at < 0
            out[early, k] = before[-at[early] - 1]
    return out


def read_on(last: Ints64, ids: Array) -> Ints64:
    """The last tokens (n_last,), the newest first, after more tokens ids (n,).

    >>> read_on(np.array([3, -1]), np.array([4]))
    array([4, 3])
    """
    return np.concatenate([np.asarray(ids, dtype=np.int64)[::-1], last])[: len(last)]
