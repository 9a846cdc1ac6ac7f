"""The ladder's table and plot."""

from collections.abc import Sequence
from pathlib import Path
from statistics import stdev
from typing import Any

import pandas as pd

from esnlm.plots.figures import band, legend, note, panels, save, style
from esnlm.storage.results import markdown_table

Row = dict[str, Any]
_HEAD = (
    "", "nats a token", "standard error", "nats a word", "BLiMP, %", "standard error", "seeds",
    "units", "steps", "parameters, M", "peak memory, MiB", "tokens/s", "processor minutes",
    "processor",
)  # fmt: skip


def table(rows: Sequence[Row], models: Sequence[str]) -> str:
    """Means over seeds in Markdown, a table for each corpus and budget, models in the order given.

    A model without a value did not fit the budget.
    """
    lines: list[str] = []
    for corpus in dict.fromkeys(row["corpus"] for row in rows):
        of_corpus = [row for row in rows if row["corpus"] == corpus]
        for minutes in sorted({row["minutes"] for row in of_corpus}):
            found = [row for row in of_corpus if row["minutes"] == minutes]
            names = sorted({row["model"] for row in found}, key=models.index)
            seeds = [[row for row in found if row["model"] == name] for name in names]
            lines += [f"## {corpus}, {minutes:g} processor minutes", ""]
            lines += [*markdown_table(_HEAD, map(_cells, seeds)), ""]
    return "\n".join(lines)


def _cells(seeds: Sequence[Row]) -> list[str]:
    """One line: the rows of a model and budget, one a seed."""
    first = seeds[0]
    name = f"`{first['model']}`: {first['says']}"
    if any(row["nll_per_token"] is None for row in seeds):
        return [name, "does not fit", *[""] * (len(_HEAD) - 2)]
    return [
        name,
        _mean(seeds, "nll_per_token", ".3f"),
        _standard_error(seeds, "nll_per_token", ".4f"),
        _mean(seeds, "nll_per_word", ".3f"),
        _mean(seeds, "blimp", ".1f", 100),
        _standard_error(seeds, "blimp", ".2f", 100),
        str(len(seeds)),
        _mean(seeds, "units", ",.0f"),
        _mean(seeds, "steps", ",.0f"),
        _mean(seeds, "n_parameters", ".2f", 1e-6),
        _mean(seeds, "peak_memory_mib", ",.0f"),
        _mean(seeds, "tokens_per_second", ",.0f"),
        _mean(seeds, "processor_minutes", ".2f"),
        first["machine"].split(",")[0],
    ]


def _mean(seeds: Sequence[Row], column: str, form: str, times: float = 1) -> str:
    values = [row[column] for row in seeds]
    return "" if None in values else format(times * sum(values) / len(values), form)


def _standard_error(seeds: Sequence[Row], column: str, form: str, times: float = 1) -> str:
    """Of the mean over seeds; empty for one seed."""
    values = [row[column] for row in seeds]
    if len(values) < 2 or None in values:
        return ""
    return format(times * stdev(values) / len(values) ** 0.5, form)


def plot(rows: Sequence[Row], models: Sequence[str], path: Path) -> None:
    """Loss and accuracy against processor minutes, as a PNG: a line of panels for each corpus."""
    found = _with_mean_times([row for row in rows if row["nll_per_token"] is not None])
    if found.empty:
        return
    corpora = list(dict.fromkeys(found["corpus"]))
    known = [name for name in models if name in set(found["model"])]
    figure, axes = panels(2 * len(corpora))
    for number, name in enumerate(known):  # the legend, of models of any panel
        axes[0].plot([], [], label=name, **style(number))
    for place, (column, times, says) in enumerate(
        (column, times, f"{corpus}: {says}")
        for corpus in corpora
        for column, times, says in (
            ("nll_per_token", 1, "nats a token"),
            ("blimp", 100, "BLiMP, %"),
        )
    ):
        axis, here = axes[place], found[found["corpus"] == corpora[place // 2]]
        for number, name in enumerate(known):
            line = here[here["model"] == name].dropna(subset=[column])
            if line.empty:
                continue
            line = line.assign(**{column: line[column].astype(float) * times})
            band(axis, line, "processor_minutes", column, label=f"_{name}", **style(number))
        if column == "nll_per_token":
            _near(axis, here.set_index("model")[column])
        axis.set_xscale("log")
        axis.set_xlabel("processor minutes of training")
        axis.set_ylabel(says)
    save(figure, path, legend_of=axes[0], n_columns=3)


#: Models whose recurrence is frozen, and counts of n-grams: the lines of the plot for strangers.
_FROZEN = {
    "kneser-ney": "Kneser-Ney 5-grams",
    "direct": "last three tokens, linear readout",
    "traces": "leaky units, linear readout",
    "reservoir": "coupled reservoir, linear readout",
    "esn+mlp": "leaky units, nonlinear readout (esn+mlp)",
}


def plot_frozen(rows: Sequence[Row], path: Path) -> None:
    """Loss of frozen models and n-grams against processor minutes, as a PNG: a panel a corpus."""
    known = [row for row in rows if row["nll_per_token"] is not None and row["model"] in _FROZEN]
    found = _with_mean_times(known)
    if found.empty:
        return
    corpora = list(dict.fromkeys(found["corpus"]))
    figure, axes = panels(len(corpora), size=(7.2, 5.0))
    for axis, corpus in zip(axes, corpora, strict=True):
        for number, (model, name) in enumerate(_FROZEN.items()):
            line = found[(found["corpus"] == corpus) & (found["model"] == model)]
            if line.empty:
                axis.plot([], [], label=name, **style(number))
            else:
                look = {"markersize": 7, **style(number)}
                band(axis, line, "processor_minutes", "nll_per_token", label=name, **look)
        axis.set(xscale="log", xlabel="processor minutes", title=corpus)
        axis.tick_params(labelsize=11)
        axis.xaxis.label.set_fontsize(12)
    axes[0].set_ylabel("held-out loss, nats a token", fontsize=12)
    legend(figure, axes[0], n_columns=1, fontsize=12)
    save(figure, path)


def _with_mean_times(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows whose processor minutes are means over seeds, which share a place in a plot."""
    found = pd.DataFrame(rows)
    if not found.empty:
        groups = found.groupby(["corpus", "model", "minutes"])["processor_minutes"]
        found["processor_minutes"] = groups.transform("mean")
    return found


def _near(axis: Any, losses: pd.Series) -> None:
    """Leave losses a nat above the least out of the axis, which they would flatten.

    ``losses`` are those of rows, by model; models with none on the axis are named there.
    """
    low = losses.min()
    least, high = losses.groupby(level=0).min(), losses[losses <= low + 1].max()
    far = least[least > low + 1]
    if far.empty:
        return
    spread = (high - low) or 1.0
    axis.set_ylim(low - 0.1 * spread, high + 0.2 * spread)
    named = ", ".join(f"{name} {loss:.2f}" for name, loss in far.items())
    note(axis, f"above: {named}", (0.02, 0.98), (0, 0), xycoords="axes fraction", va="top")
