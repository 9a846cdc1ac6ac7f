"""Minimal pairs in experiments: accuracies as columns of a row, and their plot by phenomenon."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from esnlm.evaluation.minimal_pairs.pairs import Pair
    from esnlm.evaluation.minimal_pairs.scores import PairScores

PHENOMENA = (
    "anaphor_agreement", "argument_structure", "binding", "control_raising",
    "determiner_noun_agreement", "ellipsis", "filler_gap_dependency", "irregular_forms",
    "island_effects", "npi_licensing", "quantifiers", "subject_verb_agreement",
)  # fmt: skip
COLUMNS = ("blimp", *(f"blimp_{name}" for name in PHENOMENA))


def accuracies(model: Any, data: str | Path | None) -> dict[str, float | None]:
    """Accuracies in [0, 1] by column, overall and of each phenomenon; None where there is no data.

    Phenomena that are not BLiMP's have no column.
    """
    from esnlm.evaluation.minimal_pairs.pairs import read_pairs
    from esnlm.evaluation.minimal_pairs.scores import score_pairs

    if data is None:
        return dict.fromkeys(COLUMNS)
    pairs = read_pairs(data)
    return by_column(pairs, score_pairs(model, pairs))


def by_column(pairs: "Sequence[Pair]", scores: "PairScores") -> dict[str, float | None]:
    """Accuracies as `accuracies` gives them, of pairs that are scored already."""
    from esnlm.evaluation.minimal_pairs.table import tabulate

    shares: dict[str, float | None] = dict.fromkeys(COLUMNS)
    names = dict(zip(("overall", *PHENOMENA), COLUMNS, strict=True))
    for row in tabulate(pairs, scores, "model", n_resamples=1):
        if row["level"] in ("phenomenon", "overall") and row["phenomenon"] in names:
            shares[names[row["phenomenon"]]] = row["accuracy"]
    return shares


def digest(data: str | Path | None) -> str | None:
    """SHA-256 of the pairs, shared by rows that judged the same ones."""
    from esnlm.evaluation.minimal_pairs.pairs import read_pairs

    if data is None:
        return None
    pairs = [(p.paradigm, p.phenomenon, p.name, p.good, p.bad) for p in read_pairs(data)]
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


def plot_accuracies(
    rows: Sequence[Mapping[str, Any]], others: Mapping[str, Mapping[str, float]], path: Path
) -> None:
    """Write `plot_blimp` of the rows of `tabulate`; ``others`` are as `read_published` has them."""
    from esnlm.plots.figures import panels, save
    from esnlm.plots.plotting import plot_blimp

    n_lines = sum(row["level"] in ("phenomenon", "overall") for row in rows)
    figure, (axis,) = panels(1, size=(8.0, 1.6 + 0.36 * n_lines))
    plot_blimp(rows, others=others, ax=axis)
    save(figure, path, legend_of=axis, n_columns=3)
