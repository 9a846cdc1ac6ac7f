"""Does ``esnlm elman`` keep to its time, and do its readouts reach their figures?

    python benchmarks/elman_grid.py [--folder DIR]

Runs the default grid and ``--sizes 25 100 --seeds 1`` from nothing, as a user would, and reads the
figures off the rows of the default grid. The peer of a time is its budget. With ``--folder`` the
default grid is kept there (and goes on if it was interrupted: its time then says nothing).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _report import report

from esnlm.experiments.common.grid import read_rows
from esnlm.experiments.elman.tables import targets

QUICK = ["--sizes", "25", "100", "--seeds", "1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to keep the default grid")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch) / "default"
        rows = [
            timed("esnlm elman " + " ".join(QUICK), QUICK, Path(scratch) / "quick", 90.0),
            timed("esnlm elman", [], folder, 600.0),
        ]
        found = targets(read_rows(folder / "elman.csv"), read_rows(folder / "ngrams.csv"))
    rows += [
        {
            "benchmark": what,
            "setting": "default grid, means over seeds",
            "ours": float(got),
            "peer": 1.0,
            "ratio": float(got),
            "unit": "ratio of perplexities",
            "target": target,
            "met": met == "yes",
        }
        for what, target, got, met in found
    ]
    report("elman_grid", rows)


def timed(name: str, options: list[str], folder: Path, budget: float) -> dict[str, Any]:
    """Wall seconds of one command in a fresh process, start-up and plots included."""
    command = [sys.executable, "-m", "esnlm", "elman", *options, "--out", str(folder)]
    start = time.perf_counter()
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - start
    return {
        "benchmark": name,
        "setting": f"{len(os.sched_getaffinity(0))} cores; peer: budget",
        "ours": seconds,
        "peer": budget,
        "ratio": seconds / budget,
        "unit": "s",
        "target": f"<= {budget:g} s",
        "met": seconds <= budget,
    }


if __name__ == "__main__":
    main()
