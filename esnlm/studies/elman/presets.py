"""Settings of the Elman experiment, and named ones: those found, and those of the paper."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Settings shared by all runs of a grid; the defaults are the preset ``found``.

    ``leak_rate`` is that of `Reservoir`. ``reset`` is "sentence", where each sentence is read from
    the zero state after its full stop, or "never". ``standardised`` states have mean zero and
    variance one on the training corpus. ``word_features`` is "spectral" or "gradient": the kind
    that drives the reservoir where there are any. Both mixtures have ``experts``, and
    ``assignment`` says which one of the supervised mixture predicts a word. Softmax and factored
    readouts choose from ``penalties``. ``hidden`` is the number of the network's hidden units,
    ``hidden_alpha`` its L2 penalty.
    ``grammar`` holds keyword arguments of `ElmanGrammar` as JSON; lengths are text there.
    """

    train_sentences: int = 5500
    test_sentences: int = 5500
    experts: int = 10
    assignment: str = "clusters"
    spectral_radius: float = 1.28
    input_scaling: float = 0.2
    leak_rate: Any = ("uniform", 0.2, 1.0)
    degree: int = 32
    reset: str = "sentence"
    standardised: bool = True
    word_features: str = "spectral"
    penalties: tuple[float, ...] = (0.03,)
    hidden: int = 64
    hidden_alpha: float = 1e-4
    grammar: str = "{}"


#: Name -> values of `Settings` that differ from its defaults.
PRESETS: dict[str, dict[str, Any]] = {
    # Found on held-out sentences of training corpora by benchmarks/elman_search.py.
    "found": {},
    # Rachez & Hagiwara (2014), sections 3.1 and 4.
    "rachez2012": {
        "spectral_radius": 0.97,
        "input_scaling": 1.0,
        "leak_rate": 1.0,
        "reset": "never",
        "standardised": False,
        "word_features": "gradient",
        "penalties": (1.0, 10.0),
    },
}

#: Name of a preset -> dimensions of the word features in its grid.
FEATURES = {"found": (0, 6), "rachez2012": (0, 2, 5)}


def preset(name: str, **changes: Any) -> Settings:
    """Return the settings of a preset, but for those given.

    >>> preset("rachez2012", experts=5).spectral_radius
    0.97
    """
    return Settings(**PRESETS[name] | changes)
