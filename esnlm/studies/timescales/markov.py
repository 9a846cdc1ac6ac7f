"""Markov copies of a text, and the information that its words have on later ones.

Section 3.1.1 and figure 1 of Mahto et al. (2021); Lin & Tegmark (2016).
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy.special import digamma

from esnlm.utils.arrays import Array, Floats, Ints64

_LINE_END = "\n"
# A power law is fitted to what exceeds noise, where there is enough of it.
_DEVIATIONS, _LEAST_POINTS = 3, 3


def words_of(lines: Iterable[str]) -> tuple[Ints64, list[str]]:
    """Return the words (T,) of lines as numbers, each line's end among them, and the words.

    >>> words_of(["a b a", "b"])
    (array([1, 2, 1, 0, 2, 0]), ['\\n', 'a', 'b'])
    """
    words = [word for line in lines for word in (*line.split(), _LINE_END)]
    vocabulary, tokens = np.unique(np.array(words or [], dtype=str), return_inverse=True)
    return tokens.astype(np.int64), vocabulary.tolist()


def text_of_words(tokens: Ints64, vocabulary: list[str]) -> str:
    """Return the text that `words_of` reads as these numbers.

    >>> text_of_words(*words_of(["a b a", "b"]))
    'a b a\\nb\\n'
    """
    text = " ".join(vocabulary[token] for token in tokens)
    return text.replace(f" {_LINE_END}", _LINE_END).replace(f"{_LINE_END} ", _LINE_END)


def markov_copy(tokens: Ints64, random_state: int = 0) -> Ints64:
    """Return as many tokens (T,) as given, each drawn after the last as often as in the text.

    The last token of the text is followed by its first, so that the chain never ends.

    >>> markov_copy(np.array([0, 1, 2, 0, 1, 2])).tolist()
    [0, 1, 2, 0, 1, 2]
    """
    if not len(tokens):
        raise ValueError("a Markov copy needs words, got a text of none")
    order = np.argsort(tokens, kind="stable")
    successors = np.roll(tokens, -1)[order].tolist()
    counts = np.bincount(tokens)
    firsts, sizes = (np.cumsum(counts) - counts).tolist(), counts.tolist()
    draws = np.random.default_rng(random_state).random(len(tokens)).tolist()
    token, copy = int(tokens[0]), []
    for draw in draws:
        copy.append(token)
        token = successors[firsts[token] + int(draw * sizes[token])]
    return np.array(copy, dtype=np.int64)


class Information(NamedTuple):
    """Mutual information (n,) in nats between tokens some distances (n,) apart, less noise's.

    ``exponent``: d of the closest power law ``scale * distance ** -d``; NaN if there is none.
    """

    distances: Ints64
    nats: Floats
    exponent: float
    scale: float


def information(tokens: Ints64, longest: int = 1000) -> Information:
    """Estimate what a token says of one that follows at a distance.

    Entropies are Grassberger's (2003), as in Lin & Tegmark. Of many words most pairs are rare, and
    the estimate is too large: that of the same tokens in random order is taken off. The power law
    is the least-squares line through the logarithms, up to the distance where an estimate is less
    than three standard deviations of those of the random order.
    """
    longest = min(longest, len(tokens) // 2)
    if longest < 1:
        raise ValueError(f"mutual information needs a text of 2 words or more, got {len(tokens)}")
    distances = np.unique(np.geomspace(1, longest, 20).round().astype(np.int64))
    shuffled = np.random.default_rng(0).permutation(tokens)
    estimates, noise = (
        np.array([_mutual(each, distance) for distance in distances.tolist()])
        for each in (tokens, shuffled)
    )
    nats = estimates - noise
    n = int(np.logical_and.accumulate(nats > _DEVIATIONS * noise.std()).sum())
    if n < _LEAST_POINTS:
        return Information(distances, nats, np.nan, np.nan)
    slope, level = np.polyfit(np.log(distances[:n]), np.log(nats[:n]), 1)
    return Information(distances, nats, -float(slope), float(np.exp(level)))


def _mutual(tokens: Ints64, distance: int) -> float:
    """Mutual information of tokens (T,) a distance apart, in nats."""
    first, second = tokens[:-distance], tokens[distance:]
    pairs = first * (int(tokens.max()) + 1) + second
    return _entropy(first) + _entropy(second) - _entropy(pairs)


def _entropy(values: Array) -> float:
    """Grassberger's estimate of the entropy of what values (n,) are drawn from, in nats."""
    counts = np.unique(values, return_counts=True)[1]
    sign = 1 - 2 * (counts % 2)
    terms = digamma(counts) + sign / 2 * (digamma((counts + 1) / 2) - digamma(counts / 2))
    return float(np.log(len(values)) - counts @ terms / len(values))
