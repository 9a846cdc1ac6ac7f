"""Accuracies by paradigm, by phenomenon and overall."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from esnlm.evaluation.minimal_pairs.pairs import Pair
from esnlm.evaluation.minimal_pairs.scores import PairScores

COLUMNS = (
    "model",
    "level",
    "paradigm",
    "field",
    "phenomenon",
    "n_pairs",
    "accuracy",
    "ties",
    "bos",
    "reduction",
)
PAIR_COLUMNS = ("model", "paradigm", "phenomenon", "pair", "good", "bad", "credit")
LEVELS = ("paradigm", "phenomenon", "overall")
_SEVERAL = "all"
_OVERALL = "overall"

Row = dict[str, Any]


def tabulate(pairs: Sequence[Pair], scores: PairScores, model: str) -> list[Row]:
    """Rows of `COLUMNS`: each paradigm, then each phenomenon, then one overall.

    ``accuracy`` is the share of pairs chosen rightly, ties counting half; of a phenomenon and
    overall it is the mean over paradigms. ``ties`` counts pairs. ``bos`` is whether BOS was read
    before each sentence.

    Examples
    --------
    >>> pairs = [Pair("p", "f", "q", str(k), "a", "b") for k in range(4)]
    >>> scores = PairScores(np.array([1.0, 2, 3, 4]), np.array([0.0, 0, 3, 9]), True, "sum")
    >>> [(row["level"], row["accuracy"], row["ties"]) for row in tabulate(pairs, scores, "m")]
    [('paradigm', 0.625, 1), ('phenomenon', 0.625, 1), ('overall', 0.625, 1)]
    """
    members: dict[tuple[str, str, str], list[int]] = {}
    for place, pair in enumerate(pairs):
        members.setdefault((pair.phenomenon, pair.paradigm, pair.field), []).append(place)
    credit, ties = scores.credit, scores.ties
    shared = {"model": model, "bos": scores.bos, "reduction": scores.reduction}
    rows = [
        shared
        | {
            "level": "paradigm",
            "paradigm": paradigm,
            "field": field,
            "phenomenon": phenomenon,
            "n_pairs": len(places),
            "accuracy": float(credit[places].mean()),
            "ties": int(ties[places].sum()),
        }
        for (phenomenon, paradigm, field), places in sorted(members.items())
    ]
    for phenomenon in dict.fromkeys(row["phenomenon"] for row in rows):
        parts = [r for r in rows if (r["level"], r["phenomenon"]) == ("paradigm", phenomenon)]
        fields = {row["field"] for row in parts}
        field = fields.pop() if len(fields) == 1 else _SEVERAL
        names = {"paradigm": _SEVERAL, "field": field, "phenomenon": phenomenon}
        rows.append(shared | {"level": "phenomenon"} | names | _together(parts))
    names = dict.fromkeys(("level", "paradigm", "field", "phenomenon"), _OVERALL)
    parts = [row for row in rows if row["level"] == "paradigm"]
    rows.append(shared | names | _together(parts))
    return rows


def pair_rows(pairs: Sequence[Pair], scores: PairScores, model: str) -> list[Row]:
    """Rows of `PAIR_COLUMNS`: the log-probabilities of both sentences of each pair."""
    values = zip(pairs, scores.good, scores.bad, scores.credit, strict=True)
    return [
        {
            "model": model,
            "paradigm": pair.paradigm,
            "phenomenon": pair.phenomenon,
            "pair": pair.name,
            "good": float(good),
            "bad": float(bad),
            "credit": float(credit),
        }
        for pair, good, bad, credit in values
    ]


def _together(rows: Sequence[Row]) -> Row:
    """Counts summed, and the mean accuracy of paradigms."""
    return {
        "n_pairs": sum(row["n_pairs"] for row in rows),
        "accuracy": float(np.mean([row["accuracy"] for row in rows])),
        "ties": sum(row["ties"] for row in rows),
    }
