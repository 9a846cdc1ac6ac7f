"""Model folders: JSON and safetensors, written whole or not at all, checked when read.

Nothing here unpickles: a folder from a stranger can hold wrong numbers, not code.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from esnlm.storage.atomic import sync_folder
from esnlm.storage.tensor_file import file_digest, read_tensors, write_tensors

FORMAT = "esnlm-model"
VERSION = 1
CONFIG = "config.json"
WEIGHTS = "weights.safetensors"
TRAINING = "training.safetensors"
TOKENIZER = "tokenizer.json"
_FILES = {CONFIG, WEIGHTS, TRAINING, TOKENIZER}

#: The classes that a model folder may name.
_HOMES = {
    "Reservoir": "esnlm.reservoir.reservoir",
    "WordFeatures": "esnlm.reservoir.word_features",
    "SpectralWordFeatures": "esnlm.reservoir.spectral_features",
    "RidgeReadout": "esnlm.readouts.linear.ridge",
    "SoftmaxReadout": "esnlm.readouts.softmax.softmax",
    "MixtureOfExpertsReadout": "esnlm.readouts.mixture.mixture",
    "ClassFactoredReadout": "esnlm.readouts.factored.factored",
    "LowRankReadout": "esnlm.readouts.factored.low_rank",
    "TokenGatedReadout": "esnlm.readouts.token_gated.token_gated",
    "NormalisedSoftmaxReadout": "esnlm.readouts.softmax.layer_norm",
    "ReducedRankSoftmaxReadout": "esnlm.readouts.softmax.reduced_rank",
}

Arrays = dict[str, NDArray[Any]]


class ModelFormatError(ValueError):
    """A folder that is not a whole, unaltered model."""


@contextmanager
def folder_aside(target: Path) -> Iterator[Path]:
    """A temporary folder beside ``target`` that takes its place when the block ends well.

    An existing model folder or empty folder is replaced; after an error nothing has changed.

    Raises
    ------
    FileExistsError
        ``target`` is a file, or a folder with anything but a model in it.
    """
    # Resolved: making the parents of ``new/../other`` would turn a free name into a full folder.
    target = target.resolve()
    _refuse_others(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        aside.chmod(0o777 & ~_umask())
        yield aside
        _refuse_others(target)
        _put_in_place(aside, target)
        sync_folder(target.parent)
    except OSError as error:
        error.filename = error.filename or str(target)  # a full disk is told without a name
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_target(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that a model could not be written to, before the work is done.

    Raises
    ------
    FileExistsError
        It holds a model and ``overwrite`` is False, or anything else.
    PermissionError
        The folder that would hold it cannot be written.
    """
    folder = folder.resolve()
    _refuse_others(folder)
    if _is_model(folder) and not overwrite:
        raise FileExistsError(f"{folder} exists: choose another folder, or pass --overwrite")
    home = next(parent for parent in folder.parents if parent.exists())
    try:
        os.rmdir(tempfile.mkdtemp(dir=home))
    except OSError as error:
        raise PermissionError(f"cannot write in {home}: choose another folder") from error


def write_model(
    folder: Path,
    config: Mapping[str, Any],
    arrays: Mapping[str, Arrays],
    texts: Mapping[str, str],
) -> None:
    """Write ``config.json``, files of arrays (by name) and of text as one new folder.

    ``config`` gets the format, its version, and the SHA-256 of every file and of itself.
    """
    with folder_aside(folder) as aside:
        write_files(aside, {"format": FORMAT, "version": VERSION, **config}, arrays, texts)


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, Arrays], dict[str, str]]:
    """What `write_model` wrote: configuration, arrays and texts by file name.

    Raises
    ------
    ModelFormatError
        A file is missing, truncated or altered, or the format is another one.
    """
    return read_files(folder, FORMAT, VERSION, "model")


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a model folder, checked as `read_model` does; no other file is read."""
    return _read_config(folder, FORMAT, VERSION, "model")


def write_files(
    folder: Path,
    config: Mapping[str, Any],
    arrays: Mapping[str, Arrays],
    texts: Mapping[str, str],
) -> None:
    """Write files into a folder that nobody reads yet, ``config.json`` last, all to the disk."""
    config = _plain(config)
    digests = {name: write_tensors(folder / name, arrays[name]) for name in arrays}
    for name, text in texts.items():
        digests[name] = _digest(text.encode())
        _write(folder / name, text.encode())
    full = {**config, "sha256": dict(sorted(digests.items()))}
    full["config_sha256"] = _config_digest(full)
    _write(folder / CONFIG, _config_bytes(full))
    sync_folder(folder)


def read_files(
    folder: Path, kind: str, version: int, what: str
) -> tuple[dict[str, Any], dict[str, Arrays], dict[str, str]]:
    """Configuration, arrays and texts of a folder of `write_files`, every byte checked.

    Raises
    ------
    ModelFormatError
        A file is missing, truncated or altered, or the format is another one.
    """
    config = _read_config(folder, kind, version, what)
    arrays: dict[str, Arrays] = {}
    texts = {}
    for name, digest in config["sha256"].items():
        if Path(name).name != name:
            raise ModelFormatError(f"{folder} names a file outside the {what}: {name!r}")
        if not (folder / name).is_file():
            raise ModelFormatError(f"{folder} is not a whole {what}: {name} is missing")
        if file_digest(folder / name) != digest:
            raise ModelFormatError(_altered(folder, name, what))
        try:
            if name.endswith(".safetensors"):
                arrays[name] = read_tensors(folder / name)
            else:
                texts[name] = (folder / name).read_text(encoding="utf-8")
        except (KeyError, ValueError) as error:
            raise ModelFormatError(f"{folder} does not hold a readable {what}: {error}") from error
    return config, arrays, texts


def describe(estimator: Any) -> Any:
    """An estimator, array, tuple or plain value -> what JSON can hold."""
    if isinstance(estimator, BaseEstimator):
        name = type(estimator).__name__
        if name not in _HOMES:
            raise TypeError(f"cannot save a {name}: expected one of {', '.join(_HOMES)}")
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
        return home_of(value["class"])(**parameters(value))
    if "array" in value:
        return np.array(value["array"], dtype=value["dtype"])
    if "tuple" in value:
        return tuple(rebuild(item) for item in value["tuple"])
    return {rebuild(key): rebuild(item) for key, item in value["dict"]}


def parameters(description: Mapping[str, Any]) -> dict[str, Any]:
    """The constructor's arguments in a description of an estimator."""
    return {key: rebuild(item) for key, item in description["params"].items()}


