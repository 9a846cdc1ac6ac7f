"""How much processor time do commands save beside an older commit?

    python benchmarks/pace.py SHARDS HELD_OUT CLONE [--repeats 3] [--only NAME ...]

``CLONE`` is a clone of this repository at the older commit. Both versions run each command in
processes of their own, in turn, with one thread; a row has the medians of their processor seconds.
A first run of each, which fills the cache of compiled functions, is not counted. Of ``esn+mlp``
the row is the time of its steps: that of 96 steps less that of 16.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _report import ROOT, options, report, row

STEPS = 16, 96
OF_STEPS = "--model", "esn+mlp", "--device", "cpu", "--plan", "bf16=true"


def main() -> None:
    parsed = options(__doc__, "shards", "held_out", "clone", repeats=3, only=[""])
    shards, held_out = str(parsed.shards.resolve()), str(parsed.held_out.resolve())
    with tempfile.TemporaryDirectory() as scratch:
        clones = {"new": ROOT, "old": parsed.clone.resolve()}
        measured = Clones(clones, Path(scratch), parsed.repeats)
        train = "train", shards, "--overwrite", "--out"
        of_steps = (*train, "{}-mlp", *OF_STEPS, "--plan")
        commands: dict[str, list[tuple[str, ...]]] = {
            "train": [(*train, "{}-words")],
            "train --model esn+mlp, steps": [(*of_steps, f"steps={n}") for n in STEPS],
            "evaluate, esn+mlp": [("evaluate", "{}-mlp", held_out)],
            "elman --seeds 1": [("elman", "--seeds", "1", "--jobs", "1", "--out", "{}")],
        }
        rows = [
            measured.row(name, some)
            for name, some in commands.items()
            if parsed.only == [""] or name in parsed.only
        ]
    report("pace", rows, merge=True)


class Clones:
    """Two versions of the package, by their folders, that run the same commands."""

    def __init__(self, folders: dict[str, Path], scratch: Path, repeats: int) -> None:
        self.folders, self.scratch, self.repeats = folders, scratch, repeats

    def row(self, name: str, commands: list[tuple[str, ...]]) -> dict[str, Any]:
        """Return the row of a command, or of the last of them less the first."""
        taken: dict[str, list[float]] = {version: [] for version in self.folders}
        for repeat in range(1 + self.repeats):
            for version in self.folders:
                times = [self.seconds(version, command) for command in commands]
                if repeat:
                    taken[version].append(times[-1] - (times[0] if len(times) > 1 else 0.0))
        new, old = (statistics.median(taken[version]) for version in ("new", "old"))
        setting = f"one thread, medians of {self.repeats}; peer: commit {self.old_commit()}"
        return row(name, setting, new, old, "processor s", ratio=old / new)

    def seconds(self, version: str, command: tuple[str, ...]) -> float:
        """Return the processor seconds of a command, all its processes included."""
        environment = os.environ | {
            "PYTHONPATH": str(self.folders[version]),
            "NUMBA_CACHE_DIR": str(self.scratch / f"{version}-cache"),
            "OMP_NUM_THREADS": "1",
            "NUMBA_NUM_THREADS": "1",
        }
        shutil.rmtree(self.scratch / version, ignore_errors=True)
        parts = [part.replace("{}", version) for part in command]
        process = subprocess.Popen(
            [sys.executable, "-m", "esnlm", *parts],
            cwd=self.scratch,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{version}: esnlm {' '.join(parts)} ended with {status}")
        return usage.ru_utime + usage.ru_stime

    def old_commit(self) -> str:
        """Return the commit of the older clone."""
        command = ["git", "-C", str(self.folders["old"]), "rev-parse", "--short", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
