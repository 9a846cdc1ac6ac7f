"""Figure 3 of Mahto et al. (paper 002): which words need which timescales.

Units of about one timescale are silenced together: how much worse are words of each frequency, and
of each class?
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from esnlm.evaluation.token_groups import Grouping
from esnlm.plots.figures import panels, plain_log, save, style
from esnlm.studies.timescales.ablation import ROUTING
from esnlm.utils.arrays import Array, Floats, Tokens

_TOKENS_AT_ONCE = 512


def routing_rows(
    name: str, network: Any, texts: Sequence[Tokens], groupings: Sequence[Grouping], size: int
) -> list[dict[str, Any]]:
    """Return the loss in nats of each group of tokens, with and without each group of units.

    The layer is the one of the widest assigned timescales; ``size`` units are a group. The
    groupings are of all tokens but the first of each of the texts (T,), which is read from the
    start state. Silenced units keep their own recurrence, and later layers see zero.
    """
    laws = [network.assigned_timescales(layer) for layer in range(len(network.layers))]
    spread = [0.0 if law is None else float(law.max() / law.min()) for law in laws]
    layer = int(np.argmax(spread))
    assigned = laws[layer]
    if assigned is None or spread[layer] <= 1:
        raise ValueError("routing needs a layer whose units have different assigned timescales")
    whole = _losses(network, texts)
    order, rows = np.argsort(assigned, kind="stable"), []
    for number, start in enumerate(range(0, len(order), size), 1):
        units = order[start : start + size]
        silenced = _silenced_losses(network, layer, units, texts)
        of_group = name, layer + 1, number, len(units), float(assigned[units].mean())
        for by, labels, places in groupings:
            for place, label in enumerate(labels):
                inside = places == place
                if n := int(inside.sum()):
                    nats = float(whole[inside].mean()), float(silenced[inside].mean())
                    rows.append(dict(zip(ROUTING, (*of_group, by, label, n, *nats), strict=True)))
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
    """Draw how many times the perplexity is larger, by the timescale of the silenced group.

    A panel for the bins of frequency, and one for the classes of words, if there are any.
    """
    table = pd.DataFrame(rows)
    kinds = table.groupby("by", sort=False)
    figure, axes = panels(kinds.ngroups, size=(4.2 * kinds.ngroups + 1, 5.0))
    titles = {"frequency": "occurrences in training", "class": "class of the word"}
    for axis, (by, lines) in zip(axes, kinds, strict=True):
        for number, (label, groups) in enumerate(lines.groupby("bin", sort=False)):
            ratio = np.exp(groups["silenced"] - groups["nats"])
            axis.plot(groups["assigned"], ratio, label=str(label), **style(number))
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set(
            xscale="log",
            xlabel=f"mean timescale of the silenced units, layer {table['layer'][0]}",
            ylabel="perplexity, in that of the whole model",
        )
        plain_log(axis.xaxis)
        below: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "ncols": 3}
        axis.legend(frameon=False, fontsize=8, title=titles[str(by)], **below)
    save(figure, path)
