"""Files that grow, of which what was there at the last checkpoint can always be had again."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from esnlm.storage.atomic import write_whole

_PIECE_BYTES = 1 << 20


class GrowingFile:
    """An array on disk that is appended to, with its size and its SHA-256 so far.

    Parameters
    ----------
    path : Path
    dtype : numpy dtype
        What is appended is converted to it.
    state : dict, optional
        What `state` said at a checkpoint: whatever the file has beyond it is cut off.

    Raises
    ------
    ValueError
        The file is shorter than at the checkpoint, or its bytes are others.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a"
    >>> with GrowingFile(path, np.dtype("<u2")) as file:
    ...     file.append(np.array([1, 2]))
    ...     state = file.state()
    ...     file.append(np.array([3]))
    >>> with GrowingFile(path, np.dtype("<u2"), state) as file:
    ...     file.append(np.array([4]))
    >>> np.fromfile(path, "<u2").tolist()
    [1, 2, 4]
    """

    def __init__(
        self, path: Path, dtype: np.dtype[Any], state: Mapping[str, Any] | None = None
    ) -> None:
        self.path = path
        self.dtype = dtype
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._file = open(path, "ab" if state is None else "r+b", buffering=0)  # noqa: SIM115
        try:
            if state is None:
                self._file.truncate(0)
            else:
                self._go_to(state)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, values: NDArray[Any]) -> None:
        """Write (n,) values at the end; an `OSError` names the file."""
        data = np.ascontiguousarray(values, dtype=self.dtype).view(np.uint8).data
        try:
            written = 0
            while written < len(data):
                written += self._file.write(data[written:]) or 0
        except OSError as error:
            error.filename = error.filename or str(self.path)
            raise
        self._digest.update(data)
        self._bytes += len(data)

    def state(self) -> dict[str, Any]:
        """Size and checksum of what has been appended, once the disk has it."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            error.filename = error.filename or str(self.path)
            raise
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}

    def _go_to(self, state: Mapping[str, Any]) -> None:
        left = state["bytes"]
        while left and (piece := self._file.read(min(left, _PIECE_BYTES))):
            self._digest.update(piece)
            left -= len(piece)
        if left or self._digest.hexdigest() != state["sha256"]:
            raise ValueError(
                f"{self.path} is truncated or altered since it was written: remove"
                f" {self.path.parent}, and begin anew"
            )
        self._bytes = state["bytes"]
        self._file.truncate(self._bytes)


def write_checked_json(path: Path, value: Any) -> None:
    """Write a value with its checksum, as `write_whole` does."""
    write_whole(path, json.dumps({"sha256": _digest_of(value), "value": value}).encode())


def read_checked_json(path: Path) -> Any:
    """What `write_checked_json` wrote, or None where the file is absent or not as written."""
    try:
        found = json.loads(path.read_bytes())
        return found["value"] if found["sha256"] == _digest_of(found["value"]) else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _digest_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
