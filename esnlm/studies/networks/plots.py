"""Plots of compared networks: loss and overlap by size, power laws, losses along training."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from esnlm.plots.figures import band, legend, panels, plain_log, style
from esnlm.runs.grid import Row
from esnlm.studies.networks.compare import differing_trainings


def figure(rows: Sequence[Row]) -> Figure:
    """Held-out loss against trained parameters and against seconds of training."""
    table = pd.DataFrame(rows).assign(training=differing_trainings(rows))
    chart, axes = panels(2)
    for axis, column in zip(axes, ("n_parameters", "train_seconds"), strict=True):
        series = table.groupby(["model", "training"], sort=False)
        for number, ((model, training), group) in enumerate(series):
            label = f"{model}: {training}" if training else str(model)
            for line in lines_of(group, column):
                band(axis, line, column, "held_out_nll", **style(number), label=label)
                label = f"_{label}"  # the first of them in the legend
        # On less a logarithmic axis has no room for its labels.
        if table[column].max() >= 10 * table[column].min():
            axis.set_xscale("log")
            plain_log(axis.xaxis, subs=(1, 2, 5))
        axis.set_ylabel("held-out loss, nats a token")
    axes[0].xaxis.set_major_formatter(EngFormatter(sep=""))
    axes[0].set_xlabel("trained parameters")
    axes[1].set_xlabel("seconds of training")
    legend(chart, axes[0], n_columns=min(series.ngroups, 2))
    return chart


def lines_of(rows: pd.DataFrame, column: str) -> list[pd.DataFrame]:
    """Rows with the means of ``column`` over the seeds of a setting, as the lines to draw.

    Settings that share a place are points of their own: nothing orders them.
    """
    place = rows.groupby("settings")[column].transform("mean")
    placed = rows.assign(**{column: place})
    settings = [points for _, points in placed.groupby("settings", sort=False)]
    return [placed] if place.nunique() == len(settings) else settings
