"""A search as an Optuna study: trials in order, each on the disk, the same ones when resumed.

Trials are run in rounds of a fixed number. The settings of a round are suggested one after the
other, each by a sampler seeded by the number of its trial, and judged beside the trials that had
ended before the round: they depend on the seed and on the size of a round, not on who runs them or
which one ends first.

The journal is Optuna's own file of lines: it needs no database, a torn last line loses nothing but
its trial, and `optuna-dashboard` reads it. It holds trials that have ended, in the order of their
numbers. After an interrupt those that ran are lost, and those of the round that had ended while an
earlier one still ran. A resumed search is suggested the same settings for the rest of the round,
and has the trials of a search that nobody interrupted.
"""

import gc
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, BruteForceSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from esnlm.search.objective import WHOLE, Report
from esnlm.search.space import Entry, Settings, Space
from esnlm.storage.atomic import put_in_place
from esnlm.storage.json_files import parsed_json
from esnlm.storage.model_folder import MISFITS
from esnlm.utils.memory import peak_rss_mib, reset_peak_memory
from esnlm.utils.validation import Count, Number

JOURNAL = "study.journal"
#: Facts that are digests.
DIGESTS = ("space", "corpus", "held-out text")
# Errors that a trial's settings cause; the search continues after them. To Optuna the trial is
# pruned, without a loss: TPE takes it for the worst, where failed trials would teach it nothing.
_FAILURES = (ValueError, FloatingPointError, OverflowError, MemoryError)
_MEASURED = "seconds", "cpu_seconds", "peak_rss_mib"
Evaluate = Callable[[Settings, Report | None], float]
#: ``executor(name, function, given, items)`` yields ``function(given, item)`` of items in their
#: order; tasks are shown by the name.
Executor = Callable[[str, Callable[[Any, Any], Any], Any, Sequence[Any]], Iterator[Any]]

optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # the command reports trials itself


@dataclass(frozen=True)
class SearchPlan:
    """How trials are chosen, and stopped early.

    ``sampler``: tpe, random or grid; ``pruner``: median, halving or none; ``at_once``: trials of a
    round, which know nothing of each other's losses, or None for any number.
    """

    sampler: str = "tpe"
    pruner: str = "median"
    seed: int = 0
    at_once: int | None = None


class Best(NamedTuple):
    """The best trial: its number, its held-out loss in nats a token, its settings."""

    number: int
    loss: float
    settings: Settings


def make_sampler(plan: SearchPlan, number: int) -> BaseSampler:
    """Return the sampler of trial ``number``."""
    seed = int(np.random.SeedSequence([plan.seed, number]).generate_state(1)[0])
    if plan.sampler == "grid":
        with warnings.catch_warnings(action="ignore"):  # it is said to be experimental
            return BruteForceSampler(seed=seed)
    return RandomSampler(seed=seed) if plan.sampler == "random" else TPESampler(seed=seed)


def make_pruner(name: str) -> BasePruner:
    """Return the pruner; halving keeps at each rung the better half of the trials there."""
    if name == "halving":
        return SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
    return MedianPruner() if name == "median" else NopPruner()


def check_plan(plan: SearchPlan, space: Space) -> None:
    """Raise ValueError where nothing is free, or a grid has no end."""
    if not space.free():
        raise ValueError("no parameter is free: give one a range, choices or tables by value")
    for name, entry in space.free().items():
        if plan.sampler == "grid" and entry.is_real:
            raise ValueError(f"sampler='grid' needs choices or a step of {name}")


def run_serially(
    name: str, function: Callable[[Any, Any], Any], context: Any, items: Sequence[Any]
) -> Iterator[Any]:
    """`Executor` items in this process, one after the other.

    >>> list(run_serially("powers", pow, 2, [1, 2, 3]))
    [2, 4, 8]
    """
    return (function(context, item) for item in items)


