"""The plot of the Shakespeare study: loss, overlap and times against trained parameters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from esnlm.plots import figures
from esnlm.runs.grid import Row, read_rows

#: Köster & Uchida, section III.1: test cross-entropy of their largest models, about 155 000
#: trained parameters, on another split of another Shakespeare text.
PUBLISHED = {
    "reservoir": (155_000, 1.81, "v"),
    "attention readout": (155_000, 1.73, "P"),
    "transformer": (155_000, 1.67, "*"),
}
_STYLES = {
    "windows, dense": (figures.SKY, "D", "windows of 32, dense W"),
    "windows": (figures.BLUE, "o", "windows of 32, sparse W"),
    "carried": (figures.ORANGE, "s", "carried state"),
    "gated": (figures.GREEN, "^", "carried state, a readout for each last character"),
    "direct": (figures.PINK, "P", "the same, and n-grams of the last characters"),
    "kneser-ney": ("#888888", "x", "Kneser-Ney (order beside it)"),
    "char-esn": ("black", "v", "reservoir, by gradient"),
    "aerc": ("black", "P", "attention readout, by gradient"),
    "transformer": ("black", "*", "transformer, by gradient"),
}
#: Columns of ``compare.csv`` by their names here.
_NETWORK_COLUMNS = {
    "held_out_nll": "cross_entropy",
    "train_seconds": "fit_seconds",
    "overlap_7_train": "overlap_7_train",
    "overlap_8_train": "overlap_8_train",
}


def network_rows(path: Path) -> pd.DataFrame:
    """Return the networks of a ``compare.csv`` as rows of this study, means over their seeds."""
    table = pd.DataFrame(read_rows(path))
    needed = {"model", "settings", "n_parameters", "generation_seconds", *_NETWORK_COLUMNS}
    if missing := sorted(needed - {*table}):
        raise ValueError(
            f"{path} has no column {missing[0]}: expected the CSV of esnlm compare --generate"
        )
    pace = table["generation_seconds"] / table["generated_tokens"]
    table = table.assign(seconds_per_character=pace).rename(columns=_NETWORK_COLUMNS)
    columns = ["n_parameters", "seconds_per_character", *_NETWORK_COLUMNS.values()]
    means = table.groupby(["model", "settings"], sort=False)[columns].mean()
    return means.reset_index()


def study_figure(rows: Sequence[Row], networks: pd.DataFrame | None = None) -> Figure:
    """Draw the rows of the CSV, and those of `network_rows`, in three panels."""
    table = pd.concat([pd.DataFrame(rows), networks], ignore_index=True)
    table = table.sort_values("n_parameters")
    figure, (loss, overlap, times) = figures.panels(3, across=1, size=(6.4, 12.5))
    _draw(loss, table, "cross_entropy")
    for name, (count, value, marker) in PUBLISHED.items():
        label = f"published: {name}, {value}"
        loss.plot(count, value, marker, color="black", markersize=8, label=label)
    loss.set_title("loss", loc="left", fontsize=10)
    loss.set_ylabel("test cross-entropy, nats a character")
    _draw(overlap, table, "overlap_7_train", linestyle="-")
    _draw(overlap, table, "overlap_8_train", linestyle="--", markerfacecolor="white")
    real = table[table["model"] == "real text"]
    for n, line in ((7, "-"), (8, "--")):
        for value in real[f"overlap_{n}_train"]:
            overlap.axhline(value, color=figures.GREY, linestyle=line, linewidth=1)
            at = {"xycoords": ("axes fraction", "data"), "color": figures.GREY}
            figures.note(overlap, f"test text, {n}-grams", (0.02, value), (0, 3), **at)
    overlap.set_ylabel("share of distinct n-grams in the training text")
    overlap.set_title("overlap: 7-grams filled, 8-grams open", loc="left", fontsize=10)
    _draw(times, table, "fit_seconds", linestyle="-")
    _draw(times, table, "seconds_per_character", linestyle="--", markerfacecolor="white")
    times.set(yscale="log", ylabel="seconds")
    title = "training filled; one generated character open"
    times.set_title(title, loc="left", fontsize=10)
    figures.plain_log(times.yaxis)
    for axis in (loss, overlap, times):
        axis.set(xscale="log", xlabel="trained parameters")
        figures.plain_log(axis.xaxis, subs=(1, 2, 5))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    figures.legend(figure, loss, n_columns=1)
    return figure


def _draw(axis: Axes, table: pd.DataFrame, column: str, **style: Any) -> None:
    """Plot a column against trained parameters, one line for each kind of model."""
    values = table.dropna(subset=column)
    for model, (colour, marker, name) in _STYLES.items():
        rows = values[values["model"] == model]
        if rows.empty:
            continue
        # The size of n-grams is their order, and no line joins them.
        extra = {"linestyle": "none"} if model == "kneser-ney" else {}
        look = {"color": colour, "marker": marker, "label": name} | style | extra
        axis.plot(rows["n_parameters"], rows[column], **look)
        if extra and column == "cross_entropy":
            for place in rows[["n_parameters", column, "size"]].itertuples(index=False):
                axis.annotate(f"{place[2]:g}", place[:2], xytext=(5, 4), textcoords="offset points")
