"""A reservoir whose units are a stack: what an opener does to the state, its closer undoes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse

from esnlm.reservoir.reservoir import Reservoir
from esnlm.reservoir.weights import leak_rates
from esnlm.utils.arrays import Ints64

# Added to the drive of units that the bracket shuts: their rectifier gives zero whatever the state.
_SHUT = -1e12


def bracket_pairs(sequences: Sequence[Ints64]) -> list[tuple[int, int]]:
    """Return the tokens (opener, closer) of each kind of bracket, estimated from sequences (T,).

    An opener may begin a sequence and a closer never does. An opener is directly followed by any
    opener, and by no closer but its own. Raise ValueError where sequences do not show all pairs.

    >>> bracket_pairs([np.array([3, 0, 1, 2]), np.array([0, 1]), np.array([3, 2])])  # [()], (), []
    [(0, 1), (3, 2)]
    """
    lists = [sequence.tolist() for sequence in sequences]
    closers: dict[int, set[int]] = {tokens[0]: set() for tokens in lists if tokens}
    for tokens in lists:
        for token, following in pairwise(tokens):
            if token in closers and following not in closers:
                closers[token].add(following)
    pairs = sorted((opener, closer) for opener in closers for closer in closers[opener])
    in_pairs = [token for pair in pairs for token in pair]
    if not pairs or sorted(in_pairs) != sorted(set().union(*lists)):
        raise ValueError(
            f"{len(lists)} sequences must show one closer for each opener, and each token in one"
            f" pair, got {pairs} of (opener, closer): train on more sequences of balanced brackets"
        )
    return pairs


def stack_reservoir(
    n_units: int, leak_rate: Any, pairs: Sequence[tuple[int, int]], random_state: int
) -> Reservoir:
    """Return a rectified reservoir of ``n_units / 2`` cells s, each with two units.

    ``pairs`` are the tokens (opener, closer) of each kind of bracket, 0 to the last without a gap.
    An opener of kind k makes the state ``s' = (1 - a) P s + b_k``, its closer ``s' = P' (s - b_k)
    / (1 - a)``, P a cyclic shift, a the cells' leak rates, and b_k a random vector in [0, 1). The
    state is then a function of the open brackets alone, however long ago they were opened. It is
    never negative in balanced sequences, so that one unit of a cell may hold it after openers and
    the other after closers, each shut by the brackets of the other: an ordinary `Reservoir`.

    >>> reservoir = stack_reservoir(8, 0.3, [(0, 1), (2, 3)], 0)
    >>> states = reservoir.transform([0, 2, 3, 1])  # ([])
    >>> cells = states[:, :4] + states[:, 4:]
    >>> np.allclose(cells[0], cells[2]), np.allclose(cells[3], 0)
    (True, True)
    """
    if n_units % 2:
        raise ValueError(
            f"units must be even for a stack, whose cells have two each, got {n_units}"
        )
    rng = np.random.default_rng(random_state)
    n = n_units // 2
    share = 1 - leak_rates(leak_rate, n, np.dtype(np.float64), rng)
    if not share.min() > 0:
        raise ValueError("leak rates of a stack must be below 1: nothing of the state is left at 1")
    push = scipy.sparse.diags(share) @ scipy.sparse.csr_matrix(np.roll(np.eye(n), 1, axis=0))
    pop = push.T @ scipy.sparse.diags(1 / share**2)
    drive = np.full((n_units, 2 * len(pairs)), _SHUT)
    for opener, closer in pairs:
        vector = rng.random(n)
        drive[:n, opener], drive[n:, closer] = vector, -(pop @ vector)
    reservoir = Reservoir(n_units, activation="relu", dtype="float64", random_state=random_state)
    W = scipy.sparse.bmat([[push, push], [pop, pop]], format="csr")
    return reservoir.set_weights(W, drive, np.zeros(n_units), np.ones(n_units))
