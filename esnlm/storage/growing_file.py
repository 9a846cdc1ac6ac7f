"""Append-only array files that roll back to the last checkpoint."""

import hashlib
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.storage.atomic import naming

_PIECE_BYTES = 1 << 20


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
        left = self._bytes = state["bytes"]
        while left and (piece := self._file.read(min(left, _PIECE_BYTES))):
            self._digest.update(piece)
            left -= len(piece)
        if left or self._digest.hexdigest() != state["sha256"]:
            self._file.close()
            raise ValueError(
                f"{path} is truncated or altered since it was written: remove {path.parent}, and"
                " begin anew"
            )
        self._file.truncate(self._bytes)

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, values: NDArray[Any]) -> None:
        """Write (n,) values at the end; an `OSError` names the file."""
        data = np.ascontiguousarray(values, dtype=self.dtype).view(np.uint8).data
        written = 0
        with naming(self.path):
            while written < len(data):
                written += self._file.write(data[written:]) or 0
        self._digest.update(data)
        self._bytes += len(data)

    def state(self) -> dict[str, Any]:
        """Size and checksum of what has been appended, once the disk has it."""
        with naming(self.path):
            os.fsync(self._file.fileno())
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}
