"""Training runs of the ladder: commands in processes of their own, filled up to a budget.

A budget is processor seconds of the whole process that trains: start, compilation, reading, and
saving among them. Two rules fill it. Steps: two short runs tell the seconds of a step and those
of the rest, and the run has as many steps as fit, its schedule ending with them. A run of one step
comes first, for what only the first takes (compilation, files not in memory yet). Units: sizes
double until one is ended by the budget, or the growth from the last to it would not fit.

A run that is interrupted (Ctrl-C, SIGTERM) leaves its checkpoint and what it took so far; the next
one resumes it, and what it takes to begin again counts too.
"""

import csv
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _measured import InterruptedRunError, OverBudgetError, Used, measured

SIZES = (512, 1024, 2048, 4096, 8192, 16384)
#: Share of the budget that steps are to fill: the pace of a step varies by a few in a hundred.
FILLED = 0.97
#: Steps of the short runs; the first, of one, is not counted.
SHORT = (1, 32, 160)


class Trained(NamedTuple):
    """A trained model: its folder, command, cost, and what it was given."""

    folder: Path
    command: str
    used: Used
    n_tokens: int  #: predicted tokens it learned from, over all passes
    n_parameters: int
    units: int | None = None
    steps: int | None = None


def esnlm(*options: str) -> list[str]:
    """A command line of this package."""
    return [sys.executable, "-m", "esnlm", *options]


class Runs:
    """Training runs on one corpus, kept in a folder so that no run is made twice.

    Those of a seed other than 0 are in a folder of their own in it.
    """

    def __init__(self, train: Path, n_predicted: int, folder: Path, seed: int) -> None:
        self.train, self.n_predicted, self.seed = train, n_predicted, seed
        self.of_all_seeds = folder
        self.folder = folder / f"seed-{seed}" if seed else folder
        self.folder.mkdir(parents=True, exist_ok=True)

    def of_seed(self, seed: int) -> "Runs":
        """The runs of another seed on the same corpus."""
        return Runs(self.train, self.n_predicted, self.of_all_seeds, seed)

    def once(self, name: str, options: Sequence[str], budget: float) -> Iterator[Trained]:
        """A run that nothing is chosen for; none where the budget ends it."""
        trained = self._trained(name, options, budget)
        if trained is not None:
            yield trained

    def of_units(
        self, name: str, options: Sequence[str], budget: float, sizes: Sequence[int] = SIZES
    ) -> Iterator[Trained]:
        """Runs of those of ``sizes``, growing, that fit the budget."""
        seconds: list[float] = []
        for units in sizes:
            if len(seconds) > 1 and next_cost(*seconds[-2:]) > budget:
                return
            sized = [*options, "--units", str(units)]
            trained = self._trained(f"{name}-{units}", sized, budget)
            if trained is None:
                return
            seconds.append(trained.used.seconds)
            yield trained._replace(units=units)

    def of_steps(
        self, name: str, options: Sequence[str], budget: float, once: str = "", more: str = ""
    ) -> Iterator[Trained]:
        """A network trained for as many steps as fit the budget; none where none do.

        ``once`` are options of runs of up to three passes, ``more`` of longer ones.
        """

        def of(steps: int, own: str) -> list[str]:
            return [*options, *shlex.split(own), "--plan", f"steps={steps}"]

        shorts = []
        for steps in SHORT:
            short = self._trained(f"{name}-{steps}", of(steps, once), budget)
            if short is None:
                return
            shorts.append(short)
        steps = steps_that_fit([short.used.seconds for short in shorts[1:]], SHORT[1:], budget)
        if steps < 1:
            return
        passes = steps / SHORT[-1] * shorts[-1].n_tokens / self.n_predicted
        chosen = of(steps, more if passes > 3 else once)
        # Not ended by the budget, since then there would be no model; the row says its time.
        trained = self._trained(f"{name}-for-{budget:.0f}-s", chosen, 0.0)
        if trained is not None:
            yield trained._replace(steps=steps)

    def mixed(self, name: str, members: Sequence[Trained], held_out: Path) -> Trained:
        """The mixture of trained models; its cost is theirs and that of finding weights."""
        folders = [str(each.folder) for each in members]
        own = self._trained(name, ["interpolate", *folders, "--held-out", str(held_out)], 0.0)
        assert own is not None  # nothing limits its time
        used = own.used
        for each in members:
            used = used.after(each.used)
        return own._replace(
            used=used,
            n_tokens=sum(each.n_tokens for each in members[:-1]),
            n_parameters=sum(each.n_parameters for each in members),
        )

    def _trained(self, name: str, options: Sequence[str], limit: float) -> Trained | None:
        """The run of this name, unless it was made before; None where the limit ends it."""
        model, note = self.folder / name, self.folder / f"{name}.json"
        if note.exists():
            known = json.loads(note.read_text())
            if known["options"] == list(options) and model.is_dir():
                fits = not limit or known["used"][0] <= limit
                used = Used(*known["used"])
                return Trained(model, known["command"], used, *known["counts"]) if fits else None
        shutil.rmtree(scores_of(model), ignore_errors=True)
        validation_of(model).unlink(missing_ok=True)
        kind, *rest = options
        log = self.folder / f"{name}.csv"
        texts = [] if kind == "interpolate" else [str(self.train)]
        command = esnlm(kind, *texts, *rest, "--out", str(model))
        if kind == "train":
            command += ["--seed", str(self.seed)]
        if "--model" in rest:
            command += ["--log", str(log)]
        took = self._resumed(name, command, limit)
        if took is None:
            return None
        counts = (
            (0, 0) if kind == "interpolate" else (self._n_learned(log), n_parameters(took.output))
        )
        shown = shlex.join(["esnlm", *command[3:]])
        about = {"options": options, "command": shown, "used": took, "counts": counts}
        note.write_text(json.dumps(about))
        return Trained(model, shown, took, *counts)

    def _resumed(self, name: str, command: Sequence[str], limit: float) -> Used | None:
        """What the run takes, its beginning in earlier processes included."""
        model, part = self.folder / name, self.folder / f"{name}.part.json"
        checkpoints, before = Path(f"{model}.checkpoints"), Used(0.0, 0.0, 0, "")
        known = json.loads(part.read_text()) if part.exists() and checkpoints.is_dir() else {}
        part.unlink(missing_ok=True)
        if resumes := known.get("command") == list(command):
            before = Used(*known["used"])
        whole = [*command, "--resume" if resumes else "--overwrite"]
        # A limit of a second at least, since none is no limit.
        left = max(1.0, limit - before.seconds) if limit else 0.0
        try:
            return measured(whole, self.folder / f"{name}.txt", left).after(before)
        except InterruptedRunError as ended:
            used = ended.used.after(before)
            part.write_text(json.dumps({"command": command, "used": used}))
            raise
        except OverBudgetError:
            for each in (model, checkpoints):
                shutil.rmtree(each, ignore_errors=True)
            return None

    def _n_learned(self, log: Path) -> int:
        """Tokens learned by a network's log, or those of one pass."""
        if log.exists():
            with log.open(newline="") as file:
                rows = list(csv.DictReader(file))
            if rows:
                return int(rows[-1]["tokens"])
        return self.n_predicted


