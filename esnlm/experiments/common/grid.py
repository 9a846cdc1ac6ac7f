"""A grid of settings -> rows of a CSV, one a run, that an interrupted grid finds again."""

import csv
import fcntl
import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any, TypeAlias

from esnlm.storage.atomic import sync_folder, write_whole
from esnlm.utils.threads import available_cores

Row: TypeAlias = dict[str, Any]
Run: TypeAlias = Callable[[Row], Mapping[str, Any]]

_ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "ESNLM_NUM_THREADS": "1",
}


def run_grid(
    settings: Iterable[Mapping[str, Any]],
    run: Run,
    csv_path: str | Path,
    *,
    key: Sequence[str],
    columns: Sequence[str],
    fixed: Mapping[str, Any] | None = None,
    cost: Callable[[Row], Any] | None = None,
    jobs: int | None = None,
    progress: bool = True,
) -> list[Row]:
    """Run every setting that the CSV does not hold yet; a row is on disk as soon as a run ends.

    A row is the fixed values, the setting, and what ``run(setting)`` returns, cut to ``columns``.
    Rows are appended whole and synced; a line that an interruption tore is dropped on the next
    start. When all is done the file is put in the order of the settings, rows of other grids
    last. Runs happen in ``jobs`` processes of one thread each, so what a run returns must not
    depend on earlier ones; the file is then the same for every number of jobs.

    Parameters
    ----------
    settings : mappings, one a run
    run : a function at the top level of a module, setting -> measured values
    csv_path : the file; its folder must exist
    key : columns that tell the runs apart
    columns : header of the file
    fixed : values that all runs share, also kept as columns; rows made with others are refused
    cost : setting -> anything ordered that grows with its time; longest runs start first
    jobs : processes; default: the cores this process may use. 1 runs in this process.
    progress : show a bar on standard error

    Returns
    -------
    list of rows in the order of ``settings``; numbers are int or float, None is an empty field.

    Raises
    ------
    ValueError : settings whose keys repeat, a CSV with other columns or other fixed values, one
        that another process is writing, or a run that was given bad settings.
    ChildProcessError : a worker was killed. Finished rows stay, whatever happens.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "squares.csv"
    >>> grid = [{"n": n} for n in (2, 3)]
    >>> options = dict(key=["n"], columns=["n", "square"], jobs=1, progress=False)
    >>> run_grid(grid, lambda setting: {"square": setting["n"] ** 2}, path, **options)
    [{'n': 2, 'square': 4}, {'n': 3, 'square': 9}]
    >>> run_grid(grid, None, path, **options) == read_rows(path)  # nothing is left to run
    True
    >>> folder.cleanup()
    """
    given = [dict(setting) for setting in settings]
    wanted = {_key(setting, key): setting for setting in given}
    if len(wanted) < len(given):
        raise ValueError(f"settings repeat: {len(given)} of them, {len(wanted)} distinct by key")
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    shared = dict(fixed or {})
    with closing(_Table(Path(csv_path), columns, shared)) as table, _withdrawn(table):
        done = {_key(row, key) for row in table.rows}
        left = [setting for name, setting in wanted.items() if name not in done]
        if cost is not None:
            left.sort(key=cost, reverse=True)
        with _bar(len(wanted), len(wanted) - len(left), progress, table.path.stem) as bar:
            for setting, measured in _results(left, run, min(jobs or available_cores(), len(left))):
                table.append(shared | setting | dict(measured))
                bar.set_postfix_str(" ".join(str(setting[name]) for name in key), refresh=False)
                bar.update()
        table.order(key, wanted)
    # Keys are compared as text: a name such as 007 reads back as another number.
    rows = {_key(row, key): row for row in _read_texts(table.path)}
    return [_read_values(rows[name]) for name in wanted]


def read_rows(csv_path: str | Path) -> list[Row]:
    """Rows of a CSV that `run_grid` wrote: int, float, text, or None for an empty field."""
    return [_read_values(row) for row in _read_texts(Path(csv_path))]


@contextmanager
def _withdrawn(table: "_Table") -> Iterator[None]:
    """Remove a CSV that was begun for runs of which the first was refused: there is no row."""
    try:
        yield
    except ValueError:
        if table.is_bare:
            table.path.unlink()
        raise


