"""Discounted unigrams: targets of rare words, and a share of every distribution.

Unigrams here are an array (V,) float32 of probabilities times their share; the rest is the share
of what they are interpolated with (Jelinek & Mercer 1980).
"""

import numpy as np

from esnlm.ngrams.counts import estimate_discounts
from esnlm.utils.arrays import Array, Floats32, Ints
from esnlm.utils.interpolation import likeliest_weight, log_mixture

# Share of the unigrams where no held-out rows say which is likeliest, and the least share of each
# side: no word is ever impossible.
_SHARE, _LEAST_SHARE = 1e-3, 1e-6


def discounts(counts: Array) -> Floats32:
    """Of the target of a row, by its word (V,), the share that goes to all words alike.

    Each word gives D of its n occurrences, by absolute discounting as in Kneser-Ney's unigrams
    (Chen & Goodman 1998): words that never occurred are likely where rare ones are.
    """
    occurrences = np.maximum(counts, 1).astype(np.int64)
    estimates = np.array(estimate_discounts(occurrences[counts > 0], "modified"))
    return np.asarray(estimates[np.minimum(occurrences, 3) - 1] / occurrences, dtype=np.float32)


def discounted_unigrams(counts: Array) -> Floats32:
    """Unigrams of words that occurred ``counts`` (V,) times, with the share they begin with."""
    mass = counts * (1 - discounts(counts).astype(np.float64))
    total = max(float(counts.sum()), 1.0)
    rest = 1 - mass.sum() / total
    return np.asarray(_SHARE * (mass / total + rest / len(counts)), dtype=np.float32)


def with_likeliest_share(unigrams: Floats32, logs: Array, words: Ints) -> Floats32:
    """Unigrams with the share that makes ``words`` (n,) likeliest.

    ``logs`` (n,) are the words' log-probabilities by what the unigrams are interpolated with.
    """
    p = unigrams / unigrams.sum(dtype=np.float64)
    share = likeliest_weight(np.log(p[words]), logs)
    return np.asarray(min(max(share, _LEAST_SHARE), 1 - _LEAST_SHARE) * p, dtype=np.float32)


def interpolate_all(logs: Array, unigrams: Floats32) -> None:
    """Interpolate log-probabilities (n, V) of all words with the unigrams, in place."""
    np.exp(logs, out=logs)
    logs *= 1 - unigrams.sum(dtype=np.float64)
    logs += unigrams
    np.log(logs, out=logs)


def interpolate(logs: Array, unigrams: Floats32, words: Ints) -> Array:
    """Log-probabilities (n,) of ``words`` (n,), interpolated with the unigrams; in logs' dtype."""
    share = float(unigrams.sum(dtype=np.float64))
    logs_of_unigrams = np.log(unigrams[words] / share)
    mixed = log_mixture([logs_of_unigrams, logs], [share, 1 - share])
    return mixed.astype(logs.dtype, copy=False)
