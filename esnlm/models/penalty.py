"""The weight penalty of a readout, chosen by held-out text in short trials."""

import math
from copy import copy
from typing import Any

import numpy as np
from sklearn.base import clone

from esnlm.text.corpus import TokenStream
from esnlm.text.shuffling import evenly_spaced
from esnlm.utils.messages import say

#: Tokens of a trial, and held-out tokens that are scored.
TRIAL_TOKENS, HELD_OUT_TOKENS = 1 << 17, 1 << 15
# Readouts whose penalty held-out text chooses in trials, for texts of at most so many tokens: of
# longer ones trials read a part, and fewer tokens want a larger penalty (reports/search).
_MOST_TOKENS = {"SoftmaxReadout": 1 << 20, "LowRankReadout": 1 << 18}
_LARGEST = 1e9


def settle_penalty(model: Any, stream: TokenStream, held_out: TokenStream | None) -> None:
    """Set the penalty of a `LanguageModel` by held-out text, for readouts and texts that gain."""
    most = _MOST_TOKENS.get(type(model._given_readout).__name__, -1)
    if held_out is None or len(stream.tokens) > most:
        return
    losses = chosen_penalty(model, stream, held_out)
    best = next(iter(losses))
    model._given_readout.set_params(alpha=best)
    others = "; ".join(f"{alpha:g}: {math.exp(loss):.4g}" for alpha, loss in losses.items())
    if model.verbose:
        say(f"chose alpha={best:g} (held-out perplexity by alpha: {others})")


def chosen_penalty(model: Any, stream: TokenStream, held_out: TokenStream) -> dict[float, float]:
    """Return held-out losses (nats a token) by penalty, the least loss first.

    The `LanguageModel` has read the corpus and is left as it is: copies of it learn from sentences
    spread evenly over the stream, with the readout's own penalty and with ten times as much, or as
    little, as long as that lowers the loss.
    """
    sample, judge = evenly_spaced(stream, TRIAL_TOKENS), evenly_spaced(held_out, HELD_OUT_TOKENS)
    readout, losses = model._given_readout, dict[float, float]()

    def is_better(alpha: float) -> bool:
        trial = copy(model)
        trial.readout = clone(readout).set_params(alpha=alpha)
        scores = trial._fit_tokens(sample, judge)._scores(judge)
        before = min(losses.values(), default=np.inf)
        losses[alpha] = -float(scores[judge.predicted()].mean())
        return losses[alpha] < before

    first = readout.alpha
    if first is None:
        first = readout._penalty(len(stream.tokens))
    is_better(float(first))
    for factor in (10.0, 0.1):
        alpha = first * factor
        while alpha <= _LARGEST and is_better(alpha):
            alpha *= factor
        if alpha > first * 10:  # more was better: less is not tried
            break
    return dict(sorted(losses.items(), key=lambda item: item[1]))
