"""Linear interpolation of probabilities, and its likeliest weights."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import bisect

from esnlm.utils.arrays import Array, Floats

_GAIN = 1e-12


def log_mixture(logs: ArrayLike, weights: ArrayLike) -> Floats:
    """Return natural logs of ``Σ_k weights[k] p_k``, from logs (K, ...) of the p_k.

    >>> np.exp(log_mixture(np.log([[0.5], [0.1]]), [0.75, 0.25])).round(12)
    array([0.4])
    """
    parts = np.asarray(logs, dtype=np.float64)
    with np.errstate(divide="ignore"):
        weighted = parts + np.log(weights).reshape(-1, *(1,) * (parts.ndim - 1))
    most = weighted.max(axis=0)
    least = np.where(np.isfinite(most), most, 0.0)  # where all are impossible
    with np.errstate(divide="ignore"):
        return np.asarray(least + np.log(np.exp(weighted - least).sum(axis=0)))


def likeliest_weights(logs: Floats) -> Floats:
    """Return shares (K,) for which ``Σ_k w_k p_k`` is likeliest, from logs (K, T).

    Expectation-maximisation (Jelinek & Mercer 1980), until a step gains less than 1e-12 nats a
    token. ValueError without any token, and for one that is impossible to all.

    >>> likeliest_weights(np.log([[0.6, 0.2], [0.2, 0.5]])).round(4)
    array([0.5833, 0.4167])
    """
    if not logs.size:
        raise ValueError("log_probs hold no token: nothing to average")
    most = logs.max(axis=0)
    if np.any(most == -np.inf):
        raise ValueError("a token is impossible to all models, so no weights make it likely")
    shares = np.exp(logs - most)
    weights, score = np.full(len(logs), 1 / len(logs)), -np.inf
    while True:
        total = weights @ shares
        before, score = score, float(np.log(total).mean())
        if score - before < _GAIN:
            return weights
        weights = weights * (shares / total).mean(axis=1)


def likeliest_weight(left: Array, right: Array) -> float:
    """Return the w in [0, 1] for which ``w * p + (1 - w) * q`` is likeliest, from logs (T,).

    The log-likelihood is concave in w; the root of its derivative is bisected to 1e-12. Raises
    ValueError without any token, and for one that is impossible to both.

    >>> round(likeliest_weight(np.log([0.6, 0.2]), np.log([0.2, 0.5])), 6)
    0.583333
    """
    if not len(left):
        raise ValueError("log_probs hold no token: nothing to average")
    if np.any(np.maximum(left, right) == -np.inf):
        raise ValueError("a token is impossible to both models, so no weight makes it likely")
    gap = left - right
    smaller = np.exp(-np.abs(gap))  # of the two probabilities, over the larger
    step = np.sign(gap) * (1 - smaller)

    def slope(weight: float) -> float:
        """Return derivative of the mean log-likelihood, infinite where a needed share is zero."""
        share = np.where(gap > 0, weight, 1 - weight)
        with np.errstate(divide="ignore"):
            return float(np.mean(step / (share + (1 - share) * smaller)))

    if slope(0.0) <= 0:
        return 0.0
    if slope(1.0) >= 0:
        return 1.0
    # Halving, since other methods interpolate a slope that may be infinite at the ends.
    return float(bisect(slope, 0.0, 1.0, xtol=5e-13))
