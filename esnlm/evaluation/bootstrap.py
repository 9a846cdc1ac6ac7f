"""Bootstrap: statistics of resampled blocks, sentences or outcomes, and percentile intervals."""

from typing import TypeAlias

import numpy as np

from esnlm.utils.arrays import Array, Floats
from esnlm.utils.validation import Count

Seed: TypeAlias = int | np.random.Generator | None

#: Resamples of an interval, as in Mahto et al. (2021).
N_RESAMPLES = 10_000
_AT_ONCE = 2_000_000
_ENDS = (1 - 0.95) / 2, (1 + 0.95) / 2


def resampled_sums(
    blocks: Floats, n_resamples: int = N_RESAMPLES, random_state: Seed = None
) -> Floats:
    """Return sums (n_resamples, n_columns) of blocks (n_blocks, n_columns) drawn with replacement.

    All columns are of the same draws: what is computed from them is paired.
    """
    Count().check("n_resamples", n_resamples)
    rng = np.random.default_rng(random_state)
    n_blocks = len(blocks)
    if not n_blocks:
        raise ValueError("expected a block or more to draw from, got none")
    sums = np.empty((n_resamples, blocks.shape[1]))
    at_once = max(1, _AT_ONCE // n_blocks)
    for first in range(0, n_resamples, at_once):
        part = sums[first : first + at_once]
        blocks_of_resamples = rng.integers(n_blocks, size=(len(part), n_blocks))
        blocks_of_resamples += n_blocks * np.arange(len(part))[:, None]
        times = np.bincount(
            blocks_of_resamples.ravel(), minlength=blocks_of_resamples.size
        ).reshape(blocks_of_resamples.shape)
        np.matmul(times.astype(np.float64), blocks, out=part)
    return sums


def resampled_means(
    sums: Floats, sizes: Floats, n_resamples: int = N_RESAMPLES, random_state: Seed = None
) -> Floats:
    """Means (n_resamples, n_columns) over blocks drawn with replacement; NaN where none is drawn.

    ``sums`` (n_blocks, n_columns) and ``sizes``, of the same shape, are what each block adds to a
    mean: its sum, and how many items that sums.
    """
    resamples = resampled_sums(np.hstack([sums, sizes]), n_resamples, random_state)
    total, size = np.hsplit(resamples, 2)
    return np.divide(total, size, out=np.full(total.shape, np.nan), where=size > 0)


def resampled_shares(
    counts: Array, n_resamples: int = N_RESAMPLES, random_state: Seed = None
) -> Floats:
    """Shares (n_groups, n_resamples, n_outcomes) of outcomes, each group resampled by itself.

    ``counts`` (n_groups, n_outcomes) are the items of each outcome, at least one a group. Drawing
    the items of a group with replacement is a multinomial draw of their outcomes.
    """
    Count().check("n_resamples", n_resamples)
    sizes = counts.sum(axis=1)
    chances = counts / sizes[:, None]
    rng = np.random.default_rng(random_state)
    resamples = rng.multinomial(sizes[:, None], chances[:, None], size=(len(counts), n_resamples))
    return np.asarray(resamples / sizes[:, None, None])


def percentile_intervals(values: Floats) -> Floats:
    """Return the middle 95 % of each column (n_columns, 2), NaN left out; NaN where all are."""
    columns = [column[~np.isnan(column)] for column in values.T]
    return np.array([np.quantile(v, _ENDS) if len(v) else (np.nan, np.nan) for v in columns])
