"""One trial of a search: settings evaluated, and stopped where trials before it did better."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import numpy as np
import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, Trial

from esnlm.runs.subprocess_run import peak_rss_mib, reset_peak_rss
from esnlm.search.objective import Report
from esnlm.search.space import Settings, Space

# Errors that a trial's settings cause; the search continues after them. To Optuna the trial is
# pruned, without a loss: TPE takes it for the worst, where failed trials would teach it nothing.
_FAILURES = (ValueError, FloatingPointError, OverflowError, MemoryError)
Evaluate = Callable[[Settings, Report | None], float]
Item = TypeVar("Item")
T = TypeVar("T")


class Executor(Protocol):
    """Calls ``function(given, item)`` of every item, somewhere, for results in their order."""

    def __call__(
        self, name: str, function: Callable[[Any, Item], T], given: Any, items: Sequence[Item]
    ) -> Iterator[T]:
        """Results as they are asked for; tasks are shown as ``name``."""


def run_serially(
    name: str, function: Callable[[Any, Item], T], given: Any, items: Sequence[Item]
) -> Iterator[T]:
    """`Executor` items in this process, one after the other.

    >>> list(run_serially("powers", pow, 2, [1, 2, 3]))
    [2, 4, 8]
    """
    return (function(given, item) for item in items)


def make_pruner(name: str) -> BasePruner:
    """Return the pruner.

    Halving keeps at each rung the better half of the trials that came as far.
    """
    if name == "halving":
        return SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
    return MedianPruner() if name == "median" else NopPruner()


def run_trial(
    evaluate: Evaluate,
    asked: Mapping[str, Any],
    *,
    space: Space,
    pruner: str,
    ended: Sequence[FrozenTrial],
) -> FrozenTrial:
    """Run one trial of these parameters, judged beside trials that have ended; how it ended."""
    with quiet():
        study = optuna.create_study(sampler=RandomSampler(), pruner=make_pruner(pruner))
        if reports := pruner != "none":
            study.add_trials(ended)
        study.enqueue_trial(dict(asked))
        study.optimize(
            lambda trial: _measured(evaluate, space, trial, reports),
            n_trials=1,
            gc_after_trial=True,  # a model is large, and its memory is the next one's
        )
        return study.trials[-1]


def _measured(evaluate: Evaluate, space: Space, trial: Trial, reports: bool) -> float:
    """Run one trial; seconds, memory and message are kept as its attributes."""

    def report(rung: int, loss: float) -> None:
        trial.report(_finite(loss), rung)
        if trial.should_prune():
            raise optuna.TrialPruned

    started, worked = time.perf_counter(), time.process_time()
    reset_peak_rss()
    try:
        return _finite(evaluate(space.suggested(trial), report if reports else None))
    except _FAILURES as error:
        trial.set_user_attr("message", " ".join(str(error).split()) or type(error).__name__)
        raise optuna.TrialPruned from error
    finally:
        trial.set_user_attr("seconds", round(time.perf_counter() - started, 2))
        trial.set_user_attr("cpu_seconds", round(time.process_time() - worked, 2))
        trial.set_user_attr("peak_rss_mib", peak_rss_mib())


def _finite(loss: float) -> float:
    if not np.isfinite(loss):
        raise ValueError(f"the held-out loss is {loss}")
    return float(loss)


@contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's own messages: a failed trial is a row, and said by the command."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
