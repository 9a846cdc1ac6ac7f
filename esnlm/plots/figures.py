"""Parts of the experiments' figures: panels, lines with ranges over seeds, reference levels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from esnlm.storage.atomic import file_aside

#: Okabe & Ito's palette, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
)  # fmt: skip
COLOURS = (BLUE, ORANGE, GREEN, PINK, YELLOW, SKY, "#555555", "#000000")
MARKERS = "os^DvPX*"
GREY = "#666666"


def style(number: int) -> dict[str, Any]:
    """Colour and marker of the line of this number, from the ninth on a hollow one.

    >>> style(0), style(8)["markerfacecolor"]
    ({'color': '#0072B2', 'marker': 'o'}, 'white')
    """
    look = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
    return look if number < len(COLOURS) else look | {"markerfacecolor": "white"}


def panels(
    n_panels: int, across: int = 2, size: tuple[float, float] | None = None
) -> tuple[Figure, list[Axes]]:
    """Panels side by side, legible at 400 pixels across; no window system is needed."""
    across = min(across, n_panels)
    lines = -(-n_panels // across)
    if size is None:
        size = (6.4, 5.0) if n_panels == 1 else (3.5 * across, 3.0 * lines + 0.8)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(lines, across, squeeze=False).ravel())
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    for axis in axes[n_panels:]:
        axis.set_visible(False)
    return figure, axes[:n_panels]


def band(axis: Axes, rows: pd.DataFrame, x: str, y: str, **style: Any) -> None:
    """Draw the means of column ``y`` at each value of ``x``, and their ranges as a band.

    A single value has its range as a bar.
    """
    ranges = rows.groupby(x)[y].agg(["mean", "min", "max"])
    axis.plot(ranges.index, ranges["mean"], **{"markersize": 5, "linewidth": 1.6} | style)
    bounds = ranges.index, ranges["min"], ranges["max"]
    if len(ranges) == 1:
        axis.vlines(*bounds, color=style["color"], alpha=0.4, linewidth=1.6)
    else:
        axis.fill_between(*bounds, color=style["color"], alpha=0.15, linewidth=0)


def levels(axis: Axes, named: Sequence[tuple[str, float]]) -> None:
    """Horizontal lines, named in the right margin, where no data lie; the y limits must be set."""
    low, high = axis.get_ylim()
    apart = 0.07 * (high - low)
    place = -np.inf
    for name, value in sorted(named, key=lambda level: level[1]):
        colour, line = ("black", "-") if name == "oracle" else (GREY, ":")
        axis.axhline(value, color=colour, linestyle=line, linewidth=1.1, zorder=1)
        place = max(value, place + apart)
        at = {"xycoords": ("axes fraction", "data"), "va": "center", "color": colour}
        note(axis, f"{name} {value:.2f}", (1.0, place), (4, 0), **at)


def note(axis: Axes, text: str, place: Any, away: tuple[int, int], **style: Any) -> None:
    """Write small text some points away from a place."""
    look = {"fontsize": 9, "parse_math": False} | style
    axis.annotate(text, place, xytext=away, textcoords="offset points", **look)


def sizes_axis(axis: Axes, sizes: Sequence[int], **labels: Any) -> None:
    """Draw a logarithmic axis of reservoir sizes, each of them named."""
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [str(size) for size in sizes], **labels)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("units of the reservoir")


def intervals(
    axis: Axes, places: Any, rows: pd.DataFrame, y: str, scale: float = 1, **look: Any
) -> None:
    """Draw column ``y`` at some places, with bars from the column ``lower`` to ``upper``."""
    bars = [rows[y] - rows["lower"], rows["upper"] - rows[y]]
    defaults: Any = {"capsize": 2, "linestyle": "none", "markersize": 5} | look
    axis.errorbar(places, scale * rows[y], yerr=scale * np.maximum(bars, 0), **defaults)


def grouped_intervals(
    axis: Axes, rows: pd.DataFrame, by: str, y: str, scale: float = 1, label: str = "{}"
) -> list[Any]:
    """Draw `intervals` at each value of column ``group``, a mark for each of ``by``.

    Returns the groups, in the order of their places 0, 1, ...
    """
    groups = list(dict.fromkeys(rows["group"]))
    parts = rows.groupby(by, sort=False)
    for number, (name, part) in enumerate(parts):
        shift = 0.12 * (number - (parts.ngroups - 1) / 2)
        places = [groups.index(group) + shift for group in part["group"]]
        intervals(axis, places, part, y, scale, label=label.format(name), **style(number))
    return groups


def plain_log(axis: Axis, subs: Sequence[float] = (1,)) -> None:
    """Name powers of ten of a logarithmic axis, or some multiples of them, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())


def legend(figure: Figure, axis: Axes, n_columns: int, fontsize: int = 10) -> None:
    """Put the legend of a panel below all panels, where it covers no data."""
    place: Any = {"loc": "outside lower center", "frameon": False, "fontsize": fontsize}
    figure.legend(*axis.get_legend_handles_labels(), ncols=n_columns, **place)


def legend_below(axis: Axes, n_columns: int, title: str | None = None) -> None:
    """Put the legend of a panel below its axis, where it covers no data."""
    place: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18)}
    axis.legend(frameon=False, fontsize=8, title=title, ncols=n_columns, **place)


def save(figure: Figure, path: Path, legend_of: Axes | None = None, n_columns: int = 2) -> None:
    """Write a PNG, which appears whole or not at all, with the `legend` of a panel if given."""
    if legend_of is not None:
        legend(figure, legend_of, n_columns)
    # A user's settings may ask for LaTeX, which this machine may lack.
    for text in figure.findobj(Text):
        text.set_usetex(False)
    with rc_context({"text.usetex": False}), file_aside(path) as file:
        figure.savefig(file, format="png", dpi=180)
