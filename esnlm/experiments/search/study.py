"""A search as an Optuna study: trials in order, each on the disk, the same ones when resumed.

The journal is Optuna's own file of lines: it needs no database, a torn last line loses nothing but
its trial, and `optuna-dashboard` reads it. A resumed search takes the finished trials to a new
journal and resumes from there: the trial that a kill interrupted has left no trace, its number is
given again, and each trial has a sampler seeded by its number, so that the trials are those of a
search that nobody interrupted.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, BruteForceSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from esnlm.experiments.common.subprocess_run import peak_rss_mib, reset_peak_rss
from esnlm.experiments.search.objective import Report
from esnlm.experiments.search.space import Range, Settings, Space
from esnlm.storage.atomic import put_in_place

JOURNAL = "study.journal"
#: Facts that are digests.
DIGESTS = ("space", "corpus", "held-out text")
# Errors that a trial's settings cause; the search continues after them. To Optuna the trial is
# pruned, without a loss: TPE takes it for the worst, where failed trials would teach it nothing.
_FAILURES = (ValueError, FloatingPointError, OverflowError, MemoryError)
Evaluate = Callable[[Settings, Report | None], float]


@dataclass(frozen=True)
class SearchPlan:
    """How trials are chosen, and stopped early.

    ``sampler``: tpe, random or grid; ``pruner``: median, halving or none.
    """

    sampler: str = "tpe"
    pruner: str = "median"
    seed: int = 0


class Best(NamedTuple):
    """The best trial: its number, its held-out loss in nats a token, its settings."""

    number: int
    loss: float
    settings: Settings


def make_sampler(plan: SearchPlan, number: int) -> BaseSampler:
    """The sampler of trial ``number``."""
    seed = int(np.random.SeedSequence([plan.seed, number]).generate_state(1)[0])
    if plan.sampler == "grid":
        with warnings.catch_warnings():  # it is said to be experimental
            warnings.simplefilter("ignore")
            return BruteForceSampler(seed=seed)
    return RandomSampler(seed=seed) if plan.sampler == "random" else TPESampler(seed=seed)


def make_pruner(plan: SearchPlan) -> BasePruner:
    """The pruner; halving keeps at each rung the better half of the trials that came as far."""
    if plan.pruner == "halving":
        return SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
    return MedianPruner() if plan.pruner == "median" else NopPruner()


def check_plan(plan: SearchPlan, space: Space) -> None:
    """Raise ValueError where nothing is free, or a grid has no end."""
    if not space.free():
        raise ValueError("no parameter is free: give one a range, choices or tables by value")
    for name, free in space.free().items():
        if plan.sampler == "grid" and isinstance(free, Range) and free.step is None:
            raise ValueError(f"--sampler grid needs choices or a step of {name}")


class Search:
    """A study in a folder, whose trials are run one after the other.

    ``facts`` are what trials depend on beside the plan and the space; with ``resume`` those of the
    study that is there must be the same, else ValueError is raised.
    """

    def __init__(
        self,
        folder: Path,
        space: Space,
        plan: SearchPlan,
        facts: Mapping[str, Any],
        *,
        resume: bool = False,
    ) -> None:
        check_plan(plan, space)
        self.space, self.plan = space, plan
        with quiet():
            self.study = self._opened(folder / JOURNAL, {**asdict(plan), **facts}, resume)

    def _opened(self, path: Path, facts: Mapping[str, Any], resume: bool) -> optuna.Study:
        finished: list[FrozenTrial] = []
        if resume and path.is_file():
            try:
                found = optuna.load_study(study_name="search", storage=_storage(path))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{path} is damaged ({error}): start again with --overwrite"
                ) from None
            for name, value in facts.items():
                if (before := found.user_attrs.get(name)) != value:
                    told = f"{name} is {value!r}, but was {before!r}"
                    if name in DIGESTS:
                        told = f"the {name} is another one than"
                    raise ValueError(
                        f"cannot resume: {told} when the search began: give the same, or start"
                        " again with --overwrite"
                    )
            finished = [trial for trial in found.trials if _is_done(trial)]
        aside = path.with_name(f".{JOURNAL}.new")
        aside.unlink(missing_ok=True)
        study = optuna.create_study(study_name="search", storage=_storage(aside))
        for name, value in facts.items():
            study.set_user_attr(name, value)
        study.add_trials(finished)
        put_in_place(aside, path)
        return optuna.load_study(
            study_name="search", storage=_storage(path), pruner=make_pruner(self.plan)
        )

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials that are finished, failed ones among them, in their order."""
        return [each for each in self.study.trials if _is_done(each)]

    @property
    def best(self) -> Best | None:
        """The complete trial of the least loss; None while there is none."""
        found = None
        for trial in self.trials:
            if trial.state != TrialState.COMPLETE or trial.value is None:
                continue
            if found is None or trial.value < found.loss:
                found = Best(trial.number, trial.value, self._settings_of(trial))
        return found

    def _settings_of(self, trial: FrozenTrial) -> Settings:
        fixed = optuna.trial.FixedTrial(dict(trial.params), number=trial.number)
        return self.space.suggested(fixed)

    def run(
        self, evaluate: Evaluate, n_trials: int, minutes: float | None
    ) -> Iterator[FrozenTrial]:
        """Run trials up to a number of them, yielding each one that is finished.

        None begins after ``minutes``, and none where a grid has been tried as a whole.
        """
        end = np.inf if minutes is None else time.monotonic() + 60 * minutes
        most = min(n_trials, self.space.size if self.plan.sampler == "grid" else np.inf)
        while (number := len(self.trials)) < most and time.monotonic() < end:
            with quiet():
                self.study.sampler = make_sampler(self.plan, number)
                if number == 0 and self.space.start():
                    self.study.enqueue_trial(self.space.start())
                self.study.optimize(lambda trial: self._measured(evaluate, trial), n_trials=1)
            yield self.trials[-1]

    def _measured(self, evaluate: Evaluate, trial: Trial) -> float:
        """Run one trial; seconds, memory and message are kept as its attributes."""

        def report(rung: int, loss: float) -> None:
            trial.report(_finite(loss), rung)
            if trial.should_prune():
                raise optuna.TrialPruned

        started, worked = time.perf_counter(), time.process_time()
        reset_peak_rss()
        try:
            settings = self.space.suggested(trial)
            return _finite(evaluate(settings, None if self.plan.pruner == "none" else report))
        except _FAILURES as error:
            trial.set_user_attr("message", " ".join(str(error).split()) or type(error).__name__)
            raise optuna.TrialPruned from error
        finally:
            trial.set_user_attr("seconds", round(time.perf_counter() - started, 2))
            trial.set_user_attr("cpu_seconds", round(time.process_time() - worked, 2))
            trial.set_user_attr("peak_rss_mib", peak_rss_mib())

    def columns(self) -> tuple[str, ...]:
        """Columns of `rows`."""
        measured = "nats", "perplexity", "share", "seconds", "cpu_seconds", "peak_rss_mib"
        return ("trial", "state", *measured, *self.space.free(), "message")

    def rows(self) -> list[dict[str, Any]]:
        """A row for each finished trial; that of a pruned one has its loss on a share of the text.

        Parameters that a trial does not have are missing.
        """
        found = []
        for trial in self.trials:
            loss, rung = trial.value, 8
            if trial.state == TrialState.PRUNED and trial.last_step is not None:
                rung, loss = trial.last_step, trial.intermediate_values[trial.last_step]
            row: dict[str, Any] = {"trial": trial.number, "state": _state_of(trial)}
            if loss is not None and row["state"] != "failed":
                row |= {"nats": loss, "perplexity": np.exp(min(loss, 700.0)), "share": rung / 8}
            found.append(row | self._values(trial) | trial.user_attrs)
        return found

    def _values(self, trial: FrozenTrial) -> dict[str, Any]:
        found = {}
        for name, free in self.space.free().items():
            if name in trial.params:
                value = trial.params[name]
                is_real = isinstance(free, Range) and free.step is None
                found[name] = free.rounded(value) if is_real else value  # type: ignore[union-attr]
        return found


def _is_done(trial: FrozenTrial) -> bool:
    """Whether a trial came to an end of its own: an interrupt leaves it running, or failed."""
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def _state_of(trial: FrozenTrial) -> str:
    if "message" in trial.user_attrs:
        return "failed"
    return "pruned" if trial.state == TrialState.PRUNED else "complete"


def _finite(loss: float) -> float:
    if not np.isfinite(loss):
        raise ValueError(f"the held-out loss is {loss}")
    return float(loss)


def _storage(path: Path) -> JournalStorage:
    # What a killed process left: this one holds the folder.
    with suppress(OSError):
        path.with_name(f"{path.name}.lock").unlink()
    return JournalStorage(JournalFileBackend(str(path)))


@contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's own messages: a failed trial is a row, and said by the command."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
