"""Fit and score one model of the study on natural language."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from esnlm.evaluation.measures import Evaluation
from esnlm.runs.subprocess_run import Lifeline
from esnlm.storage.atomic import folder_aside
from esnlm.studies.minimal_pairs import accuracies
from esnlm.studies.shards_run import measured, trained


def measure(setting: Mapping[str, Any], lifeline: Lifeline) -> dict[str, Any]:
    """Return the measured columns of a run's row; see `trained` for the setting."""
    with trained(setting, lifeline) as (model, cost):
        started = time.perf_counter()
        (row,) = Evaluation([model], ["model"], "line").rows([setting["held_out"]])
        scored = {
            "nll_per_token": row["nll_per_token"],
            "perplexity": row["perplexity"],
            "n_held_out_tokens": row["n_tokens"],
            **accuracies(model, setting["blimp"]),
            "score_seconds": round(time.perf_counter() - started, 3),
        }
        if setting["keep"] is not None:
            with lifeline.defer_exit(), folder_aside(Path(setting["keep"])) as kept:
                shutil.copytree(Path(setting["folder"]) / "model", kept, dirs_exist_ok=True)
        return scored | measured(model, cost)
