"""Figures of the experiment on natural language: loss and BLiMP, beside the published curves."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from esnlm.experiments.common.figures import GREY, band, legend, levels, panels, sizes_axis, style
from esnlm.experiments.common.grid import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Kind of figure -> the column along its axis, and the name of the axis.
PLACES = {
    "size": ("n_units", "units of the reservoir"),
    "connectivity": ("connectivity", "connectivity, connections into a unit over units"),
    "min_leak": ("min_leak", "least leak rate"),
    "timescales": ("leak", "law of the leak rates"),
}
#: Columns whose values distinguish lines, and how the legend names them.
_NAMES: dict[str, Callable[[Any], str]] = {
    "words": lambda value: f"{value / 1e6:.3g}M words",
    "n_units": lambda value: f"{value} units",
    "connectivity": lambda value: f"connectivity {value:.3g}",
    "leak": lambda value: f"leak {value}",
    "features": lambda value: f"{value} features",
    "readout": str,
    "options": lambda value: value or "default options",
    "topology": str,
    "spectral_radius": lambda value: f"radius {value}",
    "input_scaling": lambda value: f"input scaling {value}",
    "input_degree": lambda value: f"input degree {value}",
    "bias_scaling": lambda value: f"bias {value}",
    "activation": str,
}
#: Columns that change with the place along the axis.
_WITH_PLACE = {
    "size": {"n_units", "connectivity", "input_degree"},
    "connectivity": {"connectivity", "input_degree"},
    "min_leak": {"leak"},
    "timescales": {"leak"},
}


def published(kind: str) -> pd.DataFrame:
    """Results of Ueda et al. for a kind of figure, by place: tables 3 (size), 4 and 5.

    Echo state networks with a low-rank softmax (rank 512) trained by AdamW for one epoch on
    BabyLM, about 100 million words; ``nll`` (nats a token) and ``blimp`` (%) are means of four
    runs, ``nll_error`` and ``blimp_error`` their standard errors. Sizes have 32 connections a
    unit and leak rates uniform in (0, 1); the others 4 096 units, and leak rates up to 1.
    """
    laws = {0.0: "uniform:0:1", 1.0: "1"}
    table = pd.read_csv(Path(__file__).with_name("published.csv")).set_index("place")
    found = table[table.pop("kind") == ("min_leak" if kind == "timescales" else kind)]
    return found.loc[list(laws)].rename(laws) if kind == "timescales" else found


def sweep_figure(
    kind: str,
    rows: Sequence[Row],
    baselines: Mapping[str, tuple[float, float | None]] | None = None,
) -> "Figure":
    """Two panels against the place of `PLACES`: loss in nats a token, BLiMP in percent.

    A line for all rows that differ in nothing but their place and seed, with a band over seeds;
    the published curve; and a level for each baseline. Without BLiMP there is one panel.
    """
    column, name = PLACES[kind]
    table = pd.DataFrame(rows, dtype=object).dropna(subset=column)
    laws = list(dict.fromkeys(map(str, table["leak"]))) if kind == "timescales" else []
    place = [laws.index(str(law)) for law in table["leak"]] if laws else table[column].astype(float)
    measured = table[["nll_per_token", "blimp"]].astype(float)
    table = table.assign(place=place, nll=measured["nll_per_token"], blimp=100 * measured["blimp"])
    theirs = published(kind)
    if laws:
        theirs = theirs[theirs.index.isin(laws)].rename(laws.index)
    judged = table["blimp"].notna().any()
    figure, axes = panels(2 if judged else 1)
    for number, (axis, measure) in enumerate(zip(axes, ("nll", "blimp"), strict=False)):
        _draw_ours(axis, kind, table, measure)
        _draw_published(axis, kind, theirs, measure)
        known = [(label, values[number]) for label, values in (baselines or {}).items()]
        levels(axis, [(label, value) for label, value in known if value is not None])
        _scale(axis, kind, [*theirs.index, *table["place"]], laws)
        axis.set_xlabel(name)
    axes[0].set_ylabel("held-out loss, nats a token")
    if judged:
        axes[1].set_ylabel("BLiMP, % of pairs chosen rightly")
    legend(figure, axes[0], n_columns=2)
    return figure


def _draw_ours(axis: "Axes", kind: str, table: pd.DataFrame, measure: str) -> None:
    names = [name for name in _NAMES if name not in _WITH_PLACE[kind]]
    # Always the amount of text: the published models read ten or a hundred times more.
    shown = [name for name in names if name == "words" or table[name].nunique(dropna=False) > 1]
    for number, (_, rows) in enumerate(table.groupby(names, sort=False, dropna=False)):
        label = "ours, " + ", ".join(_NAMES[name](rows[name].iloc[0]) for name in shown)
        if kind != "timescales":
            band(axis, rows.dropna(subset=measure), "place", measure, label=label, **style(number))
            continue
        # Laws have no order that a line could follow.
        found = rows.dropna(subset=measure).groupby("place")[measure].agg(["mean", "min", "max"])
        bars = [found["mean"] - found["min"], found["max"] - found["mean"]]
        axis.errorbar(
            found.index, found["mean"], yerr=bars, label=label, capsize=4, linestyle="none",
            **style(number),
        )  # fmt: skip


def _draw_published(axis: "Axes", kind: str, theirs: pd.DataFrame, measure: str) -> None:
    if theirs.empty:
        return
    axis.errorbar(
        theirs.index.to_numpy(dtype=float),
        theirs[measure],
        yerr=theirs[f"{measure}_error"],
        label="Ueda et al., 100M words of BabyLM" + ("" if kind == "size" else ", 4096 units"),
        color=GREY,
        marker="x",
        markersize=6,
        linestyle="none" if kind == "timescales" else "--",
        linewidth=1.2,
        capsize=2,
        zorder=2,
    )


def _scale(axis: "Axes", kind: str, places: Sequence[float], laws: Sequence[str]) -> None:
    if kind == "size":
        sizes_axis(axis, sorted({int(place) for place in places}), rotation=45)
    elif kind == "connectivity":
        axis.set_xscale("log", base=2)
    elif kind == "timescales":
        axis.set_xticks(range(len(laws)), [_law_name(law) for law in laws])
        axis.set_xlim(-0.5, len(laws) - 0.5)


def _law_name(leak: str) -> str:
    law, *numbers = leak.split(":")
    if not numbers:
        return f"constant\n{leak}"
    return law.replace("_", "\n") + "\n" + " to ".join(numbers)
