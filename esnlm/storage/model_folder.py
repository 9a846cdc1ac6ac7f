"""Model folders: JSON and safetensors, written whole or not at all, checked when read.

Nothing here unpickles: a folder from a stranger can hold wrong numbers, not code.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from esnlm.storage.atomic import is_free, write_whole
from esnlm.storage.json_files import FolderFormat, read_json, read_text
from esnlm.storage.tensor_file import Arrays, file_digest, read_tensors, write_tensors

CONFIG = "config.json"
WEIGHTS = "weights.safetensors"
TRAINING = "training.safetensors"
TOKENIZER = "tokenizer.json"
_FILES = {CONFIG, WEIGHTS, TRAINING, TOKENIZER}


class ModelFormatError(ValueError):
    """A folder that is not a whole, unaltered model."""


#: What objects raise that are made of arrays and settings that do not fit each other.
MISFITS = (
    AssertionError, AttributeError, LookupError, OverflowError, RuntimeError, TypeError,
    ZeroDivisionError,
)  # fmt: skip


@contextmanager
def restoring(
    folder: Path, what: str = "model", errors: tuple[type[Exception], ...] = (*MISFITS, ValueError)
) -> Iterator[None]:
    """Let errors of the block, which makes objects of what a folder holds, name the folder."""
    try:
        yield
    except errors as error:
        if isinstance(error, ModelFormatError) or type(error).__name__ == "OutOfMemoryError":
            raise
        raise ModelFormatError(f"{folder} is not a whole {what}: {error}") from error


_ADVICE = "load it with the esnlm that wrote it and save it again"
MODEL = FolderFormat("esnlm-model", CONFIG, ModelFormatError, _ADVICE)
RESERVOIR = FolderFormat("esnlm-reservoir", CONFIG, ModelFormatError, _ADVICE)


#: Reads the configuration of a model folder, and no other file: see `FolderFormat.read`.
read_config = MODEL.read


def check_target(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that a model could not be written to, before the work is done.

    Raises FileExistsError where it holds a model and ``overwrite`` is False, or anything else.
    """
    folder = folder.resolve()
    check_replaceable(folder)
    if unchecked_config(folder) and not overwrite:
        raise FileExistsError(f"{folder} exists: choose another folder, or pass overwrite=True")


def check_replaceable(target: Path, kind: FolderFormat = MODEL) -> None:
    """Raise FileExistsError where else than such a folder, or an empty one, has the name."""
    if is_free(target):
        return
    if unchecked_config(target).get("format") != kind.name:
        raise FileExistsError(f"{target} exists and is not a {kind.what}: choose another folder")
    others = sorted({path.name for path in target.iterdir()} - _FILES)
    if others:
        raise FileExistsError(
            f"{target} is a {kind.what} with other files beside it, such as {others[0]}: choose"
            " another folder, or move them"
        )


def unchecked_config(folder: Path) -> dict[str, Any]:
    """Return what ``config.json`` says, of whatever folder, version or state.

    {} where it is none.
    """
    try:
        config = read_json(folder / CONFIG)
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def write_files(
    folder: Path,
    kind: FolderFormat,
    config: Mapping[str, Any],
    arrays: Mapping[str, Arrays],
    texts: Mapping[str, str],
) -> None:
    """Write arrays and texts, by file name, into a folder that nobody reads yet.

    ``config.json`` is written last; it gets the format, its version, and the SHA-256 of every
    file and of itself.
    """
    digests = {name: write_tensors(folder / name, arrays[name]) for name in arrays}
    for name, text in texts.items():
        write_whole(folder / name, text)
        digests[name] = file_digest(folder / name)
    write_whole(folder / CONFIG, kind.sealed({**config, "sha256": dict(sorted(digests.items()))}))


def read_files(
    folder: Path, kind: FolderFormat
) -> tuple[dict[str, Any], dict[str, Arrays], dict[str, str]]:
    """Return configuration, arrays and texts of a folder of `write_files`, every byte checked."""
    config = kind.read(folder)
    what, arrays, texts = kind.what, {}, {}
    digests = config.get("sha256")
    if not isinstance(digests, dict):
        raise ModelFormatError(f"{folder / CONFIG} does not say which files the {what} has")
    for name, digest in digests.items():
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
                texts[name] = read_text(path)
        except ValueError as error:
            raise ModelFormatError(f"{folder} does not hold a readable {what}: {error}") from error
    return config, arrays, texts
