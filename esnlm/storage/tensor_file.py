"""safetensors files written and read an array at a time, so that none is in memory twice.

The library's own writer orders arrays of one width by their types, which would change the bytes of
every model, and needs whole copies of arrays that are not contiguous.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bool": "BOOL",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
}  # fmt: skip
_NUMPY = {short: np.dtype(name) for name, short in _DTYPES.items()}
_PIECE_BYTES = 1 << 24


def write_tensors(path: Path, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Write arrays as a safetensors file, to the disk itself; its SHA-256.

    The same arrays give the same bytes: widest types first, then by name. Raises TypeError for a
    type that the format does not have.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a"
    >>> digest = write_tensors(path, {"x": np.arange(3), "y": np.float32(2)})
    >>> read_tensors(path)["x"], digest == file_digest(path)
    (array([0, 1, 2]), True)
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
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for piece in (len(text).to_bytes(8, "little"), text):
            digest.update(piece)
            file.write(piece)
        for _, array in ordered:
            little = array.dtype.newbyteorder("<")
            for rows in np.array_split(np.atleast_1d(array), 1 + array.nbytes // _PIECE_BYTES):
                data = np.ascontiguousarray(rows, dtype=little).reshape(-1).view(np.uint8).data
                digest.update(data)
                file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file, writable; ValueError where it is none, or ends early."""
    arrays = {}
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > path.stat().st_size:
            raise ValueError(f"{path} is not a safetensors file")
        header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        for name, about in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            array = np.empty(about["shape"], dtype=_NUMPY[about["dtype"]])
            if array.size and file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:
                raise ValueError(f"{path} ends within the array {name!r}")
            arrays[name] = array
    return arrays


def file_digest(path: Path) -> str:
    """SHA-256 of a file, read a piece at a time."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
