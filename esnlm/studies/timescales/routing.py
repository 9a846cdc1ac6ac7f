"""Figure 3 of Mahto et al. (2021): which words need which timescales.

Units of about one timescale are silenced together, in a layer of an LSTM or in a reservoir: how
much worse are words of each frequency, and of each class?
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from esnlm.evaluation.token_groups import Grouping
from esnlm.models.language_model import LanguageModel
from esnlm.plots.figures import legend_below, panels, plain_log, save, style
from esnlm.studies.timescales.ablation import ROUTING
from esnlm.text.corpus import TokenStream
from esnlm.utils.arrays import Floats, Ints64

#: Silenced units -> losses (n,) in nats of all predicted tokens.
Losses: TypeAlias = Callable[[Ints64], Floats]


def routing_rows(
    layer: tuple[str, int],
    assigned: Floats,
    losses: Losses,
    groupings: Sequence[Grouping],
    size: int,
) -> list[dict[str, Any]]:
    """Return the loss in nats of each group of tokens, with and without each group of units.

    ``layer`` is the name of a model and a layer's number, ``assigned`` (n_units,) its
    timescales, of which ``size`` units are a group. The groupings are of the tokens of the losses.
    Silenced units keep their own recurrence.
    """
    whole = losses(np.empty(0, dtype=np.int64))
    order, rows = np.argsort(assigned, kind="stable"), []
    for number, start in enumerate(range(0, len(order), size), 1):
        units = order[start : start + size]
        silenced = losses(units)
        of_group = *layer, number, len(units), float(assigned[units].mean())
        for by, labels, places in groupings:
            for place, label in enumerate(labels):
                inside = places == place
                if n := int(inside.sum()):
                    nats = float(whole[inside].mean()), float(silenced[inside].mean())
                    rows.append(dict(zip(ROUTING, (*of_group, by, label, n, *nats), strict=True)))
    return rows


@np.errstate(divide="ignore", invalid="ignore")
def widest_layer(laws: Sequence[Floats | None]) -> int:
    """Return the number of the layer, from 0, of the widest assigned timescales (n_units,)."""
    spread = [0.0 if law is None else float(law.max() / law.min()) for law in laws]
    if not spread or not max(spread) > 1:
        raise ValueError(
            "routing needs units of different assigned timescales: train with --model mts-lstm, or"
            " a reservoir with --leak-rate inverse_gamma:0.56"
        )
    return int(np.argmax(spread))


def reservoir_losses(model: LanguageModel, stream: TokenStream) -> Losses:
    """Return the losses where units of the reservoir say their mean to the readout.

    A slow unit is nearly constant: zero in its place would take a part of the intercept away.
    """
    totals = [states.sum(axis=0, dtype=np.float64) for states, _ in model._harvest(stream)]
    means = np.sum(totals, axis=0) / stream.n_predicted

    def losses(units: Ints64) -> Floats:
        scores = np.zeros(len(stream.tokens))
        for states, following, positions in model._harvest(stream).with_positions():
            silenced = states.copy()
            silenced[:, units] = means[units]
            scores[positions + 1] = model.readout_.predict_log_proba_of(silenced, following)
        return -scores[stream.predicted()]

    return losses


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
            ylabel="perplexity, as a multiple of the whole model's",
        )
        plain_log(axis.xaxis)
        legend_below(axis, 3, titles[str(by)])
    save(figure, path)
