"""How many threads, and a map that keeps the order."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (its library's threads are counted)
from threadpoolctl import threadpool_info, threadpool_limits

from esnlm.utils.messages import progress_bar
from esnlm.utils.threads import available_cores, map_tiles, n_threads, one_blas_thread


def test_the_caller_decides_then_the_environment_then_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ESNLM_NUM_THREADS", " 3 ")
    assert n_threads(2) == 2
    assert n_threads() == 3
    monkeypatch.setenv("ESNLM_NUM_THREADS", "")
    assert n_threads() == available_cores() >= 1


@pytest.mark.parametrize("requested", [0, -1, 1.0, True, "2"])
def test_bad_counts_are_named(requested: Any) -> None:
    with pytest.raises(ValueError, match="n_threads must be an integer of at least 1, got"):
        n_threads(requested)


@pytest.mark.parametrize("text", ["0", "-2", "many", "1.5"])
def test_a_bad_environment_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ESNLM_NUM_THREADS", text)
    with pytest.raises(ValueError, match=f"ESNLM_NUM_THREADS must be .* got '{text}'"):
        n_threads()


@pytest.mark.parametrize("count", [1, 3])
def test_results_keep_the_order_of_the_tiles(count: int) -> None:
    def late_first(tile: int) -> int:
        time.sleep(0.01 if tile == 0 else 0)
        return tile

    assert map_tiles(late_first, range(9), count) == list(range(9))


def test_every_tile_is_called_once_however_short() -> None:
    calls: list[int] = []
    for n in range(400):
        calls.clear()
        results = map_tiles(lambda tile: calls.append(tile) or tile, range(n % 7), 3)
        assert results == list(range(n % 7))
        assert sorted(calls) == list(range(n % 7))


def threads(at_most: int) -> int:
    """Threads of the interpreter; those that are about to end may take a moment."""
    deadline = time.monotonic() + 10
    while len(sys._current_frames()) > at_most and time.monotonic() < deadline:
        time.sleep(0.005)
    return len(sys._current_frames())


def test_threads_end_and_errors_come_through() -> None:
    before = len(sys._current_frames())
    with pytest.raises(ZeroDivisionError):
        map_tiles(lambda tile: 1 // tile, [2, 1, 0], 3)
    assert threads(before) <= before


def test_tiles_run_on_as_many_threads_as_there_are() -> None:
    """And in the caller's context: numpy keeps there what it does on overflow."""
    together = threading.Barrier(3)

    def meet(tile: int) -> tuple[int, str]:
        together.wait(timeout=30)
        return threading.get_ident(), np.geterr()["over"]

    with np.errstate(over="raise"):
        met = map_tiles(meet, range(3), 3)
    assert len({ident for ident, _ in met}) == 3
    assert {what for _, what in met} == {"raise"}


def test_a_single_tile_runs_in_the_calling_thread() -> None:
    before = len(sys._current_frames())
    assert map_tiles(lambda tile: (tile, threading.get_ident()), iter([7]), 3) == [
        (7, threading.get_ident())
    ]
    assert map_tiles(str, [], 3) == []
    assert len(sys._current_frames()) <= before


@pytest.mark.filterwarnings("ignore:tqdm")
def test_where_no_thread_can_be_started_the_caller_does_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As under a limit of processes, which counts threads."""

    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("esnlm.utils.threads.start_new_thread", refuse)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert map_tiles(str, range(3), 2) == ["0", "1", "2"]
    assert list(progress_bar(True, range(3))) == [0, 1, 2]


@contextmanager
def interrupts(count: int, every: float) -> Iterator[None]:
    """Raise KeyboardInterrupt in the main thread some times, as many Ctrl-C would."""
    left = [count]

    def interrupt(*_: Any) -> None:
        left[0] -= 1
        if not left[0]:
            signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, every, every)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("count", [1, 3])
def test_no_tile_runs_after_an_interrupt(count: int) -> None:
    running: list[int] = []
    begun: list[int] = []

    def slow(tile: int) -> None:
        begun.append(tile)
        running.append(tile)
        try:
            time.sleep(0.4)
        finally:
            running.remove(tile)

    with interrupts(count, every=0.1):
        with pytest.raises(KeyboardInterrupt):
            map_tiles(slow, range(8), 2)
        assert not running
        count = len(begun)
        time.sleep(0.05)
        assert len(begun) == count < 8


def test_no_tile_runs_after_an_error() -> None:
    done: list[int] = []

    def fail_first(tile: int) -> None:
        if tile == 0:
            raise ZeroDivisionError
        time.sleep(0.2)
        done.append(tile)

    with pytest.raises(ZeroDivisionError):
        map_tiles(fail_first, range(6), 2)
    finished = list(done)
    time.sleep(0.3)
    assert done == finished


def test_blas_has_one_thread_within_the_block_alone() -> None:
    def counts() -> list[int]:
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        before = counts()
        assert set(before) == {2}
        with one_blas_thread():
            assert set(counts()) == {1}
        assert counts() == before
