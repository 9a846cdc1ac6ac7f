"""Run a grid of settings into a CSV, a row for each run, and resume an interrupted grid."""

import csv
import io
import multiprocessing
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from esnlm.runs import cluster
from esnlm.runs import subprocess_run as apart
from esnlm.runs.provenance import code_version
from esnlm.storage.atomic import is_plain, locked, sync_folder, write_whole
from esnlm.utils.messages import progress_bar
from esnlm.utils.threads import available_cores

if TYPE_CHECKING:
    import pandas as pd

Row: TypeAlias = dict[str, Any]
Run: TypeAlias = Callable[[Row], Mapping[str, Any]]

# Last column of files that older versions wrote.
_CHECKSUM = "checksum"
_ONE_THREAD = dict.fromkeys(cluster.THREADS, "1")


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
    cluster: str | None = None,
    given: Callable[[Row], Mapping[str, Any]] | None = None,
) -> list[Row]:
    """Run every setting that the CSV does not hold yet; a row is on disk as soon as a run ends.

    A row is the fixed values, the setting, and what ``run(setting)`` returns, cut to ``columns``.
    Rows are appended whole and synced; a line that an interruption tore is dropped on the next
    start, a repeated one or one of too few fields is refused. At the end the file is put in
    the order of the settings, rows of other grids last. Runs have one thread each, and the file is
    the same for every number of jobs.

    Parameters
    ----------
    run : a function at the top level of a module, setting -> measured values
    csv_path : the file; its folder must exist
    key : columns that tell the runs apart
    fixed : values that all runs share, also kept as columns; rows made with others are refused
    cost : setting -> anything ordered that grows with its time; longest runs start first
    jobs : processes; default: the cores this process may use. 1 runs in this process.
    cluster : runs are tasks of a Dask cluster, whatever ``jobs`` is: ``local:N``, the address of a
        scheduler or its file. A run whose worker dies is done again on another
    given : setting -> what ``run`` is given beside it, and no column; called here

    Returns the rows in the order of ``settings``: numbers are int or float, None is an empty field.
    A CSV of other columns or fixed values, and one that another process is writing, are refused
    by ValueError; a killed worker raises ChildProcessError. Finished rows stay, whatever happens.
    """
    all_settings = [dict(setting) for setting in settings]
    # Keys are compared as text: a name such as 007 reads back as another number.
    wanted = {tuple(_text(setting[name]) for name in key): setting for setting in all_settings}
    if len(wanted) < len(all_settings):
        n = len(all_settings)
        raise ValueError(f"settings repeat: {n} of them, {len(wanted)} distinct by key")
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    shared = dict(fixed or {})
    table = _Table(Path(csv_path), columns)
    with table.held():
        done = table.checked(shared, key)
        left = [setting for name, setting in wanted.items() if name not in done]
        if cost is not None:
            left.sort(key=cost, reverse=True)
        shown: dict[str, Any] = {"desc": table.path.stem, "unit": "run"}
        shown |= {"total": len(wanted), "initial": len(wanted) - len(left)}
        if cluster is None:
            found = _results(left, run, given, min(jobs or available_cores(), len(left)))
        else:
            found = _results_of_cluster(left, run, given, cluster)
        with progress_bar(True, **shown) as bar:
            for setting, measured in found:
                table.append(shared | setting | dict(measured))
                bar.set_postfix_str(_told(setting, key, wanted), refresh=False)
                bar.update()
        ordered = table.order(key, wanted)
    return typed_rows(ordered.head(len(wanted)))


def _told(setting: Row, key: Sequence[str], wanted: Collection[tuple[str, ...]]) -> str:
    """Return in words where a setting differs, such as ``last: mts, 64 units, seed 1``."""
    told = []
    for place, name in enumerate(key):
        value = _text(setting[name])
        if name == "version" or not value or len({names[place] for names in wanted}) < 2:
            continue
        if name.startswith("n_"):
            told.append(f"{value} {name[2:].replace('_', ' ')}")
        else:
            is_word = isinstance(setting[name], str) and value[0].isalpha()
            told.append(value if is_word else f"{name.replace('_', ' ')} {value}")
    return f"last: {', '.join(told)}" if told else ""


