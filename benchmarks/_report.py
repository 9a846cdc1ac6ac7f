"""Options, times, rows and reports of the benchmarks."""

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from esnlm.runs.provenance import code_version
from esnlm.runs.run_record import machine
from esnlm.storage.atomic import write_whole

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


def options(description: str | None, *positional: str, **defaults: Any) -> argparse.Namespace:
    """Arguments of the command line; an option is of the type of its default, or of that type.

    A list takes several values, False is a flag; positional arguments are paths, optional with ?.
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    for name in positional:
        parser.add_argument(name.rstrip("?"), type=Path, nargs="?" if name[-1] == "?" else None)
    for name, default in defaults.items():
        option = "--" + name.replace("_", "-")
        if default is False:
            parser.add_argument(option, action="store_true")
        elif isinstance(default, type):
            parser.add_argument(option, type=default)
        elif isinstance(default, list):
            parser.add_argument(option, type=type(default[0]), nargs="+", default=default)
        else:
            parser.add_argument(option, type=type(default), default=default)
    return parser.parse_args()


def named_folder(text: str) -> tuple[str, Path]:
    """A model of the command line, NAME=FOLDER."""
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise argparse.ArgumentTypeError(f"a model must be NAME=FOLDER, got {text!r}")
    return name, Path(folder)


def row(
    benchmark: str,
    setting: str,
    ours: float,
    peer: float | None = None,
    unit: str = "",
    *,
    ratio: float | None = None,
    target: Any = "",
    met: Any = "",
) -> dict[str, Any]:
    """A row of the report; the ratio is that of ours to the peer unless it is given."""
    if ratio is None and peer:
        ratio = ours / peer
    measured = {"ours": ours, "peer": peer, "ratio": ratio}
    known = {name: value for name, value in measured.items() if value is not None}
    names = {"benchmark": benchmark, "setting": setting, "unit": unit}
    return names | known | {"target": target, "met": met}


def report(
    name: str,
    rows: Iterable[Mapping[str, Any]],
    *,
    merge: bool = False,
    folder: str = "benchmarks",
) -> Path:
    """Write the rows of one benchmark to ``reports/<folder>/<name>.csv`` and print them.

    ``merge`` keeps earlier rows, except those of a benchmark and setting that is measured again.
    """
    path = ROOT / "reports" / folder / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    shared = {
        "command": shlex.join(["python", _relative(sys.argv[0]), *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    made = []
    for one in rows:
        made.append({column: _short(one.get(column, "")) for column in COLUMNS} | shared)
        print(*(f"{key}={made[-1][key]}" for key in COLUMNS[:8]), sep="  ", flush=True)
    table = pd.DataFrame(made, columns=COLUMNS, dtype=str).set_index(["benchmark", "setting"])
    assert table.index.is_unique, f"two rows are {table.index[table.index.duplicated()][0]}"
    if merge and path.exists():
        known = pd.read_csv(path, dtype=str, keep_default_na=False, index_col=[0, 1])
        places = known.index.union(table.index, sort=False)
        table = table.combine_first(known).loc[places]
    write_whole(path, table.to_csv(lineterminator="\n"))
    return path


def seconds(function: Callable[[], Any]) -> float:
    """Wall time of ``function()``."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def median_seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """Median wall time of ``function()`` in seconds, after one call that is not counted."""
    function()
    return statistics.median(seconds(function) for _ in range(repeats))


def commit() -> str:
    """The commit measured, marked when tracked files under esnlm or benchmarks differ from it."""
    return code_version(ROOT / "esnlm", ROOT / "benchmarks")


def _relative(script: str) -> str:
    path = Path(script).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
