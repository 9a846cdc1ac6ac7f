"""Estimators as JSON: what the configuration of a model folder says of its parts."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from esnlm.readouts.registry import BY_CLASS
from esnlm.readouts.sklearn.classifier import SAVED
from esnlm.storage.model_folder import ModelFormatError
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
    if isinstance(estimator, BaseEstimator):
        name = type(estimator).__name__
        if name not in CLASSES:
            raise TypeError(f"cannot save a {name}: expected one of {', '.join(CLASSES)}")
        params = estimator.get_params(deep=False)
        return {"class": name, "params": {key: describe(params[key]) for key in sorted(params)}}
    if isinstance(estimator, np.ndarray):
        return {"array": estimator.tolist(), "dtype": str(estimator.dtype)}
    if isinstance(estimator, tuple):
        return {"tuple": [describe(value) for value in estimator]}
    if isinstance(estimator, list):
        return [describe(value) for value in estimator]
    if isinstance(estimator, dict):
        return {"dict": [[describe(k), describe(v)] for k, v in estimator.items()]}
    if isinstance(estimator, np.dtype) or estimator is np.float32 or estimator is np.float64:
        return np.dtype(estimator).name
    if isinstance(estimator, np.generic):
        return estimator.item()
    if estimator is None or isinstance(estimator, bool | int | float | str):
        return estimator
    raise TypeError(
        f"cannot save the parameter {estimator!r}: expected numbers, text, arrays, mappings or"
        " estimators (random_state as an integer)"
    )


def rebuild(value: Any) -> Any:
    """Return the inverse of `describe`; estimators come back unfitted."""
    if isinstance(value, list):
        return [rebuild(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value:
        return class_of(value["class"])(**parameters(value))
    if "array" in value:
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in "biufU":
            raise ModelFormatError(f"the model has a parameter of type {dtype}")
        return np.array(value["array"], dtype=dtype)
    if "tuple" in value:
        return tuple(rebuild(item) for item in value["tuple"])
    return {rebuild(key): rebuild(item) for key, item in value["dict"]}


def restored(config: Mapping[str, Any], arrays: Arrays, name: str) -> Any:
    """Return the fitted part of a model that a config describes, or None."""
    if config[name] is None:
        return None
    part = class_of(config[name]["class"])(**parameters(config[name]))
    return part.load_state_dict(under_prefix(name, arrays))


def parameters(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor's arguments in a description of an estimator."""
    return {key: rebuild(item) for key, item in description["params"].items()}


def class_of(name: str) -> Any:
    """Return the class of that name, if a model folder may name it."""
    if name not in CLASSES:
        raise ModelFormatError(
            f"the model names the class {name!r}, expected one of {list(CLASSES)}"
        )
    return getattr(import_module(CLASSES[name]), name)
