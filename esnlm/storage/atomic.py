"""Files of results, which appear whole or not at all."""

import csv
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

#: What a file that is being written is called, after its name: a killed run's is written over.
ASIDE = ".new"


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


def check_results(results: Iterable[Path | None], read: Iterable[str | Path] = ()) -> None:
    """`check_writable` of each that is named, where all differ and none is a file that is read."""
    taken = {Path(name).resolve() for name in read}
    for path in results:
        if path is None:
            continue
        check_writable(path)
        if path.resolve() in taken:
            raise ValueError(
                f"cannot write {path}: it is read, or named for another result; name another file"
            )
        taken.add(path.resolve())


@contextmanager
def file_aside(path: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """A file that takes the name ``path`` when the block ends well; else nothing has changed."""
    aside = path.with_name(path.name + ASIDE)
    try:
        with open(aside, mode, **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_folder(path.parent)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        aside.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that is either the old one or the new one, whatever happens meanwhile.

    >>> path = Path(tempfile.mkdtemp()) / "note"
    >>> write_whole(path, "text")
    >>> path.read_text()
    'text'
    """
    with file_aside(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def csv_aside(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """A CSV writer, its header written, of a file that takes its name when the block ends well."""
    with file_aside(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        yield writer


def write_rows(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a CSV of these columns, a missing value as nothing."""
    with csv_aside(path, columns) as writer:
        writer.writerows([row.get(name, "") for name in columns] for row in rows)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system knows how to."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
