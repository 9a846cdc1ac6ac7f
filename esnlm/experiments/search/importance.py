"""What mattered in a search: Optuna's importances, as rows and a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from optuna import Study
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from esnlm.experiments.common.figures import BLUE, GREY, ORANGE, note, panels, save
from esnlm.experiments.search.space import Free, Range

COLUMNS = ("parameter", "importance", "trials")
_PANELS = 5
_FEWEST, _TOP = 4, 5


def importances(study: Study) -> list[dict[str, Any]]:
    """Rows of parameters, the one that mattered most first; none of fewer than four trials.

    Importances sum to one: PED-ANOVA (Watanabe et al. 2023), how much a parameter decides whether
    a complete trial is among the best tenth, or the best five of few. Those that only some trials
    have count too. ``trials``: how many complete ones had it.
    """
    done = [each for each in study.trials if each.state == TrialState.COMPLETE]
    if len(done) < _FEWEST or len({trial.value for trial in done}) < 2:
        return []
    judge = PedAnovaImportanceEvaluator(target_quantile=min(0.5, max(0.1, _TOP / len(done))))
    return [
        {
            "parameter": name,
            "importance": round(float(share), 4),
            "trials": sum(name in trial.params for trial in done),
        }
        for name, share in get_param_importances(study, evaluator=judge).items()
    ]


def plot_importances(
    rows: Sequence[dict[str, Any]],
    trials: Sequence[FrozenTrial],
    free: dict[str, Free],
    path: Path,
) -> None:
    """Draw bars of the importances, and for the first five the loss of each trial by its value.

    Losses far above the median are drawn at the upper edge.
    """
    done = [each for each in trials if each.state == TrialState.COMPLETE]
    shown = [row["parameter"] for row in rows[:_PANELS]]
    figure, (bars, *axes) = panels(1 + len(shown), across=3)
    names = [row["parameter"] for row in rows][::-1]
    bars.barh(names, [row["importance"] for row in rows][::-1], color=BLUE, height=0.6)
    bars.grid(visible=False)
    bars.set_title(f"importance, {len(done)} complete trials", loc="left")
    losses = np.array([trial.value for trial in done], dtype=float)
    low, middle = losses.min(), np.median(losses)
    high = min(losses.max(), middle + 2 * (middle - low) + 1e-9)
    best = done[int(np.argmin(losses))]
    for axis, name in zip(axes, shown, strict=True):
        having = [trial for trial in done if name in trial.params]
        values = [trial.params[name] for trial in having]
        entry, place = free[name], {}
        if not isinstance(entry, Range):
            place = {value: number for number, value in enumerate(entry.ends)}
            axis.set_xticks(range(len(place)), [str(value) for value in place])
            axis.set_xlim(-0.5, len(place) - 0.5)
        elif entry.log:
            axis.set_xscale("log")
        x = [place.get(value, value) for value in values]
        y = [min(float(trial.value or 0.0), high) for trial in having]
        axis.plot(x, y, "o", color=GREY, alpha=0.5, markersize=4, linestyle="none")
        if name in best.params:
            value = place.get(best.params[name], best.params[name])
            axis.plot([value], [losses.min()], "D", color=ORANGE, markersize=7)
            note(axis, "best", (value, losses.min()), (7, -3), color=ORANGE)
        axis.set(xlabel=name, ylabel="held-out nats a token")
    save(figure, path)
