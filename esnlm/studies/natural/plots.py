"""Figures of the experiment on natural language: loss and BLiMP, beside the published curves."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from esnlm.plots.figures import GREY, band, intervals, legend, levels, panels, sizes_axis, style
from esnlm.runs.grid import Row
from esnlm.text.named_tokenizers import is_gpt2
from esnlm.text.tokenizers import Tokenizer

#: Kind of figure -> the column along its axis, the axis's name, and columns that change along it.
PLACES = {
    "size": ("n_units", "units of the reservoir", {"n_units", "connectivity", "input_degree"}),
    "connectivity": ("connectivity", "connectivity", {"connectivity", "input_degree"}),
    "min_leak": ("min_leak", "least leak rate", {"leak"}),
    "timescales": ("leak", "law of the leak rates", {"leak"}),
}
#: Columns whose values distinguish lines, and how the legend names them.
_NAMES: dict[str, Callable[[Any], str]] = {
    "words": lambda value: f"{value / 1e6:.3g}M words",
    "n_units": lambda value: f"{value} units",
    "connectivity": lambda value: f"connectivity {value:.3g}",
    "leak": lambda value: f"leak {value}",
    "features": lambda value: f"{value} features",
    "readout": str,
    "options": lambda value: _in_words(value) or "default options",
    "topology": str,
    "spectral_radius": lambda value: f"radius {value}",
    "input_scaling": lambda value: f"input scaling {value}",
    "input_degree": lambda value: f"input degree {value}",
    "bias_scaling": lambda value: f"bias {value}",
    "activation": str,
}


def _in_words(options: str) -> str:
    """``direct=3 n_pairs=9`` -> ``direct 3, pairs 9``."""
    pairs = (option.partition("=") for option in options.split())
    return ", ".join(f"{n.removeprefix('n_').replace('_', ' ')} {v}" for n, _, v in pairs)


def published(kind: str) -> pd.DataFrame:
    """Results of Ueda et al. for a kind of figure, by place: tables 3 (size), 4 and 5.

    Echo state networks with a low-rank softmax (rank 512) trained by AdamW for one pass over
    BabyLM, about 100 million words; ``nll`` (nats a token) and ``blimp`` (%) are means of four
    runs, ``nll_error`` and ``blimp_error`` their standard errors. Sizes have 32 connections a
    unit and leak rates uniform in (0, 1); the others 4 096 units, and leak rates up to 1.
    """
    laws = {0.0: "uniform:0:1", 1.0: "1"}
    table = pd.read_csv(Path(__file__).with_name("published.csv")).set_index("place")
    results = table[table.pop("kind") == ("min_leak" if kind == "timescales" else kind)]
    return results.loc[list(laws)].rename(laws) if kind == "timescales" else results


def sweep_figure(
    kind: str,
    rows: Sequence[Row],
    baselines: Mapping[str, tuple[float, float | None]] | None = None,
    not_published: str = "",
) -> Figure:
    """Two panels against the place of `PLACES`: loss in nats a token, BLiMP in percent.

    A line for all rows that differ in nothing but their place and seed, with a band over seeds;
    the published curve, or why it is left out, ``not_published``; and a level for each baseline.
    Without BLiMP there is one panel.
    """
    column, name, along = PLACES[kind]
    table = pd.DataFrame(rows, dtype=object).dropna(subset=column)
    laws = list(dict.fromkeys(map(str, table["leak"]))) if kind == "timescales" else []
    place = [laws.index(str(law)) for law in table["leak"]] if laws else table[column].astype(float)
    nll, blimp = table["nll_per_token"].astype(float), 100 * table["blimp"].astype(float)
    table = table.assign(place=place, nll=nll, blimp=blimp)
    theirs = published(kind).iloc[: 0 if not_published else None]
    of_units = "" if kind == "size" else ", 4096 units"
    if laws:
        theirs = theirs[theirs.index.isin(laws)].rename(laws.index)
    judged = table["blimp"].notna().any()
    figure, axes = panels(2 if judged else 1)
    for number, (axis, measure) in enumerate(zip(axes, ("nll", "blimp"), strict=False)):
        _draw_ours(axis, table, measure, [name for name in _NAMES if name not in along], laws)
        if len(theirs):
            axis.errorbar(
                theirs.index.to_numpy(dtype=float), theirs[measure],
                yerr=theirs[f"{measure}_error"], color=GREY, marker="x", markersize=6,
                linestyle="none" if laws else "--", linewidth=1.2, capsize=2, zorder=2,
                label="Ueda et al., 100M words of BabyLM" + of_units,
            )  # fmt: skip
        lines = [(label, values[number]) for label, values in (baselines or {}).items()]
        levels(axis, [(label, value) for label, value in lines if value is not None])
        if kind == "size":
            sizes = sorted({int(place) for place in (*theirs.index, *table["place"])})
            sizes_axis(axis, sizes, rotation=45)
        elif kind == "connectivity":
            axis.set_xscale("log", base=2)
        elif laws:
            split = [law.split(":") if ":" in law else ("constant", law) for law in laws]
            names = [law.replace("_", "\n") + "\n" + " to ".join(rest) for law, *rest in split]
            axis.set_xticks(range(len(laws)), names)
            axis.set_xlim(-0.5, len(laws) - 0.5)
        axis.set_xlabel(name)
    axes[0].set_ylabel("held-out loss, nats a token")
    if judged:
        axes[1].set_ylabel("BLiMP, % of pairs chosen rightly")
    if not_published:
        axes[0].plot([], [], " ", label=fill(not_published, 60))
    legend(figure, axes[0], n_columns=2)
    return figure


def why_not_published(tokenizer: Tokenizer) -> str:
    """Why the published curves say nothing beside models of this tokenizer; "" where they do.

    Their tokens are GPT-2's: a loss in nats a token compares between models of the same tokens, and
    models of words or of other sub-words judge minimal pairs with more or fewer words unknown.
    """
    if is_gpt2(tokenizer):
        return ""
    return (
        "The published curves (Ueda et al.) are not drawn: they are of GPT-2's tokenizer, this is"
        f" another, of {len(tokenizer)} tokens"
    )


def _draw_ours(
    axis: Axes, table: pd.DataFrame, measure: str, names: Sequence[str], laws: Sequence[str]
) -> None:
    """Draw a line for all rows that agree in the columns ``names``; laws have marks."""
    # Always the amount of text: the published models read ten or a hundred times more.
    differing = [name for name in names if name == "words" or table[name].nunique(dropna=False) > 1]
    for number, (_, rows) in enumerate(table.groupby(list(names), sort=False, dropna=False)):
        label = "ours, " + ", ".join(_NAMES[name](rows[name].iloc[0]) for name in differing)
        points = rows.dropna(subset=measure)
        if not laws:
            band(axis, points, "place", measure, label=label, **style(number))
            continue
        # Laws have no order that a line could follow.
        ranges = points.groupby("place")[measure].agg(["mean", "min", "max"])
        ranges = ranges.rename(columns={"min": "lower", "max": "upper"})
        intervals(axis, ranges.index, ranges, "mean", label=label, capsize=4, **style(number))
