"""Language models whose recurrence is frozen: reservoirs, readouts, and what they are measured by.

The public names load on first use, so ``import esnlm`` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from esnlm.utils.version import __version__

if TYPE_CHECKING:
    from esnlm.grammars.elman import ElmanGrammar
    from esnlm.models.ngram import NgramLanguageModel
    from esnlm.models.reservoir import LanguageModel
    from esnlm.readouts.factored.factored import ClassFactoredReadout
    from esnlm.readouts.factored.low_rank import LowRankReadout
    from esnlm.readouts.linear.ridge import RidgeReadout
    from esnlm.readouts.mixture.mixture import MixtureOfExpertsReadout
    from esnlm.readouts.softmax.layer_norm import NormalisedSoftmaxReadout
    from esnlm.readouts.softmax.reduced_rank import ReducedRankSoftmaxReadout
    from esnlm.readouts.softmax.softmax import SoftmaxReadout
    from esnlm.readouts.token_gated.token_gated import TokenGatedReadout
    from esnlm.reservoir.reservoir import Reservoir
    from esnlm.reservoir.spectral_features import SpectralWordFeatures
    from esnlm.reservoir.word_features import WordFeatures

_HOME = {
    "Reservoir": "esnlm.reservoir.reservoir",
    "WordFeatures": "esnlm.reservoir.word_features",
    "SpectralWordFeatures": "esnlm.reservoir.spectral_features",
    "RidgeReadout": "esnlm.readouts.linear.ridge",
    "SoftmaxReadout": "esnlm.readouts.softmax.softmax",
    "MixtureOfExpertsReadout": "esnlm.readouts.mixture.mixture",
    "ClassFactoredReadout": "esnlm.readouts.factored.factored",
    "LowRankReadout": "esnlm.readouts.factored.low_rank",
    "NormalisedSoftmaxReadout": "esnlm.readouts.softmax.layer_norm",
    "ReducedRankSoftmaxReadout": "esnlm.readouts.softmax.reduced_rank",
    "TokenGatedReadout": "esnlm.readouts.token_gated.token_gated",
    "LanguageModel": "esnlm.models.reservoir",
    "NgramLanguageModel": "esnlm.models.ngram",
    "ElmanGrammar": "esnlm.grammars.elman",
}

__all__ = [
    "ClassFactoredReadout",
    "ElmanGrammar",
    "LanguageModel",
    "LowRankReadout",
    "MixtureOfExpertsReadout",
    "NgramLanguageModel",
    "NormalisedSoftmaxReadout",
    "ReducedRankSoftmaxReadout",
    "Reservoir",
    "RidgeReadout",
    "SoftmaxReadout",
    "SpectralWordFeatures",
    "TokenGatedReadout",
    "WordFeatures",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'esnlm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