def run_grid_apart(
    settings: Iterable[Mapping[str, Any]],
    module: str,
    csv_path: str | Path,
    *,
    key: Sequence[str],
    columns: Sequence[str],
    given: Callable[[Row], Mapping[str, Any]],
    made: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    cluster: str | None = None,
) -> list[Row]:
    """`run_grid` by ``measure(setting | given(setting), lifeline)`` of a module.

    Each run has a fresh process and all threads; see `run_apart`. Columns are also ``made`` and
    the ``commit`` of the code.
    """
    # Inside `run_grid` it is that of one thread; a worker of a cluster has its own.
    environment = dict(os.environ) if cluster is None else None
    found = dict(made or {}) | {"commit": code_version()}
    run = partial(_run_apart, module, found, environment, str(Path.cwd()))
    shared: Any = {"key": key, "columns": columns, "fixed": fixed, "given": given}
    return run_grid(settings, run, csv_path, jobs=1, cluster=cluster, **shared)


def _run_apart(
    module: str, found: Row, environment: Mapping[str, str] | None, folder: str, setting: Row
) -> Row:
    return found | apart.run_apart(module, setting, environment, folder)


def read_rows(csv_path: str | Path) -> list[Row]:
    """Rows of a CSV that `run_grid` wrote: int, float, text, or None for an empty field."""
    return typed_rows(_read(Path(csv_path)))


