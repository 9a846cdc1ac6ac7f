"""Figures 5, 6 and 7 of Rachez & Hagiwara from the rows of the Elman experiment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from esnlm.experiments.common.figures import band, columns, legend, levels, panels, save
from esnlm.experiments.common.grid import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from esnlm.experiments.elman.run import Settings

# Okabe & Ito's palette: told apart by colour-blind readers.
COLOURS = {
    "ridge": "#0072B2",
    "softmax": "#D55E00",
    "moe": "#009E73",
    "factored": "#CC79A7",
}
MARKERS = {"ridge": "o", "softmax": "s", "moe": "^", "factored": "D"}
NAMES = {
    "ridge": "ridge",
    "softmax": "softmax",
    "moe": "mixture of experts",
    "factored": "class-factored",
}
TRAIN, TEST = "#0072B2", "#D55E00"
# Word groups of figure 5; the word classes of one group differ in number.
GROUPS = {
    "noun": "#0072B2",
    "proper": "#56B4E9",
    "verb required": "#D55E00",
    "verb optional": "#E69F00",
    "verb none": "#CC79A7",
}
GROUP_NAMES = {
    "noun": "noun",
    "proper": "proper noun",
    "verb required": "verb, object required",
    "verb optional": "verb, object optional",
    "verb none": "verb, no object",
}
# One-hot words, then word features in the order of their dimensions.
LINES = ("-", "--", ":", "-.")
_STATES_SHOWN = 2500


def plot_perplexity(rows: Sequence[Row], ngrams: Sequence[Row], path: Path) -> None:
    """Figure 7: test perplexity against reservoir size, a line a readout, dashed with features."""
    figure, axes = panels(1)
    (axis,) = axes
    for readout, features in _lines(rows):
        chosen = [r for r in rows if (r["readout"], r["features"]) == (readout, features)]
        label = NAMES[readout] + (f", {features} word features" if features else "")
        style = _style(readout, features, _line_styles(rows))
        _band(axis, chosen, "perplexity", label=label, **style)
    _sizes_axis(axis, rows)
    oracle = float(np.mean([row["oracle_perplexity"] for row in rows]))
    values = np.array([row["perplexity"] for row in rows] + [oracle])
    axis.set_ylim(0.97 * values.min(), 1.02 * values.max())
    levels(axis, [("oracle", oracle), *_ngram_levels(ngrams, "perplexity", (2, 3, 4))])
    axis.set_ylabel("perplexity on the second corpus")
    axis.set_title("Perplexity of the readouts by reservoir size", loc="left")
    legend(figure, axis, n_columns=2)
    save(figure, path)


def plot_cosine(rows: Sequence[Row], ngrams: Sequence[Row], path: Path) -> None:
    """Figure 6: cosine to the exact distribution on both corpora, one panel a readout."""
    readouts = list(dict.fromkeys(readout for readout, _ in _lines(rows)))
    figure, axes = panels(len(readouts))
    for axis, readout in zip(axes, readouts, strict=True):
        for features in sorted({row["features"] for row in rows}):
            chosen = [r for r in rows if (r["readout"], r["features"]) == (readout, features)]
            drive = f"{features} word features" if features else "one-hot words"
            line = _line_styles(rows)[features]
            for column, colour, corpus in (
                ("train_cosine", TRAIN, "first corpus (training)"),
                ("cosine", TEST, "second corpus"),
            ):
                _band(
                    axis,
                    chosen,
                    column,
                    label=f"{corpus}, {drive}",
                    color=colour,
                    linestyle=line,
                    marker="o",
                    markerfacecolor=colour if not features else "white",
                )
        _sizes_axis(axis, rows)
        axis.set_title(NAMES[readout], loc="left")
    low = min(row["cosine"] for row in rows)
    for axis in axes:
        axis.set_ylim(low - 1, 100.5)
        levels(axis, _ngram_levels(ngrams, "cosine", (2, 3, 4)))
    for axis in axes[:: columns(len(readouts))]:
        axis.set_ylabel("cosine to the oracle, 0 to 100")
    legend(figure, axes[0], n_columns=2)
    save(figure, path)


def plot_states(settings: "Settings", n_units: int, features: int, path: Path) -> None:
    """Figure 5: two principal components of the states, one-hot words beside word features.

    One seed; states after "who" and after the full stop are left out, as in the paper.
    """
    from esnlm.experiments.elman.run import drive, make_corpora

    corpora = make_corpora(settings, 0)
    tokens = corpora.test[:-1][:_STATES_SHOWN]
    classes = np.array([corpora.grammar.word_class[w] for w in corpora.grammar.vocabulary])[tokens]
    figure, axes = panels(2)
    for axis, n_features in zip(axes, (0, features), strict=True):
        driven = drive(settings, n_units, n_features, 0)
        shown = ~np.isin(classes, ("who", "end"))
        points, shares = principal_components(driven.test[: len(tokens)][shown])
        _scatter(axis, points, classes[shown])
        axis.set_xlabel(f"first component ({shares[0]:.0%} of variance)")
        axis.set_ylabel(f"second component ({shares[1]:.0%})")
        name = f"{n_features} learned word features" if n_features else "one-hot words"
        axis.set_title(f"{n_units} units driven by {name}", loc="left")
    legend(figure, axes[0], n_columns=4)
    save(figure, path)


def principal_components(states: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Projections (n, 2) of states (n, n_units) and their shares of the variance (2,).

    >>> points, shares = principal_components(np.array([[0.0, 0, 0], [2, 0, 0], [0, 1, 0]]))
    >>> points.shape, shares.round(3).tolist()
    ((3, 2), [0.861, 0.139])
    """
    centred = np.asarray(states, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(centred), 2))
    shares = np.zeros(2)
    kept = min(2, len(singular))
    points[:, :kept] = left[:, :kept] * singular[:kept]
    shares[:kept] = singular[:kept] ** 2 / max(float(np.sum(singular**2)), 1e-300)
    return points, shares


