"""Accuracies by paradigm, by phenomenon and overall: of a model, and as others published them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from esnlm.evaluation.minimal_pairs.pairs import PHENOMENA, Pair
from esnlm.evaluation.minimal_pairs.scores import PairScores

COLUMNS = (
    "model", "level", "paradigm", "field", "phenomenon", "n_pairs", "accuracy", "ties", "bos",
    "reduction",
)  # fmt: skip
PAIR_COLUMNS = ("model", "paradigm", "phenomenon", "pair", "good", "bad", "credit")
_OVERALL = "overall"
_SEVERAL = "all"
#: What columns of published tables call a model -> what plots call it.
_NAMES = {
    "5gram": "5-gram", "lstm": "LSTM", "transformer_xl": "Transformer-XL",
    "gpt2_large": "GPT-2 large", "human_individual_agreement": "human",
}  # fmt: skip

Row = dict[Any, Any]
Accuracies = dict[str, float]


def tabulate(pairs: Sequence[Pair], scores: PairScores, model: str) -> list[Row]:
    """Rows of `COLUMNS`: each paradigm, then each phenomenon, then one overall.

    ``accuracy`` is the share of pairs chosen rightly, ties counting half; of a phenomenon and
    overall it is the mean over paradigms. ``ties`` counts pairs. ``bos`` is whether BOS was read
    before each sentence.
    """
    sums: Any = {"n_pairs": "sum", "accuracy": _mean, "ties": "sum"}
    table = pd.DataFrame(list(pairs)).assign(n_pairs=1, accuracy=scores.credit, ties=scores.ties)
    paradigms = table.groupby(["phenomenon", "paradigm", "field"], as_index=False).agg(sums)
    phenomena = paradigms.groupby("phenomenon", as_index=False).agg(sums | {"field": _common})
    overall = paradigms.assign(phenomenon=_OVERALL).groupby("phenomenon", as_index=False).agg(sums)
    levels = (
        paradigms.assign(level="paradigm"),
        phenomena.assign(level="phenomenon", paradigm=_SEVERAL),
        overall.assign(level=_OVERALL, paradigm=_OVERALL, field=_OVERALL),
    )
    rows = pd.concat(levels).assign(model=model, bos=scores.bos, reduction=scores.reduction)
    return rows[list(COLUMNS)].to_dict("records")


def pair_rows(pairs: Sequence[Pair], scores: PairScores, model: str) -> list[Row]:
    """Rows of `PAIR_COLUMNS`: the log-probabilities of both sentences of each pair."""
    rows = pd.DataFrame(list(pairs)).rename(columns={"name": "pair"})
    rows = rows.assign(model=model, good=scores.good, bad=scores.bad, credit=scores.credit)
    return rows[list(PAIR_COLUMNS)].to_dict("records")


def read_published(path: str | Path) -> dict[str, Accuracies]:
    """Model -> phenomenon, or ``"overall"``, -> accuracy in [0, 1].

    Two kinds of CSV are read. One holds the rows of `tabulate`. The other has the columns
    ``level`` (paradigm, phenomenon, overall), ``linguistics_term`` (the phenomenon) and a column
    of accuracies for each model; columns with anything but numbers in [0, 1] are no models. Where
    a model has no figure for a phenomenon or overall, it is the mean over its paradigms. Raises
    ValueError where the file is of neither kind, or holds no accuracies.
    """
    try:
        table = pd.read_csv(path, dtype=str, index_col=False, keep_default_na=False).fillna("")
    except pd.errors.EmptyDataError:
        table = pd.DataFrame()
    except (UnicodeDecodeError, pd.errors.ParserError) as error:
        raise ValueError(f"{path} is not a CSV: {str(error).strip()}") from error
    if {"model", "level", "phenomenon", "accuracy"} <= set(table.columns):
        groups = table.groupby("model", sort=False)
        found = {str(model): _accuracies(rows, "accuracy", "phenomenon") for model, rows in groups}
    elif {"level", "linguistics_term"} <= set(table.columns):
        others = table.columns.drop(["level", "linguistics_term"])
        names = [name for name in others if not name.startswith("Unnamed:")]
        found = {_NAMES.get(n, n): _accuracies(table, n, "linguistics_term") for n in names}
    else:
        raise ValueError(
            f"{path} holds no published accuracies: expected the columns level and"
            " linguistics_term with one of accuracies for each model, or a CSV that"
            " `esnlm blimp --csv` wrote"
        )
    found = {name: accuracies for name, accuracies in found.items() if accuracies}
    if not found:
        raise ValueError(f"{path} holds no published accuracies: no column of numbers in [0, 1]")
    return found


def _accuracies(table: pd.DataFrame, column: str, term: str) -> Accuracies:
    """Accuracy by phenomenon and overall; nothing unless the column holds accuracies."""
    try:
        values = table.loc[table[column].str.strip() != "", column].astype(float)
    except ValueError:
        return {}
    if not values.between(0, 1).all():
        return {}
    phenomena = table[term].replace(PHENOMENA)
    at = {level: values[table["level"] == level] for level in ("paradigm", "phenomenon", _OVERALL)}
    found = at["paradigm"].groupby(phenomena).agg(_mean).to_dict()
    if len(at["paradigm"]):
        found[_OVERALL] = _mean(at["paradigm"])
    for level in ("phenomenon", _OVERALL):
        found |= at[level].groupby(phenomena).first().to_dict()
    return {str(name): float(value) for name, value in found.items()}


def _mean(values: Any) -> float:
    return float(np.mean(values.to_numpy()))  # summed as numpy does, whatever pandas does


def _common(values: Any) -> str:
    """The value that all have, or "all"."""
    return str(values.iloc[0]) if values.nunique() == 1 else _SEVERAL
