"""Plots of results and models on matplotlib's axes: given ones, or those of a new figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from sklearn.decomposition import PCA

from esnlm.plots.figures import COLOURS, GREY, band, levels, note, sizes_axis, style
from esnlm.utils.arrays import Array

#: Rows of a table: a data frame, mappings, or the CSV that holds them.
Rows = pd.DataFrame | Sequence[Mapping[str, Any]] | str | Path


def plot_perplexity_by_size(
    rows: Rows,
    *,
    by: str | None = "readout",
    reference: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Perplexity against the size of the reservoir: means over runs, their ranges as bands.

    ``rows`` have columns ``n_units``, and ``perplexity`` or ``nll_per_token`` (nats), as the CSVs
    of ``esnlm elman`` and ``esnlm natural`` do. Each value of column ``by`` has a line of its own;
    ``reference`` are perplexities of others by name, as horizontal lines.

    >>> rows = [{"readout": "ridge", "n_units": n, "perplexity": 9 - n / 50} for n in (25, 50)]
    >>> plot_perplexity_by_size(rows, reference={"trigrams": 7.4}).get_ylabel()
    'perplexity'
    """
    table = _table(rows, "n_units")
    if "perplexity" not in table:
        table = _table(table, "nll_per_token")
        table = table.assign(perplexity=np.exp(table["nll_per_token"].astype(float)))
    axis = _axes(ax)
    groups: Any = [(None, table)]
    if by is not None and by in table:
        groups = table.groupby(by, sort=False)
    for number, (name, runs) in enumerate(groups):
        band(axis, runs, "n_units", "perplexity", label=name, **style(number))
    sizes_axis(axis, sorted(table["n_units"].unique()))
    axis.set_ylabel("perplexity")
    if reference:
        values = [*table["perplexity"], *reference.values()]
        axis.set_ylim(0.97 * min(values), 1.02 * max(values))
        levels(axis, list(reference.items()))
    if len(groups) > 1:
        axis.legend(frameon=False)
    return axis


