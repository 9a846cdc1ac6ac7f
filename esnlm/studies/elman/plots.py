"""Figures 5, 6 and 7 of Rachez & Hagiwara from the rows of the Elman experiment."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from esnlm.plots import figures
from esnlm.plots.plotting import principal_components
from esnlm.runs.grid import Row
from esnlm.studies.elman.presets import Settings
from esnlm.studies.elman.states import drive, make_corpora

#: Readout -> name, colour, marker.
_READOUTS = {
    "ridge": ("ridge", figures.BLUE, "o"),
    "softmax": ("softmax", figures.ORANGE, "s"),
    "moe": ("mixture of experts", figures.GREEN, "^"),
    "factored": ("supervised mixture", figures.PINK, "D"),
    "mlp": ("network of a hidden layer", figures.SKY, "v"),
}
#: Groups of word classes in figure 5, which has nouns and verbs in either number.
_GROUPS = {
    "noun": ("noun", figures.BLUE),
    "proper": ("proper noun", figures.SKY),
    "verb required": ("verb, object required", figures.ORANGE),
    "verb optional": ("verb, object optional", figures.YELLOW),
    "verb none": ("verb, no object", figures.PINK),
}
_NUMBERS = "", " singular", " plural"
# One-hot words, then word features in the order of their dimensions.
_LINES = ("-", "--", ":", "-.")
_STATES_SHOWN = 2500


def perplexity_figure(rows: Sequence[Row], ngrams: Sequence[Row]) -> Figure:
    """Figure 7: test perplexity against reservoir size, a line a readout, dashed with features."""
    table = pd.DataFrame(rows)
    figure, (axis,) = figures.panels(1)
    for label, style, inputs, runs in _lines(table):
        label += "" if inputs == "one-hot words" else f", {inputs}"
        figures.band(axis, runs, "n_units", "perplexity", label=label, **style)
    oracle = float(table["oracle_perplexity"].mean())
    perplexities = table["perplexity"]
    axis.set_ylim(0.97 * min(perplexities.min(), oracle), 1.02 * max(perplexities.max(), oracle))
    figures.sizes_axis(axis, sorted(table["n_units"].unique()))
    figures.levels(axis, [("oracle", oracle), *_ngram_levels(ngrams, "perplexity")])
    axis.set_ylabel("perplexity on the second corpus")
    axis.set_title("Perplexity of the readouts by reservoir size", loc="left")
    figures.legend(figure, axis, n_columns=2)
    return figure


def plot_cosine(rows: Sequence[Row], ngrams: Sequence[Row], path: Path) -> None:
    """Figure 6: cosine to the exact distribution on both corpora, one panel a readout."""
    table = pd.DataFrame(rows)
    names = [name for key, (name, *_) in _READOUTS.items() if key in set(table["readout"])]
    figure, axes = figures.panels(len(names))
    for name, style, inputs, runs in _lines(table):
        for column, colour, corpus in (
            ("train_cosine", figures.BLUE, "first corpus (training)"),
            ("cosine", figures.ORANGE, "second corpus"),
        ):
            face = colour if inputs == "one-hot words" else "white"
            style |= {"color": colour, "markerfacecolor": face, "marker": "o"}
            label = f"{corpus}, {inputs}"
            figures.band(axes[names.index(name)], runs, "n_units", column, label=label, **style)
    for axis, name in zip(axes, names, strict=True):
        figures.sizes_axis(axis, sorted(table["n_units"].unique()))
        axis.set_title(name, loc="left")
        axis.set_ylim(table["cosine"].min() - 1, 100.5)
        figures.levels(axis, _ngram_levels(ngrams, "cosine"))
    for axis in axes[::2]:
        axis.set_ylabel("cosine to the oracle, 0 to 100")
    figures.save(figure, path, legend_of=axes[0])


def _lines(table: Any) -> Iterator[tuple[str, dict[str, str], str, pd.DataFrame]]:
    """Name, style, inputs and rows of each line, in the order of `_READOUTS`.

    Lines are solid for one-hot words, and hollow for word features.
    """
    counts = sorted({0, *table["features"]})
    for readout, (name, colour, marker) in _READOUTS.items():
        for features, runs in table[table["readout"] == readout].groupby("features"):
            line = _LINES[min(counts.index(features), len(_LINES) - 1)]
            face = "white" if features else colour
            style = {"color": colour, "linestyle": line, "markerfacecolor": face, "marker": marker}
            inputs = f"{features} word features" if features else "one-hot words"
            yield name, style, inputs, runs


def plot_states(settings: Settings, n_units: int, features: int, path: Path) -> None:
    """Figure 5: two principal components of the states, one-hot words beside word features.

    One seed; states after "who" and after the full stop are left out, as in the paper.
    """
    corpora = make_corpora(settings, 0)
    tokens = corpora.test[:-1][:_STATES_SHOWN]
    classes = np.array([corpora.grammar.word_class[w] for w in corpora.grammar.vocabulary])[tokens]
    is_shown = ~np.isin(classes, ("who", "end"))
    figure, axes = figures.panels(2)
    for axis, n_features in zip(axes, (0, features), strict=True):
        driven = drive(settings, n_units, n_features, 0)
        points, shares = principal_components(driven.test[: len(tokens)][is_shown])
        for (group, (name, colour)), number in product(_GROUPS.items(), _NUMBERS):
            at = classes[is_shown] == group + number
            if at.any():
                marker, face = ("^", "none") if number == " plural" else ("o", colour)
                axis.scatter(
                    points[at, 0], points[at, 1], s=14, linewidths=0.8, marker=marker,
                    facecolors=face, edgecolors=colour, alpha=0.75, label=name + number,
                )  # fmt: skip
        axis.set_xlabel(f"first component ({shares[0]:.0%} of variance)")
        axis.set_ylabel(f"second component ({shares[1]:.0%})")
        name = f"{n_features} word features" if n_features else "one-hot words"
        axis.set_title(f"{n_units} units, {name}", loc="left")
        axis.grid(False)
    figures.save(figure, path, legend_of=axes[0], n_columns=2)


def _ngram_levels(ngrams: Sequence[Row], column: str) -> list[tuple[str, float]]:
    """Names of the 2-, 3- and 4-grams and their means over seeds."""
    if not ngrams:
        return []
    means = pd.DataFrame(ngrams).groupby("order")[column].mean()
    return [(f"{order}-gram", value) for order, value in means.items() if order in (2, 3, 4)]
