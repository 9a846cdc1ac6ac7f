"""Train and score one network of a comparison."""

import json
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import joblib

from esnlm.runs.subprocess_run import Lifeline
from esnlm.storage.checkpoints import Checkpoints
from esnlm.studies.minimal_pairs import accuracies
from esnlm.training.resumable_run import StoppedError
from esnlm.training.training_log import TrainingLog, mean_training_loss
from esnlm.utils.memory import peak_rss_mib
from esnlm.utils.threads import available_cores

_SAVE_EVERY = 120.0


def measure(setting: Mapping[str, Any], lifeline: Lifeline) -> dict[str, Any]:
    """Return the measured columns of one row.

    ``setting``: ``model``, ``settings`` and ``plan`` (JSON), ``seed``, ``device``, the file
    ``corpus_file`` in which joblib wrote the streams of training and held-out text and the
    tokenizer, ``reset``, the minimal pairs ``blimp`` or None, and ``checkpoints``, a folder for
    those of the run.
    """
    import torch

    from esnlm.torch.device import chosen_device, peak_memory
    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.registry import network_class
    from esnlm.torch.scoring import log_probabilities
    from esnlm.torch.training.plan import Plan
    from esnlm.torch.training.trainer import COLUMNS, NetworkTrainer

    train, validation, tokenizer = joblib.load(setting["corpus_file"], mmap_mode="r")
    device = chosen_device(setting["device"])
    torch.manual_seed(setting["seed"])
    kind = network_class(setting["model"])
    settings = json.loads(setting["settings"])
    if "reservoir" in kind.arguments():
        seed = {"random_state": setting["seed"]}
        settings["reservoir"] = seed | settings.get("reservoir", {})
    network = kind(len(tokenizer), **settings).to(device)
    plan = Plan(random_state=setting["seed"], **json.loads(setting["plan"]))
    trainer = NetworkTrainer(network, train, None, plan)
    checkpoints = Checkpoints(Path(setting["checkpoints"]))
    losses = Path(f"{checkpoints.folder}.csv")
    log = TrainingLog(losses, further=COLUMNS, overwrite=not checkpoints.exists())
    with lifeline.defer_exit() as stop, suppress(StoppedError):
        trainer.run(
            checkpoints, resume=True, save_every=_SAVE_EVERY, log=log, stop=stop, verbose=True
        )
    training_loss = mean_training_loss(losses)
    start = time.perf_counter()
    # The same tokens count for all; a network trained on text without sentences reads it so.
    starts = validation.starts if plan.batching == "sentences" else None
    scores = log_probabilities(network, validation.tokens, starts, bf16=plan.bf16)
    nll = -float(scores[validation.predicted()].mean())
    scored = time.perf_counter() - start
    model = TorchLanguageModel(network.eval(), tokenizer, setting["reset"])
    judged = accuracies(model, setting["blimp"])
    counts = network.parameter_counts()
    checkpoints.remove()
    losses.unlink()
    return {
        "n_parameters": counts.trainable,
        "n_parameters_total": counts.total,
        "n_parameters_nonzero": counts.nonzero,
        "n_train_tokens": train.n_predicted,
        "n_held_out_tokens": validation.n_predicted,
        "n_steps": trainer.n_steps,
        "training_loss": training_loss,
        "held_out_nll": nll,
        "held_out_perplexity": math.exp(min(nll, 700.0)),
        **judged,
        "train_seconds": trainer.seconds,
        "tokens_per_second": trainer.tokens / trainer.seconds,
        "score_seconds": scored,
        "peak_memory_mib": peak_memory(device) >> 20,
        "peak_rss_mib": peak_rss_mib(),
        "machine": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"CPU cores: {available_cores()}",
    }
