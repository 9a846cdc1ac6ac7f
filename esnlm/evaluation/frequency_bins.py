"""Perplexity by training frequency, with bootstrap intervals."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from esnlm.evaluation.bootstrap import Seed, percentile_intervals, resampled_means
from esnlm.utils.arrays import Array, Floats
from esnlm.utils.validation import Count

#: Training frequencies between bins: <100, 100-1k, 1k-10k, >10k (Mahto et al., §3.2.2).
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


class FrequencyBins:
    """Perplexity by training frequency of the predicted token, of tokens added part by part.

    Bins lie between `FREQUENCY_EDGES`, and hold their lower edge. The bootstrap resamples blocks of
    ``block_size`` consecutive tokens, which keeps the dependence between neighbours (Mahto et al.:
    10 000 resamples of 100-token blocks). Takes about a byte of memory a token.
    """

    def __init__(self, block_size: int = 100) -> None:
        Count().check("block_size", block_size)
        self.block_size = block_size
        self._waiting = (np.empty(0), np.empty(0))
        self._sums: list[tuple[Floats, Floats]] = []

    def add(self, log_probs: Floats, frequencies: Array) -> None:
        """Count tokens (T,): their natural-log probabilities and training counts.

        Raises ValueError for arrays of different lengths, infinite log-probabilities, NaN counts.
        """
        if log_probs.shape != frequencies.shape:
            raise ValueError(
                f"log_probs and frequencies must be of one length, got {len(log_probs)} and"
                f" {len(frequencies)}"
            )
        if not np.isfinite(log_probs).all():
            raise ValueError("log_probs must be finite for intervals, got minus infinity or NaN")
        if np.isnan(frequencies).any():
            n_missing = int(np.isnan(frequencies).sum())
            raise ValueError(f"frequencies hold {n_missing} NaN, expected none")
        scores = np.concatenate([self._waiting[0], log_probs])
        counts = np.concatenate([self._waiting[1], frequencies])
        whole = len(scores) // self.block_size * self.block_size
        self._sum_blocks(scores[:whole], counts[:whole])
        self._waiting = (scores[whole:], counts[whole:])

    def rows(
        self, n_resamples: int = 10_000, confidence: float = 0.95, random_state: Seed = None
    ) -> list[FrequencyBin]:
        """Each bin, rarest first, then all tokens; nothing can be added after.

        ``confidence`` is the mass of the percentile interval [lower, upper].
        """
        losses, sizes = self._blocks()
        means = resampled_means(losses, sizes, n_resamples, random_state)
        intervals = np.exp(percentile_intervals(means, confidence))
        return self._named(sizes, _perplexity(losses, sizes), intervals)

    def differences(
        self, other: "FrequencyBins", n_resamples: int = 10_000, random_state: int | None = None
    ) -> list[FrequencyBin]:
        """Perplexity of these tokens minus that under another model, by bin, with 95 % intervals.

        Both models are resampled by the same blocks (Mahto et al., table 1: the difference is
        significant where the interval leaves out zero).
        """
        (first, sizes), (second, others) = self._blocks(), other._blocks()
        if sizes.shape != others.shape or (sizes != others).any():
            raise ValueError("both models must have scored the same tokens, in the same bins")
        seed = int(np.random.default_rng(random_state).integers(1 << 62))
        drawn = [np.exp(resampled_means(x, sizes, n_resamples, seed)) for x in (first, second)]
        found = _perplexity(first, sizes) - _perplexity(second, sizes)
        return self._named(sizes, found, percentile_intervals(drawn[0] - drawn[1]))

    def _named(self, sizes: Floats, values: Floats, intervals: Floats) -> list[FrequencyBin]:
        bounds = [*pairwise([-np.inf, *FREQUENCY_EDGES, np.inf]), (-np.inf, np.inf)]
        names = [bin_name(*pair) for pair in bounds]
        columns = sizes.sum(axis=0), values, intervals
        return [
            FrequencyBin(name, *pair, int(size), float(value), float(low), float(high))
            for name, pair, size, value, (low, high) in zip(names, bounds, *columns, strict=True)
        ]

    def _blocks(self) -> tuple[Floats, Floats]:
        """Return summed losses and numbers of tokens (n_blocks, n_bins + 1) so far."""
        self._sum_blocks(*self._waiting)
        self._waiting = (np.empty(0), np.empty(0))
        if not self._sums:
            raise ValueError("log_probs hold no token: nothing to average")
        losses, sizes = map(np.concatenate, zip(*self._sums, strict=True))
        return losses, sizes

    def _sum_blocks(self, scores: Floats, counts: Array) -> None:
        if not len(scores):
            return
        bins = np.searchsorted(FREQUENCY_EDGES, counts, side="right")
        member = np.eye(len(FREQUENCY_EDGES) + 2)[bins]  # the last column is that of all tokens
        member[:, -1] = 1.0
        firsts = np.arange(0, len(scores), self.block_size)
        losses = np.add.reduceat(member * -scores[:, None], firsts, axis=0)
        self._sums.append((losses, np.add.reduceat(member, firsts, axis=0)))


def _perplexity(losses: Floats, sizes: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.exp(losses.sum(axis=0) / sizes.sum(axis=0)))


def bin_name(low: float, high: float) -> str:
    """How tables call the bin [low, high).

    >>> bin_name(-np.inf, 100), bin_name(100, 1000), bin_name(10_000, np.inf)
    ('<100', '100-1k', '>=10k')
    """
    first, last = (f"{n / 1000:g}k" if n >= 1000 else f"{n:g}" for n in (low, high))
    if np.isinf(low):
        return "all" if np.isinf(high) else f"<{last}"
    return f">={first}" if np.isinf(high) else f"{first}-{last}"
