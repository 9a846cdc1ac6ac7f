"""The readouts that factors are named or given as, and what the joint solver takes from them."""

from typing import Any, NamedTuple

from sklearn.base import clone

from esnlm.readouts.base.readout import StreamingReadout
from esnlm.readouts.linear.ridge import RidgeReadout
from esnlm.readouts.mixture.mixture import MixtureOfExpertsReadout
from esnlm.readouts.softmax.softmax import SoftmaxReadout
from esnlm.readouts.two_level.solver import FactorSettings

_KINDS = {"softmax": SoftmaxReadout, "ridge": RidgeReadout, "moe": MixtureOfExpertsReadout}
# Parameters of factors that are named alone, where they are learned jointly.
_JOINT_SOFTMAX = SoftmaxReadout(alpha=10.0, n_passes=1, learning_rate=0.2)
_JOINT_EXPERTS = 4


class FactorReadouts(NamedTuple):
    """Readouts for the class and for the words in it, and which of the two were only named.

    Examples
    --------
    >>> factors = FactorReadouts.of("moe", SoftmaxReadout(n_passes=3))
    >>> factors.words, factors.may_be_joint
    (SoftmaxReadout(n_passes=3), True)
    >>> settings = factors.joint_settings(n_components=64, seed=0)
    >>> settings.n_experts, settings.n_passes
    (4, 3)
    """

    classes: Any
    words: Any
    classes_named: bool
    words_named: bool

    @classmethod
    def of(cls, class_readout: Any, word_readout: Any) -> "FactorReadouts":
        """Those of the parameters of a `ClassFactoredReadout`."""
        words = _factor(word_readout, "word_readout")
        classes = _factor(class_readout, "class_readout")
        return cls(classes, words, isinstance(class_readout, str), isinstance(word_readout, str))

    @property
    def may_be_joint(self) -> bool:
        """Whether the joint solver knows factors of these kinds."""
        mixture = isinstance(self.classes, MixtureOfExpertsReadout)
        known = isinstance(self.classes, RidgeReadout | SoftmaxReadout)
        known = known or (mixture and self.classes.experts == "softmax")
        return known and isinstance(self.words, RidgeReadout | SoftmaxReadout)

    @property
    def any_ridge(self) -> bool:
        """Whether a factor is solved only when it is asked for."""
        return any(isinstance(factor, RidgeReadout) for factor in (self.classes, self.words))

    def joint_settings(self, n_components: int, seed: int) -> FactorSettings:
        """What the joint solver takes from the readouts."""
        classes, words = (
            _JOINT_SOFTMAX if is_named and isinstance(factor, SoftmaxReadout) else factor
            for factor, is_named in (
                (self.classes, self.classes_named),
                (self.words, self.words_named),
            )
        )
        n_experts = int(isinstance(classes, SoftmaxReadout))
        if isinstance(classes, MixtureOfExpertsReadout):
            n_experts = _JOINT_EXPERTS if self.classes_named else classes.n_experts
            classes = words if isinstance(words, SoftmaxReadout) else _JOINT_SOFTMAX
        softmax = [f for f in (classes, words) if isinstance(f, SoftmaxReadout)]
        steps = softmax[0] if softmax else _JOINT_SOFTMAX
        return FactorSettings(
            n_components,
            n_experts,
            isinstance(words, SoftmaxReadout),
            _penalty(classes),
            _penalty(words),
            steps.learning_rate,
            steps.momentum,
            max([factor.n_passes for factor in softmax], default=1),
            seed,
        )


def joint_softmax(alpha: float | None = None, n_passes: int | None = None) -> SoftmaxReadout:
    """A factor that is learned jointly as one named "softmax", but for penalty or passes.

    Examples
    --------
    >>> joint_softmax(n_passes=3)
    SoftmaxReadout(alpha=10.0, learning_rate=0.2, n_passes=3)
    """
    factor = clone(_JOINT_SOFTMAX)
    given = {"alpha": alpha, "n_passes": n_passes}
    return factor.set_params(**{name: v for name, v in given.items() if v is not None})


def _factor(readout: Any, name: str) -> Any:
    """A readout for a factor: the caller's, or the default one of its name."""
    if isinstance(readout, str):
        if readout in _KINDS:
            return _KINDS[readout]()
    elif isinstance(readout, StreamingReadout):
        return readout
    raise ValueError(f"{name} must be 'softmax', 'ridge', 'moe' or a readout, got {readout!r}")


def _penalty(factor: Any) -> float | None:
    """The penalty of a factor; None where ridge is to choose it."""
    if isinstance(factor, RidgeReadout) and factor.selection is not None:
        return None
    return float(factor.alpha)