def _scatter(axis: "Axes", points: NDArray[Any], classes: NDArray[Any]) -> None:
    for group, colour in GROUPS.items():
        for number, face in (("", colour), (" singular", colour), (" plural", "none")):
            at = classes == group + number
            if not at.any():
                continue
            axis.scatter(
                points[at, 0],
                points[at, 1],
                s=14,
                linewidths=0.8,
                marker="o" if number != " plural" else "^",
                facecolors=face,
                edgecolors=colour,
                alpha=0.75,
                label=GROUP_NAMES[group] + number,
            )


def _lines(rows: Sequence[Row]) -> list[tuple[str, int]]:
    found = {(row["readout"], row["features"]) for row in rows}
    return sorted(found, key=lambda line: (list(NAMES).index(line[0]), line[1]))


def _line_styles(rows: Sequence[Row]) -> dict[int, str]:
    """Number of word features -> line style, solid for one-hot words."""
    counts = sorted({0, *(row["features"] for row in rows)})
    return {count: LINES[min(i, len(LINES) - 1)] for i, count in enumerate(counts)}


def _style(readout: str, features: int, lines: Mapping[int, str]) -> dict[str, Any]:
    return {
        "color": COLOURS[readout],
        "marker": MARKERS[readout],
        "linestyle": lines[features],
        "markerfacecolor": "white" if features else COLOURS[readout],
    }


def _band(axis: "Axes", rows: Sequence[Row], column: str, **style: Any) -> None:
    """Mean over seeds by size, and the range of the seeds as a band."""
    sizes = sorted({row["n_units"] for row in rows})
    values = {size: [row[column] for row in rows if row["n_units"] == size] for size in sizes}
    band(axis, values, **style)


def _ngram_levels(
    ngrams: Sequence[Row], column: str, orders: Sequence[int]
) -> list[tuple[str, float]]:
    """Names and means over seeds of the n-grams, for `levels`."""
    found = []
    for order in orders:
        values = [row[column] for row in ngrams if row["order"] == order]
        if values:
            found.append((f"{order}-gram", float(np.mean(values))))
    return found


def _sizes_axis(axis: "Axes", rows: Sequence[Row]) -> None:
    from matplotlib.ticker import NullLocator

    sizes = sorted({row["n_units"] for row in rows})
    axis.set_xscale("log")
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("units of the reservoir")
    axis.grid(axis="y", color="#DDDDDD", linewidth=0.6)
