"""Losses of groups of tokens: by frequency, by position, by the longest n-gram that was seen.

Intervals are bootstraps. All models are resampled by the same draws, of blocks of tokens or of
sentences, so that differences between them are paired.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from esnlm.evaluation.bootstrap import Seed, percentile_intervals, resampled_means, resampled_sums
from esnlm.text.corpus import TokenStream
from esnlm.utils.arrays import Array, Bools, Floats, Ints64
from esnlm.utils.validation import Count

#: Training frequencies between bins: <100, 100-1k, 1k-10k, >10k (Mahto et al., §3.2.2).
FREQUENCY_EDGES = (100, 1_000, 10_000)
FREQUENCY_BINS = (*pairwise([-np.inf, *FREQUENCY_EDGES, np.inf]),)
#: Positions of predicted tokens in their sentence, from 1, between bins.
POSITION_EDGES = (2, 3, 5, 9, 17)
ALL = "all"
# Tokens of a block that is drawn as a whole where there are no sentences (Mahto et al.).
_BLOCK = 100


class FrequencyBin(NamedTuple):
    """Perplexity of the test tokens whose training count lies in [low, high), with its interval.

    ``perplexity`` is NaN where no test token falls in the bin; ``lower`` and ``upper`` are where
    all fall in one block: a single one, drawn again and again, would seem certain.
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

    def rows(self, n_resamples: int = 10_000, random_state: Seed = None) -> list[FrequencyBin]:
        """Each bin, rarest first, then all tokens; nothing can be added after."""
        losses, sizes = self._blocks()
        means = resampled_means(losses, sizes, n_resamples, random_state)
        intervals = np.exp(percentile_intervals(means))
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
        resamples = [np.exp(resampled_means(x, sizes, n_resamples, seed)) for x in (first, second)]
        values = _perplexity(first, sizes) - _perplexity(second, sizes)
        return self._named(sizes, values, percentile_intervals(resamples[0] - resamples[1]))

    def _named(self, sizes: Floats, values: Floats, intervals: Floats) -> list[FrequencyBin]:
        intervals = np.where(((sizes > 0).sum(axis=0) > 1)[:, None], intervals, np.nan)
        bounds, sizes = [*FREQUENCY_BINS, (-np.inf, np.inf)], sizes.sum(axis=0)
        return [
            FrequencyBin(bin_name(*pair), *pair, int(size), float(value), float(low), float(high))
            for pair, size, value, (low, high) in zip(bounds, sizes, values, intervals, strict=True)
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


class Grouping(NamedTuple):
    """What tokens are grouped ``by``, names of the groups, and the group (n,) of each token."""

    by: str
    names: list[str]
    places: Ints64


class Judged(NamedTuple):
    """A measure of every run in every group, and what resampling makes of it.

    ``groups``: what they are by, and their names; ``sizes`` (n_groups,) in tokens or pairs;
    ``values`` (n_runs, n_groups); ``resampled`` (n_resamples, n_runs, n_groups).
    """

    measure: str
    groups: list[tuple[str, str]]
    sizes: Ints64
    values: Floats
    resampled: Floats

    def intervals(self) -> Floats:
        """Return the middle 95 % of the resamples (n_runs, n_groups, 2)."""
        return np.stack([percentile_intervals(run) for run in self.resampled.transpose(1, 0, 2)])


def sentences_and_positions(stream: TokenStream, marks: Bools) -> tuple[Ints64, Ints64]:
    """Sentence, or block of 100 tokens, and place in it (n,) of each token that is marked (T,).

    Without sentences, positions are those in the text.
    """
    n = len(stream.tokens)
    if stream.starts is None:
        return np.arange(n)[marks] // _BLOCK, np.arange(n)[marks]
    sentence = np.repeat(np.arange(len(stream.starts)), stream.lengths)
    return sentence[marks], (np.arange(n) - stream.starts[sentence])[marks]


def by_frequency(counts: Array) -> Grouping:
    """Bins of `FREQUENCY_EDGES`, by how often each token (n,) occurs in training text.

    >>> by_frequency(np.array([3, 100, 20_000])).places
    array([0, 1, 3])
    """
    names = [bin_name(*bounds) for bounds in FREQUENCY_BINS]
    return Grouping("frequency", names, np.searchsorted(FREQUENCY_EDGES, counts, side="right"))


def by_position(positions: Array) -> Grouping:
    """Bins of `POSITION_EDGES`, by the place (n,) in a sentence, counted from 1.

    >>> by_position(np.array([1, 4, 30])).names
    ['1', '2', '3-4', '5-8', '9-16', '17+']
    """
    bounds = pairwise((1, *POSITION_EDGES))
    names = [f"{low}-{high - 1}" if high > low + 1 else f"{low}" for low, high in bounds]
    names.append(f"{POSITION_EDGES[-1]}+")
    return Grouping("position", names, np.searchsorted(POSITION_EDGES, positions, side="right"))


def by_seen(longest: Array, order: int) -> Grouping:
    """By the longest n-gram ending at each token (n,) that training text holds, up to ``order``.

    >>> by_seen(np.array([0, 2]), 3).names
    ['token not seen', '1 seen', '2 seen', '3 seen']
    """
    names = ["token not seen", *(f"{length} seen" for length in range(1, order + 1))]
    return Grouping("seen n-gram", names, np.asarray(longest, dtype=np.int64))


def judged_tokens(
    scores: Sequence[Array], sentence: Array, groupings: Sequence[Grouping], **options: Any
) -> Judged:
    """Losses in nats a token, of all tokens and of each group that has any.

    ``scores`` are the natural-log probabilities (n,) of each run, ``sentence`` (n,) the number of
    each token's sentence, or of any other block that is drawn as a whole; ``options`` are
    `resampled_sums`'.
    """
    places = [np.zeros(len(sentence), dtype=np.int64)]
    groups = [("all", ALL)]
    for by, names, inside in groupings:
        places.append(inside + len(groups))
        groups += [(by, name) for name in names]
    n = int(sentence.max()) + 1

    def by_sentence(values: Array | None) -> Floats:
        size = n * len(groups)
        sums = [np.bincount(sentence * len(groups) + at, values, size) for at in places]
        return np.sum(sums, axis=0, dtype=np.float64).reshape(n, len(groups))

    sizes = by_sentence(None)
    blocks = np.hstack([sizes, *(by_sentence(-np.asarray(each, float)) for each in scores)])
    whole, resampled = blocks.sum(axis=0), resampled_sums(blocks, **options)
    shape = len(scores), len(groups)
    with np.errstate(invalid="ignore"):
        values = whole[len(groups) :].reshape(shape) / whole[: len(groups)]
        means = resampled[:, len(groups) :].reshape(-1, *shape) / resampled[:, None, : len(groups)]
    means[..., (sizes > 0).sum(axis=0) < 2] = np.nan  # a single sentence would seem certain
    some = whole[: len(groups)] > 0
    totals = whole[: len(groups)][some].astype(np.int64)
    groups = [group for group, is_some in zip(groups, some, strict=True) if is_some]
    return Judged("nats", groups, totals, values[:, some], means[..., some])
