"""A search as an Optuna study: trials in order, each on the disk, the same ones when resumed.

Trials are run in rounds of a fixed number. The settings of a round are suggested one after the
other, each by a sampler seeded by the number of its trial, and judged beside the trials that had
ended before the round: they depend on the seed and on the size of a round, not on who runs them or
which one ends first.

The journal is Optuna's own file of lines: it needs no database, a torn last line loses nothing but
its trial, and `optuna-dashboard` reads it. It holds trials that have ended, in the order of their
numbers. After an interrupt those that ran are lost, and those of the round that had ended while an
earlier one still ran; a resumed search takes the others to a new journal, is suggested the same
settings for the rest of the round, and has the trials of a search that nobody interrupted.
"""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.samplers import BaseSampler, BruteForceSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from esnlm.search.space import Range, Settings, Space
from esnlm.search.trial import Evaluate, Executor, quiet, run_serially, run_trial
from esnlm.storage.atomic import put_in_place

JOURNAL = "study.journal"
#: Facts that are digests.
DIGESTS = ("space", "corpus", "held-out text")
_ENDS = (TrialState.COMPLETE, TrialState.PRUNED)


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
        with warnings.catch_warnings():  # it is said to be experimental
            warnings.simplefilter("ignore")
            return BruteForceSampler(seed=seed)
    return RandomSampler(seed=seed) if plan.sampler == "random" else TPESampler(seed=seed)


def check_plan(plan: SearchPlan, space: Space) -> None:
    """Raise ValueError where nothing is free, or a grid has no end."""
    if not space.free():
        raise ValueError("no parameter is free: give one a range, choices or tables by value")
    for name, free in space.free().items():
        if plan.sampler == "grid" and isinstance(free, Range) and free.step is None:
            raise ValueError(f"sampler='grid' needs choices or a step of {name}")


class Search:
    """A study in a folder, whose trials are run in rounds.

    ``facts`` are what trials depend on beside the plan and the space; with ``resume`` those of the
    study that is there must be the same, else ValueError is raised. Where the plan leaves it open,
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
        with quiet():
            found = _read(path) if resume and path.is_file() else None
            before = {} if found is None else {"at_once": 1} | found.user_attrs
            if plan.at_once is None:
                plan = replace(plan, at_once=before.get("at_once", usual))
            self.space, self.plan = space, plan
            facts = {**asdict(plan), **facts}
            if found is not None:
                _check_facts(facts, before)
            self.study = self._begun(path, facts, [] if found is None else _ended(found))

    def _begun(
        self, path: Path, facts: Mapping[str, Any], trials: Sequence[FrozenTrial]
    ) -> optuna.Study:
        """Return a study in a new journal, in the place of the one that is there."""
        aside = path.with_name(f".{JOURNAL}.new")
        aside.unlink(missing_ok=True)
        study = optuna.create_study(study_name="search", storage=_storage(aside))
        for name, value in facts.items():
            study.set_user_attr(name, value)
        study.add_trials(trials)
        put_in_place(aside, path)
        return optuna.load_study(study_name="search", storage=_storage(path))

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials that are finished, failed ones among them, in their order."""
        return _ended(self.study)

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
        at_once, end = self.plan.at_once or 1, np.inf
        if minutes is not None:
            end = time.monotonic() + 60 * minutes
        most = min(n_trials, self.space.size if self.plan.sampler == "grid" else np.inf)
        while (done := len(self.trials)) < most and time.monotonic() < end:
            ended = self.trials[: done - done % at_once]
            count = int(min(at_once, most - len(ended)))
            asked = self._asked(ended, count)[done - len(ended) :]
            trial = partial(run_trial, space=self.space, pruner=self.plan.pruner, ended=ended)
            for found in over("trial", trial, evaluate, asked):
                with quiet():
                    self.study.add_trial(found)
                yield self.trials[-1]

    def _asked(self, ended: Sequence[FrozenTrial], count: int) -> list[dict[str, Any]]:
        """Parameters of the trials of a round, which begins when others have ended."""
        asked = []
        with quiet():
            study = optuna.create_study()
            study.add_trials(ended)
            if not ended and self.space.start():
                study.enqueue_trial(self.space.start())
            for number in range(len(ended), len(ended) + count):
                study.sampler = make_sampler(self.plan, number)
                trial = study.ask()
                self.space.suggested(trial)
                asked.append(trial.params)
        return asked

    def columns(self) -> tuple[str, ...]:
        """Columns of `rows`."""
        measured = "nats", "perplexity", "share", "seconds", "cpu_seconds", "peak_rss_mib"
        return ("trial", "state", *measured, *self.space.free(), "message")

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each finished trial; a pruned one has its loss on a share of the text.

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


def _read(path: Path) -> optuna.Study:
    try:
        return optuna.load_study(study_name="search", storage=_storage(path))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): start again with overwrite=True") from None


def _check_facts(facts: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    for name, value in facts.items():
        if before.get(name) != value:
            told = f"{name} is {value!r}, but was {before.get(name)!r}"
            if name in DIGESTS:
                told = f"the {name} is another one than"
            raise ValueError(
                f"cannot resume: {told} when the search began: give the same, or start again with"
                " overwrite=True"
            )


def _ended(study: optuna.Study) -> list[FrozenTrial]:
    """Return the finished trials: shared objects, do not modify them."""
    return study.get_trials(deepcopy=False, states=_ENDS)


def _state_of(trial: FrozenTrial) -> str:
    if "message" in trial.user_attrs:
        return "failed"
    return "pruned" if trial.state == TrialState.PRUNED else "complete"


def _storage(path: Path) -> JournalStorage:
    # What a killed process left: this one holds the folder.
    with suppress(OSError):
        path.with_name(f"{path.name}.lock").unlink()
    return JournalStorage(JournalFileBackend(str(path)))
