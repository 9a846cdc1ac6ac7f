"""The weight penalty of a readout, chosen by held-out text in short trials."""

from copy import copy

from sklearn.base import clone

from esnlm.models.reservoir import LanguageModel
from esnlm.models.training import Trainer, TrainingPlan
from esnlm.text.corpus import TokenStream
from esnlm.text.shuffling import evenly_spaced

#: Multiples of a readout's penalty that are tried, and the tokens of a trial.
MULTIPLES = 1000.0, 100.0, 10.0, 1.0
TRIAL_TOKENS = 1 << 17


def chosen_penalty(
    model: LanguageModel, stream: TokenStream, held_out: TokenStream, seed: int = 0
) -> dict[float, float]:
    """Held-out losses (nats a token) by penalty, the least loss first.

    The `LanguageModel` has read the corpus and is left as it is: copies of it learn from sentences
    spread evenly over the stream, with penalties from large to small as long as the loss falls.
    """
    sample, losses = evenly_spaced(stream, TRIAL_TOKENS), dict[float, float]()
    for multiple in MULTIPLES:
        trial = copy(model)
        alpha = multiple * model.readout.alpha
        trial.readout = clone(model.readout).set_params(alpha=alpha)
        run = Trainer(trial, sample, held_out, TrainingPlan(score_every=0, seed=seed))
        run.run()
        assert run.last_score is not None
        if losses and run.last_score > min(losses.values()):
            break
        losses[alpha] = run.last_score
    return dict(sorted(losses.items(), key=lambda item: item[1]))
