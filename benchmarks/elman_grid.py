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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from _report import options, report, row, seconds

from esnlm.runs.grid import Row, read_rows

SETTING = ["readout", "features", "n_units"]
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


def targets(rows: Sequence[Row], ngrams: Sequence[Row]) -> list[tuple[str, str, str, str]]:
    """(figure, target, got, met) for those targets whose settings are in the grid.

    Ratios are taken seed by seed and then averaged.
    """
    runs: Any = pd.DataFrame(rows)
    runs["ratio"] = runs["perplexity"] / runs["oracle_perplexity"]
    lowest = runs["ratio"].min()
    found = [("lowest perplexity / oracle, any run", "above 1", lowest, lowest > 1)]
    trigram = {row["seed"]: row["perplexity"] for row in ngrams if row["order"] == 3}
    beside = runs["perplexity"] / runs["seed"].map(trigram).astype(float)
    large = beside[runs["n_units"] >= 100].dropna()
    if len(large):
        worst = large.max()
        name = _name(runs.loc[large.idxmax(), SETTING])
        what = f"worst run from 100 units / trigram ({name})"
        found.append((what, "below 1", worst, worst < 1))
    means = runs.groupby(SETTING, sort=False)["ratio"].mean()
    small = means[[(name, n) == ("moe", 25) for name, _, n in means.index]]
    plain = means[[name != "mlp" for name, *_ in means.index]]
    for what, chosen, most in (
        ("mixture, 25 units", small, 1.10),
        ("best setting", means, 1.03),
        ("best setting without a network", plain, 1.10),
    ):
        if len(chosen):
            least = chosen.min()
            what = f"{what} / oracle ({_name(chosen.idxmin())})"
            found.append((what, f"<= {most:.2f}", least, least <= most))
    hundred = runs[runs["n_units"] == 100]
    for features, some in hundred.groupby("features"):
        by_seed = some.pivot(index="seed", columns="readout", values="perplexity")
        if {"softmax", "ridge"} <= set(by_seed):
            gain = (by_seed["softmax"] / by_seed["ridge"]).mean()
            what = f"softmax / ridge, 100 units, F {features}"
            found.append((what, "<= 0.90", gain, gain <= 0.90))
    return [
        (what, target, f"{got:.4f}", "yes" if met else "no") for what, target, got, met in found
    ]


def _name(setting: Sequence[Any]) -> str:
    readout, features, n_units = setting
    return f"{readout}, F {features}, {n_units} units"


def timed(name: str, options: list[str], folder: Path, budget: float) -> dict[str, Any]:
    """Wall seconds of one command in a fresh process, start-up and plots included."""
    command = [sys.executable, "-m", "esnlm", "elman", *options, "--out", str(folder)]
    took = seconds(lambda: subprocess.run(command, check=True))
    setting = f"{len(os.sched_getaffinity(0))} cores; peer: budget"
    return row(name, setting, took, budget, "s", target=f"<= {budget:g} s", met=took <= budget)


if __name__ == "__main__":
    main()
