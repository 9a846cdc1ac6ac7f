"""Plots of compared networks: loss and overlap by size, power laws, losses along training."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, NullLocator

from esnlm.plots.figures import band, legend, panels, plain_log, style
from esnlm.runs.grid import Row
from esnlm.studies.generation import ORDERS
from esnlm.studies.networks.compare import BINS, differing_trainings

#: Panels of the power laws: quantities by the label of their axis, the second of two dashed.
_PANELS = {
    "held-out loss, nats a token": ["held_out_nll"],
    "least training loss, nats a token": ["least_training_nll"],
    "seconds without the reservoir's": [
        "train_seconds_without_reservoir", "generation_seconds_without_reservoir",
    ],
}  # fmt: skip
_LINES: tuple[Any, ...] = ("-", "--", ":", "-.")


def figure(rows: Sequence[Row]) -> Figure:
    """Draw held-out loss by parameters and by seconds of training.

    A setting that varies at one number of parameters stands in their place. Overlaps and
    perplexities by frequency have panels, if they were measured.
    """
    table = pd.DataFrame(rows).assign(training=differing_trainings(rows))
    name, places = varied_setting(table)
    table = table.assign(place=places)
    bins = [column for column in BINS if column in table and table[column].notna().any()]
    overlaps = [f"overlap_{n}_held_out" for n in ORDERS if f"overlap_{n}_held_out" in table]
    chart, axes = panels(2 + bool(overlaps) + bool(bins), across=3)
    for axis, column in zip(axes, ("place", "train_seconds"), strict=False):
        _draw(axis, table, column, "held_out_nll")
        axis.set_ylabel("held-out loss, nats a token")
    for number, overlap in enumerate(overlaps):
        look = {"linestyle": _LINES[number]}
        _draw(axes[2], table, "place", overlap, **look)
    if overlaps:
        axes[2].set_ylabel("share of n-grams in held-out text")
        axes[2].set_title("7-grams solid, 8-grams dashed", loc="left", fontsize=10)
    if bins:
        _draw_bins(axes[-1], table, bins)
    for axis in (axes[0], *axes[2:]):
        if not name:
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.set_xlabel(name or "trained parameters")
    axes[1].set_xlabel("seconds of training")
    legend(chart, axes[0], n_columns=min(sum(1 for _ in _series(table)), 2))
    return chart


def _draw(axis: Axes, table: pd.DataFrame, column: str, y: str, **look: Any) -> None:
    """Draw ``y`` by a column, a line for each network and training."""
    for label, group, own in _series(table):
        for line in lines_of(group, column):
            if line[column].notna().any():
                band(axis, line, column, y, **own | look, label=label)
            else:  # a network without the setting
                axis.axhline(line[y].mean(), label=label, color=own["color"], linestyle=":")
            label = f"_{label}"  # the first of them in the legend
    # On less a logarithmic axis has no room for its labels.
    if table[column].max() >= 10 * table[column].min() > 0:
        axis.set_xscale("log")
        plain_log(axis.xaxis, subs=(1, 2, 5))


def _draw_bins(axis: Axes, table: pd.DataFrame, bins: Sequence[str]) -> None:
    """Draw perplexities by place, a line style for each bin of frequency."""
    for dashes, column in zip(_LINES, bins, strict=False):
        _draw(axis, table, "place", column, linestyle=dashes)
    names = [column.removeprefix("perplexity ") for column in bins]
    lines = [axis.plot([], [], dashes, color="black")[0] for dashes in _LINES[: len(bins)]]
    axis.legend(lines, names, frameon=False, fontsize=8, handlelength=4)
    axis.set(yscale="log", ylabel="perplexity, by occurrences in training")
    plain_log(axis.yaxis, subs=(1, 2, 5))


def varied_setting(table: pd.DataFrame) -> tuple[str, "pd.Series[float]"]:
    """Return the setting that varies where parameters do not, and its numbers (n,).

    Several of always equal numbers, as ``--vary`` has them, are one. Rows of a network without it
    are NaN. Unless there is one, the name is empty, and the numbers are those of parameters.

    >>> table = pd.DataFrame({"model": "aerc", "n_parameters": 9,
    ...                       "settings": ['{"a": 1, "b": {"c": 1}}', '{"a": 2, "b": {"c": 2}}']})
    >>> varied_setting(table)[0]
    'a, b.c'
    """
    settings = pd.json_normalize([json.loads(text) for text in table["settings"]])
    by_model = settings.map(repr).groupby(table["model"].to_numpy())
    varied = [name for name in map(str, settings) if (by_model[name].nunique() > 1).any()]
    values = settings[varied]
    is_one_size = (table.groupby("model")["n_parameters"].nunique() == 1).all()
    is_number = all(each.kind in "if" for each in values.dtypes)
    if not varied or not is_one_size or not is_number or (values.nunique(axis=1) > 1).any():
        return "", table["n_parameters"]
    return ", ".join(varied), values[varied[0]].set_axis(table.index)


def _series(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    """Yield label, rows, colour and marker of each network and training."""
    for number, ((model, training), group) in enumerate(
        table.groupby(["model", "training"], sort=False)
    ):
        yield f"{model}: {training}" if training else str(model), group, style(number)


def lines_of(rows: pd.DataFrame, column: str) -> list[pd.DataFrame]:
    """Rows with the means of ``column`` over the seeds of a setting, as the lines to draw.

    Settings that share a place are points of their own: nothing orders them.
    """
    place = rows.groupby("settings")[column].transform("mean")
    placed = rows.assign(**{column: place})
    settings = [points for _, points in placed.groupby("settings", sort=False)]
    return [placed] if place.nunique() == len(settings) else settings


def power_law_figure(lines: pd.DataFrame, laws: Sequence[Row]) -> Figure:
    """Draw the quantities that have power laws, by parameters, and the laws below each panel.

    Köster & Uchida, figures 7 (losses) and 4 (seconds: training solid, generation dashed).
    """
    fitted = {law["quantity"] for law in laws}
    by_panel = {label: names for label, names in _PANELS.items() if fitted.intersection(names)}
    chart, axes = panels(len(by_panel), across=3, size=(4.2 * len(by_panel), 5.0))
    for axis, (label, names) in zip(axes, by_panel.items(), strict=True):
        for name, dashes in zip(names, _LINES, strict=False):
            for series, points, look in _series(lines[lines["quantity"] == name]):
                own = points[["model", "training"]].iloc[0].tolist()
                fits = [law for law in laws if [law["model"], law["training"]] == own]
                fit = next((law for law in fits if law["quantity"] == name), None)
                if dashes != _LINES[0]:
                    look = look | {"markerfacecolor": "white"}
                _draw_law(axis, points, fit, series, look | {"linestyle": dashes})
        axis.set(xscale="log", yscale="log", xlabel="trained parameters", ylabel=label)
        plain_log(axis.xaxis, subs=(1, 2, 5))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        if "nats" in label:  # less than a power of ten
            axis.yaxis.set_major_locator(MaxNLocator(5))
            axis.yaxis.set_major_formatter("{x:.3g}")
            axis.yaxis.set_minor_locator(NullLocator())
        else:
            plain_log(axis.yaxis)
            axis.set_title("training solid, generation dashed", loc="left", fontsize=10)
        below: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "frameon": False}
        axis.legend(fontsize=8, **below)
    return chart


def _draw_law(
    axis: Axes, points: pd.DataFrame, law: Row | None, label: str, look: dict[str, Any]
) -> None:
    """Draw the points of a series, and its power law over their range, named in the legend."""
    axis.plot(points["n_parameters"], points["value"], **look | {"linestyle": "none"})
    if law is not None:
        sizes = np.array([points["n_parameters"].min(), points["n_parameters"].max()])
        label += f", {law['exponent']:.3f} [{law['lower']:.3f}, {law['upper']:.3f}]"
        values = law["scale"] * sizes ** law["exponent"]
        axis.plot(sizes, values, **look | {"marker": ""}, linewidth=1.2, label=label)


def curves_figure(losses: pd.DataFrame) -> Figure:
    """Draw losses along the runs, a panel for each network, a line for each size.

    Köster & Uchida, figures 2 and 6. The loss of a validation text is dashed.
    """
    series = list(_series(losses))
    chart, axes = panels(len(series), across=3)
    for axis, (name, runs, _) in zip(axes, series, strict=True):
        sizes = sorted(runs["n_parameters"].unique())
        for number, size in enumerate(sizes):
            label, look = f"{size:,}", style(number) | {"marker": ""}
            for _, run in runs[runs["n_parameters"] == size].groupby(["settings", "seed"]):
                axis.plot(run["tokens"], run["training_nll"], label=label, **look)
                axis.plot(run["tokens"], run["held_out_nll"], "--", **look)
                label = f"_{label}"  # the first of them in the legend
        axis.set_title(name, loc="left", fontsize=10)
        axis.set(xlabel="tokens learned", ylabel="loss (validation dashed), nats a token")
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.legend(fontsize=8, frameon=False)
    return chart