class _Table:
    """The CSV while a grid runs: locked, repaired, appended to line by line."""

    def __init__(self, path: Path, columns: Sequence[str], fixed: Mapping[str, Any]) -> None:
        self.path = path
        self.columns = list(columns)
        #: Made here, and without a row yet.
        self.is_bare = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            self._lock()
            self._repair()
            if os.fstat(self._file).st_size == 0:
                self._write([self.columns])
                if self.is_bare:
                    sync_folder(path.parent)
            self.rows = self._checked(fixed)
        except BaseException:
            os.close(self._file)
            raise

    def close(self) -> None:
        os.close(self._file)

    def append(self, row: Mapping[str, Any]) -> None:
        missing = [name for name in self.columns if name not in row]
        if missing:
            raise ValueError(f"the run returned no {', '.join(missing)}, which are columns")
        self._write([[row[name] for name in self.columns]])
        self.is_bare = False

    def order(self, key: Sequence[str], wanted: Iterable[tuple[str, ...]]) -> None:
        """Rewrite the file aside and put it in place, rows in the order of the keys ``wanted``."""
        rows = _read_texts(self.path)
        place = {name: position for position, name in enumerate(wanted)}
        ordered = sorted(rows, key=lambda row: place.get(_key(row, key), len(place)))
        if ordered == rows:
            return
        lines = [self.columns, *([row[name] for name in self.columns] for row in ordered)]
        write_whole(self.path, _csv_text(lines))

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{self.path} is being written by another process: wait, or use another folder"
            ) from None

    def _repair(self) -> None:
        """Drop what follows the last line end: the line that an interruption tore."""
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.ftruncate(self._file, whole)

    def _write(self, lines: Iterable[Sequence[Any]]) -> None:
        """Append lines: all of them, or none where the disk is full or they are too long."""
        content = _csv_text(lines).encode()
        with _interrupts_blocked():
            before = os.fstat(self._file).st_size
            try:
                while content:
                    content = content[os.write(self._file, content) :]
                os.fsync(self._file)
            except OSError as error:
                os.ftruncate(self._file, before)
                raise OSError(error.errno, error.strerror, str(self.path)) from None

    def _checked(self, fixed: Mapping[str, Any]) -> list[dict[str, str]]:
        try:
            lines = list(csv.reader(io.StringIO(self.path.read_text(encoding="utf-8"))))
        except (UnicodeDecodeError, csv.Error):
            raise ValueError(f"{self.path} is no CSV: move it, or use another folder") from None
        if lines[0] != self.columns:
            raise ValueError(
                f"{self.path} has the columns {','.join(lines[0])[:200]}, expected "
                f"{','.join(self.columns)}: move it, or use another folder"
            )
        rows = []
        for number, line in enumerate(lines[1:], start=2):
            if len(line) != len(self.columns):
                raise ValueError(
                    f"line {number} of {self.path} has {len(line)} fields, expected "
                    f"{len(self.columns)}: remove it, its run is then repeated"
                )
            rows.append(dict(zip(self.columns, line, strict=True)))
        for row in rows:
            for name, value in fixed.items():
                if row[name] != _text(value):
                    raise ValueError(
                        f"{self.path} holds runs with {name} = {row[name]}, got "
                        f"{_text(value)}: use another folder"
                    )
        return rows


def _results(settings: list[Row], run: Run, jobs: int) -> Iterator[tuple[Row, Mapping[str, Any]]]:
    """Pairs (setting, measured values) as runs end."""
    if jobs <= 1:
        with _one_thread_here():
            for setting in settings:
                yield setting, _explained(setting, partial(run, setting))
        return
    with _workers(jobs) as pool:
        # Workers inherit the blocked signal: an interrupt is this process's to handle.
        with _interrupts_blocked():
            futures: dict[Future[Mapping[str, Any]], Row] = {
                pool.submit(run, setting): setting for setting in settings
            }
        for future in as_completed(futures):
            yield futures[future], _explained(futures[future], future.result)


def _explained(setting: Row, result: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    named = " ".join(f"{name}={value}" for name, value in setting.items())
    try:
        return result()
    except BrokenProcessPool:
        raise ChildProcessError(
            f"a worker died (out of memory?) while {named} or another run was under way: "
            "finished rows are kept; start again, with fewer jobs"
        ) from None
    except ValueError as error:
        raise ValueError(f"{error} (in the run {named})") from error


@contextmanager
def _workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes of one thread each, ended at once when the block is left by an exception."""
    spawn = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    with ExitStack() as stack:
        stack.enter_context(_environment(_ONE_THREAD))
        pool = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_start_worker)
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(multiprocessing.active_children()) - before:
                worker.terminate()
                worker.join()
            raise
        finally:
            pool.shutdown()


def _start_worker() -> None:
    """End with the parent, however it ends: an orphan would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextmanager
def _one_thread_here() -> Iterator[None]:
    """What the workers' environment does, in a process whose libraries are loaded already."""
    from threadpoolctl import threadpool_limits

    with _environment({"ESNLM_NUM_THREADS": "1"}), threadpool_limits(1):
        yield


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _bar(total: int, initial: int, shown: bool, name: str) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, initial=initial, disable=not shown, desc=name, unit="run")


def _csv_text(lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_text(v) for v in line] for line in lines)
    return text.getvalue()


def _key(row: Mapping[str, Any], key: Sequence[str]) -> tuple[str, ...]:
    return tuple(_text(row[name]) for name in key)


def _text(value: Any) -> str:
    """Text that reads back as the same value; numpy's numbers as Python's."""
    item = value.item() if hasattr(value, "item") else value
    return "" if item is None else str(item)


def _read_texts(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _read_values(row: Mapping[str, str]) -> Row:
    return {name: _value(text) for name, text in row.items()}


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
