"""What models are measured by; log-probabilities are natural logs throughout."""

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]

#: Training frequencies that part the bins: <100, 100-1k, 1k-10k, >10k (Mahto et al., §3.2.2).
FREQUENCY_EDGES = (100, 1_000, 10_000)


def cross_entropy(log_probs: ArrayLike | Sequence[ArrayLike]) -> float:
    """Mean negative log-likelihood in nats per token.

    ``log_probs``: natural-log probabilities of the predicted tokens, one array (T,) or one per
    document, pooled over tokens. Minus infinity (an impossible token) gives infinity. Raises
    ValueError when empty, NaN or positive.

    >>> round(cross_entropy([np.log([0.5, 0.25]), np.log([0.125])]), 6)
    1.386294
    """
    return float(-_pooled(log_probs).mean())


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
    return len(ours & set(_ngrams(reference, n))) / len(ours)


class FrequencyBin(NamedTuple):
    """Perplexity of the test tokens whose training count lies in [low, high), with its interval.

    ``perplexity``, ``lower`` and ``upper`` are NaN where no test token falls in the bin.
    """

    name: str
    low: float
    high: float
    n_tokens: int
    perplexity: float
    lower: float
    upper: float


def binned_perplexity(
    log_probs: ArrayLike | Sequence[ArrayLike],
    frequencies: ArrayLike | Sequence[ArrayLike],
    *,
    edges: Sequence[float] = FREQUENCY_EDGES,
    n_resamples: int = 10_000,
    block_size: int = 100,
    confidence: float = 0.95,
    random_state: int | np.random.Generator | None = None,
) -> list[FrequencyBin]:
    """Perplexity by training frequency of the predicted token, rarest first, then all tokens.

    Parameters
    ----------
    log_probs : natural-log probabilities of the predicted tokens, (T,) or one array per document.
    frequencies : training counts of the same tokens, of the same shape.
    edges : rising counts that part the bins; a bin holds its lower edge.
    n_resamples, block_size : bootstrap resamples of blocks of consecutive tokens, which keeps the
        dependence between neighbours (Mahto et al.: 10 000 resamples of 100-token blocks).
    confidence : mass of the percentile interval [lower, upper].

    Raises ValueError for empty or NaN input, different shapes, infinite log-probabilities.

    >>> rows = binned_perplexity(np.log([0.5, 0.5, 0.25]), [500, 200, 7], random_state=0)
    >>> [(row.name, row.n_tokens, round(row.perplexity, 3)) for row in rows if row.n_tokens]
    [('<100', 1, 4.0), ('100-1k', 2, 2.0), ('all', 3, 2.52)]
    """
    scores = _pooled(log_probs)
    counts = _concatenated(frequencies)
    if scores.shape != counts.shape:
        raise ValueError(
            f"log_probs and frequencies must be of one length, got {len(scores)} and {len(counts)}"
        )
    if not np.isfinite(scores).all():
        raise ValueError("log_probs must be finite for intervals, got minus infinity")
    if np.isnan(counts).any():
        raise ValueError(f"frequencies hold {int(np.isnan(counts).sum())} NaN, expected none")
    _check_bootstrap(edges, n_resamples, block_size, confidence)
    bounds = [-np.inf, *edges, np.inf]
    member = _memberships(np.searchsorted(np.asarray(edges), counts, side="right"), len(edges) + 1)
    losses = _block_sums(member * -scores[:, None], block_size)
    sizes = _block_sums(member, block_size)
    resampled = _resample(losses, sizes, n_resamples, np.random.default_rng(random_state))
    names = [*(_bin_name(*pair) for pair in pairwise(bounds)), "all"]
    ranges = [*pairwise(bounds), (-np.inf, np.inf)]
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    return [
        FrequencyBin(name, *limits, int(size), *_with_interval(loss, size, means, tails))
        for name, limits, loss, size, means in zip(
            names, ranges, losses.sum(axis=0), sizes.sum(axis=0), resampled.T, strict=True
        )
    ]


