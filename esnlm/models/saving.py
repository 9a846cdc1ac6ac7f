"""Estimators as JSON: what the configuration of a model folder says of its parts."""

from collections.abc import Mapping
from typing import Any

from esnlm.readouts.registry import BY_CLASS
from esnlm.readouts.sklearn.classifier import SAVED
from esnlm.storage import descriptions
from esnlm.utils.arrays import Arrays, Ints64, check_arrays
from esnlm.utils.state_dict import under_prefix

#: What ``config.json`` says, and arrays by file.
Contents = tuple[dict[str, Any], dict[str, Arrays]]

#: The modules of the classes that a model folder may name.
CLASSES = {
    "Reservoir": "esnlm.reservoir.reservoir",
    "WordFeatures": "esnlm.features.online",
    "SpectralWordFeatures": "esnlm.features.spectral",
    **{name: f"esnlm.readouts.{entry.module}" for name, entry in BY_CLASS.items()},
    **SAVED,
}


_COUNTS = "token_counts"


def counted(counts: Ints64 | None) -> Arrays:
    """Return counts of tokens as they are saved."""
    return {} if counts is None else {_COUNTS: counts}


def counts_in(arrays: Arrays, n_tokens: int) -> Ints64 | None:
    """Return counts of tokens that were saved, if they were."""
    check_arrays(arrays, {_COUNTS: "i V"}, V=n_tokens)
    return arrays.get(_COUNTS)


def describe(estimator: Any) -> Any:
    """Return an estimator, array, tuple or plain value -> what JSON can hold."""
    return descriptions.describe(estimator, CLASSES)


def rebuild(value: Any) -> Any:
    """Return the inverse of `describe`; estimators come back unfitted."""
    return descriptions.rebuild(value, CLASSES)


def parameters(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor's arguments in a description of an estimator."""
    return descriptions.parameters(description, CLASSES)


def restored(config: Mapping[str, Any], arrays: Arrays, name: str) -> Any:
    """Return the fitted part of a model that a config describes, or None."""
    if config[name] is None:
        return None
    return rebuild(config[name]).load_state_dict(under_prefix(name, arrays))
