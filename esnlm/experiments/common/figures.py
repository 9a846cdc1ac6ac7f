"""Parts of the experiments' figures: panels, bands over seeds, levels to compare with."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from esnlm.storage.atomic import file_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GREY = "#555555"


def columns(n_panels: int) -> int:
    """How many of the panels stand side by side."""
    return 1 if n_panels == 1 else 2


def panels(n_panels: int) -> tuple["Figure", list["Axes"]]:
    """Panels side by side; no window system is needed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = columns(n_panels)
    lines = -(-n_panels // across)
    size = (8.0, 5.6) if n_panels == 1 else (11.0, 4.4 * lines + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(lines, across, squeeze=False)
    flat = list(axes.ravel())
    for axis in flat:
        axis.spines[["top", "right"]].set_visible(False)
    for axis in flat[n_panels:]:
        axis.set_visible(False)
    return figure, flat[:n_panels]


def band(axis: "Axes", values: Mapping[float, Sequence[float]], **style: Any) -> None:
    """Means of the values at each place, and their ranges as a band."""
    if not values:
        return
    places = sorted(values)
    found = [values[place] for place in places]
    axis.plot(places, [np.mean(v) for v in found], markersize=5, linewidth=1.6, **style)
    low, high = [min(v) for v in found], [max(v) for v in found]
    axis.fill_between(places, low, high, color=style["color"], alpha=0.15, linewidth=0)


def levels(axis: "Axes", named: Sequence[tuple[str, float]]) -> None:
    """Horizontal lines, named in the right margin, where no data lie; the y limits must be set."""
    low, high = axis.get_ylim()
    apart = 0.035 * (high - low)
    place = -np.inf
    for name, value in sorted(named, key=lambda level: level[1]):
        oracle = name == "oracle"
        colour = "black" if oracle else _GREY
        axis.axhline(value, color=colour, linestyle="-" if oracle else ":", linewidth=1.1, zorder=1)
        place = max(value, place + apart)
        axis.annotate(
            f"{name} {value:.2f}",
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=colour,
        )


def legend(figure: "Figure", axis: "Axes", n_columns: int) -> None:
    """Below the panels, so that it covers no data."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=n_columns, frameon=False, fontsize=9
    )


def save(figure: "Figure", path: Path) -> None:
    """Write a PNG, which appears whole or not at all."""
    with file_aside(path) as file:
        figure.savefig(file, format="png", dpi=130)
