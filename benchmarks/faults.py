"""Faults: what the program does with what it cannot take, case by case.

    python benchmarks/faults.py [CAMPAIGN ...] [--cases N] [--seed S] [--first I] [--dry]

A campaign makes cases from the seed; a case fails where the process crashes, hangs or takes more
memory than it may, where an error is other than one line and status 2, and where NaN is a result.
Failures are printed; `reports/faults.csv` counts the cases and the failures of each campaign,
unless the run is ``--dry``. A further campaign is a function in `CAMPAIGNS`, see `Campaign`.
"""

import argparse
import shlex
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pandas as pd
from _fault_commands import command_lines
from _fault_files import mutated_files
from _fault_folders import folders
from _fault_processes import kills, limits, two_processes
from _fault_runner import Campaign, run_campaign
from _fault_text import untrusted_text
from _report import ROOT, commit, machine

from esnlm.storage.atomic import write_whole

CAMPAIGNS: dict[str, Campaign] = {
    "command lines": command_lines,
    "mutated files": mutated_files,
    "untrusted text and archives": untrusted_text,
    "kills": kills,
    "two processes": two_processes,
    "limits": limits,
}
REPORT = ROOT / "reports" / "faults.csv"


def main() -> int:
    """Run the campaigns; the exit status is 1 where a case failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", help=", ".join(CAMPAIGNS))
    parser.add_argument("--cases", type=int, default=1000, help="of each campaign")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="leave the report as it is")
    args = parser.parse_args()
    if unknown := set(args.campaigns) - set(CAMPAIGNS):
        parser.error(f"CAMPAIGN must be among {', '.join(CAMPAIGNS)}, got {unknown.pop()!r}")
    numbers, rows = range(args.first, args.first + args.cases), []
    folders()  # before there are workers
    for name in args.campaigns or CAMPAIGNS:
        start, failures = time.perf_counter(), 0
        found = run_campaign(CAMPAIGNS[name], numbers, seed=args.seed, n_workers=args.workers)
        for failures, failure in enumerate(found, start=1):  # noqa: B007
            print(f"{name} {failure.number}: {failure.what}: {failure.wrong}", flush=True)
        took = round(time.perf_counter() - start)
        print(f"{name}: {args.cases} cases, {failures} failures, {took} s", flush=True)
        rows.append({"campaign": name, "cases": args.cases, "failures": failures, "seconds": took})
    if not args.dry:
        report(rows, shlex.join(sys.argv[1:]))
    return int(any(row["failures"] for row in rows))


def report(rows: list[dict[str, Any]], arguments: str) -> None:
    """Write the rows, in place of those of the same campaigns."""
    shared = {
        "command": f"python benchmarks/faults.py {arguments}".strip(),
        "commit": commit(),
        "machine": machine(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    table = pd.DataFrame([row | shared for row in rows])
    if REPORT.exists():
        known = pd.read_csv(REPORT)
        table = pd.concat([known[~known["campaign"].isin(table["campaign"])], table])
    write_whole(REPORT, table.sort_values("campaign").to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    sys.exit(main())
