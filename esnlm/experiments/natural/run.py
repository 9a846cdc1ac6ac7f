"""One run of the experiment on natural language, in a process of its own: fitted, then scored.

What a run has done lies in its folder until its row is written: checkpoints while it is trained,
then the model and what training took. Begun again, the run goes on from there.
"""

import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

import numpy as np  # noqa: E402

from esnlm.evaluation.measures import Evaluation  # noqa: E402
from esnlm.experiments.common.minimal_pairs import accuracies  # noqa: E402
from esnlm.experiments.common.subprocess_run import Lifeline, peak_rss_mib, serve  # noqa: E402
from esnlm.models.reservoir import LanguageModel  # noqa: E402
from esnlm.models.resumable_run import StoppedError  # noqa: E402
from esnlm.models.saving import rebuild  # noqa: E402
from esnlm.models.training import Trainer, TrainingPlan  # noqa: E402
from esnlm.storage.atomic import write_whole  # noqa: E402
from esnlm.storage.checkpoints import Checkpoints  # noqa: E402
from esnlm.text.shards import Shards  # noqa: E402

_FITTED = "fitted.json"
_PEAK = "peak_rss_mib"


def measure(setting: Mapping[str, Any], lifeline: Lifeline) -> dict[str, Any]:
    """The measured columns of a run's row.

    ``setting`` names the shards ``train`` and ``held_out``, the pairs ``blimp`` or None, the
    ``folder`` of the run, descriptions of ``reservoir``, ``readout`` and ``features``, the
    ``plan`` of training and ``save_every``, the seconds between two checkpoints.
    """
    folder = Path(setting["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder):
        with lifeline.gently() as asked:
            fitted = _fitted(setting, folder, asked)
        model = LanguageModel.load(folder / "model")
        started = time.perf_counter()
        (row,) = Evaluation([model], ["model"], "line").rows([setting["held_out"]])
        scored = {
            "nll_per_token": row["nll_per_token"],
            "perplexity": row["perplexity"],
            "n_held_out_tokens": row["n_tokens"],
            **accuracies(model, setting["blimp"]),
            "score_seconds": round(time.perf_counter() - started, 3),
        }
        peak = max(fitted.pop("peak_rss_mib"), peak_rss_mib())
        return fitted | scored | parameter_counts(model) | {"peak_rss_mib": peak}


def parameter_counts(model: LanguageModel) -> dict[str, int]:
    """Trained parameters; all of them; and those that are not zero, which Ueda et al. count.

    A model's parameters are the recurrent and input weights, leak rates, biases where there are
    any, and what is trained: the readout and the word features.
    """
    reservoir, trained = model.reservoir_, model.n_parameters_
    weights = (reservoir.W_, reservoir.W_in_)
    units = len(reservoir.leak_rate_)
    biases = int(np.count_nonzero(reservoir.bias_))
    frozen = sum(int(np.prod(matrix.shape)) for matrix in weights) + units
    set_ones = sum(_nonzero(matrix) for matrix in weights) + units
    return {
        "n_parameters": trained,
        "n_parameters_total": trained + frozen + (units if biases else 0),
        "n_parameters_nonzero": trained + set_ones + biases,
    }


def _nonzero(matrix: Any) -> int:
    return int(matrix.count_nonzero() if hasattr(matrix, "nnz") else np.count_nonzero(matrix))


def _fitted(setting: Mapping[str, Any], folder: Path, asked: Any) -> dict[str, Any]:
    """Train, or go on with it, unless that is done; what it took."""
    done = folder / _FITTED
    if done.is_file():
        told: dict[str, Any] = json.loads(done.read_text())
        return told
    trainer = _trainer(setting)
    checkpoints = Checkpoints(folder / "checkpoints")
    try:
        trainer.run(
            checkpoints, resume=True, save_every=setting["save_every"], stop=asked, verbose=True
        )
    except StoppedError:
        write_whole(folder / _PEAK, str(_peak(folder)))
        raise SystemExit(130) from None
    seconds = trainer.seconds
    trainer.model.save(folder / "model")
    told = {
        "n_train_tokens": trainer.n_rows,
        "fit_seconds": round(seconds, 3),
        "tokens_per_second": round(trainer.tokens / seconds, 1),
        "peak_rss_mib": _peak(folder),
    }
    write_whole(done, json.dumps(told))
    checkpoints.remove()
    return told


def _peak(folder: Path) -> int:
    """Peak memory of this process and of those that the run was stopped in, in MiB."""
    file = folder / _PEAK
    return max(int(file.read_text()) if file.is_file() else 0, peak_rss_mib())


def _trainer(setting: Mapping[str, Any]) -> Trainer:
    train, held_out = Shards(setting["train"]), Shards(setting["held_out"])
    reservoir, readout, features = (
        rebuild(setting[name]) for name in ("reservoir", "readout", "features")
    )
    plan = TrainingPlan(**setting["plan"])
    model = LanguageModel(
        reservoir, readout, train.tokenizer, features=features, random_state=plan.seed
    )
    stream = model.read(train.stream())
    return Trainer(model, stream, model.tokenize(held_out.stream()), plan)


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Wait until a run of before, whose parent was killed, has saved its checkpoint and ended."""
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    serve(measure)
