"""Threads over independent tiles: how many, and a map that keeps the order."""

import os
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import lru_cache
from queue import SimpleQueue
from threading import RLock
from typing import Any, Self

from esnlm.utils.memory import group_file, group_folders
from esnlm.utils.validation import Count


def n_threads(requested: int | None = None) -> int:
    """Return number of threads to use: at least 1, as requested.

    Where None is requested the environment variable ``ESNLM_NUM_THREADS`` decides, and without it
    the number of cores that this process may run on.
    """
    if requested is None:
        text = os.environ.get("ESNLM_NUM_THREADS", "").strip()
        if not text:
            return available_cores()
        if not text.isdigit() or int(text) < 1:
            raise ValueError(
                f"ESNLM_NUM_THREADS must be an integer of at least 1, got {text!r}; correct or"
                " unset it"
            )
        return int(text)
    Count().check("n_threads", requested)
    return requested


def available_cores() -> int:
    """Return how many cores this process may run on, and has the time of in its container."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(cores, _quota())


@lru_cache(maxsize=1)
def _quota() -> int:
    """Return the cores that control groups grant this process, a part of one counted whole."""
    quotas = [1 << 30]
    for folder in group_folders("cpu"):
        limit = group_file(folder, "cpu.max").split() or [
            group_file(folder, f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
        ]
        if limit[0].isdigit() and limit[-1].isdigit():  # neither "max" nor -1
            quotas.append(max(1, -(-int(limit[0]) // int(limit[-1]))))
    return min(quotas)


def map_tiles(
    function: Callable[[Any], Any], tiles: Iterable[Any], requested: int | None = None
) -> list[Any]:
    """Call a function on tiles, here and on helper threads; return results in their order.

    ``requested`` is the number of threads, as in `n_threads`. Tiles share nothing, so results do
    not depend on it. A single tile runs in the calling thread. A call ends, whether by its
    results, by the error of a tile or by an interrupt, only when no tile is running any more: what
    tiles write to may be used again at once.

    Executors and threads of the standard library wait on locks that an interrupt can leave closed
    for ever. Here every wait is one of the interpreter's own, which no interrupt breaks.
    """
    tiles = list(tiles)
    results: list[Any] = [None] * len(tiles)
    numbers = iter(range(len(tiles)))
    helpers: set[int] = set()
    errors: list[BaseException] = []
    stops: list[bool] = []
    goodbyes: SimpleQueue[None] = SimpleQueue()
    interrupt = None

    def help_out(helper: int) -> None:
        helpers.add(helper)
        try:
            while not stops and (number := next(numbers, None)) is not None:
                results[number] = function(tiles[number])
        except BaseException as error:
            errors.append(error)
            stops.append(True)
        helpers.remove(helper)
        goodbyes.put(None)

    try:
        for helper in range(min(n_threads(requested), len(tiles)) - 1):
            with suppress(RuntimeError):  # the system lets this process start no more
                start_new_thread(copy_context().run, (help_out, helper))
        while not stops and (number := next(numbers, None)) is not None:
            results[number] = function(tiles[number])
    finally:
        while True:
            try:
                stops.append(True)
                while helpers:
                    goodbyes.get()
                break
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
    if errors:
        raise errors[0]
    return results


class OwnLock:
    """A lock of the object that holds it: a copy or a pickle has another one, which is open."""

    def __init__(self) -> None:
        self.lock = RLock()  # an interrupt cannot leave it closed after ``with own.lock``

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let matrix products use one thread within the ``with`` block: tiles are what is parallel."""
    before = [(library, library.num_threads) for library in _blas()]
    try:
        for library, count in before:
            if count != 1:
                library.set_num_threads(1)
        yield
    finally:
        for library, count in before:
            if count != 1:
                library.set_num_threads(count)


@lru_cache(maxsize=1)
def _blas() -> list[Any]:
    """Return the loaded BLAS libraries; a search takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]
