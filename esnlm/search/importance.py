"""What mattered in a search: Optuna's importances, as rows and a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from matplotlib.ticker import NullFormatter
from optuna.distributions import CategoricalDistribution
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from esnlm.plots.figures import BLUE, GREY, ORANGE, note, panels, save
from esnlm.search.space import Entry

COLUMNS = ("parameter", "importance", "among", "trials")
_PANELS = 5
_FEWEST = 4
_LONG = 8


def importances(
    trials: Sequence[FrozenTrial], free: Mapping[str, Entry], seed: int = 0
) -> list[dict[str, Any]]:
    """Rows of parameters, those first that mattered most; none of fewer than four trials.

    ``importance`` is the share of the variance of the complete trials' losses that a parameter
    explains by itself, by Optuna's fANOVA (Hutter et al. 2014); losses count up to `_edge`. The
    shares of all trials sum to one. A parameter that goes with one value of another, as
    ``readout.softmax.alpha`` does, is judged ``among`` the trials of that value, beside all others.
    ``trials``: how many of these there are.
    """
    complete = _complete(trials)
    rows = _rows(complete, free, "", seed)
    for condition in dict.fromkeys(each.condition for each in free.values() if each.condition):
        table, value = condition
        some = [trial for trial in complete if trial.params.get(table) == value]
        among = _rows(some, free, f"{table} = {value}", seed)
        rows += [row for row in among if free[row["parameter"]].condition == condition]
    return rows


def _rows(
    trials: Sequence[FrozenTrial], free: Mapping[str, Entry], among: str, seed: int
) -> list[dict[str, Any]]:
    """Return a row for each parameter that all trials have; none of too few or constant trials."""
    names = [name for name in free if all(name in trial.params for trial in trials)]
    varied = [name for name in names if len({trial.params[name] for trial in trials}) > 1]
    if len(trials) < _FEWEST or not varied or len({trial.value for trial in trials}) < 2:
        return []
    edge = _edge(trials)
    study = optuna.create_study()
    study.add_trials(trials)
    shares = get_param_importances(
        study,
        evaluator=FanovaImportanceEvaluator(seed=seed),
        params=names,
        target=lambda trial: min(float(trial.value or 0.0), edge),
    )
    return [
        {
            "parameter": name,
            "importance": round(float(share), 4),
            "among": among,
            "trials": len(trials),
        }
        for name, share in shares.items()
    ]


def _complete(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    return [trial for trial in trials if trial.state == TrialState.COMPLETE]


def _edge(trials: Sequence[FrozenTrial]) -> float:
    """Above it a loss is only bad: the median, and twice as far from the least again."""
    losses = np.array([trial.value for trial in trials], dtype=float)
    middle = float(np.median(losses))
    return min(float(losses.max()), middle + 2 * (middle - float(losses.min())) + 1e-9)


def plot_importances(
    rows: Sequence[dict[str, Any]],
    trials: Sequence[FrozenTrial],
    free: Mapping[str, Entry],
    path: Path,
) -> None:
    """Draw bars of the importances, and for the first five the loss of each trial by its value.

    Losses above `_edge` are drawn there, as triangles.
    """
    complete = _complete(trials)
    parameters = [row["parameter"] for row in rows[:_PANELS]]
    figure, (bars, *axes) = panels(1 + len(parameters))
    names = [row["parameter"] for row in rows][::-1]
    bars.barh(names, [row["importance"] for row in rows][::-1], color=BLUE, height=0.6)
    bars.grid(visible=False)
    bars.set_title(f"importance, {len(complete)} complete trials", loc="left")
    losses = np.array([trial.value for trial in complete], dtype=float)
    high = _edge(complete)
    if losses.max() > high and axes:
        axes[0].set_title("triangles: larger losses", loc="left")
    best = complete[int(np.argmin(losses))]
    for axis, name in zip(axes, parameters, strict=True):
        having = [trial for trial in complete if name in trial.params]
        range_, place = free[name].value, {}
        if isinstance(range_, CategoricalDistribution):
            place = {value: number for number, value in enumerate(range_.choices)}
            labels = [str(value) for value in place]
            turn = 20 if max(map(len, labels)) > _LONG else 0
            axis.set_xticks(range(len(place)), labels, rotation=turn)
            axis.set_xlim(-0.5, len(place) - 0.5)
        elif range_.log:
            axis.set_xscale("log")
            axis.set_xlim(range_.low / 1.2, range_.high * 1.2)
            axis.xaxis.set_minor_formatter(NullFormatter())
        x = np.array([place.get(trial.params[name], trial.params[name]) for trial in having])
        y = np.array([trial.value for trial in having], dtype=float)
        for shape, among in (("o", y <= high), ("^", y > high)):
            y_shown = np.minimum(y, high)[among]
            axis.plot(x[among], y_shown, shape, color=GREY, alpha=0.5, markersize=4)
        if name in best.params:
            value = place.get(best.params[name], best.params[name])
            axis.plot([value], [losses.min()], "D", color=ORANGE, markersize=7)
            note(axis, "best", (value, losses.min()), (7, -3), color=ORANGE)
        axis.set(xlabel=name, ylabel="held-out nats a token")
    save(figure, path)
