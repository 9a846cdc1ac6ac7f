"""Files that strangers wrote, read with bounds on their kind, size and depth."""

import json
from pathlib import Path
from typing import Any

#: Bytes that a file of settings, a tokenizer or a manifest may have.
LONGEST_TEXT = 1 << 28


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a regular file.

    Raise ValueError for a pipe, or one too long for a file of text.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a folder, a pipe or a device, expected a file")
    if (size := path.stat().st_size) > LONGEST_TEXT:
        raise ValueError(f"{path} has {size} bytes, expected at most {LONGEST_TEXT}")
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
