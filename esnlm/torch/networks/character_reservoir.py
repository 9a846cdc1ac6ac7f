"""The character reservoirs of Köster & Uchida (paper 004): a linear and an attention readout."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from esnlm.torch.device import full_precision
from esnlm.torch.networks.network import Settings, WindowedNetwork
from esnlm.utils.validation import Count, limited


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
        """Return the number of trained parameters: weights and biases of the readout."""
        return int(n_tokens * (settings["n_units"] + 1))

    @staticmethod
    def count_frozen(n_tokens: int, **settings: Any) -> int:
        """Return the number of frozen weights: recurrent, input and embedding."""
        n, d = settings["n_units"], settings["n_dims"]
        return int(n * n + n * d + n_tokens * d)

    @torch.no_grad()
    def read(self, tokens: Tensor) -> Tensor:
        """Normalised states (n, N) after the last of tokens (n, L), from zero."""
        with full_precision(tokens):
            for state in self._states(tokens):
                last = state
            return functional.layer_norm(last, (self.n_units,))

    @torch.no_grad()
    def prefixes(self, tokens: Tensor, first: int) -> Tensor:
        """Normalised states (B, L - first, N) of tokens (B, L), read once, from zero."""
        with full_precision(tokens):
            states = list(self._states(tokens))[first:]
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
        """Return recurrent weights (N, N), input weights (N, d) and the embedding (V, d)."""
        return [self.recurrent, self.inputs, self.embedding]


@dataclass(eq=False, repr=False, kw_only=True)
class AttentionReservoir(CharacterReservoir):
    """The character reservoir with an `AttentionReadout` (AERC)."""

    #: Of paper 004, from about 15 000 to 155 000 trained parameters.
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
        """Return the number of trained parameters, all of the attention readout."""
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
        self.n_units = n_units
        self.n_hidden = n_hidden
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
