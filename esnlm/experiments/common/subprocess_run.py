"""A run in a process of its own: its peak memory is its own, and it ends when its parent does."""

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_STOPPED = 130
_REFUSED = 2


class Lifeline:
    """The pipe from the parent: it closes when the parent ends, or wants the run to end.

    A run is then ended at once, or at a moment of its choice inside `gently`.
    """

    def __init__(self) -> None:
        self._cut = threading.Event()
        self._at_once = True

    def watch(self) -> None:
        """Watch standard input from now on."""
        threading.Thread(target=self._follow, daemon=True).start()

    @contextmanager
    def gently(self) -> Iterator[Callable[[], bool]]:
        """Whether the run is to end, for it to ask: inside the block it is not ended."""
        self._at_once = False
        yield self._cut.is_set
        self._at_once = True
        if self._cut.is_set():
            os._exit(_STOPPED)

    def _follow(self) -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        self._cut.set()
        if self._at_once:
            os._exit(_STOPPED)


def run_apart(
    module: str, setting: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """What the module, which calls `serve`, measures of a setting in a fresh process.

    Raises
    ------
    KeyboardInterrupt
        This process was interrupted. The run had the time to end well, or a second interrupt
        ended it.
    ValueError
        The run refused what it was given.
    ChildProcessError
        The run failed; it has told why on standard error.
    """
    command = [sys.executable, "-m", module, json.dumps(dict(setting))]
    # A session of its own: an interrupt from the terminal is the parent's to pass on.
    with subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            told = process.stdout.read()
        except BaseException:
            process.stdin.close()
            try:
                process.wait()
            except BaseException:
                process.kill()
                raise
            raise
    if process.returncode == _STOPPED:
        raise KeyboardInterrupt
    if process.returncode == _REFUSED and told:
        raise ValueError(json.loads(told))
    if process.returncode:
        status = process.returncode
        raise ChildProcessError(f"a run ended with status {status}; its message is above")
    measured: dict[str, Any] = json.loads(told)
    return measured


def serve(measure: Callable[[dict[str, Any], Lifeline], Mapping[str, Any]]) -> None:
    """Print what is measured of the setting in the first argument: the main of a module."""
    lifeline = Lifeline()
    lifeline.watch()
    try:
        print(json.dumps(dict(measure(json.loads(sys.argv[1]), lifeline))))
    except ValueError as error:
        print(json.dumps(str(error)))
        sys.exit(_REFUSED)
    except OSError as error:
        sys.exit(f"esnlm: error: {error}")


def peak_rss_mib() -> int:
    """Peak resident memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