class _Table:
    """The CSV while a grid runs: locked, repaired, appended to line by line."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, list(columns)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock and repair; a file made here is removed if a ValueError leaves it without a row."""
        self._is_bare = not self.path.exists()
        with locked(self.path):
            if not is_plain(self.path):
                raise ValueError(f"{self.path} is a device or a pipe: use another folder")
            self.path.touch()
            self._drop_torn_line()
            if self.path.stat().st_size == 0:
                self._write(self.columns)
                if self._is_bare:
                    sync_folder(self.path.parent)
            try:
                yield
            except ValueError:
                if self._is_bare:
                    self.path.unlink()
                raise

    def _drop_torn_line(self) -> None:
        """Cut off the line after the last line end, which an interruption tore; of our files."""
        written = self.path.read_bytes()
        heads = [",".join(names).encode() for names in (self.columns, [*self.columns, _CHECKSUM])]
        first, line_end, _ = written.partition(b"\n")
        is_ours = first in heads if line_end else any(head.startswith(first) for head in heads)
        if is_ours:
            with self.path.open("ab") as file:
                file.truncate(written.rfind(b"\n") + 1)
        if line_end and first == heads[1]:  # lines that follow have no checksum
            self._replace(_read(self.path))

    def checked(self, fixed: Mapping[str, Any], key: Sequence[str]) -> set[tuple[str, ...]]:
        """Return the keys of the rows.

        Raise ValueError unless the file has the columns, the fixed values, and no run twice.
        """
        found = _read(self.path)
        if list(found) != self.columns:
            raise ValueError(
                f"{self.path} has the columns {','.join(map(str, found))[:200]}, expected "
                f"{','.join(self.columns)}: move it, or use another folder"
            )
        for name, value in fixed.items():
            others = [text for text in found.get(name, ()) if text != _text(value)]
            if others:
                raise ValueError(
                    f"{self.path} holds runs with {name} = {others[0]}, got "
                    f"{_text(value)}: use another folder"
                )
        for number in found.index[found.duplicated(list(key))]:
            raise ValueError(
                f"line {number + 2} of {self.path} repeats a run of a line above: remove it"
            )
        return set(_keys(found, key))

    def append(self, row: Mapping[str, Any]) -> None:
        missing = [name for name in self.columns if name not in row]
        if missing:
            raise ValueError(f"the run returned no {', '.join(missing)}, which are columns")
        self._write([_text(row[name]) for name in self.columns])
        self._is_bare = False

    def order(self, key: Sequence[str], wanted: Iterable[tuple[str, ...]]) -> "pd.DataFrame":
        """Put the rows of the keys ``wanted`` first, in their order, and return all rows."""
        rows = _read(self.path)
        place = {name: position for position, name in enumerate(wanted)}
        rank = [place.get(name, len(place)) for name in _keys(rows, key)]
        ordered = rows.assign(_rank=rank).sort_values("_rank", kind="stable").drop(columns="_rank")
        if not ordered.index.equals(rows.index):
            self._replace(ordered)
        return ordered

    def _replace(self, rows: "pd.DataFrame") -> None:
        write_whole(self.path, rows.to_csv(index=False, lineterminator="\n"))

    def _write(self, values: Sequence[str]) -> None:
        """Append a line: the whole of it, or nothing where the disk is full."""
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(values)
        content = line.getvalue().encode()
        with apart.interrupts_blocked(), self.path.open("ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                while content:
                    content = content[file.write(content) :]
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(before)
                raise OSError(error.errno, error.strerror, str(self.path)) from None


_Results: TypeAlias = Iterator[tuple[Row, Mapping[str, Any]]]
_Given: TypeAlias = Callable[[Row], Mapping[str, Any]] | None


def _results(settings: list[Row], run: Run, given: _Given, jobs: int) -> _Results:
    """Pairs (setting, measured values) as runs end."""
    from threadpoolctl import threadpool_limits

    with apart.given_environment({**os.environ, **_ONE_THREAD}):
        if jobs <= 1:
            with threadpool_limits(1):  # libraries that are loaded already
                for setting in settings:
                    yield setting, _explained(setting, partial(run, _whole(setting, given)))
            return
        with _workers(jobs) as pool:
            # Workers inherit the blocked signal: an interrupt is this process's to handle.
            with apart.interrupts_blocked():
                futures = {pool.submit(run, _whole(each, given)): each for each in settings}
            for future in as_completed(futures):
                yield futures[future], _explained(futures[future], future.result)


def _results_of_cluster(settings: list[Row], run: Run, given: _Given, where: str) -> _Results:
    """Yield the same from the workers of a Dask cluster."""
    named = {" ".join(map(_text, setting.values())): setting for setting in settings}
    tasks = {name: _whole(setting, given) for name, setting in named.items()}
    for name, result in cluster.results(where, tasks, partial(_on_worker, run)):
        yield named[name], _explained(named[name], result)


def _on_worker(run: Run, setting: Row) -> Mapping[str, Any]:
    from threadpoolctl import threadpool_limits

    if isinstance(run, partial) and run.func is _run_apart:
        return run(setting)
    cluster.one_thread()
    with threadpool_limits(1):
        return run(setting)


def _whole(setting: Row, given: _Given) -> Row:
    return setting if given is None else {**setting, **given(setting)}


def _explained(setting: Row, result: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what ``result()`` returns; name the run in the message of its error."""
    named = " ".join(f"{name}={value}" for name, value in setting.items())
    try:
        return result()
    except cluster.LostWorkersError as error:
        raise ChildProcessError(f"{error} (in the run {named}): finished rows are kept") from None
    except BrokenProcessPool:
        raise ChildProcessError(
            f"a worker died (out of memory?) while {named} or another run was under way: "
            "finished rows are kept; start again, with fewer jobs"
        ) from None
    except ValueError as error:
        raise ValueError(f"{error} (in the run {named})") from error


@contextmanager
def _workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes, ended at once when the block is left by an exception."""
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(jobs, mp_context=apart.SPAWN, initializer=apart.Lifeline) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(multiprocessing.active_children()) - before:
                worker.terminate()
                worker.join()
            raise


def _read(path: Path) -> "pd.DataFrame":
    """Return the rows of a CSV as text, an empty field as an empty text; without checksums."""
    import pandas as pd

    try:
        found = pd.read_csv(path, dtype=str, keep_default_na=False, engine="python")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no CSV: move it, or use another folder") from None
    except pd.errors.ParserError as error:
        raise ValueError(f"{path}: {error}: remove the line, its run is then repeated") from None
    fields = found.notna().sum(axis=1)
    for number in fields.index[fields < found.shape[1]]:
        raise ValueError(
            f"line {number + 2} of {path} has {fields[number]} fields, expected "
            f"{found.shape[1]}: remove it, its run is then repeated"
        )
    return found.drop(columns=found.columns[-1]) if found.columns[-1] == _CHECKSUM else found


def _keys(rows: "pd.DataFrame", key: Sequence[str]) -> list[tuple[str, ...]]:
    return list(rows[list(key)].itertuples(index=False, name=None))


def typed_rows(texts: "pd.DataFrame") -> list[Row]:
    """Rows of a table of text: int, float, text, or None for an empty field.

    A commit is text, although 340e29229 would read as a number.
    """
    return [
        {str(name): _value(name, text) for name, text in row.items()}
        for row in texts.to_dict("records")
    ]


def _text(value: Any) -> str:
    """Text that reads back as the same value; numpy's numbers as Python's."""
    item = value.item() if hasattr(value, "item") else value
    return "" if item is None else str(item)


def _value(name: Any, text: str) -> Any:
    for kind in (int, float) if name != "commit" else ():
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
