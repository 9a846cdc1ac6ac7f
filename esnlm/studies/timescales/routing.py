"""Figure 3 of Mahto et al. (paper 002): which words need which timescales.

Units of about one timescale are silenced together: how much worse are words of each frequency?
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from esnlm.evaluation.token_groups import by_frequency
from esnlm.plots.figures import panels, plain_log, save, style
from esnlm.studies.timescales.ablation import ROUTING
from esnlm.utils.arrays import Array, Floats, Ints64, Tokens

_TOKENS_AT_ONCE = 512


def routing_rows(
    name: str, network: Any, texts: Sequence[Tokens], counts: Ints64, size: int
) -> list[dict[str, Any]]:
    """Return the loss in nats of each bin of frequency, with and without each group of units.

    The layer is the one of the widest assigned timescales; ``size`` units are a group. ``counts``
    (V,) say how often a token occurs in training text; each of the texts (T,) is read from the
    start state. Silenced units keep their own recurrence, and later layers see zero.
    """
    laws = [network.assigned_timescales(layer) for layer in range(len(network.layers))]
    spread = [0.0 if law is None else float(law.max() / law.min()) for law in laws]
    layer = int(np.argmax(spread))
    assigned = laws[layer]
    if assigned is None or spread[layer] <= 1:
        raise ValueError("routing needs a layer whose units have different assigned timescales")
    targets = np.concatenate([np.asarray(text)[1:] for text in texts])
    bins = by_frequency(counts[targets])
    whole = _losses(network, texts)
    order, rows = np.argsort(assigned, kind="stable"), []
    for number, start in enumerate(range(0, len(order), size), 1):
        units = order[start : start + size]
        silenced = _silenced_losses(network, layer, units, texts)
        for place, label in enumerate(bins.names):
            inside = bins.places == place
            if inside.any():
                values = (
                    name, layer + 1, number, len(units), float(assigned[units].mean()), label,
                    int(inside.sum()), float(whole[inside].mean()), float(silenced[inside].mean()),
                )  # fmt: skip
                rows.append(dict(zip(ROUTING, values, strict=True)))
    return rows


def _silenced_losses(network: Any, layer: int, units: Array, texts: Sequence[Tokens]) -> Floats:
    """Losses (n,) in nats where these units of a layer say zero to the next."""

    def silence(module: Any, inputs: Any, results: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
        outputs = results[0].clone()
        outputs[..., units] = 0
        return outputs, results[1]

    hook = network.layers[layer].register_forward_hook(silence)
    try:
        return _losses(network, texts)
    finally:
        hook.remove()


@torch.inference_mode()
def _losses(network: Any, texts: Sequence[Tokens]) -> Floats:
    """Losses (n,) in nats of all tokens but the first of each text, without dropout."""
    network.eval()
    losses = []
    for text in texts:
        ids, state = torch.from_numpy(np.asarray(text).astype(np.int64)).to(network.device), None
        for start in range(0, len(ids) - 1, _TOKENS_AT_ONCE):
            part = ids[start : start + _TOKENS_AT_ONCE + 1]
            hidden, state = network.encode(part[None, :-1], state)
            logs = network.head(hidden[0]).log_softmax(dim=-1)
            losses.append(-logs.gather(1, part[1:, None])[:, 0].double().cpu().numpy())
    return np.concatenate(losses)


def plot_routing(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw how many times the perplexity of each bin is larger, by the timescale of the group."""
    table = pd.DataFrame(rows)
    figure, (axis,) = panels(1)
    for number, (label, groups) in enumerate(table.groupby("bin", sort=False)):
        ratio = np.exp(groups["silenced"] - groups["nats"])
        axis.plot(groups["assigned"], ratio, label=str(label), **style(number))
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set(
        xscale="log",
        xlabel=f"mean assigned timescale of the silenced units of layer {table['layer'][0]}",
        ylabel="perplexity, in that of the whole model",
    )
    plain_log(axis.xaxis)
    axis.legend(frameon=False, fontsize=9, title="occurrences in training")
    save(figure, path)
