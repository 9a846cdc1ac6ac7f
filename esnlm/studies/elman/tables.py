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
    """Write means and standard deviations over seeds, and times, as Markdown."""
    runs = pd.DataFrame(rows)
    runs["ratio"] = runs["perplexity"] / runs["oracle_perplexity"]
    first = rows[0]
    orders = [
        [order, *(_mean_sd(3)(group[name]) for name in ("perplexity", "cosine"))]
        for order, group in pd.DataFrame(ngrams).groupby("order")
    ]
    sections = {
        "Perplexity on the second corpus": _table(runs, "perplexity", _mean_sd(3)),
        "Perplexity above the oracle, per cent": _table(
            runs, "ratio", lambda ratios: f"{100 * (ratios.mean() - 1):.1f}"
        ),
        "Cosine to the exact distribution, second corpus": _table(runs, "cosine", _mean_sd(2)),
        "Cosine to the exact distribution, first corpus (training)": _table(
            runs, "train_cosine", _mean_sd(2)
        ),
        "Perplexity on the first corpus (training)": _table(runs, "train_perplexity", _mean_sd(3)),
        "Interpolated Kneser-Ney n-grams": markdown_table(
            ["order", "perplexity", "cosine"], orders
        ),
        "Seconds to fit (features, states and readout; one thread)": _table(
            runs, "fit_seconds", _mean_sd(1)
        ),
        "Trained parameters": _table(runs, "n_parameters", lambda counts: str(counts.iloc[0])),
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


def _table(runs: pd.DataFrame, column: str, cell: Callable[[Any], str]) -> list[str]:
    """Return a line for each readout and feature count, a column for each size."""
    cells = runs.groupby(_SETTING, sort=False)[column].agg(cell).unstack(fill_value="", sort=False)
    cells = cells.sort_index(axis="columns")
    header = ["readout", "F", *cells.columns]
    return markdown_table(header, cells.reset_index().itertuples(index=False))


def _mean_sd(digits: int) -> Callable[[Any], str]:
    """Return what writes the mean of values, and their deviation if they are several."""

    def written(values: Any) -> str:
        text = f"{values.mean():.{digits}f}"
        return f"{text} ± {values.std():.{digits}f}" if len(values) > 1 else text

    return written