def _with_interval(
    loss: float, size: float, means: Floats, tails: list[float]
) -> tuple[float, float, float]:
    """Perplexity and the quantiles of its resamples, NaN where there are no tokens."""
    drawn = means[~np.isnan(means)]
    mean = loss / size if size else np.nan
    low, high = np.quantile(drawn, tails) if len(drawn) else (np.nan, np.nan)
    return float(np.exp(mean)), float(np.exp(low)), float(np.exp(high))


def _memberships(bins: NDArray[np.int64], n_bins: int) -> Floats:
    """One column per bin and a last one for all tokens, (T, n_bins + 1), of zeros and ones."""
    member = np.zeros((len(bins), n_bins + 1))
    member[np.arange(len(bins)), bins] = 1.0
    member[:, -1] = 1.0
    return member


def _block_sums(values: Floats, block_size: int) -> Floats:
    """Sums (n_blocks, n_bins) over runs of ``block_size`` rows; the last run may be shorter."""
    return np.add.reduceat(values, np.arange(0, len(values), block_size), axis=0)


def _resample(losses: Floats, sizes: Floats, n_resamples: int, rng: np.random.Generator) -> Floats:
    """Mean loss (n_resamples, n_bins) of blocks drawn with replacement; NaN where none has one."""
    n_blocks = len(losses)
    both = np.hstack([losses, sizes])
    means = np.empty((n_resamples, losses.shape[1]))
    at_once = max(1, 2_000_000 // n_blocks)
    for first in range(0, n_resamples, at_once):
        n_rows = min(at_once, n_resamples - first)
        drawn = rng.integers(n_blocks, size=(n_rows, n_blocks))
        drawn += n_blocks * np.arange(n_rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=n_rows * n_blocks).reshape(n_rows, n_blocks)
        loss, size = np.hsplit(times.astype(np.float64) @ both, 2)
        part = means[first : first + n_rows]
        part.fill(np.nan)
        np.divide(loss, size, out=part, where=size > 0)
    return means


def _bin_name(low: float, high: float) -> str:
    if np.isinf(low):
        return f"<{_thousands(high)}"
    if np.isinf(high):
        return f">={_thousands(low)}"
    return f"{_thousands(low)}-{_thousands(high)}"


def _thousands(count: float) -> str:
    return f"{count / 1000:g}k" if count >= 1000 else f"{count:g}"


def _check_bootstrap(
    edges: Sequence[float], n_resamples: int, block_size: int, confidence: float
) -> None:
    if list(edges) != sorted(set(edges)):
        raise ValueError(f"edges must rise, got {list(edges)}")
    if n_resamples < 1 or block_size < 1:
        raise ValueError(
            f"n_resamples and block_size must be at least 1, got {n_resamples} and {block_size}"
        )
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")


def _pooled(log_probs: ArrayLike | Sequence[ArrayLike]) -> Floats:
    scores = _concatenated(log_probs)
    if not scores.size:
        raise ValueError("log_probs hold no token: nothing to average")
    if np.isnan(scores).any():
        raise ValueError(f"log_probs hold {int(np.isnan(scores).sum())} NaN, expected none")
    if scores.max() > 1e-6:
        raise ValueError(
            f"log_probs must be natural logs of probabilities, at most 0, got {scores.max():g}"
        )
    return scores


def _concatenated(values: ArrayLike | Sequence[ArrayLike]) -> Floats:
    if isinstance(values, np.ndarray) and values.dtype != object:
        parts = [values]
    else:
        parts = [np.asarray(part) for part in values]  # type: ignore[union-attr]
    if any(part.ndim > 1 for part in parts):
        raise ValueError("expected one value per token (T,), got an array with more axes")
    return np.concatenate([np.empty(0), *(np.atleast_1d(part) for part in parts)])


def _ngrams(tokens: Sequence[Hashable], n: int) -> Iterator[Hashable]:
    if isinstance(tokens, str):
        return (tokens[start : start + n] for start in range(len(tokens) - n + 1))
    items = list(tokens)
    return zip(*(items[start:] for start in range(n)), strict=False)
