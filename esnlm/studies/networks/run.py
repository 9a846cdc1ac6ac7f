"""Train, score and sample one network of a comparison."""

import json
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np

from esnlm.evaluation.token_groups import by_frequency
from esnlm.models.sampling import SamplingOptions, text_pieces
from esnlm.runs.subprocess_run import Lifeline
from esnlm.storage.atomic import locked, write_whole
from esnlm.storage.checkpoints import Checkpoints
from esnlm.studies.generation import overlaps
from esnlm.studies.minimal_pairs import accuracies
from esnlm.studies.networks.compare import BINS
from esnlm.text.boundaries import needed
from esnlm.text.corpus import TokenStream
from esnlm.training.resumable_run import StoppedError
from esnlm.training.training_log import TrainingLog, mean_training_loss
from esnlm.utils.memory import peak_rss_mib
from esnlm.utils.threads import available_cores

if TYPE_CHECKING:
    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.network import Network

_SAVE_EVERY = 120.0
_PROMPT = 256


def measure(setting: Mapping[str, Any], lifeline: Lifeline) -> dict[str, Any]:
    """Return the measured columns of one row.

    ``setting``: ``model``, ``settings`` and ``plan`` (JSON), ``seed``, ``device``, the file
    ``corpus_file`` in which joblib wrote the streams of training, held-out and validation text (or
    None) and the tokenizer, ``reset``, the minimal pairs ``blimp`` or None, whether perplexities of
    ``bins`` of frequency are wanted, how many tokens to ``generate`` or None, and the places of the
    run: the file ``log`` of training losses, the file ``sample`` for the generated text, and the
    folder ``checkpoints``.
    """
    import torch

    from esnlm.torch.device import chosen_device, peak_memory
    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.registry import network_class
    from esnlm.torch.scoring import log_probabilities
    from esnlm.torch.training.plan import Plan
    from esnlm.torch.training.trainer import COLUMNS, NetworkTrainer

    train, held_out, validation, tokenizer = joblib.load(setting["corpus_file"], mmap_mode="r")
    device = chosen_device(setting["device"])
    torch.manual_seed(setting["seed"])
    kind = network_class(setting["model"])
    settings = json.loads(setting["settings"])
    if "reservoir" in kind.arguments():
        seed = {"random_state": setting["seed"]}
        settings["reservoir"] = seed | settings.get("reservoir", {})
    network = kind(len(tokenizer), **settings).to(device)
    plan = Plan(random_state=setting["seed"], **json.loads(setting["plan"]))
    trainer = NetworkTrainer(network, train, validation, plan)
    checkpoints = Checkpoints(Path(setting["checkpoints"]))
    losses = Path(setting["log"])
    clock = ReservoirClock(network) if setting["generate"] else None
    # An earlier run whose parent was killed may still be saving its checkpoint.
    with locked(checkpoints.folder, wait=True):
        if checkpoints.exists() and not losses.is_file():
            raise ValueError(
                f"{losses}, the losses of this run so far, is gone: put it back, or remove"
                f" {checkpoints.folder} to train from the beginning"
            )
        log = TrainingLog(losses, further=COLUMNS, overwrite=not checkpoints.exists())
        start = time.perf_counter()
        with lifeline.defer_exit() as stop, suppress(StoppedError):
            trainer.run(
                checkpoints, resume=True, save_every=_SAVE_EVERY, log=log, stop=stop, verbose=True
            )
    training_share = clock and clock.share(time.perf_counter() - start)
    training_loss = mean_training_loss(losses, log.n_rows)
    start = time.perf_counter()
    # The same tokens count for all; a network trained on text without sentences reads it so.
    starts = held_out.starts if plan.batching == "sentences" else None
    scores = log_probabilities(network, held_out.tokens, starts, bf16=plan.bf16)
    nll = -float(scores[held_out.predicted()].mean())
    scored = time.perf_counter() - start
    if not math.isfinite(nll):
        raise ValueError(f"the held-out loss is {nll}, training diverged: lower the learning rate")
    model = TorchLanguageModel(network.eval(), tokenizer, setting["reset"])
    judged = accuracies(model, setting["blimp"])
    generated = {}
    if clock is not None:
        generated = _generated(model, setting, train, held_out, clock)
        generated["train_reservoir_seconds"] = training_share and training_share * trainer.seconds
    counts = network.parameter_counts()
    checkpoints.remove()
    return {
        "n_parameters": counts.trainable,
        "n_parameters_total": counts.total,
        "n_parameters_nonzero": counts.nonzero,
        "n_train_tokens": train.n_predicted,
        "n_held_out_tokens": held_out.n_predicted,
        "n_steps": trainer.n_steps,
        "training_loss": training_loss,
        "held_out_nll": nll,
        "held_out_perplexity": math.exp(min(nll, 700.0)),
        **judged,
        **(bin_perplexities(train, held_out, scores) if setting["bins"] else {}),
        **generated,
        "train_seconds": trainer.seconds,
        "tokens_per_second": trainer.tokens / trainer.seconds,
        "score_seconds": scored,
        "peak_memory_mib": peak_memory(device) >> 20,
        "peak_rss_mib": peak_rss_mib(),
        "machine": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"CPU cores: {available_cores()}",
    }


