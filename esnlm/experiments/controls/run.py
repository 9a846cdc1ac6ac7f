"""Fit one control, and keep the log-probabilities of every held-out token and of every pair."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esnlm.evaluation.measures import Evaluation
from esnlm.evaluation.minimal_pairs.pairs import read_pairs
from esnlm.evaluation.minimal_pairs.scores import score_pairs
from esnlm.experiments.common import minimal_pairs
from esnlm.experiments.common.subprocess_run import Lifeline
from esnlm.experiments.natural.run import measured, trained
from esnlm.storage.atomic import folder_aside
from esnlm.storage.tensor_file import Arrays, read_tensors, write_tensors

#: The control in which all is as it is given.
FULL = "full"
_FILE = "log_probabilities.safetensors"


class Control(NamedTuple):
    """What differs from the full model: parameters of the reservoir, and of the readout.

    ``leak`` None is the full model's law. ``coupled``: the topology matters. ``direct``: it tells
    of direct connections. ``against`` are the controls that it is compared with.
    """

    says: str
    weights: Mapping[str, Any]
    leak: str | None = None
    readout: Mapping[str, Any] = {}
    coupled: bool = False
    direct: bool = False
    against: tuple[str, ...] = (FULL,)


_UNCOUPLED = {"spectral_radius": 0.0}
#: Controls by name, in the order of tables.
CONTROLS = {
    FULL: Control("as the options say", {}, coupled=True, against=()),
    "uncoupled": Control("radius 0 with leak: traces of each input, no coupling", _UNCOUPLED),
    "last_token": Control("radius 0, leak 1: the state of the last token", _UNCOUPLED, "1"),
    "direct_alone": Control(
        "states of zero: the readout reads the last tokens alone",
        {"spectral_radius": 0.0, "input_scaling": 0.0, "bias_scaling": 0.0},
        "1",
        direct=True,
        against=(FULL, "no_direct"),
    ),
    "no_direct": Control("no direct connections", {}, None, {"direct": 0}, True, True),
    "no_direct_uncoupled": Control(
        "no direct connections, radius 0 with leak",
        _UNCOUPLED,
        None,
        {"direct": 0},
        direct=True,
        against=("no_direct",),
    ),
}  # fmt: skip


def measure(setting: Mapping[str, Any], lifeline: Lifeline) -> dict[str, Any]:
    """The measured columns of a run's row; see `esnlm.experiments.natural.run.trained`.

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
        with lifeline.gently(), folder_aside(Path(setting["scores"])) as folder:
            write_tensors(folder / _FILE, kept)
        return measured(model, cost) | {
            "nll_per_token": row["nll_per_token"],
            "perplexity": row["perplexity"],
            "n_held_out_tokens": row["n_tokens"],
            **accuracies,
            "score_seconds": round(time.perf_counter() - started, 3),
        }


def log_probabilities(folder: Path) -> Arrays:
    """What `measure` kept: natural logs of ``tokens`` (T,) float32, of pairs ``good``, ``bad``.

    Raises ValueError where they are not there any more.
    """
    if not (folder / _FILE).is_file():
        raise ValueError(
            f"{folder} holds no log-probabilities of a run whose row is there: remove the row, and"
            " it is repeated"
        )
    return read_tensors(folder / _FILE)
