"""How well a model predicts text: by token, word and character, and where."""

from esnlm.evaluation.measures import COLUMNS, Evaluation, Totals, is_shards
from esnlm.evaluation.scored import Scored, scored_shards, scored_texts
from esnlm.evaluation.surprisal import SURPRISAL_COLUMNS, UNITS, SurprisalRows
from esnlm.evaluation.tables import check_csv, csv_aside, write_rows

__all__ = [
    "COLUMNS",
    "SURPRISAL_COLUMNS",
    "UNITS",
    "Evaluation",
    "Scored",
    "SurprisalRows",
    "Totals",
    "check_csv",
    "csv_aside",
    "is_shards",
    "scored_shards",
    "scored_texts",
    "write_rows",
]
