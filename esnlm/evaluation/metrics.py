"""What models are measured by; log-probabilities are natural logs throughout."""

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from esnlm.evaluation.frequency_bins import (
    FREQUENCY_EDGES,
    Floats,
    FrequencyBin,
    FrequencyBins,
    binned_perplexity,
    pooled,
)

__all__ = [
    "FREQUENCY_EDGES",
    "FrequencyBin",
    "FrequencyBins",
    "binned_perplexity",
    "cosine_similarity",
    "cross_entropy",
    "interpolated",
    "interpolation_weight",
    "ngram_overlap",
    "perplexity",
]


def cross_entropy(log_probs: ArrayLike | Sequence[ArrayLike]) -> float:
    """Mean negative log-likelihood in nats per token.

    ``log_probs``: natural-log probabilities of the predicted tokens, one array (T,) or one per
    document, pooled over tokens. Minus infinity (an impossible token) gives infinity. Raises
    ValueError when empty, NaN or positive.

    >>> round(cross_entropy([np.log([0.5, 0.25]), np.log([0.125])]), 6)
    1.386294
    """
    return float(-pooled(log_probs).mean())


def perplexity(log_probs: ArrayLike | Sequence[ArrayLike]) -> float:
    """exp of the cross entropy: one array (T,) of natural-log probabilities, or one a document.

    >>> round(perplexity(np.log([0.5, 0.125])), 12)
    4.0
    """
    return float(np.exp(cross_entropy(log_probs)))


def cosine_similarity(predicted: ArrayLike, true: ArrayLike) -> float:
    """Mean cosine between predicted and true distributions, times 100 (Tong et al. 2007).

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
    seen = {ngram for ngram in _ngrams(reference, n) if ngram in ours}  # not all of a long text's
    return len(seen) / len(ours)


def interpolated(log_p: ArrayLike, log_q: ArrayLike, weight: float) -> Floats:
    """Natural logs of ``weight * p + (1 - weight) * q``, elementwise, from those of p and q.

    >>> np.exp(interpolated(np.log([0.5]), np.log([0.1]), 0.75)).round(12)
    array([0.4])
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must lie in [0, 1], got {weight}")
    left, right = np.asarray(log_p, dtype=np.float64), np.asarray(log_q, dtype=np.float64)
    if weight in (0, 1):  # the logarithm of zero would make a NaN of an impossible token
        return left.copy() if weight else right.copy()
    return np.logaddexp(left + np.log(weight), right + np.log1p(-weight))


def interpolation_weight(
    log_p: ArrayLike | Sequence[ArrayLike], log_q: ArrayLike | Sequence[ArrayLike]
) -> float:
    """The w in [0, 1] for which ``w * p + (1 - w) * q`` is likeliest, from held-out tokens.

    ``log_p`` and ``log_q``: natural-log probabilities of the same tokens, (T,) or one array per
    document. The log-likelihood is concave in w; the root of its derivative is bisected to 1e-12.
    Raises ValueError for different lengths, none, NaN, or a token impossible to both.

    >>> round(interpolation_weight(np.log([0.6, 0.2]), np.log([0.2, 0.5])), 6)
    0.583333
    """
    left, right = pooled(log_p), pooled(log_q)
    if left.shape != right.shape:
        raise ValueError(
            f"both must score the same tokens, got {len(left)} and {len(right)} log-probabilities"
        )
    if np.any(np.maximum(left, right) == -np.inf):
        raise ValueError("a token is impossible to both models, so no weight makes it likely")
    gap = left - right
    smaller = np.exp(-np.abs(gap))  # of the two probabilities, over the larger
    step = np.sign(gap) * (1 - smaller)

    def slope(weight: float) -> float:
        """Derivative of the mean log-likelihood, infinite where a needed share is zero."""
        share = np.where(gap > 0, weight, 1 - weight)
        with np.errstate(divide="ignore"):
            return float(np.mean(step / (share + (1 - share) * smaller)))

    low, high = 0.0, 1.0
    if slope(low) <= 0:
        return low
    if slope(high) >= 0:
        return high
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2


def _ngrams(tokens: Sequence[Hashable], n: int) -> Iterator[Hashable]:
    if isinstance(tokens, str):
        return (tokens[start : start + n] for start in range(len(tokens) - n + 1))
    items = list(tokens)
    return zip(*(items[start:] for start in range(n)), strict=False)
