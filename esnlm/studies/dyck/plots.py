"""Figure 2 of Mahto et al. (2021) from the rows of the Dyck experiment."""

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from esnlm.grammars.dyck import bracket_distances
from esnlm.plots.figures import band, legend, note, panels, plain_log, sizes_axis, style
from esnlm.runs.grid import Row
from esnlm.studies.dyck.run import QUANTILES, corpora

_NAMES = {"baseline": "LSTM", "mts": "multi-timescale LSTM", "esn": "ESN", "stack": "stack"}
_LARGE = 1e5


def dyck_figure(rows: Sequence[Row]) -> Figure:
    """Sequences right by their longest pair, and by size; distances of pairs; timescales.

    Lines are means over seeds, bands the ranges. Of several laws of leak rates a line shows the one
    that gets most validation sequences right; of several sizes the first panel shows the largest.
    """
    table = pd.DataFrame(rows).fillna({"readout": "", "leak": ""})
    sizes = sorted(table["n_units"].unique())
    figure, (by_distance, distances, by_size, timescales) = panels(4, size=(8.4, 8.4))
    models: set[str] = set()
    for number, (name, runs) in enumerate(_lines(table)):
        dotted = ":" if name.startswith(_NAMES["stack"]) else "-"
        look = style(number) | {"markerfacecolor": "none", "label": name, "linestyle": dotted}
        largest = runs[runs["n_units"] == sizes[-1]]
        if len(largest):
            band(by_distance, _shares(largest["right_by_distance"]), "middle", "share", **look)
            times = np.array([json.loads(text) for text in largest["timescale_quantiles"]])
            if largest["model"].iloc[0] not in models:
                timescales.plot(times.mean(axis=0), QUANTILES, color=look["color"], linewidth=1.6)
            models.add(largest["model"].iloc[0])
        band(by_size, runs, "n_units", "right", **look)
    by_distance.set(xlabel="longest distance of a pair in the sequence")
    by_distance.set_title(f"Test sequences right, {sizes[-1]} units", loc="left", fontsize=10)
    sizes_axis(by_size, sizes)
    by_size.set(xlabel="units")
    by_size.set_title("Test sequences right", loc="left", fontsize=10)
    for axis in (by_distance, by_size):
        axis.set(ylabel="share of sequences right", ylim=(-0.02, 1.02))
    _plot_distances(distances, rows[0])
    timescales.set(
        xscale="log", xlabel="timescale of a unit, in brackets", ylabel="share of units below"
    )
    timescales.set_title("Timescales", loc="left", fontsize=10)
    if timescales.get_xlim()[1] < _LARGE:  # powers of ten take less room
        plain_log(timescales.xaxis, subs=(1, 3))
    legend(figure, by_size, n_columns=4, fontsize=9)
    return figure


def _lines(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each model and readout, with the runs of the best law of leak rates at each size."""
    table = table.sort_values(
        "model", kind="stable", key=lambda models: models.map(list(_NAMES).index)
    )
    for (model, readout), runs in table.groupby(["model", "readout"], sort=False):
        leaks = runs["leak"]
        scores = runs.groupby(["n_units", "leak"])["validation_right"].mean()
        best = scores.groupby("n_units").idxmax()
        chosen = [leak == best[size][1] for leak, size in zip(leaks, runs["n_units"], strict=True)]
        name = _NAMES[str(model)]
        yield f"{name}, {readout}" if readout else name, runs[chosen]


def _plot_distances(axis: Axes, row: Row) -> None:
    """Draw how many pairs of the training sequences lie how far apart, and the power law."""
    counts = [row[f"{part}_sequences"] for part in ("train", "validation", "test")]
    train = corpora(*counts, row["max_length"])[0]
    all_distances = np.concatenate([bracket_distances(sequence) for sequence in train])
    distance, n = np.unique(all_distances, return_counts=True)
    share = n / n.sum()
    axis.plot(distance, share, ".", color="#555555", markersize=4)
    # The limit of length bends the far end down.
    near = distance <= max(5, row["max_length"] // 4)
    if near.sum() > 1:
        slope, level = np.polyfit(np.log(distance[near]), np.log(share[near]), 1)
        axis.plot(distance, np.exp(level) * distance**slope, ":", color="black", linewidth=1.2)
        note(
            axis, f"power law, exponent {slope:.2f}", (0.35, 0.85), (0, 0), xycoords="axes fraction"
        )
    axis.set(xscale="log", yscale="log", xlabel="distance of a pair", ylabel="share of pairs")
    axis.set_title("Timescales of the training sequences", loc="left", fontsize=10)
    plain_log(axis.xaxis, subs=(1, 3))


def _shares(bins: "pd.Series[str]") -> pd.DataFrame:
    """Return the middle of each bin of all runs and its share of right sequences."""
    bins_of_runs = [row for text in bins for row in json.loads(text)]
    table = pd.DataFrame(bins_of_runs, columns=["low", "high", "n", "right"]).query("n > 0")
    middle = (table["low"] + table["high"]) / 2
    return table.assign(middle=middle, share=table["right"] / table["n"])
