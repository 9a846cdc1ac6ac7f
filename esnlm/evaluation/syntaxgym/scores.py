"""Surprisals of the regions of test suites, accuracies, and those that others published."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from esnlm.evaluation.bootstrap import N_RESAMPLES, percentile_intervals, resampled_shares
from esnlm.evaluation.minimal_pairs.scores import frame, token_log_likelihoods
from esnlm.evaluation.syntaxgym.formulas import Region
from esnlm.evaluation.syntaxgym.suites import Suite
from esnlm.storage.atomic import naming
from esnlm.text.boundaries import needed
from esnlm.text.stimuli import read_table
from esnlm.utils.arrays import Floats

COLUMNS = (
    "model", "level", "suite", "prediction", "n_suites", "n_items", "accuracy", "lower", "upper",
)  # fmt: skip
REGION_COLUMNS = (
    "model", "suite", "item", "condition", "region", "content", "surprisal_bits",
)  # fmt: skip
#: Items of a suite that the mean over suites takes.
FEWEST_ITEMS = 10
OVERALL = "overall"
_MODEL = ("model", "model_corpus")

Row = dict[str, Any]


def region_surprisals(
    model: Any, suites: Sequence[Suite], *, verbose: bool = False
) -> list[dict[Region, Floats]]:
    """Return, for each suite, the bits (n_items,) of each region of each condition.

    A sentence is the texts of its regions with a space between. A region's bits are the sum over
    the tokens that begin in it or at the space before it: 0 where it is empty. BOS comes first
    unless the model has none, and the end of the sentence is not scored.
    """
    sentences = [regions for _, _, regions in _sentences(suites)]
    texts = [" ".join(filter(None, regions.values())) for regions in sentences]
    encodings = needed(model.tokenizer_).backend.encode_batch(texts, add_special_tokens=False)
    ids = [frame(model, encoding.ids) for encoding in encodings]
    scores = dict(token_log_likelihoods(model, ids, verbose=verbose))
    tables: list[dict[Region, Floats]] = [{} for _ in suites]
    places = [(place, i, condition) for (place, i), condition, _ in _sentences(suites)]
    for (place, i, condition), regions, encoding, key in zip(
        places, sentences, encodings, ids, strict=True
    ):
        starts = [start for start, _ in encoding.offsets]
        bits = scores.get(key, np.zeros(0))[-len(starts) :] / -log(2)
        bits = np.append(np.zeros(len(starts) - len(bits)), bits)
        for number, total in zip(regions, _totals(regions, starts, bits), strict=True):
            n_items = len(suites[place].items)
            tables[place].setdefault((number, condition), np.zeros(n_items))[i] = total
    return tables


def _sentences(
    suites: Sequence[Suite],
) -> Iterator[tuple[tuple[int, int], str, Mapping[int, str]]]:
    """Yield the places of suite and item, the condition, and the regions of each sentence."""
    for place, suite in enumerate(suites):
        for i, item in enumerate(suite.items):
            for condition, regions in item.conditions.items():
                yield (place, i), condition, regions


def _totals(regions: Mapping[int, str], starts: Sequence[int], bits: Floats) -> list[float]:
    """Return the bits of each region, of tokens (n,) by where they start in the sentence."""
    lengths = np.array([len(text) for text in regions.values()])
    # An empty region has no space before it, and ends where the one before it does.
    ends = np.cumsum(lengths + (lengths > 0)) - 1
    owners = np.minimum(np.searchsorted(ends, starts, side="right"), len(ends) - 1)
    totals: list[float] = np.bincount(owners, weights=bits, minlength=len(ends)).tolist()
    return totals


def tabulate(
    suites: Sequence[Suite], surprisals: Sequence[Mapping[Region, Floats]], model: str
) -> list[Row]:
    """Rows of `COLUMNS`: each prediction of each suite, and overall.

    ``accuracy`` is the share of items for which a prediction holds. Overall it is the mean over
    suites of their first prediction, as the published figures are, of suites with `FEWEST_ITEMS`
    items or more. ``lower`` and ``upper`` are the percentile interval (95 %) of a bootstrap over
    the items of each suite.
    """
    rows, counts = [], []
    for suite, bits in zip(suites, surprisals, strict=True):
        for number, formula in enumerate(suite.formulas, start=1):
            holds = formula.holds(bits)
            n_items = len(suite.items)
            row = {"level": "suite", "suite": suite.name, "prediction": number, "n_suites": 1}
            rows.append({**row, "n_items": n_items, "accuracy": float(np.mean(holds))})
            if number == 1 and n_items >= FEWEST_ITEMS:
                counts.append((int(holds.sum()), n_items - int(holds.sum())))
    if counts:
        table = np.array(counts)
        means = resampled_shares(table, N_RESAMPLES, 0)[:, :, :1].mean(axis=0)
        lower, upper = percentile_intervals(means)[0].tolist()
        accuracy = float(np.mean(table[:, 0] / table.sum(axis=1)))
        overall = {"level": OVERALL, "suite": OVERALL, "prediction": 1, "n_suites": len(counts)}
        bounds = {"accuracy": accuracy, "lower": lower, "upper": upper}
        rows.append({**overall, "n_items": int(table.sum()), **bounds})
    return [{"model": model, **row} for row in rows]


def region_rows(
    suites: Sequence[Suite], surprisals: Sequence[Mapping[Region, Floats]], model: str
) -> Iterator[Row]:
    """Rows of `REGION_COLUMNS`: the text and surprisal of each region."""
    for (place, i), condition, regions in _sentences(suites):
        suite = suites[place]
        for number, content in regions.items():
            bits = float(surprisals[place][number, condition][i])
            values = model, suite.name, suite.items[i].number, condition, number, content, bits
            yield dict(zip(REGION_COLUMNS, values, strict=True))


def is_published(path: Path) -> bool:
    """Whether a file is a CSV of accuracies, and not one of `COLUMNS`."""
    try:
        with naming(path), path.open(newline="", encoding="utf-8-sig") as file:
            head = set(next(csv.reader(file), []))
    except (UnicodeDecodeError, csv.Error):
        return False
    return {"suite", "accuracy"} <= head and bool({*_MODEL} & head) and "prediction" not in head


def read_published(path: str | Path, suites: Sequence[Suite]) -> dict[str, dict[str, float]]:
    """Model -> suite -> accuracy in [0, 1], and the mean of them as `tabulate` takes it.

    The CSV has the columns ``model`` (or ``model_corpus``), ``suite`` and ``accuracy``, or is one
    that `esnlm syntaxgym` wrote. Raises ValueError where it is neither. A model without one of the
    suites that count has no mean.
    """
    expectation = "expected the columns model, suite and accuracy, or a CSV of `esnlm syntaxgym`"
    table = read_table(path)
    name = next((name for name in _MODEL if name in table), None)
    if name is None or not {"suite", "accuracy"} <= set(table.columns):
        raise ValueError(f"{path} has no accuracies of suites: {expectation}")
    if {"prediction", "level"} <= set(table.columns):
        first = pd.to_numeric(table["prediction"], errors="coerce") == 1
        table = table[first & (table["level"] == "suite")]
    accuracies = pd.to_numeric(table["accuracy"], errors="coerce")
    if not accuracies.between(0, 1).all():
        raise ValueError(f"{path} has accuracies that are no numbers in [0, 1]")
    models: dict[str, dict[str, float]] = {}
    for model, suite, accuracy in zip(table[name], table["suite"], accuracies, strict=True):
        models.setdefault(str(model), {})[str(suite)] = float(accuracy)
    of_mean = [suite.name for suite in suites if len(suite.items) >= FEWEST_ITEMS]
    for values in models.values():
        if of_mean and values.keys() >= set(of_mean):
            values[OVERALL] = float(np.mean([values[suite] for suite in of_mean]))
    return models
