"""Fit one control, and keep the log-probabilities of every held-out token and of every pair."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.evaluation.measures import Evaluation
from esnlm.evaluation.minimal_pairs.pairs import read_pairs
from esnlm.evaluation.minimal_pairs.scores import score_pairs
from esnlm.runs.subprocess_run import Lifeline
from esnlm.storage.atomic import folder_aside
from esnlm.storage.tensor_file import Arrays, read_tensors, write_tensors
from esnlm.studies import minimal_pairs
from esnlm.studies.shards_run import measured, trained

_FILE = "log_probabilities.safetensors"


def measure(setting: Mapping[str, Any], lifeline: Lifeline) -> dict[str, Any]:
    """Return the measured columns of a run's row; see `esnlm.studies.shards_run.trained`.

    The folder ``scores`` of the setting takes the log-probabilities.
    """
    with trained(setting, lifeline) as (model, cost):
        started = time.perf_counter()
        parts: list[Any] = []
        evaluation = Evaluation([model], ["model"], "line")
        (row,) = evaluation.rows(
            [setting["held_out"]], lambda _, part: parts.append(part.scores[0][part.predicted])
        )
        kept: Arrays = {"tokens": np.concatenate(parts).astype(np.float32)}
        accuracies = dict.fromkeys(minimal_pairs.COLUMNS)
        if setting["blimp"] is not None:
            pairs = read_pairs(setting["blimp"])
            scores = score_pairs(model, pairs)
            kept |= {"good": scores.good, "bad": scores.bad}
            accuracies = minimal_pairs.by_column(pairs, scores)
        with lifeline.defer_exit(), folder_aside(Path(setting["scores"])) as folder:
            write_tensors(folder / _FILE, kept)
        return measured(model, cost) | {
            "nll_per_token": row["nll_per_token"],
            "perplexity": row["perplexity"],
            "n_held_out_tokens": row["n_tokens"],
            **accuracies,
            "score_seconds": round(time.perf_counter() - started, 3),
        }


def log_probabilities(folder: Path) -> Arrays:
    """Return the logs that `measure` saved: ``tokens`` (T,) float32, pairs ``good``, ``bad``.

    Raises ValueError where they are not there any more.
    """
    if not (folder / _FILE).is_file():
        raise ValueError(
            f"{folder} holds no log-probabilities of a run whose row is there: remove the row, and"
            " it is repeated"
        )
    return read_tensors(folder / _FILE)
