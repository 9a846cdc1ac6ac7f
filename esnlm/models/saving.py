"""Convert language models to the files of a model folder, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from esnlm.storage.model_folder import (
    TOKENIZER,
    TRAINING,
    WEIGHTS,
    Arrays,
    ModelFormatError,
    describe,
    home_of,
    parameters,
    under_prefix,
    with_prefix,
)
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.version import __version__

#: What ``config.json`` says, arrays by file, and texts by file.
Files = tuple[dict[str, Any], dict[str, Arrays], dict[str, str]]

_SETTINGS = ("reset", "n_tokens", "shuffle", "n_streams", "random_state")
_CARRIED_STATE, _CARRIED_LAST = "carried.state", "carried.last"


def tokenizer_files(tokenizer: Tokenizer | None) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """What the configuration says of a tokenizer, and its text by file; None and no file of none.

    >>> told, texts = tokenizer_files(Tokenizer.train_words(["a b"]))
    >>> tokenizer_of({"tokenizer": told}, texts).vocabulary
    ['<unk>', '<s>', '</s>', 'a', 'b']
    """
    if tokenizer is None:
        return None, {}
    return {"bos": tokenizer.bos, "eos": tokenizer.eos}, {TOKENIZER: tokenizer.to_json()}


def tokenizer_of(config: Mapping[str, Any], texts: Mapping[str, str]) -> Tokenizer | None:
    """The tokenizer of `tokenizer_files`."""
    told = config["tokenizer"]
    return None if told is None else Tokenizer.from_json(texts[TOKENIZER], **told)


def model_files(model: Any, *, training: bool) -> Files:
    """A fitted `LanguageModel` as files; with ``training``, what it learns on with too."""
    told, texts = tokenizer_files(model.tokenizer_)
    config = {
        "esnlm": __version__,
        "n_tokens": model.n_tokens_,
        "settings": {name: getattr(model, name) for name in _SETTINGS},
        "reservoir": describe(model.reservoir_),
        "readout": describe(model.readout_),
        "features": None if model.features_ is None else describe(model.features_),
        "tokenizer": told,
        "run": getattr(model, "run_", None),
    }
    arrays = with_prefix("reservoir", model.reservoir_.to_arrays())
    arrays |= with_prefix("readout", model.readout_.to_arrays())
    if model.features_ is not None:
        arrays |= with_prefix("features", model.features_.to_arrays())
    files = {WEIGHTS: arrays}
    if training:
        files[TRAINING] = model.readout_.training_arrays() | _carried_arrays(model)
    return config, files, texts


def model_of(
    kind: Any, config: Mapping[str, Any], files: Mapping[str, Arrays], texts: Mapping[str, str]
) -> Any:
    """The model of class ``kind`` that `model_files` described."""

    def fitted(part: str) -> Any:
        if config[part] is None:
            return None
        home = home_of(config[part]["class"])
        return home.from_arrays(parameters(config[part]), under_prefix(part, files[WEIGHTS]))

    tokenizer = tokenizer_of(config, texts)
    reservoir, readout, features = map(fitted, ("reservoir", "readout", "features"))
    model = kind.of_parts(reservoir, readout, tokenizer, features, **config["settings"])
    model.n_tokens_ = int(config["n_tokens"])
    model.run_ = config.get("run")
    if tokenizer is not None and len(tokenizer) > model.n_tokens_:
        raise ModelFormatError(
            f"the tokenizer of {len(tokenizer)} entries does not belong to a model of"
            f" {model.n_tokens_} tokens"
        )
    if TRAINING in files:
        _restore_training(model, files[TRAINING])
    return model


def _carried_arrays(model: Any) -> Arrays:
    """The state and the last tokens that a model without resets goes on from."""
    if model._carried is None:
        return {}
    state, last = model._carried
    return {_CARRIED_LAST: last} | ({} if state is None else {_CARRIED_STATE: state})


def _restore_training(model: Any, arrays: Arrays) -> None:
    state, last = (arrays.pop(name, None) for name in (_CARRIED_STATE, _CARRIED_LAST))
    model._carried = None if last is None else (state, np.asarray(last, dtype=np.int64))
    model.readout_.restore_training(arrays)
