"""Losses of groups of tokens: by frequency, by position, by the longest n-gram that was seen.

All models are resampled by the same draws of sentences, so differences between them are paired.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from esnlm.evaluation.bootstrap import percentile_intervals, resampled_sums
from esnlm.evaluation.frequency_bins import FREQUENCY_EDGES, bin_name
from esnlm.utils.arrays import Array, Bools, Floats, Ints64

#: Positions of predicted tokens in their sentence, from 1, between bins.
POSITION_EDGES = (2, 3, 5, 9, 17)
ALL = "all"


class Grouping(NamedTuple):
    """What tokens are grouped ``by``, names of the groups, and the group (n,) of each token."""

    by: str
    names: list[str]
    places: Ints64


class Judged(NamedTuple):
    """A measure of every run in every group, and what resampling makes of it.

    ``groups``: what they are by, and their names; ``sizes`` (n_groups,) in tokens or pairs;
    ``values`` (n_runs, n_groups); ``drawn`` (n_resamples, n_runs, n_groups).
    """

    measure: str
    groups: list[tuple[str, str]]
    sizes: Ints64
    values: Floats
    drawn: Floats

    def known(self, member: Bools) -> "Judged":
        """Return the groups of marks (n_groups,)."""
        groups = [group for group, is_in in zip(self.groups, member, strict=True) if is_in]
        values, drawn = self.values[:, member], self.drawn[..., member]
        return Judged(self.measure, groups, self.sizes[member], values, drawn)

    def intervals(self) -> Floats:
        """Return the middle 95 % of the resamples (n_runs, n_groups, 2)."""
        return np.stack([percentile_intervals(run) for run in self.drawn.transpose(1, 0, 2)])


def by_frequency(counts: Array) -> Grouping:
    """Bins of `FREQUENCY_EDGES`, by how often each token (n,) occurs in training text.

    >>> by_frequency(np.array([3, 100, 20_000])).places
    array([0, 1, 3])
    """
    bounds = pairwise([-np.inf, *FREQUENCY_EDGES, np.inf])
    names = [bin_name(*pair) for pair in bounds]
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
    whole, drawn = blocks.sum(axis=0), resampled_sums(blocks, **options)
    shape = len(scores), len(groups)
    with np.errstate(invalid="ignore"):
        values = whole[len(groups) :].reshape(shape) / whole[: len(groups)]
        means = drawn[:, len(groups) :].reshape(-1, *shape) / drawn[:, None, : len(groups)]
    totals = whole[: len(groups)].astype(np.int64)
    return Judged("nats", groups, totals, values, means).known(totals > 0)
