"""JSON and other text that strangers wrote, read with bounds, and JSON that holds its checksum."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.storage.atomic import naming, put_back

#: Bytes that a file of settings, a tokenizer or a manifest may have.
LONGEST_TEXT = 1 << 28

# What loads the folders that are easily taken for another kind.
_LOADERS = {"esnlm-model": "esnlm.load_model", "esnlm-reservoir": "esnlm.Reservoir.load"}


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a regular file.

    Raise ValueError for a pipe, or one too long for a file of text.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a folder, a pipe or a device, expected a file")
    if (size := path.stat().st_size) > LONGEST_TEXT:
        raise ValueError(f"{path} has {size} bytes, expected at most {LONGEST_TEXT}")
    with naming(path):
        return path.read_bytes()


def read_text(path: Path) -> str:
    """Return the text of a regular file; ValueError where it is not UTF-8."""
    return read_bytes(path).decode()


def parsed_json(data: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raise ValueError where it is none, or is nested too deep to be read.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def read_json(path: Path) -> Any:
    """Return the value of a JSON file; ValueError as `read_bytes` and `parsed_json`."""
    return parsed_json(read_bytes(path))


def sealed(content: Mapping[str, Any], key: str = "sha256") -> bytes:
    """Return the bytes of a JSON file of ``content``, whose last entry ``key`` is its SHA-256.

    numpy's numbers become JSON's.
    """
    text = json.dumps(content, sort_keys=True, default=np.generic.item)
    full = {**content, key: hashlib.sha256(text.encode()).hexdigest()}
    return (json.dumps(full, indent=2, default=np.generic.item) + "\n").encode()


def unsealed(path: Path) -> Any:
    """Return the content of a file of `sealed` bytes, or None where it is absent or altered."""
    try:
        data = read_bytes(path)
        content = parsed_json(data)
        del content["sha256"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return content if sealed(content) == data else None


@dataclass(frozen=True)
class FolderFormat:
    """A kind of folder whose ``file`` has its name and version, and holds its own checksum.

    ``error`` is raised for a folder that is not whole and unaltered, ``advice`` says what to do
    with one of another version.
    """

    name: str
    file: str
    error: type[ValueError]
    advice: str
    version: int = 1

    @property
    def what(self) -> str:
        """Name of such a folder in messages."""
        return self.name.removeprefix("esnlm-")

    @property
    def _key(self) -> str:
        return self.file.partition(".")[0] + "_sha256"

    def sealed(self, content: Mapping[str, Any]) -> bytes:
        """Return the bytes of the file of that content."""
        return sealed({"format": self.name, "version": self.version, **content}, self._key)

    def read(self, folder: Path) -> dict[str, Any]:
        """Return the content of a folder's file; raise ``error`` unless it is whole."""
        path = folder / self.file
        put_back(folder)
        if not folder.is_dir():
            reason = ", which is a file" if folder.is_file() else ""
            if folder.parts[:1] and folder.parts[0].startswith("~"):
                reason = ": only shells know ~, so write it out, as by Path(name).expanduser()"
            raise self.error(f"no such {self.what} folder: {folder}{reason}")
        try:
            data = read_bytes(path)
        except FileNotFoundError as error:
            raise self.error(
                f"{folder} is not a whole {self.what} folder: {self.file} is missing"
            ) from error
        except ValueError as error:
            raise self.error(str(error)) from error
        try:
            content = parsed_json(data)
        except ValueError as error:
            raise self.error(f"{path} is not JSON: {error}") from error
        name = content.get("format") if isinstance(content, dict) else None
        if name != self.name:
            if name in _LOADERS:
                other = name.removeprefix("esnlm-")
                raise self.error(
                    f"{folder} holds a {other}, expected a {self.what}: load it with"
                    f" {_LOADERS[name]}"
                )
            raise self.error(f"{path} does not describe a {self.what} folder of esnlm")
        if content.get("version") != self.version:
            raise self.error(
                f"{folder} has version {content.get('version')!r} of the {self.what} format,"
                f" expected {self.version}: {self.advice}"
            )
        content.pop(self._key, None)
        # Bytes, not values: a number may be written in two ways that read alike.
        if sealed(content, self._key) != data:
            raise self.error(f"{path} was altered: its checksum differs")
        return content
