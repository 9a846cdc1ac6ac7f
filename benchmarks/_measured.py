"""Run a command in a process of its own, and measure its processor time and peak memory."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

_LAUNCHER = Path(__file__).resolve().with_name("_processor_time.py")
_SIGXCPU = -int(signal.SIGXCPU)
_INTERRUPTED = (130, -int(signal.SIGINT), -int(signal.SIGTERM))
_ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL", "NUMBA", "ESNLM")
}


class Used(NamedTuple):
    """What a process took: processor and wall seconds, peak resident memory; what it printed."""

    seconds: float
    wall: float
    peak_mib: int
    output: str

    def after(self, before: "Used") -> "Used":
        """This and what the same run took before it was interrupted."""
        seconds, wall = self.seconds + before.seconds, self.wall + before.wall
        return Used(seconds, wall, max(self.peak_mib, before.peak_mib), self.output)


class OverBudgetError(Exception):
    """The processor time of a run was used up before it ended: ``used`` is what it took."""

    def __init__(self, used: Used) -> None:
        super().__init__(f"ended after {used.seconds:.0f} processor seconds")
        self.used = used


class InterruptedRunError(KeyboardInterrupt):
    """A run was asked to stop, and did: ``used`` is what it took."""

    def __init__(self, used: Used) -> None:
        super().__init__("interrupted: the same command resumes the run")
        self.used = used


def measured(command: Sequence[str], output: Path, limit: float = 0.0) -> Used:
    """Run a command with one thread; past ``limit`` processor seconds raise OverBudgetError.

    ChildProcessError with the end of what it printed where it fails. Interrupts are passed on to
    it and waited for: InterruptedRunError.
    """
    launcher = [sys.executable, "-S", str(_LAUNCHER), str(int(limit))]
    with (
        subprocess.Popen(
            [*launcher, str(output), *command],
            env={**os.environ, **_ONE_THREAD},
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as process,
        _passed_on(process.pid),
    ):
        printed, _ = process.communicate()
    found = json.loads(printed)
    text = output.read_text(errors="replace")
    used = Used(found["seconds"], found["wall"], found["peak_mib"], text)
    if found["status"] == _SIGXCPU:
        raise OverBudgetError(used)
    if found["status"] in _INTERRUPTED:
        raise InterruptedRunError(used)
    if found["status"]:
        raise ChildProcessError(
            f"{shlex.join(command)} ended with status {found['status']}: {text[-1000:]}"
        )
    return used


@contextmanager
def _passed_on(group: int) -> Iterator[None]:
    """Inside the block interrupts of this process go to that group of processes instead."""
    both = (signal.SIGINT, signal.SIGTERM)

    def pass_on(number: int, _: Any) -> None:
        with suppress(ProcessLookupError):
            os.killpg(group, number)

    before = {number: signal.signal(number, pass_on) for number in both}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
