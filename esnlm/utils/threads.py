"""Threads over independent tiles: how many, and a map that keeps the order."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from queue import SimpleQueue
from typing import Any

from esnlm.utils.validation import Count

#: Applies a function to every tile, results in the order of the tiles.
TileMap = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]


def n_threads(requested: int | None = None) -> int:
    """Number of threads to use: at least 1, as requested.

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
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def tile_map(requested: int | None = None) -> Iterator[TileMap]:
    """A map over tiles on a pool of threads, closed with the ``with`` block.

    Tiles share nothing, so results do not depend on the number of threads. A call ends, whether by
    its results, by the error of a tile or by an interrupt, only when no tile is running any more:
    what tiles write to may be used again at once. A single tile runs in the calling thread.
    """
    count = n_threads(requested)
    if count == 1:
        yield lambda function, tiles: [function(tile) for tile in tiles]
        return
    # Threads start with the first tiles: a pool without any costs nothing.
    with ThreadPoolExecutor(count, thread_name_prefix="esnlm") as pool:

        def over(function: Callable[[Any], Any], tiles: Iterable[Any]) -> list[Any]:
            listed = list(tiles)
            if len(listed) < 2:
                return [function(tile) for tile in listed]
            work = _Work(function, listed)
            try:
                for number in range(len(listed)):
                    pool.submit(work, number)
                return work.results()
            except RuntimeError as error:
                # An interrupt while a thread is being started can reach us as the complaint of
                # the lock that it was waiting for (CPython's threading.Condition).
                if isinstance(error.__context__, KeyboardInterrupt):
                    raise error.__context__ from None
                raise
            finally:
                work.end()

        yield over


class _Work:
    """Calls of a function on numbered tiles that can be ended all together.

    Futures alone cannot: an interrupt may lose one while it is being made, and stops the waiting
    for a thread at once. Outcomes come through a queue of the interpreter's own: waiting for it
    survives interrupts, which waiting for a condition does not.
    """

    def __init__(self, function: Callable[[Any], Any], tiles: list[Any]) -> None:
        self._function = function
        self._tiles = tiles
        self._gate = threading.Lock()
        self._running = 0
        self._ended = False
        self._outcomes: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()

    def __call__(self, number: int) -> None:
        with self._gate:
            if self._ended:
                return
            self._running += 1
        result, failure = None, None
        try:
            result = self._function(self._tiles[number])
        except BaseException as error:
            failure = error
        with self._gate:
            self._running -= 1
        self._outcomes.put((number, result, failure))

    def results(self) -> list[Any]:
        """Results in the order of the tiles, or the error of the first call that fails."""
        found: dict[int, Any] = {}
        while len(found) < len(self._tiles):
            number, result, failure = self._outcomes.get()
            if failure is not None:
                raise failure
            found[number] = result
        return [found[number] for number in range(len(self._tiles))]

    def end(self) -> None:
        """Let no further call begin, and wait for running ones; an interrupt is raised after."""
        interrupt = None
        while True:
            try:
                with self._gate:
                    self._ended = True
                    if not self._running:
                        break
                self._outcomes.get()
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Matrix products use one thread within the ``with`` block: tiles are what is parallel."""
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
    """The loaded BLAS libraries: a search takes milliseconds, more than a small prediction."""
    from threadpoolctl import ThreadpoolController

    return [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]
