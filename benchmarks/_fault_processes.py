"""Kills, two processes at once, and limits: what is left is whole, or as it was before."""

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _fault_commands import places
from _fault_runner import Case, address_space

from esnlm.__main__ import main
from esnlm.runs.run_record import RECORD

# Compiled modules, which are written once, are no changes that a command makes.
sys.dont_write_bytecode = True

# Seconds that a process may take: it outlives a case that is given up.
_LONGEST = 60
_PASSES = "--passes 2 --chunk-tokens 40 --checkpoint-every 0"
#: Commands, with what is added where they are run again after a kill.
_WRITERS = {
    f"train TEXT --tokenizer word --units 8 --readout softmax {_PASSES} --out out": "--resume",
    f"train SHARDS --units 8 --readout moe --experts 2 {_PASSES} --out out": "--resume",
    "train TEXT --tokenizer char --units 8 --readout ridge --out out": "--overwrite",
    "prepare TEXT --tokenizer bpe:300 --sentences line --out out": "--overwrite",
    "ngram TEXT --order 3 --tokenizer word --out out": "--overwrite",
    "evaluate MODEL TEXT --csv a.csv --unit word --surprisal-csv b.csv": "--overwrite",
    "blimp NGRAMS --data PAIRS --csv a.csv": "--overwrite",
    "export MODEL out": "",
}
# What changes a file, as Python's audit hooks name it.
_CHANGES = "open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"
_ABSURD = (
    "train TEXT --units N --out out",
    "train TEXT --units 8 --readout moe --experts N --out out",
    "train TEXT --features N --units 8 --out out",
    "train TEXT --features spectral:N --units 8 --out out",
    "train TEXT --units 8 --direct N --out out",
    "train TEXT --units 8 --readout lowrank --option n_components=N --out out",
    "train TEXT --units 8 --readout factored --classes N --out out",
    "train TEXT --units 8 --chunk-tokens N --out out",
    "train TEXT --units 8 --held-out TEXT --held-out-tokens N --out out",
    "prepare TEXT --tokenizer bpe:N --out out",
    "ngram TEXT --order N --out out",
    "generate MODEL --tokens N0000",
    "generate MODEL --tokens 3 --top-k N",
    "elman --sizes N --seeds 1 --out out",
    "dyck --units N --models esn --out out",
)


def kills(rng: np.random.Generator, folder: Path) -> Case:
    """A command that is killed before it changes a file, and then run again."""
    command, again = _drawn(rng)
    share = rng.random()

    def run() -> str:
        known = places(folder)
        whole = _finished(folder / "whole", command, known)
        before = int(share * whole.changes)
        with _inside(folder / "killed") as here:
            ended = _Child(command, known, _killed_before(before)).end()
            if ended.status != -signal.SIGKILL:
                return f"status {ended.status} without the kill: {ended.said[-200:]}"
            if _results(here) == whole.results:
                return ""
            ended = _Child(f"{command} {again}", known).end()
            found = _results(here)
            if ended.status and "exists" in ended.said:  # the kill came after the last rename
                found = {name: data for name, data in found.items() if name in whole.results}
                ended.status = 0
            if ended.status:
                return f"run again: status {ended.status}: {ended.said[-200:]}"
            return _difference(found, whole.results)

    return Case(f"{command}, killed at {share:.3f} of its changes, {again}", run)


def two_processes(rng: np.random.Generator, folder: Path) -> Case:
    """Two processes that write the same: one is done, the other says who or what is in its way."""
    command, _ = _drawn(rng)
    later = float(rng.choice([0, 0.01, 0.1])) * rng.random()

    def run() -> str:
        known = places(folder)
        whole = _finished(folder / "whole", command, known)
        with _inside(folder / "two") as here:
            first = _Child(command, known)
            time.sleep(later)
            second = _Child(command, known)
            ended = [first.end(), second.end()]
            failed = [each for each in ended if each.status]
            if len(failed) > 1:
                return f"both fail: {ended[0].said[-200:]} {ended[1].said[-200:]}"
            for each in failed:
                said = each.said.splitlines()
                if each.status != 2 or "esnlm: error: " not in said[-1]:
                    return f"status {each.status}: {said[-3:]}"
                if not any(word in said[-1] for word in ("is being written", "exist")):
                    return f"says not what is in the way: {said[-1]}"
            found = _results(here)
            if not failed:
                # The rows of results are added, and what is not a result was there before.
                found |= {name: _once(found[name]) for name in found if name.endswith(".csv")}
            return _difference(found, whole.results)

    return Case(f"{command}, twice, {later:.3f} s apart", run)


