"""Figure 2 of Mahto et al. (paper 002) from the rows of the Dyck experiment."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from esnlm.experiments.common.figures import band, legend, panels, save
from esnlm.experiments.common.grid import Row
from esnlm.experiments.dyck.run import QUANTILES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe & Ito's palette: told apart by colour-blind readers.
_COLOURS = {"baseline": "#0072B2", "mts": "#D55E00", "esn": "#009E73"}
_NAMES = {"baseline": "LSTM", "mts": "multi-timescale LSTM", "esn": "reservoir, ridge"}


def plot_dyck(rows: Sequence[Row], path: Path) -> None:
    """Sequences right by their longest pair and by their length; timescales; their distances.

    Lines are means over seeds, bands the ranges. Of several sizes the largest is shown.
    """
    n_units = max(row["n_units"] for row in rows)
    shown = [row for row in rows if row["n_units"] == n_units]
    figure, axes = panels(4)
    for model in dict.fromkeys(row["model"] for row in shown):
        chosen = [row for row in shown if row["model"] == model]
        style = {"color": _COLOURS[model], "label": _NAMES[model], "marker": "o"}
        for axis, column in zip(axes, ("right_by_distance", "right_by_length"), strict=False):
            band(axis, _shares(chosen, column), **style)
        _timescales(axes[2], chosen, model)
        _distances(axes[3], chosen, model)
    for axis, label in (
        (axes[0], "longest distance of a pair in the sequence"),
        (axes[1], "brackets in the sequence"),
    ):
        axis.set_xlabel(label)
        axis.set_ylabel("share of sequences right")
        axis.set_ylim(-0.02, 1.02)
    axes[0].set_title(f"Test sequences right, {n_units} units", loc="left")
    axes[2].set_xscale("log")
    axes[2].set_xlabel("timescale of a unit, in brackets")
    axes[2].set_ylabel("share of units below")
    axes[2].set_title("Measured timescales, means over seeds", loc="left", fontsize=10)
    axes[3].set_xticks(range(len(_NAMES)), [_NAMES[model] for model in _NAMES], fontsize=8)
    axes[3].set_ylabel("Kolmogorov-Smirnov distance")
    title = f"To inverse gamma {shown[0]['alpha']:g} (hollow) and the closest one (full)"
    axes[3].set_title(title, loc="left", fontsize=10)
    axes[3].set_ylim(bottom=0)
    legend(figure, axes[0], n_columns=3)
    save(figure, path)


def _shares(rows: Sequence[Row], column: str) -> dict[float, list[float]]:
    """Middle of a bin -> the share of its sequences that are right, one a row."""
    found: dict[float, list[float]] = {}
    for row in rows:
        for low, high, n, right in json.loads(row[column]):
            if n:
                found.setdefault((low + high) / 2, []).append(right / n)
    return found


def _timescales(axis: "Axes", rows: Sequence[Row], model: str) -> None:
    times = np.array([json.loads(row["timescale_quantiles"]) for row in rows])
    axis.plot(times.mean(axis=0), QUANTILES, color=_COLOURS[model], linewidth=1.6)


def _distances(axis: "Axes", rows: Sequence[Row], model: str) -> None:
    """To the law that was asked for (hollow) and to the closest one (full)."""
    place = list(_NAMES).index(model)
    for column, face in (("ks_alpha", "white"), ("ks_closest_alpha", _COLOURS[model])):
        values = [row[column] for row in rows]
        places = np.full(len(values), place)
        axis.plot(
            places, values, "o", markerfacecolor=face, markeredgecolor=_COLOURS[model], markersize=6
        )
    shapes = np.mean([row["closest_alpha"] for row in rows])
    axis.annotate(
        f"closest: {shapes:.2f}", (place, values[0]), xytext=(8, 0), textcoords="offset points",
        va="center", fontsize=8,
    )  # fmt: skip
