"""Load GPT-2 from a local folder of transformers."""

from pathlib import Path
from typing import Any

import torch

from esnlm.storage.json_files import read_json
from esnlm.storage.model_folder import ModelFormatError, restoring
from esnlm.text.tokenizers import Tokenizer
from esnlm.torch.language_model import TorchLanguageModel
from esnlm.torch.networks.gpt2 import GPT2, SIZES
from esnlm.torch.optional import require_transformers

END_OF_TEXT = "<|endoftext|>"
#: Settings that `GPT2` does not have: they must be transformers' defaults.
_FIXED = (
    "activation_function", "layer_norm_epsilon", "n_inner", "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention",
    "tie_word_embeddings",
)  # fmt: skip


def pretrained(folder: str | Path) -> TorchLanguageModel:
    """GPT-2 and its tokenizer from a folder of transformers, as a language model.

    The folder has ``config.json``, ``model.safetensors`` and ``tokenizer.json``, or ``vocab.json``
    and ``merges.txt``. Nothing is downloaded and nothing in it is run. Sentences begin and end
    with ``<|endoftext|>``. ModelFormatError if the folder holds no GPT-2 that `GPT2` computes.
    """
    require_transformers(f"the model {folder}")
    from transformers import GPT2Config

    place = Path(folder)
    with restoring(place):
        config, default = _config(place), GPT2Config()
        for name in _FIXED:
            if config.get(name, getattr(default, name)) != getattr(default, name):
                raise ModelFormatError(
                    f"{place} has {name} = {config[name]!r}, expected {getattr(default, name)!r}"
                )
        files = list(place.glob("*.safetensors"))
        if not files:
            raise ModelFormatError(f"{place} has no weights in safetensors: convert them first")
        sizes = {name: config.get(key, getattr(default, key)) for name, key in SIZES.items()}
        n_parameters = GPT2.count(config.get("vocab_size", default.vocab_size), **sizes)
        if n_parameters > (n_bytes := sum(path.stat().st_size for path in files)):
            raise ModelFormatError(
                f"{place} is not a whole model: {n_parameters} parameters in {n_bytes} bytes of"
                " weights"
            )
        loaded = _loaded(place)
        sizes = {name: getattr(loaded.config, key) for name, key in SIZES.items()}
        network = GPT2(loaded.config.vocab_size, dropout=loaded.config.resid_pdrop, **sizes)
        network.transformer.load_state_dict(loaded.transformer.state_dict())
        return TorchLanguageModel(network.eval(), _tokenizer(place, network.n_tokens), "sentence")


def _loaded(folder: Path) -> Any:
    """Return transformers' GPT-2 from a folder; raise ModelFormatError where it is not whole."""
    from transformers import GPT2LMHeadModel

    try:
        loaded, report = GPT2LMHeadModel.from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, dtype=torch.float32,
            output_loading_info=True,
        )  # fmt: skip
    except MemoryError:
        raise
    except Exception as error:  # of many libraries, some without any common kind
        raise ModelFormatError(f"{folder} is not a whole model: {error}") from error
    if missing := sorted(report["missing_keys"]):
        raise ModelFormatError(f"{folder} is not a whole model: it lacks {missing[0]}")
    return loaded


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = read_json(folder / "config.json")
    except (OSError, ValueError) as error:
        raise ModelFormatError(f"{folder} holds no model of transformers: {error}") from error
    if not isinstance(config, dict) or config.get("model_type") != "gpt2":
        raise ModelFormatError(f"{folder} holds no GPT-2: its config.json says otherwise")
    return config


def _tokenizer(folder: Path, n_tokens: int) -> Tokenizer:
    """Return the tokenizer of the folder, with `END_OF_TEXT` as BOS and EOS."""
    path = folder / "tokenizer.json"
    if path.exists():
        tokenizer = Tokenizer.from_file(path, bos=END_OF_TEXT, eos=END_OF_TEXT)
    else:
        from tokenizers import AddedToken
        from tokenizers.implementations import ByteLevelBPETokenizer

        files = [folder / name for name in ("vocab.json", "merges.txt")]
        for path in files:
            if not path.exists():
                raise ModelFormatError(f"{folder} has no tokenizer.json and no {path.name}")
        made = ByteLevelBPETokenizer.from_file(*map(str, files))
        made.add_special_tokens([AddedToken(END_OF_TEXT)])
        tokenizer = Tokenizer(made._tokenizer, bos=END_OF_TEXT, eos=END_OF_TEXT).prepend_bos()
    if len(tokenizer) != n_tokens:
        raise ModelFormatError(
            f"the tokenizer in {folder} has {len(tokenizer)} tokens, the model {n_tokens}"
        )
    return tokenizer
