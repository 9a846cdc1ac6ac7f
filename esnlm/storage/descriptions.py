"""Estimators and values as JSON, by the classes that a folder may name."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from esnlm.storage.model_folder import ModelFormatError
from esnlm.utils.validation import at_fit

#: Names of classes, and their modules.
Classes = Mapping[str, str]


def describe(value: Any, classes: Classes) -> Any:
    """Return an estimator as it was fitted, array, tuple or plain value -> what JSON can hold."""
    if isinstance(value, BaseEstimator):
        name = type(value).__name__
        if name not in classes:
            raise TypeError(f"cannot save a {name}: expected one of {', '.join(classes)}")
        params = at_fit(value)
        described = {key: describe(params[key], classes) for key in sorted(params)}
        return {"class": name, "params": described}
    if hasattr(value, "to_numpy"):  # a column of a data frame
        value = value.to_numpy()
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": str(value.dtype)}
    if isinstance(value, tuple):
        return {"tuple": [describe(item, classes) for item in value]}
    if isinstance(value, list):
        return [describe(item, classes) for item in value]
    if isinstance(value, dict):
        return {"dict": [[describe(k, classes), describe(v, classes)] for k, v in value.items()]}
    is_float = isinstance(value, type) and issubclass(value, float | np.floating)
    if isinstance(value, np.dtype) or is_float:
        return np.dtype(value).name
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"cannot save the parameter {value!r}: expected numbers, text, arrays, mappings or"
        " estimators (random_state as an integer)"
    )


def rebuild(value: Any, classes: Classes) -> Any:
    """Return the inverse of `describe`; estimators come back unfitted."""
    if isinstance(value, list):
        return [rebuild(item, classes) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value:
        return class_of(value["class"], classes)(**parameters(value, classes))
    if "array" in value:
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in "biufU":
            raise ModelFormatError(f"the model has a parameter of type {dtype}")
        return np.array(value["array"], dtype=dtype)
    if "tuple" in value:
        return tuple(rebuild(item, classes) for item in value["tuple"])
    return {rebuild(key, classes): rebuild(item, classes) for key, item in value["dict"]}


def parameters(description: Mapping[str, Any], classes: Classes) -> dict[str, Any]:
    """Return the constructor's arguments in a description of an estimator."""
    return {key: rebuild(item, classes) for key, item in description["params"].items()}


def class_of(name: str, classes: Classes) -> Any:
    """Return the class of that name, if ``classes`` have it."""
    if name not in classes:
        raise ModelFormatError(
            f"the model names the class {name!r}, expected one of {list(classes)}"
        )
    return getattr(import_module(classes[name]), name)
