"""Minimal pairs as columns of an experiment's rows: accuracy overall and by phenomenon."""

import hashlib
import json
from pathlib import Path
from typing import Any

from esnlm.evaluation.minimal_pairs.pairs import read_pairs
from esnlm.evaluation.minimal_pairs.scores import score_pairs
from esnlm.evaluation.minimal_pairs.table import tabulate

PHENOMENA = (
    "anaphor_agreement",
    "argument_structure",
    "binding",
    "control_raising",
    "determiner_noun_agreement",
    "ellipsis",
    "filler_gap_dependency",
    "irregular_forms",
    "island_effects",
    "npi_licensing",
    "quantifiers",
    "subject_verb_agreement",
)
COLUMNS = ("blimp", *(f"blimp_{name}" for name in PHENOMENA))


def accuracies(model: Any, data: str | Path | None) -> dict[str, float]:
    """Accuracies in [0, 1] by column: ``blimp`` overall, one of each phenomenon; none of no data.

    Phenomena that are not BLiMP's have no column.
    """
    if data is None:
        return {}
    pairs = read_pairs(data)
    found = {}
    for row in tabulate(pairs, score_pairs(model, pairs), "model"):
        if row["level"] == "overall":
            found["blimp"] = row["accuracy"]
        elif row["level"] == "phenomenon":
            found[f"blimp_{row['phenomenon']}"] = row["accuracy"]
    return found


def digest(data: str | Path | None) -> str | None:
    """SHA-256 of the pairs: what rows that judged the same ones share."""
    if data is None:
        return None
    pairs = [(p.paradigm, p.phenomenon, p.name, p.good, p.bad) for p in read_pairs(data)]
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()
