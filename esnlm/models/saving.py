"""Language models as model folders: save, load, and estimators as JSON."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from esnlm.readouts.registry import BY_CLASS
from esnlm.storage.model_folder import (
    TOKENIZER,
    ModelFormatError,
    read_model,
    write_model,
)
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.state_dict import Arrays
from esnlm.utils.version import __version__

#: What ``config.json`` says, and arrays by file.
Contents = tuple[dict[str, Any], dict[str, Arrays]]

#: The modules of the classes that a model folder may name.
CLASSES = {
    "Reservoir": "esnlm.reservoir.reservoir",
    "WordFeatures": "esnlm.reservoir.word_features",
    "SpectralWordFeatures": "esnlm.reservoir.spectral_features",
} | {name: f"esnlm.readouts.{entry.module}" for name, entry in BY_CLASS.items()}


class SavedModel:
    """``save`` and ``load`` of a language model, from two things that a subclass defines.

    ``_contents()`` -> what ``config.json`` says beside the tokenizer, and arrays by file.
    ``_rebuilt(config, arrays, tokenizer)`` -> the model; KeyError, TypeError or IndexError where
    something is missing. ``_kind`` is the configuration's entry of that name, if it has one.
    """

    _kind: ClassVar[str | None] = None
    tokenizer_: Tokenizer | None
    n_tokens_: int
    run_: str | None

    def save(self, folder: str | Path) -> None:
        """Write ``config.json``, ``weights.safetensors`` and, with a tokenizer, ``tokenizer.json``.

        The folder appears whole or not at all; a model that was there is replaced.

        Raises
        ------
        FileExistsError
            ``folder`` is a file, or a folder with anything but a model in it.
        """
        self._write(folder, *self._contents())

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The model that `save` wrote; its probabilities are identical.

        Raises
        ------
        ModelFormatError
            The folder is missing, incomplete, altered, of another version, or of another kind.
        """
        config, arrays, texts = read_model(Path(folder))
        if config.get("kind") != cls._kind:
            raise ModelFormatError(
                f"{folder} holds no {cls.__name__}: load it with esnlm.loading.load_model"
            )
        try:
            about = config["tokenizer"]
            tokenizer = None if about is None else Tokenizer.from_json(texts[TOKENIZER], **about)
            model: Self = cls._rebuilt(config, arrays, tokenizer)
        except (KeyError, TypeError, IndexError) as error:
            raise ModelFormatError(f"{folder} is not a whole model: {error}") from error
        model.n_tokens_ = int(config["n_tokens"])
        if "run" in config:
            model.run_ = config["run"]
        if tokenizer is not None and len(tokenizer) > model.n_tokens_:
            raise ModelFormatError(
                f"the tokenizer of {len(tokenizer)} entries does not belong to a model of"
                f" {model.n_tokens_} tokens"
            )
        return model

    def _write(self, folder: str | Path, config: dict[str, Any], arrays: dict[str, Arrays]) -> None:
        about, texts = None, {}
        if (tokenizer := self.tokenizer_) is not None:
            about = {"bos": tokenizer.bos, "eos": tokenizer.eos}
            texts[TOKENIZER] = tokenizer.to_json()
        config = {"esnlm": __version__, **config, "tokenizer": about}
        if hasattr(self, "run_"):
            config["run"] = self.run_
        write_model(Path(folder), config, arrays, texts)

    def _contents(self) -> Contents:
        raise NotImplementedError

    @classmethod
    def _rebuilt(
        cls, config: dict[str, Any], arrays: dict[str, Arrays], tokenizer: Tokenizer | None
    ) -> Self:
        raise NotImplementedError


def describe(estimator: Any) -> Any:
    """An estimator, array, tuple or plain value -> what JSON can hold."""
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
    """The inverse of `describe`; estimators come back unfitted."""
    if isinstance(value, list):
        return [rebuild(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value:
        return class_of(value["class"])(**parameters(value))
    if "array" in value:
        return np.array(value["array"], dtype=value["dtype"])
    if "tuple" in value:
        return tuple(rebuild(item) for item in value["tuple"])
    return {rebuild(key): rebuild(item) for key, item in value["dict"]}


def parameters(description: Mapping[str, Any]) -> dict[str, Any]:
    """The constructor's arguments in a description of an estimator."""
    return {key: rebuild(item) for key, item in description["params"].items()}


def class_of(name: str) -> Any:
    """The class of that name, if a model folder may name it."""
    if name not in CLASSES:
        raise ModelFormatError(
            f"the model names the class {name!r}, expected one of {list(CLASSES)}"
        )
    return getattr(import_module(CLASSES[name]), name)
