"""Checks of what a model is given and what it says, and warnings of scores that mislead."""

import warnings
from typing import Any

import numpy as np

from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Array, Floats, Ints64

#: Share of unknown tokens above which scores come with a warning.
MANY_UNKNOWN = 0.1
# Predicted tokens from which a score is compared with unigrams.
_ENOUGH = 1000
# Nats by which unigrams may be better without a warning: n-grams of order one smooth otherwise.
_MARGIN = 0.01
# Above zero a logarithm may be by this: float32 sums of a million probabilities.
_ROUNDING = 1e-2


def checked_scores(scores: Floats) -> Floats:
    """Return logarithms of probabilities; ValueError where one is NaN, or above zero."""
    if len(scores) and not scores.max() <= _ROUNDING:
        raise ValueError(
            "the model gives NaN or more than 1 for a probability: its weights are too large, or"
            " are not those of one model"
        )
    return scores


def check_no_labels(y: Any) -> None:
    """Raise ValueError where labels are given: the next token is the target."""
    if y is not None:
        raise ValueError(
            "a language model learns the next token of docs and takes no labels y: classify"
            " states with a readout, such as RidgeReadout().fit(states, y)"
        )


def warn_of_unknown(tokens: Array, tokenizer: Tokenizer | None) -> None:
    """Warn where the share of unknown tokens exceeds ``MANY_UNKNOWN``."""
    if tokenizer is None or tokenizer.unk_id is None or not len(tokens):
        return
    share = float(np.mean(tokens == tokenizer.unk_id))
    if share > MANY_UNKNOWN:
        warnings.warn(
            f"{share:.1%} of the tokens are not in the vocabulary, and read as the unknown"
            " token, which is easy to predict: perplexities do not compare with those of text"
            " that is known",
            stacklevel=3,
        )


def warn_below_unigrams(score: float, tokens: Array, counts: Ints64 | None) -> None:
    """Warn where the frequencies of tokens in training predict these tokens better."""
    if counts is None or len(tokens) < _ENOUGH:
        return
    unigrams = float(np.log((counts + 0.5) / (counts + 0.5).sum())[tokens].mean())
    if score < unigrams - _MARGIN:
        warnings.warn(
            f"the model has a perplexity of {np.exp(-score):.4g}, and the frequencies of the"
            f" training text alone {np.exp(-unigrams):.4g}: train on more text, or with the"
            " default readout",
            stacklevel=3,
        )
