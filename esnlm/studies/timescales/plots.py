"""Figures 1, 4, 6 and 7 of Mahto et al. (paper 002): timescales of units, and word ablation."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes

from esnlm.plots.figures import COLOURS, panels, plain_log, save
from esnlm.reservoir.timescales import closest_inverse_gamma, inverse_gamma_timescales
from esnlm.utils.arrays import Floats

_MARKS: dict[str, Any] = {"marker": "o", "markersize": 3}


def plot_timescales(
    measured: Sequence[Floats],
    assigned: Sequence[Floats | None],
    path: Path,
) -> None:
    """Sorted timescales of each layer, and of all beside the closest inverse gamma.

    Where a layer's were assigned, these are dotted.
    """
    figure, (left, right) = panels(2)
    layers = zip(measured, assigned, strict=True)
    for colour, (number, (times, assignment)) in zip(
        cycle(COLOURS), enumerate(layers, 1), strict=False
    ):
        _line(left, times, label=f"layer {number}", color=colour)
        if assignment is not None:
            _line(left, assignment, linestyle=":", label=f"layer {number}, assigned", color=colour)
    together = np.concatenate(list(measured))
    alpha, distance = closest_inverse_gamma(together)
    _line(right, together, color="black", label="all layers")
    law = inverse_gamma_timescales(alpha, len(together))
    name = f"inverse gamma {alpha:g} (KS {distance:.3f})"
    _line(right, law, color="#777777", linestyle="--", label=name)
    limits = together.min() / 2, 5 * together.max()
    for axis in (left, right):
        axis.set(
            xscale="log", xlim=limits, xlabel="timescale, in tokens", ylabel="share of units below"
        )
    right.legend(frameon=False, fontsize=9, loc="lower right")
    save(figure, path, legend_of=left, n_columns=3)


def plot_ablation(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot the difference that a word makes in the states, from the rows of ``esnlm ablation``.

    Layers, and the groups of units of the first layer whose groups differ in timescale, the
    lighter the longer; with a mark and a tick at each lag, or at some of many.
    """
    table = pd.DataFrame(rows)
    whole, groups = table[table["group"] == "all"], table[table["group"] != "all"]
    spread = groups.groupby("layer")["assigned"].nunique()
    parted = spread.index[spread > 1]
    figure, axes = panels(2 if len(parted) else 1)
    for colour, (layer, lags) in zip(cycle(COLOURS), whole.groupby("layer"), strict=False):
        label = f"layer {layer}"
        axes[0].plot(lags["lag"], lags["share"], linewidth=1.6, color=colour, label=label, **_MARKS)
    axes[0].legend(frameon=False, fontsize=9)
    of = Path(str(table["model"].iloc[0])).name
    axes[0].set_title(f"What is left of a word in the states of {of}", loc="left", fontsize=10)
    if len(parted):
        inside = groups[groups["layer"] == parted[0]].groupby("group", sort=False)
        last = inside.ngroups - 1
        for i, (_, lags) in enumerate(inside):
            of_some = last < 12 or i in (0, last // 2, last)
            name = f"mean timescale {lags['assigned'].iloc[0]:.3g}" if of_some else None
            shade = colormaps["viridis"](0.9 * i / last)
            axes[1].plot(
                lags["lag"], lags["share"], linewidth=1.6, color=shade, label=name, **_MARKS
            )
        title = f"layer {parted[0]}, units by timescale"
        axes[1].set_title(title, loc="left", fontsize=10)
        axes[1].legend(frameon=False, fontsize=8)
    for axis in axes:
        axis.set(
            yscale="log",
            xlabel="tokens since the word",
            ylabel="difference of the states, share of the first",
        )
        last = int(table["lag"].max())
        axis.set_xticks(range(0, last + 1, max(1, -(-last // 20))))
        plain_log(axis.yaxis, subs=(1, 2, 5))
    save(figure, path)


def _line(axis: Axes, times: Floats, **style: Any) -> None:
    shares = (np.arange(len(times)) + 0.5) / len(times)
    axis.plot(np.sort(times), shares, linewidth=1.6, **style)
