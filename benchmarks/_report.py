"""Rows of the benchmarks: what was measured, beside what, by which command, on what."""

import csv
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from esnlm.experiments.common.provenance import code_version

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = (
    "benchmark",
    "setting",
    "ours",
    "peer",
    "ratio",
    "unit",
    "target",
    "met",
    "command",
    "commit",
    "machine",
    "date",
)


def report(name: str, rows: Iterable[Mapping[str, Any]], *, merge: bool = False) -> Path:
    """Write the rows of one benchmark to ``reports/benchmarks/<name>.csv`` and print them.

    ``merge`` keeps the rows that are there, except those of a benchmark and setting measured anew.
    """
    folder = ROOT / "reports" / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.csv"
    aside = path.with_suffix(".csv.part")
    shared = {
        "command": "python " + " ".join([_relative(sys.argv[0]), *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    known = _known(path) if merge else {}
    made: set[tuple[str, str]] = set()
    with aside.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            full = {column: _short(row.get(column, "")) for column in COLUMNS} | shared
            name_of_row = full["benchmark"], full["setting"]
            assert name_of_row not in made, f"two rows are {name_of_row}"
            made.add(name_of_row)
            known[name_of_row] = full
            print(*(f"{key}={full[key]}" for key in COLUMNS[:8]), sep="  ", flush=True)
        writer.writerows(known.values())
    aside.replace(path)
    return path


def _known(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Rows of a report by benchmark and setting, in their order."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {(row["benchmark"], row["setting"]): row for row in csv.DictReader(file)}


def median_seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """Median wall time of ``function()`` in seconds, after one call that is not counted."""
    function()
    return statistics.median(_seconds(function) for _ in range(repeats))


def commit() -> str:
    """The commit measured, marked when tracked files under esnlm or benchmarks differ from it."""
    return code_version(ROOT / "esnlm", ROOT / "benchmarks")


def machine() -> str:
    """Processor model, cores available to this process, and memory."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {cores} cores, {gib:.0f} GiB"


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _relative(script: str) -> str:
    path = Path(script).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
