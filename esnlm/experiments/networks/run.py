"""One run of a comparison, in a process of its own: a network trained and scored."""

import inspect
import json
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.experiments.common.minimal_pairs import accuracies
from esnlm.experiments.common.subprocess_run import Lifeline, peak_rss_mib, serve
from esnlm.models.resumable_run import StoppedError
from esnlm.storage.checkpoints import Checkpoints
from esnlm.text.corpus import TokenStream
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.threads import available_cores

_SAVE_EVERY = 120.0
_PARTS = ("tokens", "starts", "bounds")


def measure(setting: Mapping[str, Any], lifeline: Lifeline) -> dict[str, Any]:
    """The measured columns of one row.

    ``setting``: ``model``, ``settings`` and ``plan`` (JSON), ``seed``, ``device``, the folders
    ``train`` and ``held_out`` of `write_stream`, the file ``tokenizer`` of `write_tokenizer`,
    ``reset``, the minimal pairs ``blimp`` or None, and ``checkpoints``, a folder for those of the
    run.
    """
    import torch

    from esnlm.torch.device import chosen_device, peak_memory
    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.counts import parameter_counts
    from esnlm.torch.networks.registry import network_class
    from esnlm.torch.scoring import log_probabilities
    from esnlm.torch.training.plan import Plan
    from esnlm.torch.training.trainer import NetworkTrainer

    train, held = (read_stream(Path(setting[part])) for part in ("train", "held_out"))
    tokenizer = read_tokenizer(Path(setting["tokenizer"]))
    device = chosen_device(setting["device"])
    torch.manual_seed(setting["seed"])
    kind = network_class(setting["model"])
    settings = json.loads(setting["settings"])
    if "reservoir" in inspect.signature(kind).parameters:
        drawn = {"random_state": setting["seed"]}
        settings["reservoir"] = drawn | settings.get("reservoir", {})
    network = kind(len(tokenizer), **settings).to(device)
    plan = Plan(seed=setting["seed"], **json.loads(setting["plan"]))
    trainer = NetworkTrainer(network, train, None, plan)
    checkpoints = Checkpoints(Path(setting["checkpoints"]))
    with lifeline.gently() as stop, suppress(StoppedError):
        trainer.run(checkpoints, resume=True, save_every=_SAVE_EVERY, stop=stop, verbose=True)
    start = time.perf_counter()
    # The same tokens count for all; what was trained on text as one reads it as one.
    starts = held.starts if plan.batching == "sentences" else None
    scores = log_probabilities(network, held.tokens, starts, bf16=plan.bf16)
    nll = -float(scores[held.predicted()].mean())
    scored = time.perf_counter() - start
    model = TorchLanguageModel(network.eval(), tokenizer, setting["reset"])
    judged = accuracies(model, setting["blimp"])
    counts = parameter_counts(network)
    checkpoints.remove()
    return {
        "n_parameters": counts.trainable,
        "n_parameters_total": counts.total,
        "n_parameters_nonzero": counts.nonzero,
        "n_train_tokens": train.n_predicted,
        "n_held_out_tokens": held.n_predicted,
        "n_steps": trainer.n_steps,
        "held_out_nll": nll,
        "held_out_perplexity": math.exp(min(nll, 700.0)),
        **judged,
        "train_seconds": trainer.seconds,
        "tokens_per_second": trainer.tokens / trainer.seconds,
        "score_seconds": scored,
        "peak_memory_mib": peak_memory(device) >> 20,
        "peak_rss_mib": peak_rss_mib(),
        "machine": machine(device),
    }


def machine(device: Any) -> str:
    """What computed: the name of a CUDA device, or the number of cores."""
    import torch

    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"CPU cores: {available_cores()}"


def write_stream(stream: TokenStream, folder: Path) -> None:
    """Tokens, starts and bounds as .npy files in a new folder, for `read_stream` to map.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "stream"
    >>> write_stream(TokenStream(np.arange(3), None, np.array([0, 3])), folder)
    >>> read_stream(folder).tokens.tolist()
    [0, 1, 2]
    """
    folder.mkdir(parents=True)
    for part in _PARTS:
        array = getattr(stream, part)
        if array is not None:
            np.save(folder / f"{part}.npy", array, allow_pickle=False)


def read_stream(folder: Path) -> TokenStream:
    """The stream that `write_stream` wrote, memory-mapped."""
    files = {part: folder / f"{part}.npy" for part in _PARTS}
    mapped: dict[str, Any] = {
        part: np.load(file, mmap_mode="r", allow_pickle=False) if file.exists() else None
        for part, file in files.items()
    }
    return TokenStream(**mapped)


def write_tokenizer(tokenizer: Tokenizer, file: Path) -> None:
    """A file for `read_tokenizer`.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "tokenizer"
    >>> write_tokenizer(Tokenizer.train_words(["a b"]), file)
    >>> read_tokenizer(file).encode("b a").tolist() == [
    ...     *Tokenizer.train_words(["a b"]).encode("b a")
    ... ]
    True
    """
    parts = {"text": tokenizer.to_json(), "bos": tokenizer.bos, "eos": tokenizer.eos}
    file.write_text(json.dumps(parts), encoding="utf-8")


def read_tokenizer(file: Path) -> Tokenizer:
    """The tokenizer that `write_tokenizer` wrote."""
    parts = json.loads(file.read_text(encoding="utf-8"))
    return Tokenizer.from_json(**parts)


if __name__ == "__main__":
    serve(measure)
