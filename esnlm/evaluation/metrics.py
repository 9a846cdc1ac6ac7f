"""Measures of predictions and of generated text; log-probabilities are natural logs throughout."""

from collections.abc import Hashable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike


def perplexity(log_probs: ArrayLike) -> float:
    """Return exp of the mean negative log-likelihood a token, of natural-log probabilities (T,).

    Minus infinity (an impossible token) gives infinity. Raises ValueError when empty, NaN or
    positive.

    >>> round(perplexity(np.log([0.5, 0.125])), 12)
    4.0
    """
    scores = np.asarray(log_probs, dtype=np.float64)
    if scores.ndim != 1:
        raise ValueError(f"expected one value per token (T,), got an array of {scores.ndim} axes")
    if not scores.size:
        raise ValueError("log_probs hold no token: nothing to average")
    if np.isnan(scores).any():
        raise ValueError(f"log_probs hold {int(np.isnan(scores).sum())} NaN, expected none")
    if scores.max() > 1e-6:
        raise ValueError(
            f"log_probs must be natural logs of probabilities, at most 0, got {scores.max():g}"
        )
    return float(np.exp(-scores.mean()))


def cosine_similarity(predicted: ArrayLike, true: ArrayLike) -> float:
    """Return the mean cosine of predicted and true distributions, times 100 (Tong et al. 2007).

    Both (T, V), row t the distribution of the same token; rows need not be normalised. Raises
    ValueError for different shapes, no rows, NaN, or a row of zeros.

    >>> cosine_similarity([[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.8, 0.6]])
    98.0
    """
    left, right = np.asarray(predicted, dtype=np.float64), np.asarray(true, dtype=np.float64)
    if left.ndim != 2 or left.shape != right.shape:
        raise ValueError(
            f"both distributions must be (T, V) alike, got {left.shape} and {right.shape}"
        )
    if not left.size:
        raise ValueError(f"cosine similarity needs at least one row, got shape {left.shape}")
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    if not (np.isfinite(norms).all() and (norms > 0).all()):
        raise ValueError("every row must be finite and have mass, got a row with NaN or all zero")
    return float(100.0 * np.mean(np.einsum("tv,tv->t", left, right) / norms))


def ngram_overlap(generated: Sequence[Hashable], reference: Sequence[Hashable], n: int) -> float:
    """Share of the distinct n-grams of ``generated`` that occur in ``reference`` (Köster et al.).

    Both are sequences of tokens: a string counts characters, a list of words counts words. Raises
    ValueError if ``generated`` holds no n-gram.

    >>> ngram_overlap("to be", "to bend", 3)
    1.0
    >>> ngram_overlap("a rose is a rose".split(), "a rose is a flower".split(), 3)
    0.6666666666666666
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    ours = set(_ngrams(generated, n))
    if not ours:
        raise ValueError(f"the generated text has {len(generated)} tokens: too few for n = {n}")
    copies = {ngram for ngram in _ngrams(reference, n) if ngram in ours}  # not all of a long text's
    return len(copies) / len(ours)


def _ngrams(tokens: Sequence[Hashable], n: int) -> Iterator[Hashable]:
    if isinstance(tokens, str):
        return (tokens[start : start + n] for start in range(len(tokens) - n + 1))
    return zip(*(islice(tokens, start, None) for start in range(n)), strict=False)
