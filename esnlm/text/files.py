"""The files in a folder, and what their names say of them."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import NoReturn

#: How the names of tables end, and what stands between their fields.
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}


def is_table(path: str | Path) -> bool:
    """Return whether a file is a table by its name, plain or ``.gz``."""
    return str(path).lower().removesuffix(".gz").endswith(tuple(SEPARATORS))


def is_hidden(place: PurePath) -> bool:
    """Return whether a file within a folder or an archive, or a folder above it, is hidden.

    >>> is_hidden(PurePath(".ipynb_checkpoints/a-checkpoint.txt")), is_hidden(PurePath("./a.txt"))
    (True, False)
    """
    return any(part.startswith(".") and part != ".." for part in place.parts)


def files_in(folder: Path, *endings: str) -> list[Path]:
    """Return the files in a folder whose names end so, hidden ones left out, by name.

    OSError where the folder cannot be read, of which `Path.glob` says nothing.
    """
    names = (name for name in os.listdir(folder) if not name.startswith("."))
    return [folder / name for name in sorted(names) if name.endswith(endings)]


def files_within(folder: Path) -> Iterator[Path]:
    """Yield the files under a folder, hidden ones left out; OSError where it cannot be read.

    Links to folders are followed; a folder is read once, whatever leads to it.
    """

    def fail(error: OSError) -> NoReturn:
        raise error

    seen = {folder.resolve()}
    for home, folders, files in os.walk(folder, onerror=fail, followlinks=True):
        names = sorted(name for name in folders if not name.startswith("."))
        places = {Path(home, name).resolve(): name for name in reversed(names)}
        folders[:] = sorted(name for place, name in places.items() if place not in seen)
        seen |= places.keys()
        yield from (Path(home, name) for name in files if not name.startswith("."))
