"""GPT-2 (Radford et al. 2019) as transformers has it, from scratch or from a local folder."""

from typing import Any, ClassVar

from torch import Tensor

from esnlm.torch.networks.network import Network, State
from esnlm.torch.optional import require_transformers
from esnlm.utils.validation import check_count

SIZES = {"n_units": "n_embd", "n_layers": "n_layer", "n_heads": "n_head", "context": "n_positions"}
_DROPOUTS = ("attn_pdrop", "embd_pdrop", "resid_pdrop")


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
        named: dict[str, Any] = {SIZES[name]: size for name, size in sizes.items()}
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
