"""Faults: what the program does with what it cannot take, case by case.

    python benchmarks/faults.py [CAMPAIGN ...] [--cases N] [--seed S] [--first I]

A campaign makes cases from the seed; a case fails where the process crashes, hangs or takes more
memory than it may, where an error is other than one line and status 2, and where NaN is a result.
The rows of ``reports/faults.csv`` count the cases and the failures of each; failures are printed.
"""

import argparse
import sys
import time
from collections import Counter

from _fault_commands import command_lines
from _fault_files import mutated_files
from _fault_runner import Campaign, run_campaign
from _fault_text import untrusted_text

CAMPAIGNS: dict[str, Campaign] = {
    "command lines": command_lines,
    "mutated files": mutated_files,
    "untrusted text and archives": untrusted_text,
}


def main() -> int:
    """Run the campaigns; the exit status is 1 where a case failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", default=list(CAMPAIGNS))
    parser.add_argument("--cases", type=int, default=1000, help="of each campaign")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    failed = 0
    for name in args.campaigns:
        start, kinds = time.perf_counter(), Counter[str]()
        numbers = range(args.first, args.first + args.cases)
        for failure in run_campaign(
            CAMPAIGNS[name], numbers, seed=args.seed, n_workers=args.workers
        ):
            print(f"{name} {failure.number}: {failure.what}: {failure.wrong}", flush=True)
            kinds[failure.wrong.partition(":")[0]] += 1
        took = time.perf_counter() - start
        failed += kinds.total()
        print(f"{name}: {args.cases} cases, {kinds.total()} failures, {took:.0f} s", flush=True)
        for kind, count in kinds.most_common():
            print(f"    {count} {kind}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
