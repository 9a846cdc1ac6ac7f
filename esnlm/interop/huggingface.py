"""A language model as a folder that Hugging Face transformers loads by itself.

The folder holds ``config.json``, ``model.safetensors``, a model card, the tokenizer's files and the
model's code (`esnlm.interop.exported`), which needs torch and transformers but not this package.
Nothing in it is pickled; sparse matrices are three arrays: data, indices and indptr.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from esnlm.interop.huggingface_parts import (
    Described,
    describe_network,
    describe_ngrams,
    describe_readout,
    describe_reservoir,
)
from esnlm.interop.model_card import UNKNOWN, model_card
from esnlm.models.base import SequenceModel
from esnlm.models.language_model import LanguageModel
from esnlm.models.ngram import NgramLanguageModel
from esnlm.storage.atomic import folder_aside, is_free
from esnlm.text.backends import adding_nothing
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils import __version__
from esnlm.utils.state_dict import with_prefix

WEIGHTS = "model.safetensors"
CODE = ("modeling_esnlm.py", "encoders_esnlm.py", "readouts_esnlm.py")
CARD = "README.md"
#: What ``config.json`` calls the model; why is said in the model's code.
MODEL_TYPE = "rag"
#: Added to a tokenizer that has no other token to pad with; its id is the one after the model's.
PAD = "<|pad|>"
_NO_CHARACTER = "\ufdd0"  # Unicode keeps it for such uses


def export_model(
    model: SequenceModel,
    folder: str | Path,
    record: Mapping[str, Any] | None = None,
    license: str = UNKNOWN,
) -> None:
    """Write a fitted model as a folder for ``AutoModelForCausalLM.from_pretrained``.

    Models on a reservoir, the networks ``esn``, ``esn+i``, ``esn+mlp`` and ``lstm``, and n-grams.
    ``from_pretrained(folder, trust_remote_code=True)`` runs the code in the folder;
    ``AutoTokenizer.from_pretrained(folder)`` needs no code. Logits are natural log-probabilities,
    in the dtype that the model is loaded in; ``AutoModel`` gives the states.

    - Text is text to the tokenizer: ``<s>`` in it is no BOS, unless it comes first, where the
      tokenizer puts one anyhow. Nor are both marks around a line text.
    - The state is zero before the first token and before each BOS, where sentences or documents
      begin with one (``reset="sentence"`` or ``"document"``). Their tokenizer prepends BOS.
    - ``reset="never"``: no BOS; the state is zero before the first token only.
    - A model of integers is written without tokenizer.
    - ``record`` and ``license`` are those of `esnlm.interop.model_card.model_card`, its README.md.

    The folder appears whole or not at all. FileExistsError: it is a file, or holds files;
    ValueError: the exported code does not know the model's kind of readout.

    >>> import tempfile
    >>> from esnlm import LanguageModel, Reservoir, RidgeReadout
    >>> docs = ["the boy sees the dog", "the dog sees the boy"] * 20
    >>> reservoir = Reservoir(50, random_state=0)
    >>> model = LanguageModel(reservoir, RidgeReadout(), tokenizer="word").fit(docs)
    >>> folder = Path(tempfile.mkdtemp()) / "exported"
    >>> export_model(model, folder)
    >>> sorted(path.name for path in folder.iterdir())  # doctest: +NORMALIZE_WHITESPACE
    ['README.md', 'config.json', 'encoders_esnlm.py', 'generation_config.json',
     'model.safetensors', 'modeling_esnlm.py', 'readouts_esnlm.py', 'tokenizer.json',
     'tokenizer_config.json']
    """
    target = Path(folder)
    check_free(target)
    if (network := getattr(model, "network", None)) is not None:
        model = network.language_model(model.tokenizer_, model.reset_) or model
    config, arrays = _described(model)
    bos, eos = config.get("bos_token_id"), config.get("eos_token_id")
    ids: dict[str, Any] = {"bos_token_id": bos, "eos_token_id": eos}
    ids["pad_token_id"] = config["padding"]
    never = [None if bos == eos else bos, model.tokenizer_ and model.tokenizer_.unk_id]
    ids["suppress_tokens"] = [token for token in never if token is not None] or None
    ids = {name: value for name, value in ids.items() if value is not None}
    texts = {"config.json": _json(config), "generation_config.json": _json(ids)}
    if model.tokenizer_ is not None:
        texts |= _tokenizer_files(model.tokenizer_, config, model.reset_)
    texts[CARD] = model_card(model, record, license)
    for name in CODE:
        texts[name] = (Path(__file__).parent / "exported" / name).read_text("utf-8")
    with folder_aside(target, check_free) as aside:
        try:
            save_file(arrays, aside / WEIGHTS, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(f"the weights in {target} cannot be written: {error}") from error
        for name, text in texts.items():
            (aside / name).write_text(text, "utf-8", errors="backslashreplace")
        for path in aside.iterdir():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        shutil.copymode(aside / "config.json", aside / WEIGHTS)


def check_free(folder: Path) -> None:
    """Raise FileExistsError for a name that is taken by anything but an empty folder."""
    if not is_free(folder):
        raise FileExistsError(f"{folder} exists: choose another folder, or remove it")


def _described(model: SequenceModel) -> Described:
    """Return ``config.json`` of a model, and its arrays by their names in ``model.safetensors``."""
    if not isinstance(model, SequenceModel):
        raise ValueError(f"only a fitted model can be exported, got {type(model).__name__}")
    n_tokens, n_last, dtype = model.n_tokens_, 0, np.dtype("float32")
    if isinstance(model, NgramLanguageModel):
        n_last = width = max(1, model.ngrams_.order - 1)
        encoder: Described = {"kind": "none"}, {"nothing": np.zeros(1)}
        readout = describe_ngrams(model.ngrams_)
    elif isinstance(model, LanguageModel):
        encoder, readout = _parts(model)
        n_last, width = int(readout[0].get("n_direct", 0)), model.reservoir_.W_.shape[0]
        dtype = model.reservoir_.W_.dtype
    else:
        encoder, readout, width = describe_network(getattr(model, "network", model))
    arrays = with_prefix("model.encoder", encoder[1]) | with_prefix("readout", readout[1])
    ids = _special_ids(model)
    padded = ids["padding"] is not None and ids["padding"] >= n_tokens
    config = {
        "architectures": ["EsnlmForCausalLM"],
        "model_type": MODEL_TYPE,
        "auto_map": {
            "AutoConfig": "modeling_esnlm.EsnlmConfig",
            "AutoModel": "modeling_esnlm.EsnlmModel",
            "AutoModelForCausalLM": "modeling_esnlm.EsnlmForCausalLM",
        },
        "esnlm_version": __version__,
        "dtype": dtype.name,
        "vocab_size": ids["padding"] + 1 if padded else n_tokens,
        "n_tokens": n_tokens,
        "hidden_size": width,
        "encoder": encoder[0],
        "readout": readout[0],
        "n_last": n_last,
        **ids,
    }
    # Numbers with a point are stored in the dtype of the states, as readouts compute.
    return config, {
        name: np.ascontiguousarray(array, dtype=dtype if array.dtype.kind == "f" else None)
        for name, array in arrays.items()
    }


def _parts(model: LanguageModel) -> tuple[Described, Described]:
    """Return reservoir and readout of a model."""
    if not np.array_equal(model.readout_.classes_, np.arange(model.n_tokens_)):
        raise ValueError(
            f"the readout must have a column for each of the {model.n_tokens_} tokens, got"
            f" {len(model.readout_.classes_)} classes"
        )
    reservoir, arrays = describe_reservoir(model.reservoir_)
    if model.features_ is not None:
        reservoir["features"] = True
        arrays["features"] = model.features_.embedding_
    return (reservoir, arrays), describe_readout(model.readout_)


def _tokenizer_files(tokenizer: Tokenizer, config: Mapping[str, Any], reset: str) -> dict[str, str]:
    """Return ``tokenizer.json`` and ``tokenizer_config.json`` for ``AutoTokenizer``, as text.

    The tokenizer prepends BOS where ``config`` has one, and otherwise nothing. Clients that put
    the spelling of BOS before a text get one BOS, too, and BOS and EOS around it are no text.
    """
    layout = json.loads(tokenizer.to_json())
    layout["truncation"] = layout["padding"] = None
    if "bos_token_id" not in config:
        layout["post_processor"] = adding_nothing(layout)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 1 << 20,
        "clean_up_tokenization_spaces": False,
        "padding_side": "left",
        "split_special_tokens": True,  # as text
    }
    splitter = layout["pre_tokenizer"] or {}
    if "add_prefix_space" in splitter:  # or transformers 4 sets it to its own default
        settings["add_prefix_space"] = splitter["add_prefix_space"]
    if tokenizer.bos is not None and (patterns := _unmarked(tokenizer, reset)):
        steps = [
            {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
            for pattern, content in patterns
        ]
        steps += [] if layout["normalizer"] is None else [layout["normalizer"]]
        layout["normalizer"] = {"type": "Sequence", "normalizers": steps}
    tokens = {
        "bos_token": config.get("bos_token_id"),
        "eos_token": config.get("eos_token_id"),
        "unk_token": tokenizer.unk_id,
        "pad_token": config["padding"],
    }
    for name, token in tokens.items():
        if token is not None:
            settings[name] = tokenizer.spelling(token) or PAD
    if config["padding"] >= config["n_tokens"]:
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        added = {"id": config["padding"], "content": PAD, **flags, "special": True}
        layout["added_tokens"] = [*layout.get("added_tokens", []), added]
    return {
        "tokenizer.json": json.dumps(layout, ensure_ascii=False, indent=2) + "\n",
        "tokenizer_config.json": _json(settings),
    }


def _unmarked(tokenizer: Tokenizer, reset: str) -> list[tuple[str, str]]:
    """Return patterns, and what replaces them: a BOS before a text, or both marks around a line.

    See `esnlm.text.boundaries.without_marks`. As the end depends on the beginning, this becomes a
    character that is none, by which the end is found.
    """
    bos, eos = (re.escape(mark or "") for mark in (tokenizer.bos, tokenizer.eos))
    first = [] if reset == "never" else [rf"\s*{bos}"]
    if not eos or (reset != "sentence" and tokenizer.keeps_newlines):
        return [(rf"\A{mark}", "") for mark in first]
    return [
        (rf"\A\s*{bos}(?= (?:.* )?{eos}\s*\z)\s*", _NO_CHARACTER),
        (rf"\A{_NO_CHARACTER}(?:.*\S)?\K\s*{eos}\s*\z", ""),
        (rf"\A(?:{'|'.join([_NO_CHARACTER, *first])})", ""),
    ]


def _special_ids(model: SequenceModel) -> dict[str, Any]:
    """Return ids of BOS, EOS and padding, and of the token before which the state is zero."""
    tokenizer = model.tokenizer_
    if tokenizer is None:
        return {"reset_token_id": None, "padding": None}
    bos, eos = tokenizer.bos_id, tokenizer.eos_id
    ids: dict[str, Any] = {"reset_token_id": None}
    if model.reset_ != "never" and bos is not None:
        ids["bos_token_id"] = bos
        # An EOS between the lines of a document is no beginning, even if it is the same token.
        if model.reset_ == "sentence" or bos != eos or tokenizer.keeps_newlines:
            ids["reset_token_id"] = bos
    if eos is not None:
        ids["eos_token_id"] = eos
    # Clients take what equals the padding for padding, so a token that is read cannot serve.
    own = eos is not None and "bos_token_id" in ids and eos != bos
    ids["padding"] = eos if own else model.n_tokens_
    return ids


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
