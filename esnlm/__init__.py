"""Language models whose recurrence is frozen: reservoirs, readouts, and what they are measured by.

The public names load on first use, so ``import esnlm`` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from esnlm.features import WordFeatures
    from esnlm.grammars import ElmanGrammar
    from esnlm.language_model import LanguageModel
    from esnlm.ngram_model import NgramLanguageModel
    from esnlm.readouts.factored import ClassFactoredReadout
    from esnlm.readouts.low_rank import LowRankReadout
    from esnlm.readouts.mixture import MixtureOfExpertsReadout
    from esnlm.readouts.normalised import NormalisedSoftmaxReadout
    from esnlm.readouts.reduced_rank import ReducedRankSoftmaxReadout
    from esnlm.readouts.ridge import RidgeReadout
    from esnlm.readouts.softmax import SoftmaxReadout
    from esnlm.readouts.token_gated import TokenGatedReadout
    from esnlm.reservoir import Reservoir
    from esnlm.spectral import SpectralWordFeatures

__version__ = "0.1.0"

_HOME = {
    "Reservoir": "esnlm.reservoir",
    "WordFeatures": "esnlm.features",
    "SpectralWordFeatures": "esnlm.spectral",
    "RidgeReadout": "esnlm.readouts.ridge",
    "SoftmaxReadout": "esnlm.readouts.softmax",
    "MixtureOfExpertsReadout": "esnlm.readouts.mixture",
    "ClassFactoredReadout": "esnlm.readouts.factored",
    "LowRankReadout": "esnlm.readouts.low_rank",
    "NormalisedSoftmaxReadout": "esnlm.readouts.normalised",
    "ReducedRankSoftmaxReadout": "esnlm.readouts.reduced_rank",
    "TokenGatedReadout": "esnlm.readouts.token_gated",
    "LanguageModel": "esnlm.language_model",
    "NgramLanguageModel": "esnlm.ngram_model",
    "ElmanGrammar": "esnlm.grammars",
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
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'esnlm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
