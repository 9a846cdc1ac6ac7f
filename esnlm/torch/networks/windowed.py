"""The networks of Köster & Uchida (2025) that read a window of characters."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from esnlm.torch.device import full_precision
from esnlm.torch.networks.network import SHARE, Network, Settings, State
from esnlm.utils.validation import Count, limited

_WINDOWS_AT_ONCE = 4096


class WindowedNetwork(Network):
    """A network whose every prediction reads the last ``context`` tokens, and nothing else.

    A subclass defines `read`. Training on windows calls nothing else; `encode` gives every
    position of a text the hidden vector of its own window, which is shorter at the beginning.
    """

    #: Adam, 1 024 windows a step, five passes over every window of the text.
    RECIPE: ClassVar[Settings] = {
        "batching": "windows", "length": 32, "stride": 1, "last_only": True, "batch_size": 1024,
        "n_passes": 5, "learning_rate": 1e-4, "weight_decay": 0.0,
    }  # fmt: skip

    context: int

    @abstractmethod
    def read(self, tokens: Tensor) -> Tensor:
        """Hidden (n, D) after the last of tokens (n, L) int64, 1 <= L <= ``context``."""

    def last(self, tokens: Tensor) -> Tensor:
        """Hidden (n, D) after the last of tokens (n, T) int64, read from their last window."""
        return self.read(tokens[:, -self.context :])

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, D); the state is the last ``context`` - 1 tokens."""
        before = 0 if state is None else state.shape[1]
        text = tokens if state is None else torch.cat([state, tokens], dim=1)
        parts = [self.prefixes(text[:, : self.context], before)]
        if text.shape[1] > self.context:
            windows = text[:, 1:].unfold(1, self.context, 1)
            rows = windows.reshape(-1, self.context).split(_WINDOWS_AT_ONCE)
            hidden = torch.cat([self.read(part) for part in rows])
            parts.append(hidden.unflatten(0, windows.shape[:2]))
        return torch.cat(parts, dim=1), text[:, max(0, text.shape[1] - self.context + 1) :]

    def prefixes(self, tokens: Tensor, first: int) -> Tensor:
        """Hidden (B, L - first, D) after tokens[:, : first + 1] ... tokens, L <= ``context``."""
        lengths = range(first + 1, tokens.shape[1] + 1)
        return torch.stack([self.read(tokens[:, :length]) for length in lengths], dim=1)


@dataclass(eq=False, repr=False, kw_only=True)
class CharacterReservoir(WindowedNetwork):
    """Frozen reservoir over a window of characters, normalised, with a trained linear readout.

    ``r[t] = tanh(W r[t-1] + W_in e(u[t]))`` from zero at the beginning of each window (equation
    1); logits ``W_out LayerNorm(r) + b`` after its last character (equation 2). Embedding ``e``,
    ``W`` and ``W_in`` are drawn once and stay: normal, of standard deviation 1, 1/(0.9 √n_units)
    and 1/(0.9 √n_dims); the normalisation has no parameters. These are the settings of the
    authors' published code; the paper's text gives none.
    """

    n_units: int = limited(750, Count())  #: size N of the reservoir
    n_dims: int = limited(16, Count())  #: dimensions of the embedding
    context: int = limited(32, Count())  #: characters that a prediction reads

    def __post_init__(self) -> None:
        super().__post_init__()
        n, d = self.n_units, self.n_dims
        self.embedding = nn.Buffer(torch.randn(self.n_tokens, d))
        self.recurrent = nn.Buffer(torch.randn(n, n) / math.sqrt(n) / 0.9)
        self.inputs = nn.Buffer(torch.randn(n, d) / math.sqrt(d) / 0.9)
        self.readout = self._new_readout()

    def _new_readout(self) -> nn.Module:
        return nn.Linear(self.n_units, self.n_tokens)

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        return int(n_tokens * (settings["n_units"] + 1))

    @staticmethod
    def count_frozen(n_tokens: int, **settings: Any) -> int:
        n, d = settings["n_units"], settings["n_dims"]
        return int(n * n + n * d + n_tokens * d)

    def read(self, tokens: Tensor) -> Tensor:
        """Normalised states (n, N) after the last of tokens (n, L), from zero."""
        return self.prefixes(tokens, tokens.shape[1] - 1)[:, 0]

    @torch.no_grad()
    def prefixes(self, tokens: Tensor, first: int) -> Tensor:
        """Normalised states (B, L - first, N) of tokens (B, L), read once, from zero."""
        with full_precision(tokens):
            states = list(islice(self._states(tokens), first, None))
            return functional.layer_norm(torch.stack(states, dim=1), (self.n_units,))

    def _states(self, tokens: Tensor) -> Iterator[Tensor]:
        """States (n, N) after each of tokens (n, L)."""
        drive = self.embedding @ self.inputs.T  # what each token adds to the units, (V, N)
        state = drive[tokens[:, 0]].tanh_()
        yield state
        for column in tokens.T[1:]:
            state = torch.addmm(drive[column], state, self.recurrent.T).tanh_()
            yield state

    def head(self, hidden: Tensor) -> Tensor:
        """Return logits (..., V) of normalised states (..., N)."""
        return self.readout(hidden)

    def frozen_weights(self) -> list[Any]:
        return [self.recurrent, self.inputs, self.embedding]


