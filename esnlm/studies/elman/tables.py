"""The tables of the Elman experiment as Markdown."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from esnlm.runs.grid import Row
from esnlm.storage.atomic import write_whole
from esnlm.storage.results import markdown_table

_SETTING = ["readout", "features", "n_units"]


def write_summary(rows: Sequence[Row], ngrams: Sequence[Row], path: Path) -> None:
    """Write mean ± standard deviation over seeds, times, and the figures to reach."""
    runs = pd.DataFrame(rows)
    runs["ratio"] = runs["perplexity"] / runs["oracle_perplexity"]
    first = rows[0]
    orders = [
        [order, *(_mean_sd(group[name], 3) for name in ("perplexity", "cosine"))]
        for order, group in pd.DataFrame(ngrams).groupby("order")
    ]
    sections = {
        "Perplexity on the second corpus": _by_size(runs, "perplexity", 3),
        "Perplexity above the oracle, per cent": _table(
            runs, "ratio", lambda ratios: f"{100 * (ratios.mean() - 1):.1f}"
        ),
        "Cosine to the exact distribution, second corpus": _by_size(runs, "cosine", 2),
        "Cosine to the exact distribution, first corpus (training)": _by_size(
            runs, "train_cosine", 2
        ),
        "Perplexity on the first corpus (training)": _by_size(runs, "train_perplexity", 3),
        "Interpolated Kneser-Ney n-grams": markdown_table(
            ["order", "perplexity", "cosine"], orders
        ),
        "Seconds to fit (features, states and readout; one thread)": _by_size(
            runs, "fit_seconds", 1
        ),
        "Trained parameters": _table(runs, "n_parameters", lambda counts: str(counts.iloc[0])),
        "Figures to reach": markdown_table(
            ["figure", "target", "got", "met"], targets(rows, ngrams)
        ),
    }
    lines = [
        "# Elman grammar: results",
        "",
        f"{first['train_sentences']} + {first['test_sentences']} sentences, "
        f"{runs['seed'].nunique()} seeds; mean ± standard deviation over seeds. Oracle perplexity "
        f"{runs['oracle_perplexity'].mean():.3f}. "
        "*F*: dimensions of the word features, 0 for one-hot words.",
        "",
    ]
    for title, table in sections.items():
        lines += [f"## {title}", "", *table, ""]
    write_whole(path, "\n".join(lines))


def targets(rows: Sequence[Row], ngrams: Sequence[Row]) -> list[tuple[str, str, str, str]]:
    """(figure, target, got, met) for those targets whose settings are in the grid.

    Ratios are taken seed by seed and then averaged.
    """
    runs: Any = pd.DataFrame(rows)
    runs["ratio"] = runs["perplexity"] / runs["oracle_perplexity"]
    lowest = runs["ratio"].min()
    found = [("lowest perplexity / oracle, any run", "above 1", lowest, lowest > 1)]
    trigram = {row["seed"]: row["perplexity"] for row in ngrams if row["order"] == 3}
    beside = runs["perplexity"] / runs["seed"].map(trigram).astype(float)
    large = beside[runs["n_units"] >= 100].dropna()
    if len(large):
        worst = large.max()
        name = _name(runs.loc[large.idxmax(), _SETTING])
        what = f"worst run from 100 units / trigram ({name})"
        found.append((what, "below 1", worst, worst < 1))
    means = runs.groupby(_SETTING, sort=False)["ratio"].mean()
    small = means[[(name, n) == ("moe", 25) for name, _, n in means.index]]
    plain = means[[name != "mlp" for name, *_ in means.index]]
    for what, chosen, most in (
        ("mixture, 25 units", small, 1.10),
        ("best setting", means, 1.03),
        ("best setting without a network", plain, 1.10),
    ):
        if len(chosen):
            least = chosen.min()
            what = f"{what} / oracle ({_name(chosen.idxmin())})"
            found.append((what, f"<= {most:.2f}", least, least <= most))
    hundred = runs[runs["n_units"] == 100]
    for features, some in hundred.groupby("features"):
        by_seed = some.pivot(index="seed", columns="readout", values="perplexity")
        if {"softmax", "ridge"} <= set(by_seed):
            gain = (by_seed["softmax"] / by_seed["ridge"]).mean()
            what = f"softmax / ridge, 100 units, F {features}"
            found.append((what, "<= 0.90", gain, gain <= 0.90))
    return [
        (what, target, f"{got:.4f}", "yes" if met else "no") for what, target, got, met in found
    ]


def _name(setting: Sequence[Any]) -> str:
    readout, features, n_units = setting
    return f"{readout}, F {features}, {n_units} units"


def _by_size(runs: pd.DataFrame, column: str, digits: int) -> list[str]:
    return _table(runs, column, lambda values: _mean_sd(values, digits))


def _table(runs: pd.DataFrame, column: str, cell: Callable[[Any], str]) -> list[str]:
    """Return a line for each readout and feature count, a column for each size."""
    cells = runs.groupby(_SETTING, sort=False)[column].agg(cell).unstack(fill_value="", sort=False)
    cells = cells.sort_index(axis="columns")
    header = ["readout", "F", *cells.columns]
    return markdown_table(header, cells.reset_index().itertuples(index=False))


def _mean_sd(values: "pd.Series[float]", digits: int) -> str:
    text = f"{values.mean():.{digits}f}"
    return f"{text} ± {values.std():.{digits}f}" if len(values) > 1 else text
