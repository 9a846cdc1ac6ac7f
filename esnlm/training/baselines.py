"""Losses beside a model's held-out loss: of n-grams of the same tokens, and its own on them."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.text.corpus import TokenStream
from esnlm.text.shuffling import evenly_spaced, target_counts

if TYPE_CHECKING:
    from esnlm.models.base import SequenceModel

#: Order of the n-grams, and the most tokens that they are counted in.
ORDER = 5
MOST_TOKENS = 1 << 21
# About this many training tokens are scored.
_SCORED = 1 << 15


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


def training_loss(model: "SequenceModel", stream: TokenStream) -> float:
    """Loss of a trained model in nats a token, on tokens taken evenly from its training text."""
    logs = model.log_likelihood(evenly_spaced(stream, _SCORED))
    return -float(np.concatenate(logs).mean())