class Search:
    """A study in a folder, whose trials are run in rounds.

    ``facts`` are what trials depend on beside the plan and the space; with ``resume`` those of the
    existing study must be the same, else ValueError is raised. Where the plan leaves it open,
    rounds have the number of trials with which the study began, of a new one ``usual``.
    """

    def __init__(
        self,
        folder: Path,
        space: Space,
        plan: SearchPlan,
        facts: Mapping[str, Any],
        *,
        resume: bool = False,
        usual: int = 1,
    ) -> None:
        """Begin a study in ``folder``, or resume it; raise ValueError where facts differ."""
        check_plan(plan, space)
        path = folder / JOURNAL
        is_new = not (resume and path.is_file())
        before = {} if is_new else _load(path).user_attrs
        if plan.at_once is None:
            plan = replace(plan, at_once=before.get("at_once", usual))
        facts = {**asdict(plan), **facts}
        if is_new:
            _begin(path, facts)
        else:
            _check_facts(path, facts, before)
        self.space, self.plan, self.study = space, plan, _load(path, space)

    @property
    def trials(self) -> list[FrozenTrial]:
        """Finished trials in their order, failed ones too (shared objects: do not modify)."""
        return self.study.get_trials(deepcopy=False)

    @property
    def best(self) -> Best | None:
        """The complete trial of the least loss; None while there is none."""
        complete = [trial for trial in self.trials if trial.state == TrialState.COMPLETE]
        losses = [(trial.value, trial.number) for trial in complete if trial.value is not None]
        if not losses:
            return None
        loss, number = min(losses)
        params = self.trials[number].params
        settings = self.space.settings(lambda entry: entry.rounded(params[entry.place]))
        return Best(number, loss, settings)

    def run(
        self,
        evaluate: Evaluate,
        n_trials: int,
        minutes: float | None,
        over: Executor = run_serially,
    ) -> Iterator[FrozenTrial]:
        """Run trials up to a number of them, yielding each one that is finished, in their order.

        No round begins after ``minutes``, and no trial where a grid has been tried as a whole.
        ``over``: who runs the trials of a round.
        """
        at_once = self.plan.at_once or 1
        end = time.monotonic() + 60 * (np.inf if minutes is None else minutes)
        most = min(n_trials, self.space.size() if self.plan.sampler == "grid" else np.inf)
        while (count := len(self.trials)) < most and time.monotonic() < end:
            history = self.trials[: count - count % at_once]
            proposals = self._ask(history, int(min(at_once, most - len(history))))
            trial = partial(run_trial, space=self.space, pruner=self.plan.pruner, history=history)
            for frozen in over("trial", trial, evaluate, proposals[count - len(history) :]):
                frozen.set_user_attr("trial", len(self.trials))  # a line that is lost shows
                self.study.add_trial(frozen)
                yield self.trials[-1]

    def _ask(self, history: Sequence[FrozenTrial], count: int) -> list[dict[str, Any]]:
        """Return the parameters of a round of trials, which begins when others have ended."""
        study = optuna.create_study()
        study.add_trials(history)
        starts = {n: e.start for n, e in self.space.free().items() if e.start is not None}
        if not history and starts:
            study.enqueue_trial(starts)
        proposals = []
        for number in range(len(history), len(history) + count):
            study.sampler = make_sampler(self.plan, number)
            trial = study.ask()
            self.space.suggested(trial)
            proposals.append(trial.params)
        return proposals

    def columns(self) -> tuple[str, ...]:
        """Columns of `rows`."""
        return (
            "trial",
            "state",
            "nats",
            "perplexity",
            "share",
            *_MEASURED,
            *self.space.free(),
            "message",
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each finished trial; a pruned one has its loss on a share of the text.

        Parameters that a trial does not have are missing.
        """
        rows = []
        for trial in self.trials:
            loss, state = trial.value, trial.state.name.lower()
            if "message" in trial.user_attrs:
                loss, state = None, "failed"
            row: dict[str, Any] = {"trial": trial.number, "state": state}
            if loss is not None:
                rung = (trial.last_step or WHOLE) if state == "pruned" else WHOLE
                row |= {"nats": loss, "perplexity": np.exp(min(loss, 700.0)), "share": rung / WHOLE}
            for name, entry in self.space.free().items():
                if name in trial.params:
                    row[name] = entry.rounded(trial.params[name])
            rows.append(row | trial.user_attrs)
        return rows


def run_trial(
    evaluate: Evaluate,
    proposal: Mapping[str, Any],
    *,
    space: Space,
    pruner: str,
    history: Sequence[FrozenTrial],
) -> FrozenTrial:
    """Run one trial of these parameters, judged beside trials that have ended; how it ended.

    Seconds, memory and the message of an error are kept as its attributes.
    """
    study = optuna.create_study(sampler=RandomSampler(), pruner=make_pruner(pruner))
    if pruner != "none":
        study.add_trials(history)
    study.enqueue_trial(dict(proposal))
    trial, loss = study.ask(), None

    def report(rung: int, loss: float) -> None:
        trial.report(_finite(loss), rung)
        if trial.should_prune():
            raise optuna.TrialPruned

    started, worked = time.perf_counter(), time.process_time()
    reset_peak_memory()
    try:
        loss = _finite(evaluate(space.suggested(trial), None if pruner == "none" else report))
    except optuna.TrialPruned:
        pass
    except _FAILURES as error:
        trial.set_user_attr("message", " ".join(str(error).split()) or type(error).__name__)
    trial.set_user_attr("seconds", round(time.perf_counter() - started, 2))
    trial.set_user_attr("cpu_seconds", round(time.process_time() - worked, 2))
    trial.set_user_attr("peak_rss_mib", peak_rss_mib())
    gc.collect()  # a model is large, and its memory is the next one's
    return study.tell(trial, loss, TrialState.PRUNED if loss is None else TrialState.COMPLETE)


def _finite(loss: float) -> float:
    if not np.isfinite(loss):
        raise ValueError(f"the held-out loss is {loss}")
    return float(loss)


def _begin(path: Path, facts: Mapping[str, Any]) -> None:
    """Write the journal of a new study, as a whole."""
    aside = path.with_name(f".{JOURNAL}.new")
    aside.unlink(missing_ok=True)
    study = optuna.create_study(study_name="search", storage=_storage(aside))
    for name, value in facts.items():
        study.set_user_attr(name, value)
    put_in_place(aside, path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Let errors of the block, which reads the journal, name it."""
    try:
        yield
    except (*MISFITS, ValueError) as error:
        reason = str(error) or "its lines do not follow each other"
        raise ValueError(
            f"{path} is damaged ({reason}): delete the damaged line and all after it to go on from"
            " the trials before, or start again with overwrite=True"
        ) from None


def _load(path: Path, space: Space | None = None) -> optuna.Study:
    """Return the study of a journal; ValueError unless its lines are those of trials of a space."""
    with _reading(path):
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
            try:
                is_object = isinstance(parsed_json(line), dict)
            except ValueError:
                is_object = False
            if not is_object:
                raise ValueError(f"line {number} is no JSON object")
        study = optuna.load_study(study_name="search", storage=_storage(path))
        if study.directions != [StudyDirection.MINIMIZE]:
            raise ValueError("its trials are not judged by one loss")
        if space is not None:
            trials = study.get_trials(deepcopy=False)
            for trial in trials:
                _check_trial(trial, space)
            optuna.create_study().add_trials(trials)  # checks them, too
        return study


def _check_trial(trial: FrozenTrial, space: Space) -> None:
    """Raise ValueError unless a trial of a journal is one that `run_trial` returned."""
    number, facts = trial.number, trial.user_attrs
    if facts.get("trial", number) != number:
        raise ValueError(f"before trial {facts['trial']!r} a line is missing")
    active: list[str] = []

    def pick(entry: Entry) -> Any:
        active.append(entry.place)
        return trial.params.get(entry.place, 0)

    space.settings(pick)
    expected = {name: space.free()[name].value for name in active}
    is_over = trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
    if not is_over or trial.distributions != expected or trial.params.keys() != expected.keys():
        raise ValueError(f"trial {number} is not one of these settings that has ended")
    numbers = {name: facts[name] for name in _MEASURED if name in facts}
    if trial.state == TrialState.COMPLETE or trial.value is not None:
        numbers["loss"] = trial.value
    for name, value in (*numbers.items(), *trial.intermediate_values.items()):
        Number().check(f"{name} of trial {number}", value)


def _check_facts(path: Path, facts: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    with _reading(path):
        if absent := [name for name in facts if name not in before]:
            raise ValueError(f"it does not say {', '.join(absent)}")
        Count().check("at_once", before["at_once"])
    for name, value in facts.items():
        if before.get(name) != value:
            change = f"{name} is {value!r}, but was {before.get(name)!r}"
            if name in DIGESTS:
                change = f"the {name} is another one than"
            raise ValueError(
                f"cannot resume {path}: {change} when the search began: give the same, or start"
                " again with overwrite=True"
            )


def _storage(path: Path) -> JournalStorage:
    """Return the journal, without what a killed process left: this one holds the folder."""
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    with path.open("ab") as file:  # a line without its end was torn
        file.truncate(path.read_bytes().rfind(b"\n") + 1)
    return JournalStorage(JournalFileBackend(str(path)))
