"""A small GPT with rotary positions, the trained rival of networks that read frozen states."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from esnlm.torch.networks.attention import feed_forward
from esnlm.torch.networks.dropout import Dropout
from esnlm.torch.networks.network import SHARE, Network, Settings, State
from esnlm.torch.networks.two_level_softmax import TwoLevelSoftmax
from esnlm.utils.validation import Count, Flag, limited

_LONGEST_WAVE = 1e4
_HEAD_SIZE = 64

Cache = tuple[Tensor, Tensor]


@dataclass(eq=False, repr=False, kw_only=True)
class GPT(Network):
    """Transformer layers with rotary positions, and a softmax over classes and their words.

    ``x += O attention(LayerNorm(x))``, then ``x += B gelu(A LayerNorm(x))``, in each layer
    (Vaswani et al. 2017; Xiong et al. 2020). Queries and keys of a head have the root mean square
    one (Henry et al. 2020), and are turned by angles that grow with their place (Su et al. 2021).
    """

    RECIPE: ClassVar[Settings] = {
        "batch_size": 128, "pool": 64, "learning_rate": 2e-3, "weight_decay": 0.05,
        "betas": (0.9, 0.98), "schedule": "warmup-hold-cosine", "warmup": 0.02, "clip": 1.0,
    }  # fmt: skip

    #: Width D of the layers, an even multiple of ``n_heads``.
    n_units: int = limited(256, Count())
    n_layers: int = limited(4, Count())
    n_heads: int = limited(4, Count())
    #: The most tokens that a prediction reads.
    context: int = limited(512, Count())
    #: Of embeddings and of what each half of a layer adds.
    dropout: float = limited(0.0, SHARE)
    two_level: bool = limited(True, Flag())  #: classes first; false: one softmax over all words

    def __post_init__(self) -> None:
        """Build the layers; raise ValueError unless 2 n_heads divides n_units."""
        super().__post_init__()
        if self.n_units % (2 * self.n_heads):
            raise ValueError(
                f"n_units must be a multiple of 2 n_heads={2 * self.n_heads}, got {self.n_units}"
            )
        self.longest, self.stride = self.context, max(1, self.context // 2)
        self.embedding = nn.Embedding(self.n_tokens, self.n_units)
        nn.init.normal_(self.embedding.weight, std=0.02)
        layers = (_Layer(self.n_units, self.n_heads, self.dropout) for _ in range(self.n_layers))
        self.layers = nn.ModuleList(layers)
        self.drop, self.norm = Dropout(self.dropout), nn.LayerNorm(self.n_units)
        kind: Any = TwoLevelSoftmax if self.two_level else nn.Linear
        self.output = kind(self.n_units, self.n_tokens)

    @classmethod
    def family(cls) -> Iterator[Settings]:
        """Yield settings of growing width, heads of 64 dimensions."""
        yield from ({"n_units": d, "n_heads": 1} for d in range(2, _HEAD_SIZE, 2))
        for n_heads in range(1, 1 << 8):
            yield {"n_units": _HEAD_SIZE * n_heads, "n_heads": n_heads}

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        """Return V D + n_layers (12 D² + 13 D) + 2 D, and the parameters of the output."""
        d, layers = settings["n_units"], settings["n_layers"]
        total = n_tokens * d + layers * (12 * d * d + 13 * d) + 2 * d
        if settings["two_level"]:
            return int(total + TwoLevelSoftmax.count(d, n_tokens))
        return int(total + n_tokens * (d + 1))

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, D); the state is keys and values of each layer.

        All pieces of a text together hold ``context`` tokens at most.
        """
        hidden, state = self.through(self.layers, self.drop(self.embedding(tokens)), state)
        return self.norm(hidden), state

    def start(self, width: int) -> Tensor:
        """Return what the output reads of a hidden vector of zeros."""
        hidden: Tensor = self.norm(super().start(width))
        return hidden


class _Layer(nn.Module):
    """Attention to all places before and their own, then hidden units of four times the width."""

    def __init__(self, width: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.norm = n_heads, nn.LayerNorm(width)
        self.reads, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        nn.init.normal_(self.out.weight, std=0.02)
        self.block, self.drop = feed_forward(width, 4 * width), Dropout(dropout)

    def forward(self, x: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        """Return x (B, T, D) after the layer, and keys and values (B, heads, places, d)."""
        read = self.reads(self.norm(x)).unflatten(-1, (3, self.n_heads, -1))
        queries, keys, values = read.permute(2, 0, 3, 1, 4)
        first = 0 if cache is None else cache[0].shape[2]
        normed = (functional.rms_norm(each, each.shape[-1:]) for each in (queries, keys))
        queries, keys = (_turned(each, first) for each in normed)
        if cache is not None:
            keys, values = (torch.cat(pair, 2) for pair in zip(cache, (keys, values), strict=True))
        future = torch.ones(x.shape[1], keys.shape[2], dtype=torch.bool, device=x.device)
        # The compiled attention of torch takes twice as long for sentences of a dozen tokens.
        scores = queries @ keys.transpose(2, 3) * queries.shape[-1] ** -0.5
        scores = scores.masked_fill(future.triu(first + 1), float("-inf"))
        heads = scores.softmax(dim=-1).to(values.dtype) @ values
        x = x + self.drop(self.out(heads.transpose(1, 2).flatten(2)))
        return x + self.drop(self.block(x)), (keys, values)


def _turned(vectors: Tensor, first: int) -> Tensor:
    """Turn pairs of entries of vectors (..., T, d) by angles of the places from ``first`` on."""
    n, half = vectors.shape[-2], vectors.shape[-1] // 2
    places = torch.arange(first, first + n, device=vectors.device, dtype=torch.float32)
    exponents = torch.arange(half, device=vectors.device, dtype=torch.float32) / half
    angles = places[:, None] * _LONGEST_WAVE**-exponents
    cos, sin = angles.cos().to(vectors.dtype), angles.sin().to(vectors.dtype)
    x, y = vectors.split(half, dim=-1)
    return torch.cat([x * cos - y * sin, x * sin + y * cos], dim=-1)
