"""GPT-2 (Radford et al. 2019) as transformers has it, from scratch or from a local folder."""

import json
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from torch import Tensor

from esnlm.persistence import ModelFormatError
from esnlm.tokenizers import Tokenizer
from esnlm.torch.language_model import TorchLanguageModel
from esnlm.torch.needed import require_transformers
from esnlm.torch.network import Network, State
from esnlm.validation import check_count

END_OF_TEXT = "<|endoftext|>"
_SIZES = {"n_units": "n_embd", "n_layers": "n_layer", "n_heads": "n_head", "context": "n_positions"}
_DROPOUTS = ("attn_pdrop", "embd_pdrop", "resid_pdrop")
#: What decides on the function and has no setting here: it must be as transformers' default.
_FIXED = (
    "activation_function", "layer_norm_epsilon", "n_inner", "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention",
    "tie_word_embeddings",
)  # fmt: skip


class GPT2(Network):
    """GPT-2 in transformers' default configuration, but for the settings.

    Parameters
    ----------
    n_tokens : int
        Size of the vocabulary V.
    n_units, n_layers, n_heads : int
        Width D of the layers, a multiple of ``n_heads``. Trained parameters:
        (V + context) D + n_layers (12 D² + 13 D) + 2 D, that is 124.4 million by default.
    context : int
        Positions: a prediction reads so many tokens at most.
    dropout : float
        Of embeddings, attention weights and the outputs of both halves of a layer.
    """

    RECIPE: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        n_tokens: int,
        *,
        n_units: int = 768,
        n_layers: int = 12,
        n_heads: int = 12,
        context: int = 1024,
        dropout: float = 0.1,
    ) -> None:
        self.require()
        from transformers import GPT2Config, GPT2Model

        super().__init__()
        sizes = {"n_units": n_units, "n_layers": n_layers, "n_heads": n_heads, "context": context}
        for name, size in ({"n_tokens": n_tokens} | sizes).items():
            check_count(name, size)
        if n_units % n_heads:
            raise ValueError(f"n_units must be a multiple of n_heads={n_heads}, got {n_units}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {dropout}")
        self.n_tokens = n_tokens
        self.sizes = sizes
        self.dropout = dropout
        self.window = context
        self.stride = max(1, context // 2)
        named: dict[str, Any] = {_SIZES[name]: size for name, size in sizes.items()}
        named |= dict.fromkeys(_DROPOUTS, dropout)
        config = GPT2Config(vocab_size=n_tokens, bos_token_id=None, eos_token_id=None, **named)
        self.transformer = GPT2Model(config)

    @classmethod
    def require(cls) -> None:
        require_transformers("model gpt2")

    def settings(self) -> dict[str, Any]:
        """Constructor arguments by name."""
        return {"n_tokens": self.n_tokens} | self.sizes | {"dropout": self.dropout}

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, D); the state is keys and values of each layer.

        All pieces of a text together hold ``context`` tokens at most.
        """
        from transformers import DynamicCache

        cache = DynamicCache(config=self.transformer.config)
        for layer, (keys, values) in enumerate(state or ()):
            cache.update(keys, values, layer)
        done = self.transformer(tokens, past_key_values=cache, use_cache=True)
        reached = tuple((layer.keys, layer.values) for layer in done.past_key_values.layers)
        return done.last_hidden_state, reached

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden (..., D) -> logits (..., V), by the embedding (tied)."""
        return hidden @ self.transformer.wte.weight.T


def pretrained(folder: str | Path) -> TorchLanguageModel:
    """The language model of a folder of transformers: GPT-2 and its tokenizer.

    The folder has ``config.json``, ``model.safetensors`` and ``tokenizer.json``, or ``vocab.json``
    and ``merges.txt``. Nothing is downloaded and nothing in it is run. Sentences begin and end
    with ``<|endoftext|>``.

    Raises
    ------
    ModelFormatError
        The folder holds no GPT-2, or one with settings that `GPT2` does not have.
    """
    require_transformers(f"the model {folder}")
    from transformers import GPT2Config

    place = Path(folder)
    config = _config(place)
    default = GPT2Config()
    for name in _FIXED:
        if config.get(name, getattr(default, name)) != getattr(default, name):
            raise ModelFormatError(
                f"{folder} has {name} = {config[name]!r}, expected {getattr(default, name)!r}"
            )
    if not list(place.glob("*.safetensors")):
        raise ModelFormatError(f"{folder} has no weights in safetensors: convert them first")
    loaded = _loaded(place)
    sizes = {name: getattr(loaded.config, key) for name, key in _SIZES.items()}
    network = GPT2(loaded.config.vocab_size, dropout=loaded.config.resid_pdrop, **sizes)
    network.transformer.load_state_dict(loaded.transformer.state_dict())
    return TorchLanguageModel(network.eval(), _tokenizer(place, network.n_tokens), "sentence")


def _loaded(folder: Path) -> Any:
    """The model as transformers loads it."""
    from transformers import GPT2LMHeadModel

    try:
        loaded, told = GPT2LMHeadModel.from_pretrained(
            str(folder),
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelFormatError(f"{folder} is not a whole model: {error}") from error
    missing = sorted(told["missing_keys"])
    if missing:
        raise ModelFormatError(f"{folder} is not a whole model: it lacks {missing[0]}")
    return loaded


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ModelFormatError(f"{folder} holds no model of transformers: {error}") from error
    if not isinstance(config, dict) or config.get("model_type") != "gpt2":
        raise ModelFormatError(f"{folder} holds no GPT-2: its config.json says otherwise")
    return config


def _tokenizer(folder: Path, n_tokens: int) -> Tokenizer:
    """The tokenizer of the folder, with `END_OF_TEXT` for both ends."""
    path = folder / "tokenizer.json"
    if path.exists():
        tokenizer = Tokenizer.from_file(path, bos=END_OF_TEXT, eos=END_OF_TEXT)
    else:
        tokenizer = _byte_pairs(folder)
    if len(tokenizer) != n_tokens:
        raise ModelFormatError(
            f"the tokenizer in {folder} has {len(tokenizer)} tokens, the model {n_tokens}"
        )
    return tokenizer


def _byte_pairs(folder: Path) -> Tokenizer:
    from tokenizers import AddedToken
    from tokenizers.implementations import ByteLevelBPETokenizer

    files = [folder / name for name in ("vocab.json", "merges.txt")]
    for path in files:
        if not path.exists():
            raise ModelFormatError(f"{folder} has no tokenizer.json and no {path.name}")
    made = ByteLevelBPETokenizer.from_file(*map(str, files))
    made.add_special_tokens([AddedToken(END_OF_TEXT)])
    return Tokenizer(made._tokenizer, bos=END_OF_TEXT, eos=END_OF_TEXT).prepend_bos()
