"""Figures of the experiment on natural language: loss and BLiMP, beside the published curves."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from esnlm.experiments.common.figures import band, legend, levels, panels
from esnlm.experiments.common.grid import Row
from esnlm.experiments.natural.published import BY_CONNECTIVITY, BY_MIN_LEAK, BY_SIZE, Published

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's palette: told apart by colour-blind readers.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_GREY = "#777777"
_PUBLISHED = "Ueda et al., 100M words of BabyLM"
#: Kind of figure -> the column that it is drawn against, and what that is called.
PLACES = {
    "size": ("n_units", "units of the reservoir"),
    "connectivity": ("connectivity", "connectivity, connections into a unit over units"),
    "min_leak": ("min_leak", "least leak rate"),
    "timescales": ("leak", "law of the leak rates"),
}
_CURVES: dict[str, Mapping[Any, Published]] = {
    "size": BY_SIZE,
    "connectivity": BY_CONNECTIVITY,
    "min_leak": BY_MIN_LEAK,
    "timescales": {"uniform:0:1": BY_MIN_LEAK[0.0], "1": BY_MIN_LEAK[1.0]},
}
#: What tells lines apart where rows differ in it, and what is said of it in the legend.
_TELLING: dict[str, Callable[[Any], str]] = {
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
#: Columns that go with the place along the axis.
_WITH_PLACE = {
    "size": {"n_units", "connectivity", "input_degree"},
    "connectivity": {"connectivity", "input_degree"},
    "min_leak": {"leak"},
    "timescales": {"leak"},
}


def sweep_figure(
    kind: str,
    rows: Sequence[Row],
    baselines: Mapping[str, tuple[float, float | None]] | None = None,
) -> "Figure":
    """Two panels against the place of `PLACES`: loss in nats a token, BLiMP in percent.

    A line for all rows that differ in nothing but their place and seed, with a band over seeds;
    the published curve; and a level for each baseline, its loss and its BLiMP or None. Without
    BLiMP there is one panel.
    """
    column, name = PLACES[kind]
    drawn = [row for row in rows if row[column] is not None]
    judged = any(row["blimp"] is not None for row in drawn)
    figure, axes = panels(2 if judged else 1)
    ticks = _ticks(kind, drawn)
    for axis, measure in zip(axes, ("nll_per_token", "blimp"), strict=False):
        _lines(axis, kind, drawn, measure, ticks)
        _published(axis, kind, measure, ticks)
        place = 0 if measure == "nll_per_token" else 1
        named = {label: values[place] for label, values in (baselines or {}).items()}
        levels(axis, [(label, value) for label, value in named.items() if value is not None])
        _scale(axis, kind, ticks)
        axis.set_xlabel(name)
        axis.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes[0].set_ylabel("held-out loss, nats a token")
    if judged:
        axes[1].set_ylabel("BLiMP, % of pairs chosen rightly")
    legend(figure, axes[0], n_columns=2)
    return figure


def _ticks(kind: str, rows: Sequence[Row]) -> dict[Any, float]:
    """Where along the axis each value stands."""
    column, _ = PLACES[kind]
    found = list(dict.fromkeys(_as_place(kind, row[column]) for row in rows))
    if kind == "timescales":
        return {value: float(position) for position, value in enumerate(found)}
    return {value: float(value) for value in sorted(found)}


def _as_place(kind: str, value: Any) -> Any:
    return str(value) if kind == "timescales" else value


def _lines(
    axis: "Axes", kind: str, rows: Sequence[Row], measure: str, ticks: Mapping[Any, float]
) -> None:
    """A band for each group of rows."""
    column, _ = PLACES[kind]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    names = [name for name in _TELLING if name not in _WITH_PLACE[kind]]
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    # The amount of text is always told: the published models read ten or a hundred times more.
    differing = [k for k, n in enumerate(names) if n == "words" or len({g[k] for g in groups}) > 1]
    for number, (group, members) in enumerate(groups.items()):
        values: dict[float, list[float]] = {}
        for row in members:
            if row[measure] is not None:
                percent = 100 if measure == "blimp" else 1
                place = ticks[_as_place(kind, row[column])]
                values.setdefault(place, []).append(percent * row[measure])
        told = [_TELLING[names[k]](group[k]) for k in differing]
        draw = band if kind != "timescales" else _ranges
        draw(
            axis,
            values,
            label="ours, " + ", ".join(told),
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
        )


def _ranges(axis: "Axes", values: Mapping[float, Sequence[float]], **style: Any) -> None:
    """Means at places that have no order, and the ranges of the values as bars."""
    means = [sum(found) / len(found) for found in values.values()]
    below = [mean - min(found) for mean, found in zip(means, values.values(), strict=True)]
    above = [max(found) - mean for mean, found in zip(means, values.values(), strict=True)]
    axis.errorbar(list(values), means, yerr=[below, above], capsize=4, linestyle="none", **style)


def _law_name(leak: str) -> str:
    """``uniform:0:1`` -> lines below the axis."""
    law, *numbers = leak.split(":")
    if not numbers:
        return f"constant\n{leak}"
    return law.replace("_", "\n") + "\n" + " to ".join(numbers)


def _published(axis: "Axes", kind: str, measure: str, ticks: Mapping[Any, float]) -> None:
    """The published means, and their standard errors as bars."""
    curve = _CURVES[kind]
    known = {place: at for place, at in curve.items() if kind != "timescales" or place in ticks}
    if not known:
        return
    loss = measure == "nll_per_token"
    axis.errorbar(
        [ticks[place] if kind == "timescales" else place for place in known],
        [at.nll if loss else at.blimp for at in known.values()],
        yerr=[at.nll_error if loss else at.blimp_error for at in known.values()],
        label=_PUBLISHED + ("" if kind == "size" else ", 4096 units"),
        color=_GREY,
        marker="x",
        markersize=6,
        linestyle="none" if kind == "timescales" else "--",
        linewidth=1.2,
        capsize=2,
        zorder=2,
    )


def _scale(axis: "Axes", kind: str, ticks: Mapping[Any, float]) -> None:
    from matplotlib.ticker import NullLocator

    if kind in ("size", "connectivity"):
        axis.set_xscale("log", base=2)
        axis.xaxis.set_minor_locator(NullLocator())
    if kind == "size":
        places = sorted({*BY_SIZE, *ticks})
        axis.set_xticks(places, [str(place) for place in places], rotation=45)
    if kind == "timescales":
        axis.set_xticks(list(ticks.values()), [_law_name(leak) for leak in ticks])
        axis.set_xlim(-0.5, len(ticks) - 0.5)
