"""Figure 5 of Mahto et al. (2021): forget gates of an LSTM along a text."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from esnlm.plots.figures import panels, save
from esnlm.torch.networks.multi_timescale_lstm import forget_drives
from esnlm.utils.arrays import Array, Tokens

_N_TOKENS = 60
# Units that a line of the figure is the mean of, as in the paper.
_TOGETHER = 10


def sorted_gates(gates: Array) -> Array:
    """Gates (T, units) -> means (lines, T) of ten units each, sorted by their mean over time.

    >>> sorted_gates(np.array([[0.9, 0.1], [0.7, 0.3]])).round(2).tolist()
    [[0.5, 0.5]]
    """
    ordered = gates[:, np.argsort(gates.mean(axis=0), kind="stable")].T
    firsts = np.arange(0, len(ordered), _TOGETHER)
    sizes = np.diff(np.append(firsts, len(ordered)))
    return np.asarray(np.add.reduceat(ordered, firsts, axis=0) / sizes[:, None])


def plot_gates(network: Any, tokens: Tokens, path: Path) -> None:
    """Draw a heat map for each layer: units down, those that remember longest at the bottom."""
    ids = torch.from_numpy(np.asarray(tokens[:_N_TOKENS]).astype(np.int64)).to(network.device)
    drives, _ = forget_drives(network, ids[None])
    figure, axes = panels(len(drives), across=3)
    for number, (axis, layer) in enumerate(zip(axes, drives, strict=True), 1):
        values = sorted_gates(layer[0].sigmoid().cpu().numpy())
        image = axis.imshow(values, aspect="auto", vmin=0, vmax=1, cmap="viridis")
        axis.grid(visible=False)
        axis.set_title(f"layer {number}", loc="left", fontsize=10)
        axis.set(xlabel="token", ylabel=f"units, {_TOGETHER} a line")
    figure.colorbar(image, ax=axes, label="forget gate")
    save(figure, path)
