"""Calibration: whether what a model gives a probability of p comes true in a share p of cases."""

from typing import NamedTuple

import numpy as np

from esnlm.models.base import SequenceModel
from esnlm.text.corpus import CorpusError, TokenStream
from esnlm.text.shuffling import evenly_spaced
from esnlm.utils.arrays import Array, Floats

#: Bins of equal width, as in Guo et al. (2017).
N_BINS = 15
#: Probabilities that are looked at, at most: tokens times the size of the vocabulary.
MOST_PROBABILITIES = 200_000_000
_MOST_TOKENS = 20_000
#: Powers of ten between the bins of all words' probabilities.
_DECADES = np.arange(-7, 0.5, 0.5)


class ReliabilityBin(NamedTuple):
    """Predictions whose probability lies in (low, high]: their number, its mean, and what came.

    ``came``: the share of them that came true. Both are NaN where ``n`` is 0.
    """

    low: float
    high: float
    n: int
    probability: float
    came: float


class Calibration(NamedTuple):
    """Reliability of the most probable token, and of all tokens of the vocabulary.

    ``n_tokens`` predictions were looked at. ``error`` is the expected calibration error of the most
    probable token: the mean distance of ``probability`` and ``came``, weighted by ``n``.
    ``accuracy`` is the share in which it came, ``confidence`` its mean probability.
    """

    n_tokens: int
    error: float
    accuracy: float
    confidence: float
    most_probable: list[ReliabilityBin]
    all_words: list[ReliabilityBin]


def calibration(model: SequenceModel, stream: TokenStream) -> Calibration:
    """Reliability of a model on a part of the tokens of a stream, taken evenly.

    At most `MOST_PROBABILITIES` probabilities are looked at. The most probable token is sorted in
    `N_BINS` of equal width (Guo et al. 2017, equations 2 and 3), the tokens of the vocabulary,
    each of which is a prediction of its own, in half powers of ten.
    """
    n_tokens = max(1, min(_MOST_TOKENS, MOST_PROBABILITIES // model.n_tokens_))
    edges = np.linspace(0.0, 1.0, N_BINS + 1)
    fine = np.concatenate([[0.0], 10.0**_DECADES])
    sums = np.zeros((3, N_BINS))
    of_all = np.zeros((3, len(fine) - 1))
    sample = evenly_spaced(stream, n_tokens)
    for probabilities, places in model._distributions(sample):
        following = sample.tokens[places]
        best = probabilities.argmax(axis=1)
        confidence = probabilities[np.arange(len(best)), best]
        sums += _sorted(confidence, best == following, edges)
        came = np.zeros(probabilities.shape, dtype=bool)
        came[np.arange(len(following)), following] = True
        of_all += _sorted(probabilities.ravel(), came.ravel(), fine)
    n, total, right = (float(each) for each in sums.sum(axis=1))
    if not n:
        raise CorpusError("the text holds no token to predict")
    error = float(np.abs(sums[1] - sums[2]).sum()) / n
    return Calibration(int(n), error, right / n, total / n, _bins(edges, sums), _bins(fine, of_all))


def _sorted(probabilities: Array, came: Array, edges: Floats) -> Floats:
    """Return number, summed probability and number that came (3, n_bins) by bin (low, high]."""
    at = np.clip(np.searchsorted(edges, probabilities, side="left") - 1, 0, len(edges) - 2)
    n = len(edges) - 1
    weights = (None, probabilities.astype(np.float64), came.astype(np.float64))
    return np.array([np.bincount(at, each, n) for each in weights], dtype=np.float64)


def _bins(edges: Floats, sums: Floats) -> list[ReliabilityBin]:
    with np.errstate(invalid="ignore"):
        means = sums[1:] / sums[0]
    columns = edges[:-1], edges[1:], sums[0].astype(int), *means
    return [
        ReliabilityBin(float(low), float(high), int(n), float(probability), float(came))
        for low, high, n, probability, came in zip(*columns, strict=True)
    ]
