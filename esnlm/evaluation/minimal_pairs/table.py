"""Accuracies by paradigm, by phenomenon and overall: of a model, and as others published them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from esnlm.evaluation.bootstrap import N_RESAMPLES, percentile_intervals, resampled_shares
from esnlm.evaluation.minimal_pairs.records import PHENOMENA, Pair
from esnlm.evaluation.minimal_pairs.scores import PairScores
from esnlm.text.stimuli import read_table
from esnlm.utils.arrays import Bools, Floats, Ints64

#: What a tie counts, by the column of accuracies.
TIES = {"accuracy": 0.5, "strict": 0.0, "correct": 1.0}
COLUMNS = (
    "model", "level", "paradigm", "field", "phenomenon", "n_pairs", "accuracy", "ties", "bos",
    "reduction", "strict", "correct", "lower", "upper", "strict_lower", "strict_upper",
    "correct_lower", "correct_upper", "n_paradigms", "subset", "mean_over", "eos",
    "prefix_space",
)  # fmt: skip
PAIR_COLUMNS = (
    "model", "paradigm", "phenomenon", "pair", "good", "bad", "credit", "sentence_good",
    "sentence_bad",
)  # fmt: skip
SUBSET = "subset"
#: Options of scoring, beside figures that depend on them.
HOW = ("bos", "eos", "reduction", "prefix_space")
#: Pairs of a paradigm, on average, below which a bootstrap over them says too little.
FEWEST_PAIRS = 10
_OVERALL = "overall"
_SEVERAL = "all"
#: What columns of published tables call a model -> what plots call it.
_NAMES = {
    "5gram": "5-gram", "lstm": "LSTM", "transformer_xl": "Transformer-XL",
    "gpt2_large": "GPT-2 large", "human_individual_agreement": "human",
}  # fmt: skip

Row = dict[Any, Any]
Accuracies = dict[str, float]


def tabulate(
    pairs: Sequence[Pair],
    scores: PairScores,
    model: str,
    subsets: Mapping[str, Bools] | None = None,
    *,
    n_resamples: int = N_RESAMPLES,
    random_state: int | None = 0,
) -> list[Row]:
    """Rows of `COLUMNS`: each paradigm, then each phenomenon, parts of the pairs, one overall.

    ``accuracy`` is the share of pairs chosen rightly, ties counting half; ``strict`` counts them as
    wrong, ``correct`` as right. Of a phenomenon and overall they are means over paradigms.
    ``ties`` counts pairs. ``bos`` is whether BOS was read before each sentence.

    ``lower`` and ``upper``, and the same of ``strict`` and ``correct``, are the percentile interval
    (95 %) of a bootstrap over the pairs within each paradigm. It covers which pairs were drawn from
    a paradigm's template; not which paradigms there are, nor another seed or text of training. It
    is None where paradigms have fewer than `FEWEST_PAIRS` pairs on average: of a single pair drawn
    again and again a bootstrap would say that it is certain.

    ``subsets`` are parts of the pairs by name, as `subsets.subsets` finds them: rows of level
    ``subset`` for each phenomenon of a part, and overall. Paradigms without a pair in a part do not
    count there; ``n_paradigms`` are those that do. A part of no pair has no rows. Where paradigms
    have unequal numbers of pairs, the mean over pairs is a row beside (``mean_over``), of level
    ``subset`` too.
    """
    options = {"n_resamples": n_resamples, "random_state": random_state}
    table = pd.DataFrame(list(pairs)).assign(n_pairs=1, right=scores.right, ties=scores.ties)
    *rows, overall = (row | {"subset": _SEVERAL} for row in _summaries(table, **options))
    for name, member in (subsets or {}).items():
        part = _summaries(table[member], **options) if member.any() else []
        here = {"level": SUBSET, "subset": name}
        rows += [row | here for row in part if row["level"] != "paradigm"]
    rows.append(overall)
    shared = {name: getattr(scores, name) for name in HOW}
    shared["model"] = model
    return [{name: (shared | row)[name] for name in COLUMNS} for row in rows]


def _summaries(table: pd.DataFrame, **options: Any) -> list[Row]:
    """Rows of each paradigm, of each phenomenon, and overall, as `tabulate` says."""
    names = ["phenomenon", "paradigm", "field"]
    groups = table.groupby(names, as_index=False)[["n_pairs", "right", "ties"]].sum()
    right, ties, n_pairs = (
        groups[each].to_numpy(dtype=int) for each in ("right", "ties", "n_pairs")
    )
    counts = np.stack([right, ties, n_pairs - right - ties], axis=1)
    resamples = resampled_shares(counts, **options)
    rows = [
        {"level": "paradigm", **group, **_accuracies(counts[[k]], resamples[[k]])}
        for k, group in enumerate(groups.to_dict("records"))
    ]
    for phenomenon, part in groups.groupby("phenomenon"):
        field = part["field"].iloc[0] if part["field"].nunique() == 1 else _SEVERAL
        here = {"level": "phenomenon", "phenomenon": phenomenon, "field": field}
        values = _accuracies(counts[part.index], resamples[part.index])
        rows.append(here | values | {"paradigm": _SEVERAL})
    overall = dict.fromkeys(("level", "phenomenon", "paradigm", "field"), _OVERALL)
    if groups["n_pairs"].nunique() > 1:
        rows.append(overall | _accuracies(counts, resamples, over="pairs") | {"level": SUBSET})
    rows.append(overall | _accuracies(counts, resamples))
    return rows


def _accuracies(counts: Ints64, resamples: Floats, over: str = "paradigms") -> Row:
    """Return sums, and means over paradigms or pairs by what a tie counts, with intervals.

    ``counts`` (n_paradigms, 3) of right pairs, ties and wrong ones; ``drawn`` (n_paradigms,
    n_resamples, 3) are shares of them.
    """
    sizes = counts.sum(axis=1)
    sums = {"n_pairs": int(sizes.sum()), "ties": int(counts[:, 1].sum())}
    row: Row = {"n_paradigms": len(counts), "mean_over": over, **sums}
    are_few = sizes.mean() < FEWEST_PAIRS
    weights = sizes if over == "pairs" else None
    for name, tie in TIES.items():
        credit, start = np.array([1.0, tie, 0.0]), "" if name == "accuracy" else f"{name}_"
        row[name] = float(np.average(counts @ credit / sizes, weights=weights))
        resampled = np.average(resamples @ credit, axis=0, weights=weights)
        bounds = percentile_intervals(resampled[:, None])[0].tolist()
        if are_few:
            bounds = [None, None]
        row[f"{start}lower"], row[f"{start}upper"] = bounds
    return row


def pair_rows(pairs: Sequence[Pair], scores: PairScores, model: str) -> list[Row]:
    """Rows of `PAIR_COLUMNS`: both sentences of each pair, and their log-probabilities."""
    columns = {"name": "pair", "good": "sentence_good", "bad": "sentence_bad"}
    rows = pd.DataFrame(list(pairs)).rename(columns=columns)
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
    table = read_table(path).fillna("")
    if {"model", "level", "phenomenon", "accuracy"} <= set(table.columns):
        groups = table.groupby("model", sort=False)
        models = {
            str(model): _of_phenomena(rows, "accuracy", "phenomenon") for model, rows in groups
        }
    elif {"level", "linguistics_term"} <= set(table.columns):
        others = table.columns.drop(["level", "linguistics_term"])
        names = [name for name in others if not name.startswith("Unnamed:")]
        models = {_NAMES.get(n, n): _of_phenomena(table, n, "linguistics_term") for n in names}
    else:
        raise ValueError(
            f"{path} holds no published accuracies: expected the columns level and"
            " linguistics_term with one of accuracies for each model, or a CSV that"
            " `esnlm blimp` wrote"
        )
    models = {name: accuracies for name, accuracies in models.items() if accuracies}
    if not models:
        raise ValueError(f"{path} holds no published accuracies: no column of numbers in [0, 1]")
    return models


def _of_phenomena(table: pd.DataFrame, column: str, term: str) -> Accuracies:
    """Accuracy by phenomenon and overall; nothing unless the column holds accuracies."""
    try:
        values = table.loc[table[column].str.strip() != "", column].astype(float)
    except ValueError:
        return {}
    if not values.between(0, 1).all():
        return {}
    phenomena = table[term].replace(PHENOMENA)
    at = {level: values[table["level"] == level] for level in ("paradigm", "phenomenon", _OVERALL)}
    accuracies = at["paradigm"].groupby(phenomena).agg(_mean).to_dict()
    if len(at["paradigm"]):
        accuracies[_OVERALL] = _mean(at["paradigm"])
    for level in ("phenomenon", _OVERALL):
        accuracies |= at[level].groupby(phenomena).first().to_dict()
    return {str(name): float(value) for name, value in accuracies.items()}


def _mean(values: Any) -> float:
    return float(np.mean(values.to_numpy()))  # summed as numpy does, whatever pandas does