def home_of(name: str) -> Any:
    """The class of that name, if a model folder may name it."""
    if name not in _HOMES:
        raise ModelFormatError(
            f"the model names the class {name!r}, expected one of {list(_HOMES)}"
        )
    return getattr(import_module(_HOMES[name]), name)


def with_prefix(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Arrays under names that begin with ``prefix`` and a dot."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def under_prefix(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """The inverse of `with_prefix`, leaving out all others."""
    start = prefix + "."
    return {k.removeprefix(start): array for k, array in arrays.items() if k.startswith(start)}


def _read_config(folder: Path, kind: str, version: int, what: str) -> dict[str, Any]:
    if not folder.is_dir():
        raise ModelFormatError(f"no such {what} folder: {folder}")
    path = folder / CONFIG
    try:
        data = path.read_bytes()
        config = json.loads(data)
    except FileNotFoundError as error:
        raise ModelFormatError(f"{folder} is not a whole {what}: {CONFIG} is missing") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelFormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict) or config.get("format") != kind:
        raise ModelFormatError(f"{path} does not describe a {what} of esnlm")
    if config.get("version") != version:
        raise ModelFormatError(
            f"{folder} has version {config.get('version')!r} of the {what} format, expected"
            f" {version}: load it with the esnlm that wrote it and save it again"
        )
    # Bytes too: a number may be written in two ways that read alike.
    whole = data == _config_bytes(config)
    if config.pop("config_sha256", None) != _config_digest(config) or not whole:
        raise ModelFormatError(f"{path} was altered: its checksum differs")
    return config


def _altered(folder: Path, name: str, what: str) -> str:
    if name == TOKENIZER:
        return (
            f"{folder / name} is altered, or does not belong to this {what}: its checksum differs"
            f" from the one in {CONFIG}"
        )
    return (
        f"{folder / name} is truncated or altered: its checksum differs from the one in"
        f" {CONFIG}; save or copy the {what} again"
    )


def _plain(value: Any) -> Any:
    """The value without numpy's numbers, which JSON does not know."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _config_bytes(config: Mapping[str, Any]) -> bytes:
    return (json.dumps(config, indent=2) + "\n").encode()


def _config_digest(config: Mapping[str, Any]) -> str:
    return _digest(json.dumps(config, sort_keys=True).encode())


def _is_model(folder: Path) -> bool:
    """Whether the folder says that it is a model, of whatever version or state."""
    try:
        config = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("format") == FORMAT


def _refuse_others(target: Path) -> None:
    """Raise where something other than a model or an empty folder has the name."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not _is_model(target):
        raise FileExistsError(f"{target} exists and is not a model: choose another folder")
    others = sorted({path.name for path in target.iterdir()} - _FILES)
    if others:
        raise FileExistsError(
            f"{target} is a model with other files beside it, such as {others[0]}: choose another"
            " folder, or move them"
        )


def _put_in_place(aside: Path, target: Path) -> None:
    if not target.exists() or not any(target.iterdir()):
        os.replace(aside, target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    os.replace(target, old)
    try:
        os.replace(aside, target)
    except OSError:
        os.replace(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
