"""Figure 2 of Mahto et al. (paper 002) from the rows of the Dyck experiment."""

import json
from collections.abc import Sequence
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from esnlm.plots.figures import BLUE, GREEN, ORANGE, band, legend, note, panels, plain_log
from esnlm.runs.grid import Row
from esnlm.studies.dyck.run import QUANTILES

_COLOURS = {"baseline": BLUE, "mts": ORANGE, "esn": GREEN}
# Shapes that show one beside another where lines lie on each other.
_MARKERS = {"baseline": "s", "mts": "o", "esn": "^"}
_NAMES = {"baseline": "LSTM", "mts": "multi-timescale LSTM", "esn": "reservoir, ridge"}


def dyck_figure(rows: Sequence[Row]) -> Figure:
    """Sequences right by their longest pair and by their length; timescales; their distances.

    Lines are means over seeds, bands the ranges. Of several sizes the largest is shown.
    """
    table = pd.DataFrame(rows)
    n_units = table["n_units"].max()
    largest = table[table["n_units"] == n_units]
    figure, axes = panels(4)
    for model, runs in largest.groupby("model", sort=False):
        colour, place = _COLOURS[model], list(_NAMES).index(model)
        for axis, column in zip(axes, ("right_by_distance", "right_by_length"), strict=False):
            bins = _shares(runs[column])
            look = {"color": colour, "marker": _MARKERS[model], "markerfacecolor": "none"}
            band(axis, bins, "middle", "share", label=_NAMES[model], **look)
        times = np.array([json.loads(text) for text in runs["timescale_quantiles"]])
        axes[2].plot(times.mean(axis=0), QUANTILES, color=colour, linewidth=1.6)
        for side, column, face in ((-1, "ks_alpha", "white"), (1, "ks_closest_alpha", colour)):
            axes[3].plot(
                np.full(len(runs), place + 0.08 * side), runs[column], "o", markersize=6,
                markerfacecolor=face, markeredgecolor=colour,
            )  # fmt: skip
        closest = f"closest: {runs['closest_alpha'].mean():.2f}"
        lowest = runs["ks_closest_alpha"].min()
        note(axes[3], closest, (place + 0.08, lowest), (0, -14), ha="center")
    axes[0].set_xlabel("longest distance of a pair in the sequence")
    axes[1].set_xlabel("brackets in the sequence")
    for axis in axes[:2]:
        axis.set(ylabel="share of sequences right", ylim=(-0.02, 1.02))
    axes[0].set_title(f"Test sequences right, {n_units} units", loc="left")
    axes[2].set(
        xscale="log", xlabel="timescale of a unit, in brackets", ylabel="share of units below"
    )
    axes[2].set_title("Measured timescales", loc="left", fontsize=10)
    plain_log(axes[2].xaxis, subs=(1, 3))
    axes[3].set_xlim(-0.4, len(_NAMES) - 0.4)
    axes[3].set_xticks(range(len(_NAMES)), [fill(name, 11) for name in _NAMES.values()])
    axes[3].set(ylabel="Kolmogorov-Smirnov distance", ylim=(-0.03, None))
    title = f"To the law {largest['alpha'].iloc[0]:g} (hollow), the closest (full)"
    axes[3].set_title(title, loc="left", fontsize=10)
    legend(figure, axes[0], n_columns=2)
    return figure


def _shares(bins: "pd.Series[str]") -> pd.DataFrame:
    """Return the middle of each bin of all runs and its share of right sequences."""
    bins_of_runs = [row for text in bins for row in json.loads(text)]
    table = pd.DataFrame(bins_of_runs, columns=["low", "high", "n", "right"]).query("n > 0")
    middle = (table["low"] + table["high"]) / 2
    return table.assign(middle=middle, share=table["right"] / table["n"])
