"""safetensors files, written an array at a time, and checksums of files.

The library's own writer orders arrays of one width by their types, which would change the bytes of
every model, and needs whole copies of arrays that are not contiguous.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.storage.growing_file import GrowingFile

Arrays = dict[str, NDArray[Any]]

_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bool": "BOOL",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
}  # fmt: skip
_PIECE_BYTES = 1 << 24


def write_tensors(path: Path, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Write arrays as a safetensors file, to the disk itself; its SHA-256.

    The same arrays give the same bytes: widest types first, then by name. Raises TypeError for a
    type that the format does not have.
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
        for _, array in ordered:
            little = array.dtype.newbyteorder("<")
            for rows in np.array_split(np.atleast_1d(array), 1 + array.nbytes // _PIECE_BYTES):
                file.append(np.ascontiguousarray(rows, dtype=little).reshape(-1).view(np.uint8))
        return str(file.state()["sha256"])


def file_digest(path: Path) -> str:
    """SHA-256 of a file, read a piece at a time."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
