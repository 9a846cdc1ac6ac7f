"""Units of a reservoir that hold the token just read, for token-gated readouts."""

from typing import Any

import numpy as np
from sklearn.base import clone

from esnlm.utils.arrays import Array, Ints

# tanh of it is 1 - 2e-7, as near to one as compiled float32 comes.
_DRIVE = 8.0


def n_code_units(n_tokens: int) -> int:
    """Binary digits of the largest token.

    >>> [n_code_units(n) for n in (1, 2, 3, 52)]
    [1, 1, 2, 6]
    """
    return max(1, int(n_tokens - 1).bit_length())


def with_token_code(reservoir: Any) -> Any:
    """Return a copy of a fitted reservoir whose last units are the last token, in binary.

    They take the place of units: no recurrent weight leads to them, and the sign of each is a
    digit of the token, the lowest first. `token_of` reads it.
    """
    n_tokens = int(reservoir.n_inputs_)
    n_code = n_code_units(n_tokens)
    if reservoir.activation != "tanh" or n_code >= reservoir.n_units:
        raise ValueError(
            f"a token code of {n_code} units needs more units than that and the activation tanh,"
            f" got {reservoir.n_units} and {reservoir.activation!r}"
        )
    W = reservoir.W_.copy()
    W.data[W.indptr[-n_code - 1] :] = 0  # kept in the pattern: cyclic offsets stay cyclic
    inputs = reservoir.W_in_
    W_in = np.array(inputs.toarray() if hasattr(inputs, "toarray") else inputs)
    digits = np.arange(n_tokens) >> np.arange(n_code)[:, None] & 1
    W_in[-n_code:] = np.where(digits, _DRIVE, -_DRIVE)
    bias, leak = reservoir.bias_.copy(), reservoir.leak_rate_.copy()
    bias[-n_code:], leak[-n_code:] = 0, 1
    return clone(reservoir).set_weights(W, W_in, bias, leak)


def token_of(states: Array, n_code: int) -> Ints:
    """Tokens (n,) that the last ``n_code`` units of states (n, n_units) hold; 0 of a zero state."""
    return np.asarray((states[:, -n_code:] > 0) @ (1 << np.arange(n_code)), dtype=np.intp)
