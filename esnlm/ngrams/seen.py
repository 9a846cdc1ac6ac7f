"""How much of each token's context the training text of an n-gram model holds."""

import numpy as np
from numpy.typing import ArrayLike

from esnlm.ngrams.counts import Ints, find, places
from esnlm.ngrams.kneser_ney import KneserNey, _checked_starts
from esnlm.utils.array_shapes import checked_tokens


def longest_seen(model: KneserNey, tokens: ArrayLike, starts: ArrayLike | None = None) -> Ints:
    """Length (T,) of the longest n-gram ending at each token that the model has counted.

    0: the token itself never was one to predict; ``model.order``: a longest n-gram was seen.
    N-grams do not reach over ``starts`` (n,), where documents begin; None: one document.

    >>> model = KneserNey(order=3, n_tokens=5).fit([0, 1, 2, 3])
    >>> longest_seen(model, [0, 1, 2, 4, 2])
    array([0, 2, 3, 0, 1])
    """
    words = checked_tokens(tokens, model.n_tokens_).astype(np.int64)
    offsets = places(_checked_starts(starts, words), len(words), model.order)
    tables = model._fitted()
    result = (find(tables[0].keys, words) >= 0).astype(np.int64)
    ids = words
    for order, table in enumerate(tables[1:], start=2):
        contexts = np.concatenate([[-1], ids[:-1]])
        contexts[offsets < order - 1] = -1
        known = np.flatnonzero(contexts >= 0)
        ids = np.full(len(words), -1, dtype=np.int64)
        ids[known] = find(table.keys, contexts[known] * model.n_tokens_ + words[known])
        result[ids >= 0] = order
    return result
