"""GPT-2 (Radford et al. 2019) as transformers implements it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from esnlm.torch.networks.network import SHARE, Network, Settings, State
from esnlm.torch.optional import require_transformers
from esnlm.utils.validation import Count, limited

#: Our names of settings -> transformers'.
SIZES = {"n_units": "n_embd", "n_layers": "n_layer", "n_heads": "n_head", "context": "n_positions"}


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
        named: dict[str, Any] = {theirs: getattr(self, ours) for ours, theirs in SIZES.items()}
        named |= dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), self.dropout)
        config = GPT2Config(vocab_size=self.n_tokens, bos_token_id=None, eos_token_id=None, **named)
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
        """Return the number of trained parameters: layers, positions and the tied embedding."""
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
        done = self.transformer(tokens, past_key_values=cache, use_cache=True)
        states = tuple((layer.keys, layer.values) for layer in done.past_key_values.layers)
        return done.last_hidden_state, states

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden (..., D) -> logits (..., V), by the embedding (tied)."""
        return hidden @ self.transformer.wte.weight.T
