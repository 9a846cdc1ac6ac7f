"""Mutants: the share of small faults, set into the code at random, that the tests notice.

    pip install cosmic-ray pytest-cov
    pytest -n 2 -m "not slow and not torch and not hf" --cov=esnlm --cov-context=test \\
        --cov-report= --durations=0 -vv > durations.txt
    python benchmarks/mutants.py durations.txt [--mutants N] [--seed S]

cosmic-ray says where a mutant can stand and writes it. A place is drawn first, then a mutant of it:
an addition has eleven mutants, a comparison seven, and each place counts once. Left out are what no
test can notice: annotations, and ``==`` for ``is`` (and back). A mutant meets the tests that ran
its lines: of each function of tests the quickest case, then the next, for ``--budget`` seconds in
all. The first that fails, or that takes far too long, kills it. The rows go to
``reports/mutants.csv``; ``--again`` meets the others once more.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from _report import ROOT, commit, machine
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from coverage import CoverageData

from esnlm.storage.atomic import write_whole

#: What is mutated: readouts, what calls the kernels, n-grams, text, training.
PLACES = ("readouts", "reservoir", "ngrams", "text", "models")
#: Operators whose mutants behave as the code does, or that need arguments.
LEFT_OUT = re.compile(r"(Is_Eq|Eq_Is|IsNot_NotEq|NotEq_IsNot|VariableReplacer|VariableInserter)$")


KEY = "path", "operator", "occurrence"


class Mutant(NamedTuple):
    """One small change of one file."""

    path: str
    operator: str
    occurrence: int
    line: int
    last: int


def main() -> None:
    """Draw the mutants, meet each with its tests, write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("durations", type=Path, help="what pytest printed with --durations=0 -vv")
    parser.add_argument("--coverage", type=Path, default=ROOT / ".coverage")
    parser.add_argument("--mutants", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests a mutant")
    parser.add_argument("--again", action="store_true", help="those not killed yet")
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "mutants.csv")
    args = parser.parse_args()
    mutants = draw(args.mutants, args.seed)
    tests = Tests(args.coverage, args.durations)
    shared = {"seed": args.seed, "commit": commit(), "machine": machine()}
    rows: list[dict[str, Any]] = []
    if args.again:
        known = pd.read_csv(args.out, keep_default_na=False)
        rows = known[known["killed"]].to_dict("records")  # type: ignore[assignment]
        killed = {tuple(row[name] for name in KEY) for row in rows}
        mutants = [mutant for mutant in mutants if mutant[:3] not in killed]
    lock = threading.Lock()
    copies = [copy_of_the_code() for _ in range(args.workers)]
    found = pytest(copies[0], sorted(tests.seconds), 600, "--collect-only")
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]

    def meet(mutant: Mutant) -> None:
        with lock:
            copy = copies.pop()
        try:
            row = outcome(copy, mutant, *tests.of(mutant, args.budget))
        finally:
            with lock:
                copies.append(copy)
        with lock:
            rows.append(row | shared)
            killed = sum(row["killed"] for row in rows)
            print(f"{killed}/{len(rows)}", *row.values(), sep="  ", flush=True)
            table = pd.DataFrame(rows).sort_values(["path", "line", "operator"])
            write_whole(args.out, table.to_csv(index=False, lineterminator="\n"))

    try:
        with ThreadPoolExecutor(args.workers) as pool:
            list(pool.map(meet, mutants))
    finally:
        for copy in copies:
            shutil.rmtree(copy)


def draw(n_mutants: int, seed: int) -> list[Mutant]:
    """Mutants of different places, each place as likely as the other."""
    places: dict[tuple[str, int, int, str], list[Mutant]] = defaultdict(list)
    for name in PLACES:
        for path in sorted((ROOT / "esnlm" / name).rglob("*.py")):
            for column, mutant in mutants_of(path):
                family = mutant.operator.split("_")[0]
                places[mutant.path, mutant.line, column, family].append(mutant)
    rng = random.Random(seed)
    print(len(places), "places", sum(map(len, places.values())), "mutants", flush=True)
    return [rng.choice(places[place]) for place in rng.sample(sorted(places), n_mutants)]


