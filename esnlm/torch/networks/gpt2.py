"""GPT-2 (Radford et al. 2019) as transformers implements it, trained here or read from a folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from esnlm.storage.json_files import read_json
from esnlm.storage.model_folder import ModelFormatError, restoring
from esnlm.text.files import files_in
from esnlm.text.tokenizers import Tokenizer
from esnlm.torch import require_transformers
from esnlm.torch.language_model import TorchLanguageModel
from esnlm.torch.networks.network import SHARE, Network, Settings, State
from esnlm.utils.validation import Count, limited

#: Our names of settings -> transformers'.
SIZES = {"n_units": "n_embd", "n_layers": "n_layer", "n_heads": "n_head", "context": "n_positions"}
END_OF_TEXT = "<|endoftext|>"
#: Settings that `GPT2` does not have: they must be transformers' defaults.
_FIXED = (
    "activation_function", "layer_norm_epsilon", "n_inner", "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention",
    "tie_word_embeddings",
)  # fmt: skip


@dataclass(eq=False, repr=False, kw_only=True)
class GPT2(Network):
    """GPT-2 in transformers' default configuration, but for the settings.

    Trained parameters: (V + context) D + n_layers (12 D² + 13 D) + 2 D, that is 124.4 million by
    default.
    """

    PUBLISHED: ClassVar[tuple[Settings, ...]] = ({"n_units": 768, "n_heads": 12, "n_layers": 12},)

    #: Width D of the layers, a multiple of ``n_heads``.
    n_units: int = limited(768, Count())
    n_layers: int = limited(12, Count())
    n_heads: int = limited(12, Count())
    #: Positions: the most tokens that a prediction reads.
    context: int = limited(1024, Count())
    #: Of embeddings, attention weights and the outputs of layers' halves.
    dropout: float = limited(0.1, SHARE)

    def __post_init__(self) -> None:
        """Build transformers' GPT-2; raise ValueError unless n_heads divides n_units."""
        self.require()
        from transformers import GPT2Config, GPT2Model

        super().__post_init__()
        if self.n_units % self.n_heads:
            raise ValueError(
                f"n_units must be a multiple of n_heads={self.n_heads}, got {self.n_units}"
            )
        self.longest, self.stride = self.context, max(1, self.context // 2)
        sizes: dict[str, Any] = {theirs: getattr(self, ours) for ours, theirs in SIZES.items()}
        sizes |= dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), self.dropout)
        config = GPT2Config(vocab_size=self.n_tokens, bos_token_id=None, eos_token_id=None, **sizes)
        self.transformer = GPT2Model(config)

    @classmethod
    def require(cls) -> None:
        """Raise ValueError if transformers is not installed."""
        require_transformers("model gpt2")

    @classmethod
    def family(cls) -> Iterator[Settings]:
        """Heads of 64 dimensions; depth and width grow together, through 12 layers of 768."""
        yield from ({"n_units": d, "n_heads": 1, "n_layers": 1} for d in range(4, 64, 4))
        for d in range(64, 1 << 13, 64):
            for n_layers in range(max(1, d // 96), d // 48 + 2):
                yield {"n_units": d, "n_heads": d // 64, "n_layers": n_layers}

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        d, layers = settings["n_units"], settings["n_layers"]
        return int((n_tokens + settings["context"]) * d + layers * (12 * d * d + 13 * d) + 2 * d)

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, D); the state is keys and values of each layer.

        All pieces of a text together hold ``context`` tokens at most.
        """
        from transformers import DynamicCache

        cache = DynamicCache(config=self.transformer.config)
        for layer, (keys, values) in enumerate(state or ()):
            cache.update(keys, values, layer)
        outputs = self.transformer(tokens, past_key_values=cache, use_cache=True)
        states = tuple((layer.keys, layer.values) for layer in outputs.past_key_values.layers)
        return outputs.last_hidden_state, states

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden (..., D) -> logits (..., V), by the embedding (tied)."""
        return hidden @ self.transformer.wte.weight.T


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
        files = files_in(place, ".safetensors")
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
        bpe = ByteLevelBPETokenizer.from_file(*map(str, files))
        bpe.add_special_tokens([AddedToken(END_OF_TEXT)])
        tokenizer = Tokenizer(bpe._tokenizer, bos=END_OF_TEXT, eos=END_OF_TEXT).prepend_bos()
    if len(tokenizer) != n_tokens:
        raise ModelFormatError(
            f"the tokenizer in {folder} has {len(tokenizer)} tokens, the model {n_tokens}"
        )
    return tokenizer
