"""Files and folders that appear whole or not at all, and the lock of the one who writes them."""

import errno
import os
import re
import shlex
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, SoftFileLock, Timeout

from esnlm.utils.messages import log

# Windows renames nothing that is open: seconds to wait for its end, and between two tries.
_REFUSES_OPEN, _PATIENCE, _PAUSE = os.name == "nt", 2.0, 0.02

# What lies beside an output while it is written: ``.NAME.esnlm-lock``, ``.NAME.esnlm-old``, and
# ``.NAME.esnlm-`` with eight random characters.
_BESIDE = re.compile(r"\.(.+)\.esnlm-(lock|old|[a-z0-9_]{8})")


class BusyError(ValueError):
    """An output that another process is writing."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an OSError of the block name ``path``: that of a drive, full or failing, names none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # it came from the system
            error.filename = error.filename or str(path)
        raise


def is_plain(path: Path) -> bool:
    """Return whether a file can be put at ``path``; a device or a pipe is written straight instead.

    Raises OSError for all else: a folder, a socket, a link to itself, or the file that standard
    output is redirected to.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return True
    if stat.S_ISCHR(status.st_mode) or stat.S_ISFIFO(status.st_mode):
        return False
    if not stat.S_ISREG(status.st_mode):
        reason = "it is a folder" if stat.S_ISDIR(status.st_mode) else "it is no file"
        raise OSError(errno.EINVAL, f"{reason}, expected a file", str(path))
    with suppress(OSError):  # standard output is closed
        if os.path.samestat(status, os.fstat(1)):
            raise ValueError(f"cannot write {path}: standard output goes there, name another file")
    return True