def plot_states(
    states: ArrayLike,
    *,
    words: Sequence[str] | None = None,
    groups: Sequence[Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """States (n, n_units) in the plane of their first two principal components.

    ``words`` (n,) are written beside their points, which a line joins in order: the path of the
    state along a sentence. ``groups`` (n,) give each point the colour of its group.

    >>> from esnlm import Reservoir
    >>> states = Reservoir(50, random_state=0).transform([0, 1, 2, 1])
    >>> plot_states(states, words=["boys", "see", "dogs", "see"]).get_xlabel()
    'first component (54% of variance)'
    """
    points, shares = principal_components(np.asarray(states))
    for name, given in (("words", words), ("groups", groups)):
        if given is not None and len(given) != len(points):
            raise ValueError(
                f"{name} must be one for each of {len(points)} states, got {len(given)}"
            )
    axis = _axes(ax)
    if words is not None:
        axis.plot(*points.T, color="#BBBBBB", linewidth=1, zorder=1)
        for word, place in zip(words, points, strict=True):
            note(axis, str(word), place, (4, 4), annotation_clip=False)
    kinds = np.zeros(len(points), dtype=int) if groups is None else np.asarray(groups)
    for number, kind in enumerate(dict.fromkeys(kinds.tolist())):
        label, colour = None if groups is None else str(kind), style(number)["color"]
        x, y = points[kinds == kind].T
        axis.scatter(x, y, s=16, color=colour, label=label)
    if groups is not None:
        axis.legend(frameon=False, fontsize=8)
    axis.set_xlabel(f"first component ({shares[0]:.0%} of variance)")
    axis.set_ylabel(f"second component ({shares[1]:.0%})")
    return axis


def principal_components(states: Array) -> tuple[Array, Array]:
    """Projections (n, 2) of states (n, n_units) and their shares of the variance (2,).

    The entry of a component that is farthest from zero is positive: signs do not depend on the
    linear algebra that finds them.

    >>> points, shares = principal_components(np.array([[0.0, 0, 0], [2, 0, 0], [0, 1, 0]]))
    >>> points.shape, shares.round(3).tolist()
    ((3, 2), [0.861, 0.139])
    """
    if states.ndim != 2 or len(states) < 2:
        raise ValueError(f"states must be two rows at least, got an array of shape {states.shape}")
    if states.shape[1] == 1:
        states = np.hstack([states, np.zeros_like(states)])
    pca = PCA(2, svd_solver="full").fit(np.asarray(states, dtype=np.float64))
    # Rounded, so that two entries that are equal but for rounding are equal: the first one counts.
    farthest = np.abs(pca.components_).round(6).argmax(axis=1)
    signs = np.sign(pca.components_[[0, 1], farthest])
    points = pca.transform(states) * np.where(signs == 0, 1, signs)
    return points, pca.explained_variance_ratio_


def plot_blimp(
    rows: Rows, *, others: Mapping[str, Mapping[str, float]] | None = None, ax: Axes | None = None
) -> Axes:
    """Accuracy on minimal pairs by phenomenon, overall last, with intervals; ties count half.

    ``rows`` are those of ``esnlm blimp --csv``, of one model or of several: the first one's order
    is that of the phenomena. ``others`` are accuracies in [0, 1] by phenomenon ("overall" among
    them) of other models, by name. ValueError: a model's phenomenon stands in two rows.
    """
    table = _table(rows, "level", "phenomenon", "accuracy", "lower", "upper", "model")
    table = table[table["level"].isin(["phenomenon", "overall"])]
    if table.empty:
        raise ValueError("rows must hold phenomena, as those that esnlm blimp writes, got none")
    twice = table[table.duplicated(["model", "phenomenon"])]
    if len(twice):
        model, name = twice[["model", "phenomenon"]].iloc[0]
        raise ValueError(f"rows hold {name} of the model {model} twice: give one row of each")
    groups = table.groupby("model", sort=False, dropna=False)
    models = {str(model): part.set_index("phenomenon") for model, part in groups}
    first = next(iter(models.values()))["accuracy"].astype(float)
    names = sorted(first.index, key=lambda name: (name == "overall", -first[name]))
    axis = _axes(ax, (8.0, 1.6 + 0.36 * len(names)))
    axis.axvline(50, color="#999999", linewidth=1, linestyle=":", label="chance")
    looks = [
        style(number) | {"color": COLOURS[(1 - number) % len(COLOURS)], "linestyle": "none"}
        for number in range(len(models) + len(others or {}))
    ]
    for number, (label, part) in enumerate(models.items()):
        places = np.arange(len(names)) + 0.16 * (number - (len(models) - 1) / 2)
        columns = part[["accuracy", "lower", "upper"]].astype(float).reindex(names)
        accuracy, lower, upper = 100 * columns.to_numpy().T
        axis.hlines(places, lower, upper, color=looks[number]["color"], linewidth=1.6, zorder=2)
        axis.plot(accuracy, places, label=label, markersize=8, zorder=3, **looks[number])
    for look, (label, known) in zip(looks[len(models) :], (others or {}).items(), strict=True):
        values = [100 * known.get(name, np.nan) for name in names]
        axis.plot(values, range(len(names)), label=label, markerfacecolor="none", **look)
    axis.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axis.invert_yaxis()
    axis.axhline(len(names) - 1.5, color="#BBBBBB", linewidth=0.8)
    axis.set(xlim=(0, 102), xlabel="pairs chosen rightly (%), ties counting half")
    axis.set_title("BLiMP by phenomenon", loc="left")
    return axis


def plot_surprisal(
    tables: pd.DataFrame | Mapping[str, pd.DataFrame], *, ax: Axes | None = None
) -> Axes:
    """Surprisal in bits, word by word, as bars: of one model, or of several beside each other.

    ``tables`` is what `LanguageModel.surprisal` gives, or such tables of the same text by the name
    of the model. Dotted lines part sentences.

    >>> from esnlm import LanguageModel
    >>> model = LanguageModel(random_state=0).fit(["the boy sees the dog"] * 5)
    >>> plot_surprisal(model.surprisal("the boy sees the dog")).get_ylabel()
    'surprisal, bits'
    """
    named = tables if isinstance(tables, Mapping) else {"": tables}
    words = {name: _table(each, "word", "surprisal_bits") for name, each in named.items()}
    if not words:
        raise ValueError("tables must hold at least one table, got none")
    first = next(iter(words.values()))
    axis = _axes(ax, (max(5.0, 0.5 * len(first) + 1.2), 3.2))
    width = 0.8 / len(words)
    for number, (name, table) in enumerate(words.items()):
        if table["word"].tolist() != first["word"].tolist():
            raise ValueError(f"tables must be of the same words, got others for {name!r}")
        places = np.arange(len(first)) + width * (number - (len(words) - 1) / 2)
        axis.bar(places, table["surprisal_bits"], width, color=COLOURS[number % 8], label=name)
    if {"document", "sentence"} <= set(first):
        begins = first[["document", "sentence"]].ne(first[["document", "sentence"]].shift())
        for place in np.flatnonzero(begins.any(axis=1))[1:]:
            axis.axvline(place - 0.5, color=GREY, linewidth=0.8, linestyle=":")
    axis.set_xticks(range(len(first)), first["word"], rotation=45 if len(first) > 8 else 0)
    axis.set_ylabel("surprisal, bits")
    if len(words) > 1:
        axis.legend(frameon=False)
    return axis


def _axes(ax: Axes | None, size: tuple[float, float] = (6.4, 4.4)) -> Axes:
    """Return the axes that are given, or those of a new figure of pyplot, without frame."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=size, layout="constrained")
        ax.spines[["top", "right"]].set_visible(False)
    return ax


def _table(rows: Rows, *columns: str) -> pd.DataFrame:
    """Rows as a data frame, which has these columns and a row at least."""
    if isinstance(rows, str | Path):
        rows = pd.read_csv(rows)
    table = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    if table.empty:
        raise ValueError("rows must hold at least one row, got none")
    for column in columns:
        if column not in table:
            names = ", ".join(map(str, table.columns))
            raise ValueError(f"rows must have a column {column}, got {names}")
    return table
