"""Train, score and sample one model of the Shakespeare study."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from esnlm import LanguageModel, Reservoir, SoftmaxReadout
from esnlm.models.ngram import NgramLanguageModel
from esnlm.readouts.softmax.variants import NormalisedSoftmaxReadout
from esnlm.readouts.token_gated.token_gated import TokenGatedReadout, with_token_code
from esnlm.runs.subprocess_run import Lifeline
from esnlm.storage.checkpoints import Checkpoints
from esnlm.studies.generation import overlaps
from esnlm.studies.shakespeare import windows
from esnlm.text.tokenizers import Tokenizer
from esnlm.training.resumable_run import StoppedError
from esnlm.training.trainer import Trainer
from esnlm.utils.memory import peak_rss_mib
from esnlm.utils.threads import available_cores

_PIECES = 4
_PROMPT = 256
_SAVE_EVERY = 300.0
#: Distance of the test characters that are also scored from their windows.
WINDOW_STRIDE = 16
#: Columns that not every kind of row has.
OPTIONAL = (
    "vocabulary", "n_parameters", "n_parameters_total", "cross_entropy", "window_cross_entropy",
    "carried_cross_entropy", "state_difference", "fit_seconds", "seconds_per_character",
)  # fmt: skip

Texts = Mapping[str, str]


def measure(setting: Mapping[str, Any], lifeline: Lifeline) -> dict[str, Any]:
    """Return the measured columns of one row.

    ``setting``: ``model``, ``size`` (units, or the order of n-grams), ``settings`` (JSON),
    number of ``characters`` to generate, the files ``train`` and ``test``, the folder
    ``checkpoints``, and the file ``sample`` for the generated text.
    """
    texts = {part: Path(setting[part]).read_text(encoding="utf-8") for part in ("train", "test")}
    kinds = {"real text": _real, "kneser-ney": _ngrams}
    return {
        **dict.fromkeys(OPTIONAL),
        **kinds.get(setting["model"], _reservoir)(setting, texts, lifeline),
        "peak_rss_mib": peak_rss_mib(),
        "cores": available_cores(),
    }


def _real(setting: Mapping[str, Any], texts: Texts, _: Lifeline) -> dict[str, Any]:
    """Overlaps of pieces of the test text, which generated text should come near."""
    length, test = setting["characters"], texts["test"]
    pieces = []
    for start in np.linspace(0, len(test) - length, _PIECES).astype(int):
        rest = test[:start] + "\n" + test[start + length :]
        others = {"train": texts["train"], "test": rest}
        pieces.append(overlaps(test[start : start + length], others))
    return {name: float(np.mean([each[name] for each in pieces])) for name in pieces[0]}


def _ngrams(setting: Mapping[str, Any], texts: Texts, _: Lifeline) -> dict[str, Any]:
    """Fit a Kneser-Ney model of order ``size``, and return its measured columns."""
    start = time.perf_counter()
    model = NgramLanguageModel(order=setting["size"], tokenizer="char", reset="never")
    model.fit([texts["train"]])
    return {
        "vocabulary": model.n_tokens_,
        "fit_seconds": time.perf_counter() - start,
        "cross_entropy": -model.score([texts["test"]]),
        **dict.fromkeys(("n_parameters", "n_parameters_total"), model.ngrams_.n_parameters_),
        **_generated(setting, texts, model),
    }


def _reservoir(setting: Mapping[str, Any], texts: Texts, lifeline: Lifeline) -> dict[str, Any]:
    """Return a model whose state is carried through the whole text, or the published setting.

    There a state begins anew 32 characters before each prediction. After those it has forgotten
    its beginning; `windows.by_windows` measures how much it differs. So the readout learns from the
    carried state, and is judged by windows.
    """
    options, in_windows = json.loads(setting["settings"]), setting["model"].startswith("windows")
    tokenizer = Tokenizer.train_characters([texts["train"]])
    n_units = setting["size"]
    reservoir, readout = _parts(setting["model"], n_units, len(tokenizer), options)
    model = LanguageModel(reservoir, readout, tokenizer=tokenizer, reset="never", random_state=0)
    checkpoints = Checkpoints(Path(setting["checkpoints"]))
    start = time.perf_counter()
    trainer = Trainer(model, model._read_corpus([texts["train"]]))
    with lifeline.defer_exit() as stop, suppress(StoppedError):
        trainer.run(checkpoints, resume=True, save_every=_SAVE_EVERY, stop=stop, verbose=True)
    row = {"fit_seconds": max(time.perf_counter() - start, trainer.seconds)}
    if in_windows:
        row |= _scores_by_windows(model, texts["test"])
        n_inputs = windows.EMBEDDING * (n_units + len(tokenizer))
    else:
        row["cross_entropy"] = -model.score([texts["test"]])
        n_inputs = model.reservoir_.W_in_.size
    row |= _generated(setting, texts, model, windows.drawn_by_windows if in_windows else None)
    checkpoints.remove()
    return row | {
        "vocabulary": model.n_tokens_,
        "n_parameters": model.n_parameters_,
        "n_parameters_total": model.n_parameters_ + model.reservoir_.W_.nnz + n_inputs,
    }


def _parts(model: str, n_units: int, n_tokens: int, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the reservoir, drawn, and the readout of a kind of row."""
    weights, parameters = options["reservoir"], options["readout"]
    if model.startswith("windows"):
        reservoir = windows.published_reservoir(n_units, n_tokens, **weights)
        return reservoir, NormalisedSoftmaxReadout(solver="incremental", **parameters)
    # A law of leak rates is a list in JSON.
    weights = {name: tuple(v) if isinstance(v, list) else v for name, v in weights.items()}
    reservoir = Reservoir(n_units, **{"random_state": 0} | weights).fit(n_inputs=n_tokens)
    if model == "carried":
        return reservoir, SoftmaxReadout(solver="incremental", **parameters)
    if model == "gated":
        reservoir = with_token_code(reservoir)
    return reservoir, TokenGatedReadout(n_gates=n_tokens, **parameters)


def _scores_by_windows(model: LanguageModel, text: str) -> dict[str, float]:
    """Return test losses, in nats a character, with carried state and by windows."""
    test = model.tokenize([text])
    ends = np.arange(windows.WINDOW, len(test.tokens), WINDOW_STRIDE)
    logs, difference = windows.by_windows(model, test.tokens, ends)
    carried = model.log_likelihood(test)[0]
    return {
        "cross_entropy": -float(carried.mean()),
        "window_cross_entropy": -float(logs.mean()),
        "state_difference": difference,
        "carried_cross_entropy": -float(carried[ends - 1].mean()),
    }


def _generated(
    setting: Mapping[str, Any], texts: Texts, model: Any, draw: Any = None
) -> dict[str, Any]:
    """Text drawn by the function ``draw``, or by the model: its pace and overlaps."""
    prompt, n = texts["train"][-_PROMPT:], setting["characters"]
    start = time.perf_counter()
    text = draw(model, prompt, n, 0) if draw else model.sample(n, prompt=prompt, random_state=0)
    seconds = (time.perf_counter() - start) / n
    Path(setting["sample"]).write_text(text, encoding="utf-8")
    return {"seconds_per_character": seconds} | overlaps(text, texts)
