"""Figures 1, 4, 6, 7 and 8 of Mahto et al. (2021): timescales of units, and word ablation."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from scipy.stats import norm

from esnlm.plots.figures import BLUE, COLOURS, ORANGE, legend_below, panels, plain_log, save
from esnlm.reservoir.timescales import (
    closest_gaussian,
    closest_inverse_gamma,
    inverse_gamma_timescales,
    ks_gaussian,
    ks_inverse_gamma,
)
from esnlm.studies.timescales.ablation import LEAST_SHARE
from esnlm.studies.timescales.markov import Information
from esnlm.utils.arrays import Floats

# Of the narrow Gaussian, as in the paper.
_DEVIATION = 0.1
_MARKS: dict[str, Any] = {"marker": "o", "markersize": 3, "linewidth": 1.6}


def plot_timescales(
    measured: Sequence[Floats],
    assigned: Sequence[Floats | None],
    path: Path,
    markov: Sequence[Floats] | None = None,
    informations: Mapping[str, Information] = {},
    shapes: Sequence[float] = (),
) -> None:
    """Sorted timescales of each layer, and of all beside the closest inverse gamma.

    Where a layer's were assigned, these are dotted, and a panel shows them against the measured
    (figure 4). ``markov``, timescales of an LSTM trained on a Markov copy, adds a panel of
    Kolmogorov-Smirnov distances (figure 1); ``informations`` one of mutual information;
    ``shapes`` one of the inverse gamma laws of these shapes (figure 9).
    """
    fixed = [pair for pair in zip(assigned, measured, strict=True) if pair[0] is not None]
    n_panels = 2 + bool(fixed) + (markov is not None) + bool(informations) + bool(shapes)
    figure, (left, right, *others) = panels(n_panels)
    layers = zip(measured, assigned, strict=True)
    for colour, (number, (times, assignment)) in zip(
        cycle(COLOURS), enumerate(layers, 1), strict=False
    ):
        _line(left, times, label=f"layer {number}", color=colour)
        if assignment is not None:
            _line(left, assignment, linestyle=":", label=f"layer {number}, assigned", color=colour)
    together = np.concatenate(list(measured))
    _beside_closest(right, together, "all layers", "black", gaussian=False)
    if markov is not None:
        _beside_closest(right, np.concatenate(list(markov)), "Markov copy", ORANGE, gaussian=True)
        _plot_distances(others.pop(0), {"text": together, "copy": np.concatenate(list(markov))})
    if informations:
        _plot_information(others.pop(0), informations)
    if shapes:
        n_units = max(len(times) for times in measured)
        _plot_shapes(others.pop(0), shapes, n_units)
    for axis in others:
        _plot_assigned(axis, fixed)
    limits = together.min() / 2, 5 * together.max()
    for axis in (left, right):
        axis.set(
            xscale="log", xlim=limits, xlabel="timescale, in tokens", ylabel="share of units below"
        )
    right.legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, path, legend_of=left, n_columns=3)


def _beside_closest(axis: Axes, times: Floats, label: str, colour: str, *, gaussian: bool) -> None:
    """Draw sorted timescales and, dashed, the closest law."""
    _line(axis, times, color=colour, label=label)
    if gaussian:
        mean, distance = closest_gaussian(times)
        law = norm(mean, _DEVIATION).ppf((np.arange(len(times)) + 0.5) / len(times))
        name = f"Gaussian {mean:g} (KS {distance:.2f})"
    else:
        alpha, distance = closest_inverse_gamma(times)
        law = inverse_gamma_timescales(alpha, len(times))
        name = f"inverse gamma {alpha:g} (KS {distance:.2f})"
    _line(axis, law[law > 0], color=colour, linestyle="--", label=name)


def _plot_shapes(axis: Axes, shapes: Sequence[float], n_units: int) -> None:
    """Draw the timescales that each shape assigns to units, in the order of the units."""
    for i, alpha in enumerate(shapes):
        colour = colormaps["viridis"](0.9 * i / max(1, len(shapes) - 1))
        times = inverse_gamma_timescales(alpha, n_units)
        axis.plot(np.arange(n_units), times, linewidth=1.6, label=f"alpha {alpha:g}", color=colour)
    axis.set(yscale="log", xlabel="unit of the layer", ylabel="assigned timescale, in tokens")
    plain_log(axis.yaxis)
    axis.legend(frameon=False, fontsize=8)


def _plot_distances(axis: Axes, models: Mapping[str, Floats]) -> None:
    """Draw Kolmogorov-Smirnov distances of both families of laws, by their parameter."""
    parameters = np.arange(0.1, 4.01, 0.1)
    for colour, (name, times) in zip((BLUE, ORANGE), models.items(), strict=True):
        for line, law, measure in (
            ("-", "inverse gamma", ks_inverse_gamma),
            ("--", "Gaussian", ks_gaussian),
        ):
            distances = [measure(times, value) for value in parameters.tolist()]
            label = f"{name}, {law}"
            axis.plot(parameters, distances, line, color=colour, linewidth=1.6, label=label)
    axis.set(xlabel="alpha, or mean of the Gaussian", ylabel="Kolmogorov-Smirnov distance")
    axis.legend(frameon=False, fontsize=7)


def _plot_information(axis: Axes, informations: Mapping[str, Information]) -> None:
    """Draw mutual information by distance, and its power laws dotted."""
    for colour, (name, each) in zip((BLUE, ORANGE), informations.items(), strict=True):
        some = each.nats > 0
        law = "" if np.isnan(each.exponent) else f", exponent {-each.exponent:.2f}"
        look: dict[str, Any] = {"color": colour, "label": name + law}
        axis.plot(each.distances[some], each.nats[some], "o", markersize=4, **look)
        fit = each.scale * each.distances**-each.exponent
        axis.plot(each.distances, fit, ":", color=colour, linewidth=1.2)
    nats = np.concatenate([each.nats for each in informations.values()])
    axis.set(xscale="log", xlabel="distance of two words", ylabel="information, nats")
    if (nats > 0).any():  # not so in a text of a few words
        axis.set(yscale="log", ylim=(nats[nats > 0].min() / 2, None))
    plain_log(axis.xaxis)
    axis.legend(frameon=False, fontsize=8)


def _plot_assigned(axis: Axes, layers: Sequence[tuple[Any, Floats]]) -> None:
    """Draw the measured timescale of each unit against the assigned one."""
    for colour, (assignment, times) in zip(cycle(COLOURS), layers, strict=False):
        axis.plot(assignment, times, ".", markersize=4, color=colour)
    ends = [np.concatenate(parts) for parts in zip(*layers, strict=True)]
    limits = min(map(np.min, ends)), max(map(np.max, ends))
    axis.plot(limits, limits, ":", color="black", linewidth=1.0)
    axis.set(xscale="log", yscale="log", xlabel="assigned timescale", ylabel="measured timescale")


def plot_ablation(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot the difference that a word makes in the states, from the rows of ``esnlm ablation``.

    Layers of every model, and for each model whose units differ in timescale a panel of groups of
    units. A colour is a layer, a line style a model.
    """
    table = pd.DataFrame(rows)
    models = {str(model): Path(str(model)).name for model in table["model"].unique()}
    if len({*models.values()}) < len(models):
        models = {model: model for model in models}
    parts = [part for _, part in table.groupby("model", sort=False)]
    apart = [part for part in map(_groups_apart, parts) if part is not None]
    figure, (first, *others) = panels(1 + len(apart))
    for dashes, lags in zip(cycle(("-", "--", ":", "-.")), parts, strict=False):
        name = f"{models[lags['model'].iloc[0]]}, " if len(models) > 1 else ""
        whole = lags[lags["group"] == "all"].groupby("layer")
        for colour, (layer, points) in zip(cycle(COLOURS), whole, strict=False):
            look = _MARKS | {"color": colour, "linestyle": dashes, "label": f"{name}layer {layer}"}
            first.plot(points["lag"], points["share"], **look)
    of = f" of {models[table['model'].iloc[0]]}" if len(models) == 1 else ""
    first.set_title(f"What is left of a word in the states{of}", loc="left", fontsize=10)
    legend_below(first, 2)
    for axis, groups in zip(others, apart, strict=True):
        _plot_groups(axis, groups)
        name = f"{models[groups['model'].iloc[0]]}, " if len(models) > 1 else ""
        title = f"{name}layer {groups['layer'].iloc[0]}, units by timescale"
        axis.set_title(title, loc="left", fontsize=10)
    last = int(table["lag"].max())
    for axis in (first, *others):
        axis.set(yscale="log", xlabel="tokens since the word")
        axis.set_ylabel("difference, share of the first", fontsize=9)
        axis.set_ylim(bottom=max(LEAST_SHARE, axis.get_ylim()[0]))
        axis.set_xticks(range(0, last + 1, max(1, -(-last // 10))))
        plain_log(axis.yaxis, subs=(1, 2, 5))
    save(figure, path)


def _groups_apart(table: pd.DataFrame) -> pd.DataFrame | None:
    """Return groups of units of the layer whose groups differ most in timescale; None: no such."""
    groups = table[table["group"] != "all"].astype({"assigned": float})
    assigned = groups.groupby("layer")["assigned"]
    spread = assigned.max() / assigned.min()
    spread = spread[spread > 1]
    return groups[groups["layer"] == spread.idxmax()] if len(spread) else None


def _plot_groups(axis: Axes, table: pd.DataFrame) -> None:
    """Draw groups of units, the lighter the longer, and name all, or three of many."""
    groups = table.groupby("group", sort=False)
    last = groups.ngroups - 1
    for i, (_, lags) in enumerate(groups):
        is_named = last < 6 or i in (0, last // 2, last)
        timescale = lags["assigned"].iloc[0]
        name = f"{timescale:,.{0 if timescale >= 10 else 2}f}" if is_named else None
        look = _MARKS | {"color": colormaps["viridis"](0.9 * i / last), "label": name}
        axis.plot(lags["lag"], lags["share"], **look)
    legend_below(axis, 3, "mean timescale")


def _line(axis: Axes, times: Floats, **style: Any) -> None:
    shares = (np.arange(len(times)) + 0.5) / len(times)
    axis.plot(np.sort(times), shares, linewidth=1.6, **style)
