"""Perplexity by training frequency, with bootstrap intervals."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]

#: Training frequencies that part the bins: <100, 100-1k, 1k-10k, >10k (Mahto et al., §3.2.2).
FREQUENCY_EDGES = (100, 1_000, 10_000)


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
    bins = FrequencyBins(edges, block_size)
    bins.add(pooled(log_probs), concatenated(frequencies))
    return bins.rows(n_resamples, confidence, random_state)


class FrequencyBins:
    """The sums that `binned_perplexity` needs, of tokens that come part by part.

    They take about a byte a token; parameters as `binned_perplexity`.

    >>> bins = FrequencyBins()
    >>> bins.add(np.log([0.5, 0.5]), np.array([500, 200]))
    >>> bins.add(np.log([0.25]), np.array([7]))
    >>> [(row.name, round(row.perplexity, 3)) for row in bins.rows(10) if row.n_tokens]
    [('<100', 4.0), ('100-1k', 2.0), ('all', 2.52)]
    """

    def __init__(self, edges: Sequence[float] = FREQUENCY_EDGES, block_size: int = 100) -> None:
        if list(edges) != sorted(set(edges)):
            raise ValueError(f"edges must rise, got {list(edges)}")
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        self.edges = edges
        self.block_size = block_size
        self._waiting = (np.empty(0), np.empty(0))
        self._losses: list[Floats] = []
        self._sizes: list[Floats] = []

    def add(self, log_probs: Floats, frequencies: NDArray[Any]) -> None:
        """Count tokens (T,): their natural-log probabilities and training counts."""
        if log_probs.shape != frequencies.shape:
            raise ValueError(
                f"log_probs and frequencies must be of one length, got {len(log_probs)} and"
                f" {len(frequencies)}"
            )
        if not np.isfinite(log_probs).all():
            raise ValueError("log_probs must be finite for intervals, got minus infinity")
        if np.isnan(frequencies).any():
            n_missing = int(np.isnan(frequencies).sum())
            raise ValueError(f"frequencies hold {n_missing} NaN, expected none")
        scores = np.concatenate([self._waiting[0], log_probs])
        counts = np.concatenate([self._waiting[1], frequencies])
        whole = len(scores) // self.block_size * self.block_size
        self._sum(scores[:whole], counts[:whole])
        self._waiting = (scores[whole:], counts[whole:])

    def rows(
        self,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        random_state: int | np.random.Generator | None = None,
    ) -> list[FrequencyBin]:
        """What `binned_perplexity` returns, of all tokens added; no more can come after."""
        losses, sizes = self._blocks()
        resampled = _resampled(losses, sizes, n_resamples, confidence, random_state)
        return [
            FrequencyBin(*place, int(size), *_with_interval(loss, size, means, confidence))
            for place, loss, size, means in zip(
                self._places(), losses.sum(axis=0), sizes.sum(axis=0), resampled.T, strict=True
            )
        ]

    def differences(
        self,
        other: "FrequencyBins",
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        random_state: int | None = None,
    ) -> list[FrequencyBin]:
        """How much more perplexity these tokens have than under another model, by bin.

        Both models are resampled by the same blocks (Mahto et al., table 1: the difference is
        significant where the interval leaves out zero).

        >>> one, two = FrequencyBins(), FrequencyBins()
        >>> one.add(np.log([0.25, 0.25]), np.array([5, 5]))
        >>> two.add(np.log([0.5, 0.5]), np.array([5, 5]))
        >>> [(row.name, row.perplexity) for row in one.differences(two, 10) if row.n_tokens]
        [('<100', 2.0), ('all', 2.0)]
        """
        (first, sizes), (second, others) = self._blocks(), other._blocks()
        if sizes.shape != others.shape or (sizes != others).any():
            raise ValueError("both models must have scored the same tokens, in the same bins")
        seed = np.random.default_rng(random_state).integers(1 << 62)
        drawn = [
            np.exp(_resampled(losses, sizes, n_resamples, confidence, int(seed)))
            for losses in (first, second)
        ]
        with np.errstate(invalid="ignore"):
            found = [np.exp(losses.sum(axis=0) / sizes.sum(axis=0)) for losses in (first, second)]
        return [
            FrequencyBin(*place, int(size), float(value), *_interval(means, confidence))
            for place, size, value, means in zip(
                self._places(),
                sizes.sum(axis=0),
                found[0] - found[1],
                (drawn[0] - drawn[1]).T,
                strict=True,
            )
        ]

    def _places(self) -> list[tuple[str, float, float]]:
        """Name and bounds of each bin, and of all tokens."""
        bounds = [-np.inf, *self.edges, np.inf]
        bins = [(_bin_name(*pair), *pair) for pair in pairwise(bounds)]
        return [*bins, ("all", -np.inf, np.inf)]

    def _blocks(self) -> tuple[Floats, Floats]:
        """Summed losses and numbers of tokens (n_blocks, n_bins + 1) of all that was added."""
        self._sum(*self._waiting)
        self._waiting = (np.empty(0), np.empty(0))
        if not self._losses:
            raise ValueError("log_probs hold no token: nothing to average")
        return np.concatenate(self._losses), np.concatenate(self._sizes)

    def _sum(self, scores: Floats, counts: NDArray[Any]) -> None:
        if not len(scores):
            return
        places = np.searchsorted(np.asarray(self.edges), counts, side="right")
        member = _memberships(places, len(self.edges) + 1)
        self._losses.append(_block_sums(member * -scores[:, None], self.block_size))
        self._sizes.append(_block_sums(member, self.block_size))


def _with_interval(
    loss: float, size: float, means: Floats, confidence: float
) -> tuple[float, float, float]:
    """Perplexity and the quantiles of its resamples, NaN where there are no tokens."""
    mean = loss / size if size else np.nan
    low, high = _interval(means, confidence)
    return float(np.exp(mean)), float(np.exp(low)), float(np.exp(high))


def _interval(values: Floats, confidence: float) -> tuple[float, float]:
    """The middle share of values, those that are NaN left out; NaN where all are."""
    drawn = values[~np.isnan(values)]
    if not len(drawn):
        return np.nan, np.nan
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _resampled(
    losses: Floats,
    sizes: Floats,
    n_resamples: int,
    confidence: float,
    random_state: int | np.random.Generator | None,
) -> Floats:
    """`_resample` of checked arguments."""
    if n_resamples < 1:
        raise ValueError(f"n_resamples must be at least 1, got {n_resamples}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    return _resample(losses, sizes, n_resamples, np.random.default_rng(random_state))


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


def pooled(log_probs: ArrayLike | Sequence[ArrayLike]) -> Floats:
    """Log-probabilities of all tokens (T,), checked: some, no NaN, none above 0."""
    scores = concatenated(log_probs)
    if not scores.size:
        raise ValueError("log_probs hold no token: nothing to average")
    if np.isnan(scores).any():
        raise ValueError(f"log_probs hold {int(np.isnan(scores).sum())} NaN, expected none")
    if scores.max() > 1e-6:
        raise ValueError(
            f"log_probs must be natural logs of probabilities, at most 0, got {scores.max():g}"
        )
    return scores


def concatenated(values: ArrayLike | Sequence[ArrayLike]) -> Floats:
    """One value a token: an array (T,), or one a document, end to end."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        parts = [values]
    else:
        parts = [np.asarray(part) for part in values]  # type: ignore[union-attr]
    if any(part.ndim > 1 for part in parts):
        raise ValueError("expected one value per token (T,), got an array with more axes")
    return np.concatenate([np.empty(0), *(np.atleast_1d(part) for part in parts)])
