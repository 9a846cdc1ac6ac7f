"""safetensors files, written and read an array at a time, and checksums of files.

The library's own writer orders arrays of one width by their types, which would change the bytes of
every model, and needs whole copies of arrays that are not contiguous. Its reader holds the whole
file in memory beside the arrays.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.storage.growing_file import GrowingFile
from esnlm.storage.reading import parsed_json

Array = NDArray[Any]
Arrays = dict[str, Array]

_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bool": "BOOL",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
}  # fmt: skip
_KINDS = {kind: np.dtype(name).newbyteorder("<") for name, kind in _DTYPES.items()}
_PIECE_BYTES = 1 << 24
_MOST_AXES = 8
_LARGEST_INTEGER = 1 << 53
_LONGEST_HEADER = 100 << 20  # that of the format


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
    """Return the arrays of a safetensors file; ValueError where its header is not that of its data.

    Arrays are as the format wants them: end to end, without a gap, to the end of the file.
    """
    with open(path, "rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, _LONGEST_HEADER):
            raise ValueError(
                f"{path} is not a safetensors file: its header would be {length} bytes"
            )
        header = parsed_json(file.read(length))
        places = _checked_places(path, header, size - 8 - length)
        arrays: Arrays = {}
        for name, (start, _, dtype, shape) in places.items():
            file.seek(8 + length + start)
            array = np.fromfile(file, dtype, math.prod(shape)).reshape(shape)
            arrays[name] = array.astype(dtype.newbyteorder("="), copy=False)
            _check_numbers(name, arrays[name])
    return arrays


def _check_numbers(name: str, array: Array) -> None:
    """Refuse what no saved array holds: NaN, infinity but alone, integers past floats' digits."""
    least, most = (array.min(), array.max()) if array.size else (0, 0)
    if array.dtype.kind == "f":
        if np.isnan(least) or (array.ndim and not np.isfinite([least, most]).all()):
            raise ValueError(f"{name} must hold finite numbers, got NaN or infinity")
    elif max(-int(least), int(most)) > _LARGEST_INTEGER:
        raise ValueError(f"{name} must hold integers of at most 2^53, got {least} to {most}")


def _checked_places(
    path: Path, header: Any, n_bytes: int
) -> dict[str, tuple[int, int, np.dtype[Any], tuple[int, ...]]]:
    """Start, end, type and shape of each array, by name."""
    if not isinstance(header, dict):
        raise ValueError(f"the header of {path} is not a JSON object")
    header.pop("__metadata__", None)
    places = {}
    for name, about in header.items():
        given: Any = about if isinstance(about, dict) else {}
        kind, shape, offsets = (given.get(key) for key in ("dtype", "shape", "data_offsets"))
        if not isinstance(kind, str) or kind not in _KINDS:
            raise ValueError(f"{name} of {path} has type {kind!r}, expected {', '.join(_KINDS)}")
        if not _counts(shape) or len(shape) > _MOST_AXES:
            raise ValueError(f"{name} of {path} has shape {shape!r}, expected a list of lengths")
        if not _counts(offsets) or len(offsets) != 2:
            raise ValueError(f"{name} of {path} has offsets {offsets!r}, expected [start, end]")
        if offsets[1] - offsets[0] != math.prod(shape) * _KINDS[kind].itemsize:
            raise ValueError(f"{name} of {path}: {kind} {shape} does not fit offsets {offsets}")
        places[name] = offsets[0], offsets[1], _KINDS[kind], tuple(shape)
    end = 0
    for start, stop in sorted(place[:2] for place in places.values()):
        if start != end:
            raise ValueError(f"arrays of {path} overlap or leave a gap at byte {min(start, end)}")
        end = stop
    if end != n_bytes:
        raise ValueError(f"{path} has {n_bytes} bytes of arrays, expected {end}")
    return places


def _counts(value: Any) -> bool:
    """Whether it is a list of integers that are not negative."""
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def file_digest(path: Path) -> str:
    """SHA-256 of a file, read a piece at a time."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
