"""The weight penalty of a readout, chosen by held-out text in short trials."""

from copy import copy

import numpy as np
from sklearn.base import clone

from esnlm.models.reservoir import LanguageModel
from esnlm.models.training import Trainer, TrainingPlan
from esnlm.text.corpus import TokenStream
from esnlm.text.shuffling import evenly_spaced

#: Tokens of a trial.
TRIAL_TOKENS = 1 << 17
_LARGEST = 1e9


def chosen_penalty(
    model: LanguageModel,
    stream: TokenStream,
    held_out: TokenStream,
    seed: int = 0,
    *,
    verbose: bool = False,
) -> dict[float, float]:
    """Held-out losses (nats a token) by penalty, the least loss first.

    The `LanguageModel` has read the corpus and is left as it is: copies of it learn from sentences
    spread evenly over the stream, with the readout's own penalty and with ten times as much, or as
    little, as long as that lowers the loss. ``verbose`` shows each trial on standard error.
    """
    sample, losses = evenly_spaced(stream, TRIAL_TOKENS), dict[float, float]()

    def is_better(alpha: float) -> bool:
        trial = copy(model)
        trial.readout = clone(model.readout).set_params(alpha=alpha)
        run = Trainer(trial, sample, held_out, TrainingPlan(score_every=0, seed=seed))
        run.run(verbose=verbose, name=f"trial of penalty {alpha:g}")
        assert run.last_score is not None
        before = min(losses.values(), default=np.inf)
        losses[alpha] = run.last_score
        return losses[alpha] < before

    first = float(model._given_readout.alpha)
    is_better(first)
    for factor in (10.0, 0.1):
        alpha = first * factor
        while alpha <= _LARGEST and is_better(alpha):
            alpha *= factor
        if alpha > first * 10:  # more was better: less is not tried
            break
    return dict(sorted(losses.items(), key=lambda item: item[1]))
