"""Cases run one after another in workers that are watched: a crash or a hang ends one case only."""

import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from esnlm.__main__ import main

#: Memory that a case may take beyond what its worker has.
MEMORY = 3 << 30
_SECONDS = 30.0
_FORK = multiprocessing.get_context("fork")


class Case(NamedTuple):
    """What is tried, and a function that tries it and says what is wrong ("": nothing)."""

    what: str
    run: Callable[[], str]


#: Makes a case from random numbers and an empty folder for it.
Campaign = Callable[[np.random.Generator, Path], Case]


class Failure(NamedTuple):
    """A case that failed: its number, what was tried, and what was wrong."""

    number: int
    what: str
    wrong: str


def run_campaign(
    campaign: Campaign,
    numbers: range,
    *,
    seed: int = 0,
    seconds: float = _SECONDS,
    n_workers: int = 1,
) -> Iterator[Failure]:
    """The failures of the cases of these numbers; a case depends on its number and the seed only.

    A case that ends its process, or takes longer than ``seconds``, has failed.
    """
    shares = [numbers[k::n_workers] for k in range(n_workers)]
    with tempfile.TemporaryDirectory(dir=_memory()) as home:
        workers = [
            _Worker(campaign, share, seed, Path(home, str(k))) for k, share in enumerate(shares)
        ]
        try:
            while busy := [worker for worker in workers if worker.left]:
                ready = wait([worker.pipe for worker in busy], timeout=0.5)
                for worker in busy:
                    yield from worker.news(worker.pipe in ready, seconds)
        finally:
            for worker in workers:
                worker.stop()


class _Worker:
    """A process that runs cases, started anew after one that ended it."""

    def __init__(self, campaign: Campaign, numbers: range, seed: int, home: Path) -> None:
        self.campaign, self.left, self.seed, self.home = campaign, numbers, seed, home
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = _FORK.Pipe()
        args = self.campaign, self.left, self.seed, self.home, theirs
        self.process = _FORK.Process(target=_work, args=args, daemon=True)
        self.process.start()
        theirs.close()
        self.what, self.since = "", time.monotonic()

    def news(self, ready: bool, seconds: float) -> Iterator[Failure]:
        """Failures since the last call, if there were any."""
        if not ready:
            if time.monotonic() - self.since > seconds:
                yield from self._ended(f"hangs: more than {seconds:g} s")
            return
        try:
            self.what, wrong = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            said = " ".join((self.home / "stderr").read_text(errors="replace").split())
            yield from self._ended(f"ends the process: {self.process.exitcode}: {said[-200:]}")
            return
        self.since = time.monotonic()
        if wrong is not None:
            if wrong:
                yield Failure(self.left[0], self.what, wrong)
            self.left = self.left[1:]

    def _ended(self, wrong: str) -> Iterator[Failure]:
        self.stop()
        yield Failure(self.left[0], self.what, wrong)
        self.left = self.left[1:]
        if self.left:
            self._start()

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _work(campaign: Campaign, numbers: range, seed: int, home: Path, pipe: Connection) -> None:
    """Run the cases, and tell of each (what, None) before it and (what, what is wrong) after."""
    home.mkdir(exist_ok=True)
    os.fsync = lambda _: None  # type: ignore[assignment]
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(home / name, os.O_RDWR | os.O_CREAT), number)
        setattr(sys, name, os.fdopen(number, "w", 1, errors="backslashreplace", closefd=False))
    # Cases are many and small, and workers several: each has one core.
    threadpool_limits(1)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(home.name) % len(cores)]})
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    for number in numbers:
        resource.setrlimit(resource.RLIMIT_AS, (address_space() + MEMORY, most))
        folder = Path(tempfile.mkdtemp(dir=home))
        os.chdir(folder)
        rng = np.random.default_rng([seed, number])
        what, run = campaign(rng, folder)
        pipe.send((what, None))
        try:
            wrong = run()
        except BaseException as error:
            wrong = _raised(error)
        pipe.send((what, wrong))
        os.chdir(home)
        shutil.rmtree(folder)
    pipe.close()


def command_failure(*arguments: str, results: tuple[Path, ...] = ()) -> str:
    """What is wrong with how a command ends: "" for a result of numbers, or one line and status 2.

    ``results`` are CSVs that it writes.
    """
    for number in (1, 2):
        os.lseek(number, 0, os.SEEK_SET)
        os.ftruncate(number, 0)
    status = main(arguments)
    printed, said = (os.pread(n, 1 << 20, 0).decode(errors="replace").splitlines() for n in (1, 2))
    errors = [line for line in said if line.startswith("esnlm: error: ")]
    if "out of memory" in "".join(errors):
        return errors[0]
    if status == 2:
        others = [line for line in said if not line.startswith("esnlm: ")]
        if len(errors) != 1 or others:
            return f"status 2 with other than one line: {said[-3:]}"
        return ""
    if status != 0:
        return f"status {status}: {said[-3:]}"
    # A bin without tokens has no perplexity, and a file may be called so.
    lines = [line for line in printed if " 0 tokens" not in line and "nan" not in arguments]
    for text in ["\n".join(lines), *(path.read_text() for path in results)]:
        if "nan" in text.lower().replace(",", " ").split():
            return f"NaN with status 0: {printed[-8:]}"
    return ""


def _raised(error: BaseException) -> str:
    places = traceback.extract_tb(error.__traceback__)
    place = next((p for p in reversed(places) if "esnlm" in p.filename), places[-1])
    message = " ".join(str(error).split())[:160]
    return f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {message}"


def _memory() -> str | None:
    """A folder in memory, where the system has one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
