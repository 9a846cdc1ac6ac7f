"""Run a setting in a fresh process: it has its own peak memory and ends when its parent does."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from esnlm.text.corpus import CorpusError
from esnlm.text.shards import ShardsError
from esnlm.utils.blas import use_widest_kernels

SPAWN = multiprocessing.get_context("spawn")
_STOPPED = 130


class Lifeline:
    """End this process when its parent ends or asks for it.

    The process ends at once, or inside `defer_exit` at a moment of its choice.
    """

    def __init__(self, *connections: Connection) -> None:
        """Watch the parent process, and connections whose other end it closes to ask."""
        if not hasattr(signal, "pthread_sigmask"):  # Windows: see `interrupts_blocked`
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._cut = threading.Event()
        self._at_once = True
        parent = multiprocessing.parent_process()
        if watched := [*connections, *([] if parent is None else [parent.sentinel])]:
            threading.Thread(target=self._follow, args=(watched,), daemon=True).start()

    @contextmanager
    def defer_exit(self) -> Iterator[Callable[[], bool]]:
        """Do not end inside the block; the yielded function says whether the run should end."""
        self._at_once = False
        yield self._cut.is_set
        self._at_once = True
        if self._cut.is_set():
            os._exit(_STOPPED)

    def _follow(self, watched: list[Any]) -> None:
        wait(watched)
        self._cut.set()
        if self._at_once:
            os._exit(_STOPPED)


def run_apart(
    module: str,
    setting: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> dict[str, Any]:
    """Call ``measure(setting, lifeline)`` of the named module in a fresh process.

    The process has this one's environment and working folder unless others are given.
    Its OSErrors are raised here, and errors of values and numbers as ValueErrors; after another the
    message is on standard error and a ChildProcessError is raised. An interrupt leaves the run time
    to save its work, a second one ends it at once.
    """
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_measure, args=(module, dict(setting), theirs, folder))
    replaced = nullcontext() if environment is None else given_environment(environment)
    with replaced, interrupts_blocked():
        process.start()
    theirs.close()
    result: Any = None
    try:
        with suppress(EOFError):
            result = ours.recv()
    except BaseException:
        ours.close()
        try:
            process.join()
        except BaseException:
            process.kill()
            raise
        raise
    process.join()
    if isinstance(result, Exception):
        raise result
    if process.exitcode == _STOPPED:
        raise KeyboardInterrupt
    if process.exitcode or result is None:
        status = process.exitcode
        raise ChildProcessError(f"a run ended with status {status}; its message is above")
    return result


def _measure(module: str, setting: dict[str, Any], parent: Connection, folder: str | None) -> None:
    """Call ``measure`` of a module in this process, and send its result or error."""
    # Interrupts and hang-ups of the terminal are for the parent to pass on.
    if hasattr(os, "setsid"):
        os.setsid()
    if folder is not None:
        os.chdir(folder)
    use_widest_kernels()
    lifeline = Lifeline(parent)
    try:
        result: Any = dict(import_module(module).measure(setting, lifeline))
    except (ShardsError, CorpusError) as error:  # others may be able to read
        result = type(error)(str(error))
    except (ValueError, FloatingPointError, OverflowError) as error:  # as in `esnlm.__main__`
        result = ValueError(str(error))
    except OSError as error:
        result = error
    parent.send(result)


@contextmanager
def given_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Replace the environment variables inside the block."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Raise the KeyboardInterrupt of an interrupt inside the block after it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is None:
        yield  # interrupts are the main thread's, or of the program that embeds Python
        return
    deferred: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: deferred.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if deferred:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Defer interrupts inside the block; processes started in it never receive them.

    On Windows they do: there a process ignores them once it has a `Lifeline`.
    """
    # With a mask alone, a thread that already runs could receive the signal.
    with interrupts_deferred():
        if not hasattr(signal, "pthread_sigmask"):
            yield
            return
        resource_tracker.ensure_running()  # which unblocks the signal as it starts
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
