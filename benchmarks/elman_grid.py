"""Does ``esnlm elman`` keep to its time, and do its readouts reach their figures?

    python benchmarks/elman_grid.py [--folder DIR]

Runs the default grid and ``--sizes 25 100 --seeds 1`` from nothing, as a user would, and reads the
figures off the rows of the default grid. The peer of a time is its budget. With ``--folder`` the
default grid is kept there (and resumed if it was interrupted: its time then says nothing).
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _report import options, report, row, seconds

from esnlm.runs.grid import read_rows
from esnlm.studies.elman.tables import targets

QUICK = ["--sizes", "25", "100", "--seeds", "1"]


def main() -> None:
    given = options(__doc__, folder=Path)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch) / "default"
        rows = [
            timed("esnlm elman " + " ".join(QUICK), QUICK, Path(scratch) / "quick", 90.0),
            timed("esnlm elman", [], folder, 600.0),
        ]
        found = targets(read_rows(folder / "elman.csv"), read_rows(folder / "ngrams.csv"))
    rows += [
        row(
            what,
            "default grid, means over seeds",
            float(got),
            1.0,
            "ratio of perplexities",
            target=target,
            met=met == "yes",
        )
        for what, target, got, met in found
    ]
    report("elman_grid", rows)


def timed(name: str, options: list[str], folder: Path, budget: float) -> dict[str, Any]:
    """Wall seconds of one command in a fresh process, start-up and plots included."""
    command = [sys.executable, "-m", "esnlm", "elman", *options, "--out", str(folder)]
    took = seconds(lambda: subprocess.run(command, check=True))
    setting = f"{len(os.sched_getaffinity(0))} cores; peer: budget"
    return row(name, setting, took, budget, "s", target=f"<= {budget:g} s", met=took <= budget)


if __name__ == "__main__":
    main()
