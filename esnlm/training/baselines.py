"""Losses that a model is to be below: of unigrams and of Kneser-Ney n-grams of the same tokens."""

from typing import NamedTuple

import numpy as np

from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.text.corpus import TokenStream
from esnlm.text.shuffling import target_counts

#: Order of the n-grams, and the most tokens that they are counted in.
ORDER = 5
MOST_TOKENS = 1 << 21


class Baselines(NamedTuple):
    """Held-out losses in nats a token; that of n-grams is None for long corpora."""

    unigrams: float
    ngrams: float | None


def baselines(stream: TokenStream, held_out: TokenStream, n_tokens: int) -> Baselines:
    """Losses on the predicted tokens of ``held_out`` by models of ``stream``.

    A unigram has half an occurrence more than it had; `KneserNey` has its defaults.

    >>> text = TokenStream(np.array([0, 1, 2, 1]), np.array([0]), np.array([0, 4]))
    >>> round(baselines(text, text, 3).unigrams, 3)
    0.758
    """
    marks = held_out.predicted()
    mass = target_counts(stream, n_tokens) + 0.5
    unigrams = -np.log(mass / mass.sum())[held_out.tokens[marks]].mean()
    if len(stream.tokens) > MOST_TOKENS:
        return Baselines(float(unigrams), None)
    ngrams = KneserNey(order=ORDER, n_tokens=n_tokens).fit(stream.tokens, starts=stream.starts)
    logs = ngrams.log_probabilities(held_out.tokens, held_out.starts)
    return Baselines(float(unigrams), -float(logs[marks].mean()))
