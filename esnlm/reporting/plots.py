"""Plots of a report, each as a picture in its page."""

import io
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from esnlm.plots import figures
from esnlm.plots.plotting import plot_blimp
from esnlm.reporting.page import Plot
from esnlm.utils.arrays import Floats

# Dots of a picture, and pixels of the page, in an inch of a figure.
_DPI, _PIXELS = 144, 83


@contextmanager
def drawing() -> Iterator[None]:
    """Figures made in the block show text as it is: a dollar sign begins no formula."""
    with matplotlib.rc_context({"text.parse_math": False, "text.usetex": False, "font.size": 10}):
        yield


def plot(figure: Figure, caption: str) -> Plot:
    """Return a figure as a block of a page: the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
    width = round(_PIXELS * figure.get_size_inches()[0])
    return Plot(b64encode(buffer.getvalue()).decode(), width, caption)


def curve(
    logs: Mapping[str, pd.DataFrame], levels: Mapping[str, float], column: str, label: str
) -> Figure:
    """Held-out loss against a column of training logs, a line a log, with levels.

    Where fewer tokens follow on more, another run begins, and a line of its own.
    """
    figure, (axis,) = figures.panels(1, size=(6.2, 4.6))
    for number, (name, log) in enumerate(logs.items()):
        rows = log.dropna(subset="held_out_nll")
        look = {"markersize": 4, "linewidth": 1.4} | figures.style(number)
        for k, (_, run) in enumerate(rows.groupby((rows["tokens"].diff() <= 0).cumsum())):
            axis.plot(run[column], run["held_out_nll"], label="_" * (k > 0) + name, **look)
    for number, (name, value) in enumerate(levels.items()):
        axis.axhline(value, color=figures.GREY, linewidth=1.1, label=f"{name} {value:.3f}",
                     linestyle=(":", "--", "-.")[number % 3], zorder=1)  # fmt: skip
    axis.set(xlabel=label, ylabel="held-out loss, nats a token")
    axis.xaxis.set_major_formatter(FuncFormatter(_thousands))
    figures.legend(figure, axis, n_columns=2)
    return figure


def _thousands(value: float, _: Any) -> str:
    """``1500000`` -> ``1.5M``."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (unit == "M" and abs(value) >= size):
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def by_group(rows: Sequence[Mapping[str, Any]], kind: str) -> Figure:
    """Losses with intervals: a place for each group, a mark for each model."""
    figure, (axis,) = figures.panels(1, size=(8.0, 4.4))
    groups = figures.grouped_intervals(axis, pd.DataFrame(rows), "model", "nats")
    axis.set_xticks(range(len(groups)), groups)
    axis.set(ylabel="loss, nats a token", xlabel=kind)
    figures.legend(figure, axis, n_columns=2)
    return figure


def reliability(bins: Mapping[str, Sequence[Any]], *, logarithmic: bool) -> Figure:
    """Return what came against the probability that was given, by bin.

    The diagonal is calibrated.
    """
    figure, (axis,) = figures.panels(1, size=(5.6, 5.4))
    low = 1e-7 if logarithmic else 0.0
    axis.plot([low, 1], [low, 1], color=figures.GREY, linestyle=":", linewidth=1.2,
              label="calibrated")  # fmt: skip
    for number, (name, several) in enumerate(bins.items()):
        points = [(each.probability, each.came) for each in several if each.n and each.came > 0]
        look = {"linewidth": 1.2, "markersize": 5} | figures.style(number)
        axis.plot(*np.array(points).reshape(-1, 2).T, label=name, **look)
    if logarithmic:
        axis.set(xscale="log", yscale="log")
        figures.plain_log(axis.xaxis)
        figures.plain_log(axis.yaxis)
    else:
        axis.set(xlim=(0, 1), ylim=(0, 1))
    axis.set(xlabel="probability given", ylabel="share that came")
    figures.legend(figure, axis, n_columns=2)
    return figure


def phenomena(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Accuracies by phenomenon with intervals, overall last, a mark for each model."""
    n_phenomena = len({row["phenomenon"] for row in rows})
    figure, (axis,) = figures.panels(1, size=(8.0, 1.8 + 0.36 * n_phenomena))
    plot_blimp(rows, ax=axis).set_title("", loc="left")
    figures.legend(figure, axis, n_columns=3)
    return figure


def decay(distances: Mapping[str, Floats]) -> Figure:
    """Distances (lags,) of two states of each model, by the tokens that both have read."""
    figure, (axis,) = figures.panels(1, size=(8.0, 4.2))
    for number, (name, values) in enumerate(distances.items()):
        colour = figures.style(number)["color"]
        axis.plot(np.maximum(values, 1e-9), label=name, linewidth=1.4, color=colour)
    axis.set(yscale="log", xlabel="tokens read", ylabel="distance, of the first")
    figures.plain_log(axis.yaxis)
    figures.legend(figure, axis, n_columns=2)
    return figure
