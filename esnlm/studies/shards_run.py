"""A model of a grid on shards, trained or resumed in the folder of its run.

The folder holds the work until the row of the run is written: checkpoints during training, then the
model and the cost of training. A run that is started again resumes from them.
"""

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.evaluation.measures import Evaluation
from esnlm.evaluation.minimal_pairs.pairs import read_pairs
from esnlm.evaluation.minimal_pairs.scores import score_pairs
from esnlm.models.language_model import LanguageModel
from esnlm.models.saving import rebuild
from esnlm.runs.subprocess_run import Lifeline
from esnlm.storage.atomic import folder_aside, locked, write_whole
from esnlm.storage.checkpoints import Checkpoints
from esnlm.storage.tensor_file import Arrays, read_tensors, write_tensors
from esnlm.studies import minimal_pairs
from esnlm.text.shards import Shards
from esnlm.training.baselines import training_loss
from esnlm.training.resumable_run import StoppedError
from esnlm.training.trainer import Trainer, TrainingPlan
from esnlm.utils.memory import peak_rss_mib

_FITTED = "fitted.json"
_PEAK = "peak_rss_mib"
_LOGS = "log_probabilities.safetensors"


def measure(setting: Mapping[str, Any], lifeline: Lifeline) -> dict[str, Any]:
    """Return the measured columns of a run's row.

    ``setting`` names the shards ``train`` and ``held_out``, the pairs ``blimp`` or None, the
    ``folder`` of the run, descriptions of ``reservoir``, ``readout`` and ``features``, the ``plan``
    of training and ``save_every``, the seconds between two checkpoints. Where they are given, the
    folder ``model`` takes a copy of the model, and ``scores`` the `log_probabilities`.
    """
    folder = Path(setting["folder"])
    # An earlier run whose parent was killed may still be saving its checkpoint.
    with locked(folder, wait=True):
        folder.mkdir(exist_ok=True)
        try:
            with lifeline.defer_exit() as stop:
                cost = _fitted(setting, folder, stop)
        except ValueError:
            with suppress(OSError):  # it has a checkpoint
                folder.rmdir()
            raise
        model = LanguageModel.load(folder / "model")
        started = time.perf_counter()
        tokens: list[Any] = []
        (row,) = Evaluation([model], ["model"], "line").rows(
            [setting["held_out"]], lambda _, part: tokens.append(part.scores[0][part.predicted])
        )
        logs: Arrays = {"tokens": np.concatenate(tokens).astype(np.float32)}
        accuracies = dict.fromkeys(minimal_pairs.COLUMNS)
        if setting["blimp"] is not None:
            pairs = read_pairs(setting["blimp"])
            scores = score_pairs(model, pairs)
            logs |= {"good": scores.good, "bad": scores.bad}
            accuracies = minimal_pairs.by_column(pairs, scores)
        seconds = round(time.perf_counter() - started, 3)
        with lifeline.defer_exit():
            if "scores" in setting:
                with folder_aside(Path(setting["scores"])) as copy:
                    write_tensors(copy / _LOGS, logs)
            if "model" in setting:
                with folder_aside(Path(setting["model"])) as copy:
                    shutil.copytree(folder / "model", copy, dirs_exist_ok=True)
    return {
        **cost,
        **parameter_counts(model),
        "peak_rss_mib": max(cost["peak_rss_mib"], peak_rss_mib()),
        "nll_per_token": row["nll_per_token"],
        "perplexity": row["perplexity"],
        "n_held_out_tokens": row["n_tokens"],
        **accuracies,
        "score_seconds": seconds,
    }


def log_probabilities(folder: Path) -> Arrays:
    """Return the logs that `measure` saved: ``tokens`` (T,) float32, pairs ``good``, ``bad``.

    Raises ValueError where they are not there any more.
    """
    if not (folder / _LOGS).is_file():
        raise ValueError(
            f"{folder} holds no log-probabilities of a run whose row is there: remove the row, and"
            " it is repeated"
        )
    return read_tensors(folder / _LOGS)


def parameter_counts(model: LanguageModel) -> dict[str, int]:
    """Return counts of trained, of all and of nonzero parameters (as Ueda et al. count).

    Parameters are the recurrent and input weights, leak rates, biases if any, and the trained
    readout and word features.
    """
    reservoir, trained = model.reservoir_, model.n_parameters_
    weights = (reservoir.W_, reservoir.W_in_)
    units = len(reservoir.leak_rate_)
    biases = int(np.count_nonzero(reservoir.bias_))
    frozen = sum(int(np.prod(matrix.shape)) for matrix in weights) + units
    set_ones = sum(int((matrix != 0).sum()) for matrix in weights) + units
    return {
        "n_parameters": trained,
        "n_parameters_total": trained + frozen + (units if biases else 0),
        "n_parameters_nonzero": trained + set_ones + biases,
    }


def _fitted(setting: Mapping[str, Any], folder: Path, stop: Any) -> dict[str, Any]:
    """Train, or resume training, unless that is done; return the cost of training."""
    marker = folder / _FITTED
    if marker.is_file():
        return dict(json.loads(marker.read_text("utf-8")))
    train, held_out = Shards(setting["train"]), Shards(setting["held_out"])
    parts = {name: rebuild(setting[name]) for name in ("reservoir", "readout", "features")}
    plan = TrainingPlan(**setting["plan"])
    model = LanguageModel(**parts, tokenizer=train.tokenizer, random_state=plan.random_state)
    stream = model._read_corpus(train.stream())
    trainer = Trainer(model, stream, held_out=model.tokenize(held_out.stream()), plan=plan)
    checkpoints = Checkpoints(folder / "checkpoints")
    try:
        trainer.run(
            checkpoints, resume=True, save_every=setting["save_every"], stop=stop, verbose=True
        )
    except StoppedError:
        write_whole(folder / _PEAK, str(_peak(folder)))
        raise SystemExit(130) from None
    trainer.model.save(folder / "model")
    cost = {
        "n_train_tokens": trainer.n_rows,
        "training_loss": training_loss(trainer.model, stream),
        "fit_seconds": round(trainer.seconds, 3),
        "tokens_per_second": round(trainer.tokens / trainer.seconds, 1),
        "peak_rss_mib": _peak(folder),
    }
    write_whole(marker, json.dumps(cost))
    checkpoints.remove()
    return cost


def _peak(folder: Path) -> int:
    """Peak memory in MiB of this process and of earlier ones of the same run."""
    file = folder / _PEAK
    return max(int(file.read_text("utf-8")) if file.is_file() else 0, peak_rss_mib())
