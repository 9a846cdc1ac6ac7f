"""Accuracies of other models by phenomenon, from a CSV that the user gives."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.evaluation.minimal_pairs.pairs import PHENOMENA

_NAMES = {
    "5gram": "5-gram",
    "lstm": "LSTM",
    "transformer_xl": "Transformer-XL",
    "gpt2_large": "GPT-2 large",
    "human_individual_agreement": "human",
}
_OVERALL = "overall"

Accuracies = dict[str, float]


def read_published(path: str | Path) -> dict[str, Accuracies]:
    """Model -> phenomenon, or ``"overall"``, -> accuracy in [0, 1].

    Two kinds of file are read. One is the CSV that `tabulate` makes the rows of. The other has the
    columns ``level`` (paradigm, phenomenon, overall), ``linguistics_term`` (the phenomenon) and a
    column of accuracies a model; columns with anything but numbers in [0, 1] are no models. Where
    a model has no figure for a phenomenon or overall, it is the mean over its paradigms.

    Raises
    ------
    ValueError
        The file is of neither kind, or holds no accuracies.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV: {error}") from error
    header = set(rows[0]) if rows else set()
    if {"model", "level", "phenomenon", "accuracy"} <= header:
        models = list(dict.fromkeys(row["model"] for row in rows))
        found = {
            model: _of_column([r for r in rows if r["model"] == model], "accuracy", "phenomenon")
            for model in models
        }
    elif {"level", "linguistics_term"} <= header:
        columns = [c for c in rows[0] if c and c not in ("level", "linguistics_term")]
        found = {_NAMES.get(c, c): _of_column(rows, c, "linguistics_term") for c in columns}
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


def _of_column(rows: Sequence[dict[str, Any]], column: str, term: str) -> Accuracies:
    """Accuracy by phenomenon and overall; nothing where the column is none of accuracies."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if not (row[column] or "").strip():
            continue
        try:
            value = float(row[column])
        except ValueError:
            return {}
        if not 0 <= value <= 1:
            return {}
        phenomenon = PHENOMENA.get(row[term], row[term])
        values.setdefault(row["level"], {}).setdefault(phenomenon, []).append(value)
    paradigms = values.get("paradigm", {})
    made = {phenomenon: float(np.mean(parts)) for phenomenon, parts in paradigms.items()}
    if paradigms:
        made[_OVERALL] = float(np.mean([value for parts in paradigms.values() for value in parts]))
    for level in ("phenomenon", _OVERALL):
        made |= {name: parts[0] for name, parts in values.get(level, {}).items()}
    return made