@dataclass(eq=False, repr=False, kw_only=True)
class AttentionReservoir(CharacterReservoir):
    """The character reservoir with an `AttentionReadout` (AERC)."""

    #: Of Köster & Uchida, from about 15 000 to 155 000 trained parameters.
    PUBLISHED: ClassVar[tuple[Settings, ...]] = tuple(
        {"n_units": n, "n_hidden": h}
        for n, h in ((75, 13), (75, 19), (100, 20), (150, 25), (160, 30))
    )

    n_units: int = limited(75, Count())
    #: Size H of the readout's hidden layer and of its projection.
    n_hidden: int = limited(13, Count())

    def _new_readout(self) -> nn.Module:
        return AttentionReadout(self.n_units, self.n_hidden, self.n_tokens)

    @classmethod
    def family(cls) -> Iterator[Settings]:
        """Yield settings with five reservoir units for each hidden unit of the readout."""
        yield from ({"n_units": 5 * h, "n_hidden": h} for h in range(1, 1 << 10))

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        n, h = settings["n_units"], settings["n_hidden"]
        return int(2 * n * h + h + h * h * n + h * n_tokens + n_tokens)


class AttentionReadout(nn.Module):
    """States (..., N) -> logits (..., V), by weights that are a function of the state.

    Equations 3 to 5: ``A = F(r)``, an (H, N) matrix from a perceptron with one hidden layer of H
    rectified units; ``o = A r``; logits ``W_out o + b``. A is never formed: ``o`` is bilinear in
    the hidden units and the state, and H² products a row are fewer than H N.
    """

    def __init__(self, n_units: int, n_hidden: int, n_tokens: int) -> None:
        super().__init__()
        self.n_units, self.n_hidden = n_units, n_hidden
        self.hidden = nn.Linear(n_units, n_hidden)
        self.attention = nn.Linear(n_hidden, n_hidden * n_units)
        self.output = nn.Linear(n_hidden, n_tokens)

    def forward(self, state: Tensor) -> Tensor:
        """Return logits (..., V) of states (..., N)."""
        units = torch.relu(self.hidden(state))
        # A[h, n] = sum_k weight[h, n, k] units[k] + bias[h, n]
        weight = self.attention.weight.unflatten(0, (self.n_hidden, self.n_units))
        bias = self.attention.bias.view(self.n_hidden, self.n_units)
        products = (state @ weight.movedim(1, 0).flatten(1)).unflatten(-1, (self.n_hidden, -1))
        projected = (products @ units.unsqueeze(-1)).squeeze(-1) + state @ bias.T
        return self.output(projected)


@dataclass(eq=False, repr=False, kw_only=True)
class CharacterTransformer(WindowedNetwork):
    """Transformer encoder over a window of characters, read out at the last one.

    Embedding and sinusoidal positions (Vaswani et al. 2017), layers of attention over the whole
    window and a rectified feed-forward net, each followed by LayerNorm, then a linear map of the
    last position's vector to logits. Nothing is masked: a window serves one prediction. A shorter
    text takes the last positions, so that distances to the predicted character are those of
    training.
    """

    #: Of Köster & Uchida, from about 15 000 to 155 000 trained parameters.
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
        layers = (
            nn.TransformerEncoderLayer(
                n_dims, n_heads, self.n_hidden, self.dropout, batch_first=True
            )
            for _ in range(self.n_layers)
        )
        self.layers = nn.ModuleList(layers)
        self.output = nn.Linear(n_dims, self.n_tokens)

    @classmethod
    def family(cls) -> Iterator[Settings]:
        """Yield settings of growing n_hidden: 4 layers of 4 heads, then 8 layers of 8 heads."""
        yield from ({"n_hidden": f, "n_heads": 4, "n_layers": 4} for f in range(4, 68, 4))
        yield from ({"n_hidden": f, "n_heads": 8, "n_layers": 8} for f in range(36, 1 << 13, 4))

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
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
    last: Tensor = layer.norm2(x + layer.dropout2(layer.linear2(units)))
    return last[:, 0]


def sinusoids(n_positions: int, n_dims: int) -> Tensor:
    """Positions (n_positions, n_dims): sines and cosines of wavelengths to 2π 10⁴ (Vaswani)."""
    rates = torch.exp(torch.arange(0, n_dims, 2) * (-math.log(10_000) / n_dims))
    angles = torch.arange(n_positions)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
