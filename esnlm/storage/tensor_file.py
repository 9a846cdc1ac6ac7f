"""Files of arrays: safetensors, files that are appended to, and checksums.

The library's own writer would order arrays of one width by their types, which would change the
bytes of every model, and it needs whole copies of arrays that are not contiguous.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from esnlm.storage.atomic import naming

Array = NDArray[Any]
Arrays = dict[str, Array]

_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bool": "BOOL",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
}  # fmt: skip
_KINDS = {kind: np.dtype(name).newbyteorder("<") for name, kind in _DTYPES.items()}
_PIECE_BYTES = 1 << 24
_READ_BYTES = 1 << 20
_LARGEST_INTEGER = 1 << 53


class GrowingFile(AbstractContextManager["GrowingFile"]):
    """An array on disk that is appended to, with its size and its SHA-256 so far.

    What is appended is converted to ``dtype``. ``state`` is what `state` returned at a checkpoint:
    whatever the file has beyond it is cut off; ValueError where its bytes are others.
    """

    def __init__(
        self, path: Path, dtype: np.dtype[Any], state: Mapping[str, Any] | None = None
    ) -> None:
        """Open a new file, or verify the one of ``state`` and cut off what follows."""
        self.path = path
        self.dtype = dtype
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._file = open(path, "wb" if state is None else "r+b", buffering=0)  # noqa: SIM115
        if state is None:
            return
        rest = self._bytes = state["bytes"]
        while rest and (piece := self._file.read(min(rest, _READ_BYTES))):
            self._digest.update(piece)
            rest -= len(piece)
        if rest or self._digest.hexdigest() != state["sha256"]:
            self._file.close()
            raise ValueError(
                f"{path} is truncated or altered since it was written: remove {path.parent}, and"
                " begin anew"
            )
        self._file.truncate(self._bytes)

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, values: Array) -> None:
        """Write (n,) values at the end; an `OSError` names the file."""
        data = np.ascontiguousarray(values, dtype=self.dtype).view(np.uint8).data
        n_bytes = 0
        with naming(self.path):
            while n_bytes < len(data):
                n_bytes += self._file.write(data[n_bytes:]) or 0
        self._digest.update(data)
        self._bytes += len(data)

    def state(self) -> dict[str, Any]:
        """Return size and checksum of what has been appended, once the disk has it."""
        with naming(self.path):
            os.fsync(self._file.fileno())
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}


def write_tensors(path: Path, arrays: Mapping[str, Array]) -> str:
    """Write arrays as a safetensors file, to the disk itself; its SHA-256.

    The same arrays give the same bytes: widest types first, then by name. Raises TypeError for a
    type that the format does not have, ValueError for an array with NaN or infinity.
    """
    ordered = sorted(
        ((name, np.asarray(array)) for name, array in arrays.items()),
        key=lambda item: (-item[1].dtype.itemsize, item[0]),
    )
    header: dict[str, Any] = {}
    end = 0
    for name, array in ordered:
        if array.dtype.name not in _DTYPES:
            raise TypeError(f"cannot save the array {name!r} of type {array.dtype}")
        start, end = end, end + array.nbytes
        kind = _DTYPES[array.dtype.name]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with GrowingFile(path, np.dtype(np.uint8)) as file:
        file.append(np.frombuffer(len(text).to_bytes(8, "little") + text, np.uint8))
        for name, array in ordered:
            little = array.dtype.newbyteorder("<")
            for rows in np.array_split(np.atleast_1d(array), 1 + array.nbytes // _PIECE_BYTES):
                if array.ndim and array.dtype.kind == "f" and not np.isfinite(rows).all():
                    raise ValueError(
                        f"{name!r} holds numbers that are not finite, and is not saved: the"
                        " training has diverged, or an option is far out of range"
                    )
                file.append(np.ascontiguousarray(rows, dtype=little).reshape(-1).view(np.uint8))
        return str(file.state()["sha256"])


def read_tensors(path: Path) -> Arrays:
    """Return the arrays of a safetensors file; ValueError for one that `write_tensors` refuses."""
    arrays: Arrays = {}
    try:
        # The library checks the header: arrays lie end to end, from its end to that of the file.
        with (
            naming(path),
            safe_open(path, framework="numpy") as header,
            open(path, "rb") as file,
        ):
            file.seek(8 + int.from_bytes(file.read(8), "little"))
            for name in header.offset_keys():
                part = header.get_slice(name)
                dtype, shape = _KINDS[part.get_dtype()], part.get_shape()
                array = np.fromfile(file, dtype, math.prod(shape)).reshape(shape)
                arrays[name] = array.astype(dtype.newbyteorder("="), copy=False)
    except KeyError as error:
        raise ValueError(
            f"{name} of {path} has type {error}, expected {', '.join(_KINDS)}"
        ) from error
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from error
    for name, array in arrays.items():
        _check_numbers(f"{name} of {path}", array)
    return arrays


def _check_numbers(name: str, array: Array) -> None:
    """Refuse what no saved array holds: NaN, infinity but alone, integers past floats' digits."""
    least, most = (array.min(), array.max()) if array.size else (0, 0)
    if array.dtype.kind == "f":
        if np.isnan(least) or (array.ndim and not np.isfinite([least, most]).all()):
            raise ValueError(f"{name} must hold finite numbers, got NaN or infinity")
    elif max(-int(least), int(most)) > _LARGEST_INTEGER:
        raise ValueError(f"{name} must hold integers of at most 2^53, got {least} to {most}")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, read a piece at a time."""
    with naming(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