def scores_of(model: Path) -> Path:
    """The folder of a model's scores."""
    return model.with_name(f"{model.name}-scores")


def validation_of(model: Path) -> Path:
    """The CSV of a model's loss on the text that runs are chosen by."""
    return model.with_name(f"{model.name}-validation.csv")


def next_cost(*seconds: float) -> float:
    """Least seconds of the next size, from those of the last two: the growth does not slow down.

    >>> next_cost(60.0, 90.0)
    135.0
    """
    return seconds[-1] * max(1.0, seconds[-1] / seconds[-2])


def steps_that_fit(seconds: Sequence[float], steps: Sequence[int], budget: float) -> int:
    """Steps that fill `FILLED` of the budget, as two shorter runs foretell.

    >>> steps_that_fit([10.0, 58.0], (16, 64), 300.0)
    297
    """
    a_step = (seconds[1] - seconds[0]) / (steps[1] - steps[0])
    if a_step <= 0:
        raise ValueError(
            f"a longer run must take longer, got {seconds[1]:.1f} s for {steps[1]} steps after"
            f" {seconds[0]:.1f} s for {steps[0]}: is the machine busy?"
        )
    return int((FILLED * budget - seconds[0]) / a_step) + steps[0]


def n_parameters(output: str) -> int:
    """The number of parameters or n-grams that a command of this package printed last.

    >>> n_parameters("out: 8192 tokens, 32768 trained parameters, held-out loss 4.2 nats a token")
    32768
    """
    found = re.findall(r"(\d+) (?:trained parameters|n-grams)", output)
    if not found:
        raise ValueError(f"the number of parameters must be printed, got {output[-200:]!r}")
    return int(found[-1])


def first_row(path: Path, **wanted: str) -> Mapping[str, Any]:
    """The first row of a CSV with these values."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if all(row[name] == value for name, value in wanted.items()):
                return row
    raise ValueError(f"{path} must hold a row of {wanted}, got none")
