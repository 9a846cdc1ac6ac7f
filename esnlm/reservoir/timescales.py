"""Timescales of units that forget exponentially (Mahto et al. 2021).

A unit of timescale T keeps exp(-1/T) of what it holds from one token to the next. All times are
in tokens.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincc, ndtr

from esnlm.reservoir.weights import inverse_gamma_decay
from esnlm.utils.arrays import Floats


def forget_bias(timescales: ArrayLike) -> Floats:
    """Return the bias of a forget gate that keeps exp(-1/T): ``-log(exp(1/T) - 1)`` (equation 5).

    >>> forget_bias([0.5, 3.0, 1000.0]).round(4).tolist()
    [-1.8546, 0.9273, 6.9073]
    """
    rates = 1 / _positive(timescales)
    return -rates - np.log(-np.expm1(-rates))


def estimated_timescales(kept: ArrayLike, lost: ArrayLike | None = None) -> Floats:
    """Return ``-1 / log f``, of forget gates averaged over a text (equation 3).

    ``kept`` (n_units,) are means of f, ``lost`` those of 1 - f, which a mean near 1 rounds away.

    >>> estimated_timescales(np.exp([-1 / 20])).round(9).tolist()
    [20.0]
    """
    f = np.asarray(kept, dtype=np.float64)
    rest = 1 - f if lost is None else np.asarray(lost, dtype=np.float64)
    wrong = f[~((f > 0) & (rest > 0))]
    if wrong.size:
        raise ValueError(f"mean forget gates must lie in (0, 1), got {wrong[0]:g}")
    return -1 / np.where(f < 0.5, np.log(f), np.log1p(-np.minimum(rest, 0.5)))


def inverse_gamma_timescales(alpha: float, n_units: int) -> Floats:
    """Return the quantiles (i + 1/2) / n_units of InverseGamma(alpha, 1), rising, (n_units,).

    A mixture of exponential decays whose timescales follow this law decays as t^-alpha
    (equation 4).

    >>> inverse_gamma_timescales(0.56, 5).round(2).tolist()
    [0.68, 1.61, 3.57, 9.92, 74.59]
    """
    return 1 / inverse_gamma_decay(alpha, n_units)


def ks_inverse_gamma(timescales: ArrayLike, alpha: float) -> float:
    """Return the Kolmogorov-Smirnov distance of times (n,) to InverseGamma(alpha, 1)."""
    return _ks(_positive(timescales), lambda t: gammaincc(alpha, 1 / t))


def ks_gaussian(timescales: ArrayLike, mean: float) -> float:
    """Return the Kolmogorov-Smirnov distance of times (n,) to a Gaussian of width 0.1.

    It stands for units that all have one timescale, as Markovian text asks for (section 3.2.1).
    """
    return _ks(_positive(timescales), lambda t: ndtr((t - mean) / 0.1))


def closest_inverse_gamma(timescales: ArrayLike) -> tuple[float, float]:
    """Return the alpha of the smallest `ks_inverse_gamma`, and that distance (figure 1, right).

    >>> alpha, distance = closest_inverse_gamma(inverse_gamma_timescales(1.5, 200))
    >>> alpha, round(distance, 4)
    (1.5, 0.0025)
    """
    shapes = np.round(np.arange(0.1, 5.01, 0.02), 2).tolist()
    distance, shape = min((ks_inverse_gamma(timescales, shape), shape) for shape in shapes)
    return shape, distance


def closest_gaussian(timescales: ArrayLike) -> tuple[float, float]:
    """Return the mean of the smallest `ks_gaussian`, in steps of 0.05 tokens, and that distance.

    >>> mean, distance = closest_gaussian([1.9, 2.0, 2.1])
    >>> round(mean, 2), distance < 0.2
    (2.0, True)
    """
    times = _positive(timescales)
    lowest = max(0.05, round(float(np.min(times)), 2))
    # Means that are ten widths from every time are all as far from the times.
    near = np.round((times.ravel()[:, None] - lowest) / 0.05) + np.arange(-20, 21)
    means = lowest + 0.05 * np.unique(near)
    means = means[(means >= lowest) & (means < np.quantile(times, 0.9) + 0.1)]
    distance, mean = min((ks_gaussian(times, mean), mean) for mean in means.tolist())
    return round(mean, 2), distance


def _ks(times: Floats, law: Callable[[Any], Any]) -> float:
    # As `scipy.stats.ks_1samp`, whose checks take longer than all this in a search of laws.
    below = law(np.sort(times, axis=None))
    steps = np.arange(times.size + 1) / times.size
    return float(max((steps[1:] - below).max(), (below - steps[:-1]).max()))


def _positive(timescales: ArrayLike) -> Floats:
    array = np.asarray(timescales, dtype=np.float64)
    if not array.size:
        raise ValueError("expected timescales of one unit or more, got none")
    wrong = array[~(np.isfinite(array) & (array > 0))]
    if wrong.size:
        raise ValueError(f"timescales must be positive and finite, got {wrong[0]:g}")
    return array