def bin_perplexities(train: TokenStream, held_out: TokenStream, scores: Any) -> dict[str, Any]:
    """Return the perplexity of each bin of frequency in training, None for one without tokens.

    ``scores`` (T,) are natural-log probabilities of the held-out tokens.
    """
    marks = held_out.predicted()
    losses, tokens = -np.asarray(scores)[marks], held_out.tokens[marks]
    n_tokens = 1 + max(int(each.tokens.max()) for each in (train, held_out))
    _, names, places = by_frequency(np.bincount(train.tokens, minlength=n_tokens)[tokens])
    parts = [losses[places == place] for place in range(len(names))]
    return {
        column: math.exp(min(float(part.mean()), 700.0)) if len(part) else None
        for column, part in zip(BINS, parts, strict=True)
    }


class ReservoirClock:
    """Seconds in which a network of windows computes the states of its frozen reservoir."""

    def __init__(self, network: "Network") -> None:
        """Time the network's states from now on; other networks have none."""
        from esnlm.torch.networks.windowed import CharacterReservoir

        self.seconds = 0.0
        self.device = network.device
        self.has_reservoir = isinstance(network, CharacterReservoir)
        if isinstance(network, CharacterReservoir):
            self._states = network.prefixes
            network.prefixes = self._timed

    def _timed(self, *arguments: Any) -> Any:
        start = self._now()
        states = self._states(*arguments)
        self.seconds += self._now() - start
        return states

    def _now(self) -> float:
        """Return the time once the device has done what it was told."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def share(self, elapsed: float) -> float | None:
        """Return the states' share of ``elapsed`` seconds, None if none were computed in them.

        The next share begins now. A run that was resumed has earlier seconds, which count alike.
        """
        seconds, self.seconds = self.seconds, 0.0
        return None if self.has_reservoir and not seconds else seconds / elapsed


def _generated(
    model: "TorchLanguageModel",
    setting: Mapping[str, Any],
    train: TokenStream,
    held_out: TokenStream,
    clock: ReservoirClock,
) -> dict[str, Any]:
    """Continue the training text, or begin sentences: overlaps of the tokens, and seconds."""
    prompt = train.tokens[-_PROMPT:] if model.reset_ == "never" else ()
    choice = SamplingOptions(random_state=setting["seed"])
    clock.seconds = 0.0
    start = time.perf_counter()
    tokens = list(model.generate(setting["generate"], prompt=prompt, choice=choice))
    seconds = time.perf_counter() - start
    text = "".join(text_pieces(needed(model.tokenizer_), np.asarray(prompt, np.int64), tokens))
    write_whole(Path(setting["sample"]), text)
    texts = {"train": train.tokens.tolist(), "held_out": held_out.tokens.tolist()}
    reservoir = {"generation_reservoir_seconds": clock.seconds}
    return {"generation_seconds": seconds} | reservoir | overlaps(tokens, texts)
