"""How well a model predicts text: by token, word and character, and where."""

from esnlm.evaluation.measures import COLUMNS, Evaluation, Totals, is_shards
from esnlm.evaluation.surprisal import SURPRISAL_COLUMNS, UNITS, SurprisalRows
from esnlm.evaluation.text_parts import Scored, scored_shards, scored_texts

__all__ = [
    "COLUMNS",
    "SURPRISAL_COLUMNS",
    "UNITS",
    "Evaluation",
    "Scored",
    "SurprisalRows",
    "Totals",
    "is_shards",
    "scored_shards",
    "scored_texts",
]
