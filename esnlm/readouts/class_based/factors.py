"""Readouts that stand for factors of a word's probability, and settings to learn both jointly."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from esnlm.readouts.base.readout import StreamingReadout
from esnlm.readouts.class_based.pilot_sample import LARGEST_BATCH
from esnlm.readouts.class_based.solver import TwoLevelSettings
from esnlm.readouts.linear.ridge import RidgeReadout
from esnlm.readouts.mixture.mixture import MixtureOfExpertsReadout
from esnlm.readouts.softmax.softmax import SoftmaxReadout

_KINDS = {"softmax": SoftmaxReadout, "ridge": RidgeReadout, "moe": MixtureOfExpertsReadout}
# Factors that are given by name alone, where they are learned jointly.
_SOFTMAX = SoftmaxReadout(alpha=10.0, n_passes=1, learning_rate=0.2)
_BY_NAME: dict[str, Any] = {
    "softmax": _SOFTMAX,
    "ridge": RidgeReadout(),
    "moe": MixtureOfExpertsReadout(n_experts=4),
}
# Parameters of given factors that learning them jointly reads, and those that no model depends on.
_STEPS = "learning_rate", "momentum", "n_passes"
_READ = {
    SoftmaxReadout: ("alpha", *_STEPS),
    RidgeReadout: ("alpha",),
    MixtureOfExpertsReadout: ("n_experts",),
}
_NOT_OF_THE_MODEL = "buffer_size", "n_threads", "random_state", "verbose"


def factor_readout(name: str, readout: Any, random_state: Any) -> Any:
    """Return a readout for a factor: the caller's, or the default one of its name."""
    if isinstance(readout, StreamingReadout):
        return readout
    if isinstance(readout, str) and readout in _KINDS:
        factor = _KINDS[readout]()
        seeded = "random_state" in factor.get_params()
        return factor.set_params(random_state=random_state) if seeded else factor
    raise ValueError(f"{name} must be 'softmax', 'ridge', 'moe' or a readout, got {readout!r}")


def joint_softmax(alpha: float | None = None, n_passes: int | None = None) -> SoftmaxReadout:
    """Return a factor learned jointly as the one named "softmax", but for penalty or passes.

    >>> joint_softmax(n_passes=3)
    SoftmaxReadout(alpha=10.0, learning_rate=0.2, n_passes=3)
    """
    options = {"alpha": alpha, "n_passes": n_passes}
    return clone(_SOFTMAX).set_params(**{name: v for name, v in options.items() if v is not None})


def are_joint(classes: Any, words: Any) -> bool:
    """Whether readouts of classes and words can be learned jointly.

    Only those of these classes: readouts derived from them normalise states, or have another rank.
    """
    if isinstance(classes, MixtureOfExpertsReadout):
        classes_fit = classes.experts == "softmax"
    else:
        classes_fit = type(classes) in (RidgeReadout, SoftmaxReadout)
    return classes_fit and type(words) in (RidgeReadout, SoftmaxReadout)


def _check_jointly(factors: Mapping[str, Any]) -> None:
    """Raise ValueError for parameters of given readouts that have no effect where these are joint.

    Both take their steps together, so two softmax readouts have the same rate and passes.
    """
    readouts = {name: factor for name, factor in factors.items() if not isinstance(factor, str)}
    for name, factor in readouts.items():
        parameters = _READ[type(factor)]
        for parameter, default in type(factor)().get_params(deep=False).items():
            value = getattr(factor, parameter)
            if parameter not in (*parameters, *_NOT_OF_THE_MODEL) and value != default:
                raise ValueError(
                    f"{parameter}={value!r} of {name} has no effect, as solver is joint and takes"
                    f" {', '.join(parameters)}: leave out {parameter}, or choose solver 'separate'"
                )
    for parameter in _STEPS:
        values = [getattr(f, parameter) for f in readouts.values() if isinstance(f, SoftmaxReadout)]
        if len(set(values)) > 1:
            raise ValueError(
                f"{parameter} must be the same for class_readout and word_readout, which solver"
                f" joint trains together, got {values}"
            )


def joint_settings(
    class_readout: Any, word_readout: Any, n_components: int, seed: int
) -> TwoLevelSettings:
    """Return settings of the joint learner, from readouts or their names.

    The classes of a mixture have the penalty of softmax words; steps are those of the first
    softmax readout that is given. ValueError names parameters that have no effect.
    """
    _check_jointly({"class_readout": class_readout, "word_readout": word_readout})
    classes, words = (
        _BY_NAME[each] if isinstance(each, str) else each for each in (class_readout, word_readout)
    )
    softmaxes = (f for f in (class_readout, word_readout) if isinstance(f, SoftmaxReadout))
    steps = next(softmaxes, _SOFTMAX)
    n_experts = int(isinstance(classes, SoftmaxReadout))
    if isinstance(classes, MixtureOfExpertsReadout):
        n_experts = classes.n_experts
        classes = words if isinstance(words, SoftmaxReadout) else _SOFTMAX
    return TwoLevelSettings(
        n_components,
        n_experts=n_experts,
        softmax_words=isinstance(words, SoftmaxReadout),
        alpha=classes.alpha,
        word_alpha=words.alpha,
        rate=partial(_rate, float(steps.learning_rate)),
        momentum=steps.momentum,
        n_passes=steps.n_passes,
        seed=seed,
    )


def _rate(base: float, share: float, n_rows: int, n_components: int, n_steps: int) -> float:
    """See `TwoLevelSettings`: less for the noise of few rows."""
    size = min(1.0, n_rows / n_components, float(np.sqrt(n_rows / LARGEST_BATCH)))
    return share * (base * size)
