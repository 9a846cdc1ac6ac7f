"""Figures 1 and 4 of Mahto et al. (paper 002): timescales of a trained LSTM's units."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from esnlm.experiments.figures import legend, panels, save
from esnlm.timescales import closest_inverse_gamma, inverse_gamma_timescales

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


def _line(axis: "Axes", times: NDArray[np.float64], **style: Any) -> None:
    shares = (np.arange(len(times)) + 0.5) / len(times)
    axis.plot(np.sort(times), shares, linewidth=1.6, **style)