def mutants_of(path: Path) -> Iterator[tuple[int, Mutant]]:
    """The mutants of a file, each with the column where it stands."""
    source = path.read_text()
    silent = list(annotations(ast.parse(source)))
    nodes = list(ast_nodes(get_ast(source)))
    for operator in sorted(operator_names()):
        if LEFT_OUT.search(operator):
            continue
        occurrence = 0
        for node in nodes:
            for (line, column), (last, _) in get_operator(operator)().mutation_positions(node):
                mutant = Mutant(str(path.relative_to(ROOT)), operator, occurrence, line, last)
                occurrence += 1
                if not any(start <= (line, column) < end for start, end in silent):
                    yield column, mutant


def annotations(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where each annotation starts and ends, as line and column."""
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if (noted := getattr(node, name, None)) is not None:
                start = noted.lineno, noted.col_offset
                yield start, (noted.end_lineno, noted.end_col_offset)


class Tests:
    """Which tests ran a line, and how long each took."""

    def __init__(self, coverage: Path, durations: Path) -> None:
        self.data = CoverageData(str(coverage))
        self.data.read()
        self.seconds: dict[str, float] = defaultdict(float)
        for took, name in re.findall(r"^([\d.]+)s \w+ +(.+)$", durations.read_text(), re.M):
            self.seconds[name] += float(took)

    def of(self, mutant: Mutant, budget: float) -> tuple[list[str], float]:
        """The tests of a mutant, and how long they took; those of its file where it is imported."""
        lines = self.data.contexts_by_lineno(str(ROOT / mutant.path))
        named = self._named(lines, range(mutant.line, mutant.last + 1))
        named = named or self._named(lines, range(0, 10**6))
        cases: dict[str, int] = defaultdict(int)
        order = []
        for name in sorted(named, key=lambda name: (self.seconds[name], name)):
            function = name.split("[")[0]
            order.append((cases[function], self.seconds[name], name))
            cases[function] += 1
        chosen: list[str] = []
        total = 0.0
        for _, seconds, name in sorted(order):
            if total + seconds <= budget or not chosen:
                chosen.append(name)
                total += seconds
        return chosen, total

    @staticmethod
    def _named(lines: dict[int, list[str]], wanted: range) -> set[str]:
        contexts = {context for line in lines if line in wanted for context in lines[line]}
        return {context.rsplit("|", 1)[0] for context in contexts if context}


def outcome(copy: Path, mutant: Mutant, tests: list[str], seconds: float) -> dict[str, Any]:
    """Set the mutant into the copy of the code, run its tests, put the code back."""
    path = copy / mutant.path
    original = path.read_text()
    changed = mutate_code(original, get_operator(mutant.operator)(), mutant.occurrence)
    assert changed is not None, mutant
    before, after = original.splitlines(), changed.splitlines()
    where = next(i for i, pair in enumerate(zip(before, after, strict=False)) if len({*pair}) > 1)
    path.write_text(changed)
    try:
        killer = first_failure(copy, tests, 60 + 4 * seconds)
    finally:
        path.write_text(original)
    return {
        "path": mutant.path,
        "line": mutant.line,
        "operator": mutant.operator,
        "occurrence": mutant.occurrence,
        "killed": bool(killer),
        "by": killer,
        "tests": len(tests),
        "before": before[where].strip(),
        "after": after[where].strip(),
    }


def first_failure(copy: Path, tests: list[str], longest: float) -> str:
    """The first test that fails, "time" where they take far too long, "" where all pass."""
    try:
        ran = pytest(copy, tests, longest)
    except subprocess.TimeoutExpired:
        return "time"
    if ran.returncode == 0:
        return ""
    if named := re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.M):
        return named.group(1)
    return f"status {ran.returncode}"


def pytest(copy: Path, tests: list[str], longest: float, *options: str) -> Any:
    """Run tests on a copy of the code; raises `subprocess.TimeoutExpired`."""
    listed = copy / "tests.listed"
    listed.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:cov"]
    command += ["-p", "no:xdist", "-o", "addopts=--doctest-modules", "--no-header", "--tb=no"]
    threads = {"NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(copy)}
    environment = os.environ | threads
    return subprocess.run(
        [*command, *options, f"@{listed}"],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=longest,
    )


def copy_of_the_code() -> Path:
    """A copy of all that git tracks."""
    copy = Path(tempfile.mkdtemp(prefix="mutants-"))
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    for name in tracked:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    return copy


if __name__ == "__main__":
    main()
