"""The character transformer of Köster & Uchida (paper 004)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from esnlm.torch.networks.network import SHARE, Settings, WindowedNetwork
from esnlm.utils.validation import Count, limited


@dataclass(eq=False, repr=False, kw_only=True)
class CharacterTransformer(WindowedNetwork):
    """Transformer encoder over a window of characters, read out at the last one.

    Embedding and sinusoidal positions (Vaswani et al. 2017), layers of attention over the whole
    window and a rectified feed-forward net, each followed by LayerNorm, then a linear map of the
    last position's vector to logits. Nothing is masked: a window serves one prediction. A shorter
    text takes the last positions, so that distances to the predicted character are those of
    training.
    """

    #: Of paper 004, from about 15 000 to 155 000 trained parameters.
    PUBLISHED: ClassVar[tuple[Settings, ...]] = tuple(
        {"n_hidden": f, "n_heads": heads, "n_layers": layers}
        for f, heads, layers in (
            (64, 4, 4), (72, 8, 8), (128, 8, 8), (356, 8, 8), (256, 16, 16),
        )
    )  # fmt: skip

    n_hidden: int = limited(64, Count())  #: size F of the feed-forward nets
    n_heads: int = limited(4, Count())
    n_layers: int = limited(4, Count())
    #: Dimensions D of the embedding, a multiple of ``n_heads`` and of 2.
    n_dims: int = limited(16, Count())
    dropout: float = limited(0.1, SHARE)
    context: int = limited(32, Count())  #: characters that a prediction reads

    def __post_init__(self) -> None:
        """Build the layers; raise ValueError unless n_heads and 2 divide n_dims."""
        super().__post_init__()
        n_dims, n_heads = self.n_dims, self.n_heads
        if n_dims % n_heads or n_dims % 2:
            raise ValueError(f"n_dims must be a multiple of n_heads={n_heads} and 2, got {n_dims}")
        self.embedding = nn.Embedding(self.n_tokens, n_dims)
        self.positions = nn.Buffer(sinusoids(self.context, n_dims), persistent=False)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                n_dims, n_heads, self.n_hidden, self.dropout, batch_first=True
            )
            for _ in range(self.n_layers)
        )
        self.output = nn.Linear(n_dims, self.n_tokens)

    @classmethod
    def family(cls) -> Iterator[Settings]:
        """Yield settings of growing n_hidden: 4 layers of 4 heads, then 8 layers of 8 heads."""
        yield from ({"n_hidden": f, "n_heads": 4, "n_layers": 4} for f in range(4, 68, 4))
        yield from ({"n_hidden": f, "n_heads": 8, "n_layers": 8} for f in range(36, 1 << 13, 4))

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        """Return the number of trained parameters: layers, embedding and output."""
        d, f = settings["n_dims"], settings["n_hidden"]
        layer = 4 * d * d + 9 * d + 2 * d * f + f
        return int(settings["n_layers"] * layer + 2 * d * n_tokens + n_tokens)

    def read(self, tokens: Tensor) -> Tensor:
        """Return the last position's vector (n, D) of tokens (n, L)."""
        hidden = self.embedding(tokens) + self.positions[self.context - tokens.shape[1] :]
        for layer in self.layers[:-1]:
            hidden = layer(hidden)
        return _at_the_last(self.layers[-1], hidden)


def _at_the_last(layer: nn.TransformerEncoderLayer, hidden: Tensor) -> Tensor:
    """Return the last position (n, D) of ``layer(hidden)``, without computing the others."""
    query = hidden[:, -1:]
    attended, _ = layer.self_attn(query, hidden, hidden, need_weights=False)
    x = layer.norm1(query + layer.dropout1(attended))
    units = layer.dropout(layer.activation(layer.linear1(x)))
    found: Tensor = layer.norm2(x + layer.dropout2(layer.linear2(units)))
    return found[:, 0]


def sinusoids(n_positions: int, n_dims: int) -> Tensor:
    """Positions (n_positions, n_dims): sines and cosines of wavelengths to 2π 10⁴ (Vaswani)."""
    rates = torch.exp(torch.arange(0, n_dims, 2) * (-math.log(10_000) / n_dims))
    angles = torch.arange(n_positions)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
