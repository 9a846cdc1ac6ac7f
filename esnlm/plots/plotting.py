"""Plots of results and models on matplotlib's axes: given ones, or those of a new figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from sklearn.decomposition import PCA

from esnlm.plots.figures import COLOURS, band, levels, note, sizes_axis, style
from esnlm.utils.arrays import Array

#: Rows of a table: a data frame, mappings, or the CSV that holds them.
Rows = pd.DataFrame | Sequence[Mapping[str, Any]] | str | Path
#: Words of a sentence that a row of a figure has at most.
_WORDS_A_LINE = 14


def plot_perplexity_by_size(
    rows: Rows,
    *,
    by: str | None = "readout",
    reference: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot perplexity against the size of the reservoir: means over runs, their ranges as bands.

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
    """Plot states (n, n_units) in the plane of their first two principal components.

    ``words`` (n,) are written beside their points, which a line joins in order: the path of the
    state along a sentence. ``groups`` (n,) give each point the colour of its group.

    >>> from esnlm import Reservoir
    >>> states = Reservoir(50, random_state=0).transform([0, 1, 2, 1])
    >>> plot_states(states, words=["boys", "see", "dogs", "see"]).get_xlabel()
    'first component (54% of variance)'
    """
    points, shares = principal_components(np.asarray(states))
    for name, labels in (("words", words), ("groups", groups)):
        if labels is not None and len(labels) != len(points):
            raise ValueError(
                f"{name} must be one for each of {len(points)} states, got {len(labels)}"
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
    """Plot accuracy on minimal pairs by phenomenon, with intervals; ties count half.

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
    for look, (label, accuracies) in zip(looks[len(models) :], (others or {}).items(), strict=True):
        values = [100 * accuracies.get(name, np.nan) for name in names]
        axis.plot(values, range(len(names)), label=label, markerfacecolor="none", **look)
    axis.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axis.invert_yaxis()
    axis.axhline(len(names) - 1.5, color="#BBBBBB", linewidth=0.8)
    axis.set(xlim=(0, 102), xlabel="pairs chosen rightly (%), ties counting half")
    axis.set_title("BLiMP by phenomenon", loc="left")
    return axis


def plot_surprisal(
    tables: pd.DataFrame | Mapping[str, pd.DataFrame] | str | Path, *, ax: Axes | None = None
) -> Axes:
    """Plot surprisal in bits, word by word: a row of axes a sentence, a line a model.

    ``tables`` is what `LanguageModel.surprisal` gives, the CSV of ``esnlm evaluate
    --surprisal-csv`` (or its table), which may hold several models, or tables of the same text by
    the name of the model. Sentences of more than 14 words are wrapped. Returns the first axes of
    the figure, or ``ax``, which has all words in one row.

    >>> from esnlm import LanguageModel
    >>> model = LanguageModel(random_state=0).fit(["the boy sees the dog"] * 5)
    >>> plot_surprisal(model.surprisal("the boy sees the dog")).get_ylabel()
    'surprisal, bits'
    """
    models = _words_by_model(tables)
    first = next(iter(models.values()))
    for name, table in models.items():
        if table["word"].tolist() != first["word"].tolist():
            raise ValueError(f"tables must be of the same words, got others for {name!r}")
    lines = [np.arange(len(first))] if ax is not None else _sentences(first)
    across = max(map(len, lines)) * max(0.6, 0.1 * max(map(len, first["word"])) + 0.1)
    axes = _rows_of_axes(len(lines), across) if ax is None else [ax]
    for axis, line in zip(axes, lines, strict=True):
        for number, (name, table) in enumerate(models.items()):
            bits = table["surprisal_bits"].astype(float).to_numpy()[line]
            axis.plot(range(len(line)), bits, label=name, markersize=5, **style(number))
        axis.set_xlim(-0.5, max(map(len, lines)) - 0.5)
        axis.set_xticks(range(len(line)), first["word"].iloc[line], parse_math=False)
        axis.tick_params(axis="x", rotation=0 if len(line) <= _WORDS_A_LINE else 45)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#DDDDDD", linewidth=0.6)
        axis.set_ylabel("surprisal, bits")
    axes[0].set_ylim(bottom=min(0.0, axes[0].get_ylim()[0]))
    if len(models) > 1:
        axes[0].legend(frameon=False, fontsize=8)
    return axes[0]


def _rows_of_axes(n_rows: int, across: float) -> list[Axes]:
    """Return axes below each other, so many inches across."""
    import matplotlib.pyplot as plt

    size = max(5.0, across + 1.2), 1.9 * n_rows + 0.8
    _, axes = plt.subplots(n_rows, figsize=size, layout="constrained", sharey=True, squeeze=False)
    return list(axes[:, 0])


def _words_by_model(tables: Any) -> dict[str, pd.DataFrame]:
    """Return the rows of words, without ends of sentences, by the name of the model."""
    if isinstance(tables, Mapping):
        named = dict(tables)
    else:
        if isinstance(tables, str | Path):  # words such as "null" are no missing values
            tables = pd.read_csv(tables, keep_default_na=False)
        several = isinstance(tables, pd.DataFrame) and "model" in tables
        named = dict(list(tables.groupby("model", sort=False))) if several else {"": tables}
    if not named:
        raise ValueError("tables must hold at least one table, got none")
    words = {str(name): _table(table, "word", "surprisal_bits") for name, table in named.items()}
    return {
        name: table[table["length"].astype(str).ne("")] if "length" in table else table
        for name, table in words.items()
    }


def _sentences(table: pd.DataFrame) -> list[Array]:
    """Return the rows of each sentence, in parts of at most `_WORDS_A_LINE`."""
    places = [name for name in ("text", "document", "sentence") if name in table]
    groups: Any = [np.arange(len(table))]
    if places:
        groups = table.groupby(places, sort=False).indices.values()
    lines = []
    for rows in groups:
        n_lines = -(-len(rows) // _WORDS_A_LINE)
        lines += np.array_split(np.sort(rows), n_lines)
    return lines


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
        # Only these are missing: a model may be called NA or null.
        rows = pd.read_csv(rows, keep_default_na=False, na_values=["", "nan"])
    if not isinstance(rows, pd.DataFrame):
        rows = list(rows)
        if not all(isinstance(row, Mapping) for row in rows):
            raise ValueError(
                "rows must be one table, mappings or a CSV, got a list of"
                f" {type(rows[0]).__name__}: join tables by pandas.concat, or give those of"
                " plot_surprisal by the name of the model"
            )
        rows = pd.DataFrame(rows)
    table = rows
    if table.empty:
        raise ValueError("rows must hold at least one row, got none")
    for column in columns:
        if column not in table:
            names = ", ".join(map(str, table.columns))
            raise ValueError(f"rows must have a column {column}, got {names}")
    return table