def limits(rng: np.random.Generator, folder: Path) -> Case:
    """An absurd size, or little memory, few files or short ones: a result, or one line."""
    if rng.random() < 0.3:
        size = str(10 ** int(rng.integers(5, 20)) + int(rng.integers(0, 10)))
        command = str(rng.choice(_ABSURD)).replace("N", size)
        limit = None
        what = command
    else:
        command, _ = _drawn(rng)
        kind, value = _limit(rng)
        limit = _limited(kind, value)
        what = f"{command}, {kind} of {value}"

    def run() -> str:
        known = places(folder)
        expected = None if limit is None else _finished(folder / "whole", command, known).results
        with _inside(folder / "limited") as here:
            ended = _Child(command, known, limit or _unlimited).end()
            found = _results(here)
            if ended.status == 0:
                return "" if expected is None else _difference(found, expected)
            errors = [line for line in ended.said.splitlines() if "esnlm: error: " in line]
            if ended.status != 2 or len(errors) != 1:
                return f"status {ended.status}: {ended.said[-300:]}"
            if expected is not None and "--resume" in errors[0]:  # its checkpoint may stay
                ended = _Child(f"{command} --resume", known).end()
                if ended.status:
                    return f"resumed: status {ended.status}: {ended.said[-300:]}"
                return _difference(_results(here), expected)
            return f"leaves {sorted(found)}" if found else ""

    return Case(what, run)


def _drawn(rng: np.random.Generator) -> tuple[str, str]:
    """A command, and what is added where it is run again."""
    return list(_WRITERS.items())[rng.integers(len(_WRITERS))]


def _limit(rng: np.random.Generator) -> tuple[str, int]:
    """A limit of a process: its kind and value."""
    kind = str(rng.choice(["memory", "files", "bytes"]))
    if kind == "memory":
        return kind, int(rng.integers(1 << 26, 1 << 29))
    return kind, int(rng.integers(8, 40) if kind == "files" else 2 ** rng.uniform(0, 16))


def _unlimited() -> None:
    """No limit."""


class _Ended:
    """How a process ended: its status, what it said, how often it changed a file, its results."""

    def __init__(self, status: int, said: str, changes: int) -> None:
        self.status, self.said, self.changes = status, said, changes
        self.results: dict[str, bytes] = {}


class _Child:
    """A process that runs a command."""

    def __init__(
        self, command: str, known: Mapping[str, str], first: Callable[[], Any] = _unlimited
    ) -> None:
        self.said, said = os.pipe()
        self.number = os.fork()
        if self.number:
            os.close(said)
            return
        for stream in (1, 2):
            os.dup2(said, stream)
        signal.alarm(_LONGEST)
        try:
            counted = _counted_changes()
            first()
            status = main([known.get(word, word) for word in command.split()])
            os.write(2, f"\nchanges {counted[0]}\n".encode())
        except BaseException:
            status = 70
            os.write(2, traceback.format_exc().encode())
        os._exit(status)

    def end(self) -> _Ended:
        """Wait for its end."""
        with os.fdopen(self.said, errors="replace") as pipe:
            said, _, changes = pipe.read().partition("\nchanges ")
        _, status = os.waitpid(self.number, 0)
        return _Ended(os.waitstatus_to_exitcode(status), said, int(changes or 0))


def _counted_changes() -> list[int]:
    counted = [0]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if _is_change(event, arguments):
            counted[0] += 1

    sys.addaudithook(hook)
    return counted


def _is_change(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        flags = arguments[2]
        return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return event in _CHANGES


def _killed_before(number: int) -> Callable[[], None]:
    """Kill this process before it changes a file for the so many-th time."""

    def install() -> None:
        left = [number]

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if _is_change(event, arguments):
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1

        sys.addaudithook(hook)

    return install


def _limited(kind: str, value: int) -> Callable[[], None]:
    def install() -> None:
        name = {"memory": "AS", "files": "NOFILE", "bytes": "FSIZE"}[kind]
        number = getattr(resource, f"RLIMIT_{name}")
        most = resource.getrlimit(number)[1]
        resource.setrlimit(number, (value + address_space() * (kind == "memory"), most))

    return install


def _finished(folder: Path, command: str, known: Mapping[str, str]) -> _Ended:
    """The command, run undisturbed."""
    with _inside(folder):
        ended = _Child(command, known).end()
        assert ended.status == 0, f"undisturbed, {command} has status {ended.status}: {ended.said}"
        ended.results = _results(folder)
    return ended


@contextmanager
def _inside(folder: Path) -> Iterator[Path]:
    """The new folder as the working directory."""
    folder.mkdir()
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield folder
    finally:
        os.chdir(before)


def _results(folder: Path) -> dict[str, bytes]:
    """All files below a folder, hidden ones too, but records of runs, which hold their times."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    files = [path for path in files if not path.name.endswith(RECORD)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _difference(found: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> str:
    if others := set(found) ^ set(wanted):
        return f"files differ: {sorted(others)}"
    changed = sorted(name for name in found if found[name] != wanted[name])
    return f"bytes differ: {changed}" if changed else ""


def _once(data: bytes) -> bytes:
    """The lines of a table without those that stand twice."""
    return b"".join(dict.fromkeys(data.splitlines(keepends=True)))
