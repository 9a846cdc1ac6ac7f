"""Files of results, which appear whole or not at all."""

import os
import tempfile
from pathlib import Path


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written, before the work is done.

    Raises
    ------
    ValueError
        It is a folder, or the folder that would hold it is missing or cannot be written.
    """
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder, name a file")
    try:
        handle, probe = tempfile.mkstemp(dir=path.parent)
        os.close(handle)
        os.unlink(probe)
    except OSError as error:
        raise ValueError(
            f"cannot write {path}: {error.strerror}; name a file in a folder that can be written"
        ) from error


def write_whole(path: Path, data: bytes) -> None:
    """Write a file aside, to the disk itself, and give it its name when it is whole."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    aside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.chmod(0o644)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
