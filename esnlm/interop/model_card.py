"""The README.md of an exported model: what it is, what it learned from, its figures, its use."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from esnlm.models.base import SequenceModel
from esnlm.models.language_model import LanguageModel
from esnlm.storage.results import markdown_table
from esnlm.utils import __version__

#: What a card says of the licence where none was named.
UNKNOWN = "unknown"

_LOAD = """\
    model = AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True)
"""
_USE = f"""\
    from transformers import AutoModelForCausalLM, AutoTokenizer

{_LOAD}\
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    prompt = tokenizer("the", return_tensors="pt")
    print(tokenizer.decode(model.generate(**prompt, max_new_tokens=20)[0]))
"""
_CITATION = f"""\
    @software{{esnlm,
      title = {{esnlm: language models with a frozen recurrence}},
      author = {{{{The esnlm developers}}}},
      version = {{{__version__}}}
    }}
"""


def model_card(
    model: SequenceModel, record: Mapping[str, Any] | None = None, license: str = UNKNOWN
) -> str:
    """Return a model card as Hugging Face reads it: Markdown below metadata in YAML.

    ``record`` is what ``esnlm train`` wrote beside the model, or None; ``license`` an identifier
    of Hugging Face for the weights. The same arguments, the same text.

    >>> from esnlm import LanguageModel
    >>> card = model_card(LanguageModel(random_state=0).fit(["the boy sees the dog"] * 5))
    >>> card.splitlines()[:3], "unknown" in card
    (['---', 'library_name: transformers', 'pipeline_tag: text-generation'], True)
    """
    record = record or {}
    head = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "license": json.dumps(license),  # in quotes it is one value in YAML, too
        "tags": "[esnlm, reservoir-computing, echo-state-network]",
    }
    sections = [
        "---\n" + "".join(f"{name}: {value}\n" for name, value in head.items()) + "---\n",
        f"# {_title(model)}\n",
        _what(model),
        "## Use\n",
        _LOAD if model.tokenizer_ is None else _USE,
        *_figures(record),
        *_data(record),
        *_training(record),
        "## Limits\n",
        _LIMITS,
        "## Licence and citation\n",
        f"Licence of the weights: {_line(license)}. The code in this folder is esnlm's, under"
        " BSD-3-Clause.\n",
        _CITATION,
    ]
    return "\n".join(sections)


_LIMITS = """\
- Computes in float32 or float64, by default as it was trained: no bfloat16 and no float16.
- Its outputs are natural log-probabilities of the next token; a temperature divides them.
- It knows the text that it was trained on, with what that text says of people and of the world.
"""


def _title(model: SequenceModel) -> str:
    network = getattr(model, "network", None)
    frozen = isinstance(model, LanguageModel) or hasattr(network, "reservoir")
    return "A language model whose recurrence is frozen" if frozen else "A language model"


def _what(model: Any) -> str:
    """Return a paragraph on the reservoir, its inputs and the readout; on others, a sentence."""
    if not isinstance(model, LanguageModel):
        kind = type(getattr(model, "network", model)).__name__
        return (
            f"A model of class {kind} with {model.n_parameters_} trained parameters gives the"
            f" distribution of the next of {model.n_tokens_} tokens.\n"
        )
    reservoir = model.reservoir_
    inputs = "each token has input weights of its own"
    if model.features_ is not None:
        inputs = f"{type(model.features_).__name__}, {model.features_.n_features} a token, drive it"
    return (
        f"An echo state network of {reservoir.n_units} units ({reservoir.topology}, spectral radius"
        f" {reservoir.spectral_radius:g}), drawn and never trained; {inputs}. A readout"
        f" ({type(model.readout_).__name__}, {model.n_parameters_} trained parameters) gives the"
        f" distribution of the next of {model.n_tokens_} tokens. The state returns to zero at each"
        f" {model.reset_}.\n".replace("at each never", "before the text alone")
    )


def _figures(record: Mapping[str, Any]) -> list[str]:
    """Return the section of held-out losses and perplexities; empty without any."""
    losses = record.get("held_out")
    if not losses:
        return []
    rows = [
        (_line(name), f"{loss:.4f}", f"{math.exp(loss):.2f}")
        for name, loss in losses.items()
        if loss is not None
    ]
    text = "On the held-out text, which chose penalties and stops and is no fresh test:\n"
    table = markdown_table(("model", "nats a token", "perplexity"), rows)
    return ["## Figures\n", text, *table, ""]


def _data(record: Mapping[str, Any]) -> list[str]:
    rows = [
        (_line(kind), _line(each["file"]), each["bytes"], f"`{each['sha256']}`")
        for kind, files in record.get("data", {}).items()
        for each in files
    ]
    table = markdown_table(("text", "file", "bytes", "SHA-256"), rows)
    return ["## Data\n", *table, ""] if rows else []


def _training(record: Mapping[str, Any]) -> list[str]:
    """Return the section of command, time, memory and machine; empty without a record."""
    if not record:
        return []
    phases = record["phases"]
    seconds = sum(phase["seconds"] for phase in phases)
    most = max((phase["peak_rss_mib"] for phase in phases), default=0)
    command = "\n".join(f"    {line}" for line in record["command"].splitlines())
    text = (
        f"{seconds:.0f} seconds, at most {most} MiB, on {_line(record['machine'])}; code"
        f" {_line(record['commit'])}.\n"
    )
    return ["## Training\n", f"{command}\n", text]


def _line(text: Any) -> str:
    """Text as part of a line or cell of Markdown, nothing in it being markup."""
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", " ".join(str(text).split()))
