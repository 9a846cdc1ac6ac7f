"""Files and folders that appear whole or not at all, and the lock of one writer."""

import csv
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

#: What a file that is being written is called, after its name: a killed run's is written over.
ASIDE = ".new"


def check_results(results: Iterable[Path | None], read: Iterable[str | Path] = ()) -> None:
    """Refuse files of results that could not be written, before the work is done.

    Raises
    ------
    ValueError
        One is a folder, has no folder that can be written, is named twice, or is in ``read``.
    """
    taken = {Path(name).resolve() for name in read}
    for path in results:
        if path is None:
            continue
        if path.is_dir():
            raise ValueError(f"cannot write {path}: it is a folder, name a file")
        try:
            handle, probe = tempfile.mkstemp(dir=path.parent)
            os.close(handle)
            os.unlink(probe)
        except OSError as error:
            raise ValueError(
                f"cannot write {path}: {error.strerror}; name a file in a folder that can be"
                " written"
            ) from error
        if path.resolve() in taken:
            raise ValueError(
                f"cannot write {path}: it is read, or named for another result; name another file"
            )
        taken.add(path.resolve())


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an OSError of the block name ``path``: that of a full disk names no file."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def file_aside(path: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """A file that takes the name ``path`` when the block ends well; else nothing has changed."""
    aside = path.with_name(path.name + ASIDE)
    try:
        with naming(path), open(aside, mode, **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        put_in_place(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that is either the old one or the new one, whatever happens meanwhile."""
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


@contextmanager
def folder_aside(target: Path, check: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """A new folder beside ``target`` that takes its place when the block ends well.

    ``check(target)`` raises where ``target`` must not be replaced; it is called before and after
    the block. After an error nothing has changed.
    """
    # Resolved: making the parents of ``new/../other`` would turn a free name into a full folder.
    target = target.resolve()
    if check:
        check(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        os.umask(mask := os.umask(0))
        aside.chmod(0o777 & ~mask)  # as any new folder: temporary ones are private
        with naming(target):
            yield aside
        if check:
            check(target)
        put_in_place(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def put_in_place(new: Path, target: Path, old: Path | None = None) -> None:
    """Give a file or folder the name ``target``; a full folder of that name is removed.

    That folder is moved to ``old`` first (default: a hidden name beside it), and back again after
    an error.
    """
    if target.is_dir() and any(target.iterdir()):
        old = old or Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
        os.replace(target, old)
        try:
            os.replace(new, target)
        except OSError:
            os.replace(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(new, target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system knows how to."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path, refusal: Exception | None = None) -> Iterator[None]:
    """Hold the lock file ``path`` while the block runs; it ends with the process that holds it.

    Where another process holds it, ``refusal`` is raised; without one the lock is waited for. The
    file stays.
    """
    lock = FileLock(path, timeout=-1 if refusal is None else 0)
    try:
        lock.acquire()
    except Timeout as error:
        raise refusal or error from None
    try:
        yield
    finally:
        lock.release()
