"""Model folders: JSON and safetensors, written whole or not at all, checked when read.

Nothing here unpickles: a folder from a stranger can hold wrong numbers, not code.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from esnlm.storage.atomic import folder_aside, sync_folder
from esnlm.storage.sealed_json import FolderFormat
from esnlm.storage.tensor_file import Arrays, file_digest, read_tensors, write_tensors

CONFIG = "config.json"
WEIGHTS = "weights.safetensors"
TRAINING = "training.safetensors"
TOKENIZER = "tokenizer.json"
_FILES = {CONFIG, WEIGHTS, TRAINING, TOKENIZER}


class ModelFormatError(ValueError):
    """A folder that is not a whole, unaltered model."""


MODEL = FolderFormat(
    "esnlm-model",
    1,
    "model",
    CONFIG,
    ModelFormatError,
    "load it with the esnlm that wrote it and save it again",
)


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
    check_replaceable(folder)
    if _is_model(folder) and not overwrite:
        raise FileExistsError(f"{folder} exists: choose another folder, or pass --overwrite")
    home = next(parent for parent in folder.parents if parent.exists())
    try:
        os.rmdir(tempfile.mkdtemp(dir=home))
    except OSError as error:
        raise PermissionError(f"cannot write in {home}: choose another folder") from error


def check_replaceable(target: Path) -> None:
    """Raise FileExistsError where something else than a model or an empty folder has the name."""
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


def _is_model(folder: Path) -> bool:
    """Whether the folder says that it is a model, of whatever version or state."""
    try:
        config = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("format") == MODEL.name


def write_model(
    folder: Path,
    config: Mapping[str, Any],
    arrays: Mapping[str, Arrays],
    texts: Mapping[str, str],
) -> None:
    """Write ``config.json``, files of arrays (by name) and of text as one new folder.

    ``config`` gets the format, its version, and the SHA-256 of every file and of itself.
    """
    with folder_aside(folder, check_replaceable) as aside:
        write_files(aside, MODEL, config, arrays, texts)


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, Arrays], dict[str, str]]:
    """Configuration, arrays and texts by file name; ModelFormatError where a byte is another."""
    return read_files(folder, MODEL)


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a model folder, checked as `read_model` does; no other file is read."""
    return MODEL.read(folder)


def write_files(
    folder: Path,
    kind: FolderFormat,
    config: Mapping[str, Any],
    arrays: Mapping[str, Arrays],
    texts: Mapping[str, str],
) -> None:
    """Write files into a folder that nobody reads yet, ``config.json`` last, all to the disk."""
    digests = {name: write_tensors(folder / name, arrays[name]) for name in arrays}
    for name, text in texts.items():
        digests[name] = hashlib.sha256(text.encode()).hexdigest()
        _write(folder / name, text.encode())
    _write(folder / CONFIG, kind.sealed({**config, "sha256": dict(sorted(digests.items()))}))
    sync_folder(folder)


def read_files(
    folder: Path, kind: FolderFormat
) -> tuple[dict[str, Any], dict[str, Arrays], dict[str, str]]:
    """Configuration, arrays and texts of a folder of `write_files`, every byte checked.

    Raises
    ------
    ModelFormatError
        A file is missing, truncated or altered, or the format is another one.
    """
    config = kind.read(folder)
    what = kind.what
    arrays: dict[str, Arrays] = {}
    texts = {}
    for name, digest in config["sha256"].items():
        path = folder / name
        if Path(name).name != name:
            raise ModelFormatError(f"{folder} names a file outside the {what}: {name!r}")
        if not path.is_file():
            raise ModelFormatError(f"{folder} is not a whole {what}: {name} is missing")
        if file_digest(path) != digest:
            raise ModelFormatError(
                f"{path} is truncated or altered, or does not belong to this {what}: its checksum"
                f" differs from the one in {CONFIG}; save or copy the {what} again"
            )
        try:
            if name.endswith(".safetensors"):
                arrays[name] = read_tensors(path)
            else:
                texts[name] = path.read_text(encoding="utf-8")
        except (KeyError, ValueError) as error:
            raise ModelFormatError(f"{folder} does not hold a readable {what}: {error}") from error
    return config, arrays, texts


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