@contextmanager
def file_aside(path: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Open a file that takes the name ``path`` when the block ends well; else nothing has changed.

    What a link leads to is replaced, not the link.
    """
    if not is_plain(path):
        with naming(path), open(path, mode, **options) as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    with naming(path), locked(target):
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.esnlm-", dir=target.parent)
        aside = Path(name)
        try:
            with open(handle, mode, **options) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _make_public(aside, target, 0o666)
            put_in_place(aside, target)
        finally:
            aside.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that is either the old one or the new one, whatever happens meanwhile.

    Names of files in a text may be no UTF-8: they are written with escapes.
    """
    if isinstance(content, str):
        content = content.encode(errors="backslashreplace")
    with file_aside(path) as file:
        file.write(content)


@contextmanager
def folder_aside(target: Path, check: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """Yield a new folder beside ``target`` that takes its place when the block ends well.

    ``check(target)`` raises where ``target`` must not be replaced; it is called before and after
    the block. After an error nothing has changed.
    """
    # Resolved: making the parents of ``new/../other`` would turn a free name into a full folder.
    target = Path(os.path.realpath(target))
    with naming(target), locked(target):
        if check:
            check(target)
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.esnlm-", dir=target.parent))
        try:
            _make_public(aside, target, 0o777)
            yield aside
            if check:
                check(target)
            put_in_place(aside, target)
        except OSError as error:
            if isinstance(error.filename, str):  # the folder aside is gone when this is read
                error.filename = error.filename.replace(str(aside), str(target))
            raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _make_public(path: Path, target: Path, mode: int) -> None:
    """Give a temporary file or folder, which is private, the mode of its target, or a new one's."""
    os.umask(mask := os.umask(0))
    with suppress(PermissionError):  # some network drives give every file one mode
        path.chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else mode & ~mask)


def put_in_place(new: Path, target: Path) -> None:
    """Give a file or folder the name ``target``; a folder of that name is removed.

    That folder is moved aside first, and back again after an error; `put_back` finds it where the
    process was killed in between.
    """
    if target.is_dir():
        old = _beside(target, "old")
        _replace(target, old)
        try:
            _replace(new, target)
        except OSError:
            _replace(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    else:
        _replace(new, target)
    sync_folder(target.parent)


def _replace(source: Path, target: Path) -> None:
    """Give a file or folder another name; on Windows, wait a while for who has one of them open.

    A search index or a virus scanner opens what is new for a moment.
    """
    until = time.monotonic() + (_PATIENCE if _REFUSES_OPEN else 0)
    while True:
        try:
            os.replace(source, target)
            return
        except PermissionError as error:
            if time.monotonic() < until:
                time.sleep(_PAUSE)
                continue
            if _REFUSES_OPEN:
                reason = "another program has it open, or it may not be written"
                place = source if _BESIDE.fullmatch(target.name) else target
                raise PermissionError(error.errno, reason, str(place)) from error
            raise


def is_free(target: Path) -> bool:
    """Return whether nothing has the name ``target``, or an empty folder.

    Raises FileExistsError for the current folder: its shell would be in one that is gone.
    """
    try:
        is_current = target.samefile(os.curdir)
    except OSError:  # there is no such folder yet
        is_current = False
    if is_current:
        raise FileExistsError(f"{target} is the current folder: choose another folder")
    return not target.exists() or (target.is_dir() and not any(target.iterdir()))


def put_back(folder: Path) -> None:
    """Put back a folder that a killed process was about to replace, where there is one."""
    folder = Path(os.path.realpath(folder))
    if is_aside(folder):
        with locked(folder):  # it sweeps
            pass


def is_aside(folder: Path, file: str = "") -> bool:
    """Return whether a killed process moved the folder, which has this file, and did not end."""
    return not folder.exists() and (_beside(folder, "old") / file).exists()


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system knows how to."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folder
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # what network drives say of folders
            raise
    finally:
        os.close(handle)


@contextmanager
def locked(target: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the output ``target``, a file or folder, while the block runs.

    The thread that holds it may do so again. What a killed process left beside it is removed, and
    its parents are made, which go again where the block puts nothing in them. Raises `BusyError`,
    which names the process that holds it; with ``wait`` it is waited for.
    """
    target = Path(os.path.realpath(target))
    new_parents = [parent for parent in target.parents if not parent.exists()]
    place = _beside(target, "lock")
    with ExitStack() as stack:
        for parent in reversed(new_parents):
            with suppress(FileExistsError):
                parent.mkdir()
            stack.callback(_remove_if_empty, parent)
        if target.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(target))
        if not target.parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(target.parent))
        if target.exists() and not os.access(target, os.W_OK):  # a rename would not mind
            raise PermissionError(errno.EACCES, "it is protected from writing", str(target))
        lock = FileLock(place, is_singleton=True)
        try:
            lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            try:  # in /proc no file can be made, which FileLock takes for another's that is going
                if not place.exists():
                    tempfile.TemporaryFile(dir=target.parent).close()
            except OSError:
                reason = "no file can be made in its folder"
                raise PermissionError(errno.EACCES, reason, str(target)) from None
            raise BusyError(
                f"{target} is being written by {_holder(place)}: wait for it, or name another"
            ) from None
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno in (errno.ENOLCK, errno.ENOTSUP):
                reason = f"its file system cannot lock files ({reason})"
            raise OSError(error.errno, reason, str(target)) from error
        stack.callback(lock.release)
        if lock.lock_counter == 1:
            # Removed while it is held: one who waits for it sees that, and makes it anew.
            stack.callback(remove, place)
            if not isinstance(lock, SoftFileLock):  # which names its process itself
                with suppress(OSError):
                    holder = f"process {os.getpid()} ({shlex.join(sys.argv)})"
                    place.write_text(holder, "utf-8", errors="backslashreplace")
            _sweep(target)
        yield


def _holder(place: Path) -> str:
    try:
        return place.read_text("utf-8", errors="replace")[:200] or "another process"
    except OSError:
        return "another process"


def _sweep(target: Path) -> None:
    """Remove what a killed process left of ``target``, or put it back if it was being replaced."""
    old = _beside(target, "old")
    if old.is_dir() and not target.exists():
        _replace(old, target)
        log.warning(
            f"{target} was being replaced by a process that was killed: the old one is back"
        )
    for path in target.parent.iterdir():
        if path.name != _beside(target, "lock").name and owner_of(path.name) == target.name:
            remove(path)


def owner_of(name: str) -> str | None:
    """Return the name of the output that a hidden file or folder lies beside.

    None of any other name.
    """
    match = _BESIDE.fullmatch(name)
    return match and match[1]


def remove(path: Path) -> None:
    """Remove a file or a folder, if that is allowed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _beside(target: Path, what: str) -> Path:
    return target.parent / f".{target.name}.esnlm-{what}"
