"""Figures 1, 4, 6 and 7 of Mahto et al. (paper 002): timescales of units, and what they keep."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from esnlm.experiments.common.figures import legend, panels, save
from esnlm.reservoir.timescales import closest_inverse_gamma, inverse_gamma_timescales

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe & Ito's palette: told apart by colour-blind readers.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def plot_timescales(
    measured: Sequence[NDArray[np.float64]],
    assigned: Sequence[NDArray[np.float64] | None],
    path: Path,
) -> None:
    """Sorted timescales of each layer, and of all beside the closest inverse gamma.

    Where a layer's were assigned, these are dotted.
    """
    figure, axes = panels(2)
    for number, (times, given) in enumerate(zip(measured, assigned, strict=True), 1):
        colour = _COLOURS[(number - 1) % len(_COLOURS)]
        _line(axes[0], times, color=colour, label=f"layer {number}")
        if given is not None:
            _line(axes[0], given, color=colour, linestyle=":", label=f"layer {number}, assigned")
    together = np.concatenate(list(measured))
    alpha, distance = closest_inverse_gamma(together)
    _line(axes[1], together, color="black", label="all layers")
    law = inverse_gamma_timescales(alpha, len(together))
    name = f"inverse gamma {alpha:g} (KS {distance:.3f})"
    _line(axes[1], law, color="#777777", linestyle="--", label=name)
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xlabel("timescale, in tokens")
        axis.set_ylabel("share of units below")
        axis.set_xlim(min(t.min() for t in measured) / 2, 5 * max(t.max() for t in measured))
    axes[1].legend(frameon=False, fontsize=9, loc="lower right")
    legend(figure, axes[0], n_columns=3)
    save(figure, path)


def plot_ablation(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """What is left of a word, by tokens since: of each layer, and of groups of units if any.

    ``rows`` are those of ``esnlm ablation``. Groups are those of the first layer that has some
    with different timescales, the lighter the longer.
    """
    whole = [row for row in rows if row["group"] == "all"]
    grouped = [row for row in rows if row["group"] != "all"]
    spread: dict[int, set[float]] = {}
    for row in grouped:
        spread.setdefault(row["layer"], set()).add(row["assigned"])
    parted = [layer for layer, times in spread.items() if len(times) > 1]
    figure, axes = panels(2 if parted else 1)
    for layer in dict.fromkeys(row["layer"] for row in whole):
        colour = _COLOURS[(layer - 1) % len(_COLOURS)]
        of_layer = [row for row in whole if row["layer"] == layer]
        _decay(axes[0], of_layer, color=colour, label=f"layer {layer}")
    axes[0].legend(frameon=False, fontsize=9)
    if parted:
        from matplotlib import colormaps

        inside = [row for row in grouped if row["layer"] == parted[0]]
        numbers = list(dict.fromkeys(row["group"] for row in inside))
        for i, number in enumerate(numbers):
            of_group = [row for row in inside if row["group"] == number]
            shade = colormaps["viridis"](0.9 * i / max(1, len(numbers) - 1))
            few = len(numbers) <= 12 or i in (0, len(numbers) // 2, len(numbers) - 1)
            label = f"mean timescale {of_group[0]['assigned']:.3g}" if few else None
            _decay(axes[1], of_group, color=shade, label=label)
        axes[1].set_title(f"layer {parted[0]}, units by timescale", fontsize=10)
        axes[1].legend(frameon=False, fontsize=8)
    for axis in axes:
        axis.set_xlabel("tokens since the word")
        axis.set_ylabel("difference of the states, share of the first")
        axis.set_yscale("log")
        axis.grid(alpha=0.25)
    save(figure, path)


def _decay(axis: "Axes", rows: Sequence[Mapping[str, Any]], **style: Any) -> None:
    axis.plot([row["lag"] for row in rows], [row["share"] for row in rows], linewidth=1.6, **style)


def _line(axis: "Axes", times: NDArray[np.float64], **style: Any) -> None:
    shares = (np.arange(len(times)) + 0.5) / len(times)
    axis.plot(np.sort(times), shares, linewidth=1.6, **style)
