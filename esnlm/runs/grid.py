"""Run a grid of settings into a CSV, a row for each run, and resume an interrupted grid."""

import multiprocessing
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from esnlm.runs import cluster
from esnlm.runs import subprocess_run as apart
from esnlm.runs.provenance import code_version
from esnlm.runs.table import Table, read_table, text_of, typed_rows
from esnlm.utils.messages import log, progress_bar
from esnlm.utils.threads import available_cores

Row: TypeAlias = dict[str, Any]
Run: TypeAlias = Callable[[Row], Mapping[str, Any]]

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
    extras: Callable[[Row], Mapping[str, Any]] | None = None,
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
    extras : setting -> more values for ``run``, which are no columns; called here

    Returns the rows in the order of ``settings``: numbers are int or float, None is an empty field.
    A CSV of other columns or fixed values, and one that another process is writing, are refused
    by ValueError; a killed worker raises ChildProcessError. Finished rows stay, whatever happens.
    """
    rows = [dict(setting) for setting in settings]
    # Keys are compared as text: a name such as 007 reads back as another number.
    by_key = {tuple(text_of(setting[name]) for name in key): setting for setting in rows}
    if len(by_key) < len(rows):
        raise ValueError(
            f"settings repeat: {len(rows)} of them, {len(by_key)} distinct: name each once"
        )
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    shared = dict(fixed or {})
    table = Table(Path(csv_path), columns)
    with table.opened():
        names = table.keys(shared, key, rows)
        waiting = [setting for name, setting in by_key.items() if name not in names]
        if cost is not None:
            waiting.sort(key=cost, reverse=True)
        log.info(f"{len(waiting)} of {len(by_key)} runs are not in {table.path} yet")
        options: dict[str, Any] = {"desc": table.path.stem, "unit": "run", "total": len(by_key)}
        tasks = (
            (setting, {**setting, **(extras(setting) if extras else {})}) for setting in waiting
        )
        jobs = min(jobs or available_cores(), len(waiting))
        with progress_bar(True, **options, initial=len(by_key) - len(waiting)) as bar:
            for setting, result in _results(tasks, run, jobs, cluster):
                table.append(shared | setting | dict(_measured(setting, result)))
                bar.set_postfix_str(_described(setting, key, by_key), refresh=False)
                bar.update()
        ordered = table.order(key, by_key)
    return typed_rows(ordered[: len(by_key)])


def _described(setting: Row, key: Sequence[str], keys: Collection[tuple[str, ...]]) -> str:
    """Return in words where a setting differs, such as ``last: mts, 64 units, seed 1``."""
    words = []
    for place, name in enumerate(key):
        value = text_of(setting[name])
        if name == "version" or not value or len({each[place] for each in keys}) < 2:
            continue
        if name.startswith("n_"):
            words.append(f"{value} {name[2:].replace('_', ' ')}")
        else:
            is_word = isinstance(setting[name], str) and value[0].isalpha()
            words.append(value if is_word else f"{name.replace('_', ' ')} {value}")
    return f"last: {', '.join(words)}" if words else ""


def run_grid_apart(
    settings: Iterable[Mapping[str, Any]],
    module: str,
    csv_path: str | Path,
    *,
    key: Sequence[str],
    columns: Sequence[str],
    extras: Callable[[Row], Mapping[str, Any]],
    provenance: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    cluster: str | None = None,
) -> list[Row]:
    """`run_grid` by ``measure(setting | extras(setting), lifeline)`` of a module.

    Each run has a fresh process and all threads; see `run_apart`. Columns are also ``provenance``
    and the ``commit`` of the code.
    """
    # Inside `run_grid` it is that of one thread; a worker of a cluster has its own.
    environment = dict(os.environ) if cluster is None else None
    row = dict(provenance or {}) | {"commit": code_version()}
    run = partial(_run_apart, module, row, environment, str(Path.cwd()))
    return run_grid(
        settings, run, csv_path, key=key, columns=columns, fixed=fixed, jobs=1, cluster=cluster,
        extras=extras,
    )  # fmt: skip


def _run_apart(
    module: str, row: Row, environment: Mapping[str, str] | None, folder: str, setting: Row
) -> Row:
    return row | apart.run_apart(module, setting, environment, folder)


def read_rows(csv_path: str | Path) -> list[Row]:
    """Rows of a CSV that `run_grid` wrote: int, float, text, or None for an empty field."""
    return typed_rows(read_table(Path(csv_path))[1])


def _results(
    tasks: Iterable[tuple[Row, Row]], run: Run, jobs: int, where: str | None
) -> Iterator[tuple[Row, Callable[[], Any]]]:
    """Yield settings as runs end, each with a function that returns the result or raises."""
    from threadpoolctl import threadpool_limits

    if where is not None:
        yield from cluster.results(where, tasks, partial(_on_worker, run))
        return
    with apart.given_environment({**os.environ, **_ONE_THREAD}):
        if jobs <= 1:
            with threadpool_limits(1):  # libraries that are loaded already
                for setting, task in tasks:
                    yield setting, partial(run, task)
            return
        with _workers(jobs) as pool:
            # Workers inherit the blocked signal: an interrupt is this process's to handle.
            with apart.interrupts_blocked():
                futures = {pool.submit(run, task): setting for setting, task in tasks}
            for future in as_completed(futures):
                yield futures[future], future.result


def _on_worker(run: Run, setting: Row) -> Mapping[str, Any]:
    from threadpoolctl import threadpool_limits

    if isinstance(run, partial) and run.func is _run_apart:
        return run(setting)
    os.environ.update(_ONE_THREAD)
    with threadpool_limits(1):
        return run(setting)


def _measured(setting: Row, result: Callable[[], Any]) -> Mapping[str, Any]:
    """Return what ``result()`` returns; name the run in the message of its error."""
    name = " ".join(f"{name}={value}" for name, value in setting.items())
    try:
        return result()
    except cluster.LostWorkersError as error:
        raise ChildProcessError(f"{error} (in the run {name}): finished rows are kept") from None
    except BrokenProcessPool:
        raise ChildProcessError(
            f"a worker died (out of memory?) while {name} or another run was under way: "
            "finished rows are kept; start again, with fewer jobs"
        ) from None
    except ValueError as error:
        raise ValueError(f"{error} (in the run {name})") from error


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
