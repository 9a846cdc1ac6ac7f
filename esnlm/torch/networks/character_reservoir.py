"""The character reservoir of Köster & Uchida (paper 004), read out by one linear layer."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from esnlm.reservoir.reservoir import Reservoir
from esnlm.torch.device import full_precision
from esnlm.torch.networks.windows import WindowedNetwork
from esnlm.utils.validation import check_count


class CharacterReservoir(WindowedNetwork):
    """Frozen reservoir over a window of characters, normalised, with a trained linear readout.

    ``r[t] = tanh(W r[t-1] + W_in e(u[t]))`` from zero at the beginning of each window (equation
    1); logits ``W_out LayerNorm(r) + b`` after its last character (equation 2). Embedding ``e``,
    ``W`` and ``W_in`` are drawn once and stay: normal, of standard deviation 1, 1/(0.9 √n_units)
    and 1/(0.9 √n_dims); the normalisation has no parameters. These are the settings of the
    authors' published code; the paper's text gives none.

    Parameters
    ----------
    n_tokens : int
        Size of the vocabulary V.
    n_units : int
        Size of the reservoir N. Trained parameters: V (N + 1).
    n_dims : int
        Dimensions of the embedding.
    context : int
        Characters that a prediction reads.

    Examples
    --------
    >>> network = CharacterReservoir(50, n_units=20)
    >>> hidden, _ = network.encode(torch.zeros((1, 40), dtype=torch.int64))
    >>> hidden.shape, network.head(hidden).shape
    (torch.Size([1, 40, 20]), torch.Size([1, 40, 50]))
    >>> bool(torch.allclose(hidden[0, 31], hidden[0, 39], atol=1e-4))
    True
    """

    embedding: Tensor
    recurrent: Tensor
    inputs: Tensor

    def __init__(
        self, n_tokens: int, *, n_units: int = 750, n_dims: int = 16, context: int = 32
    ) -> None:
        super().__init__()
        sizes = {"n_tokens": n_tokens, "n_units": n_units, "n_dims": n_dims, "context": context}
        for name, size in sizes.items():
            check_count(name, size)
        self.n_tokens = n_tokens
        self.n_units = n_units
        self.n_dims = n_dims
        self.window = context
        self.register_buffer("embedding", torch.randn(n_tokens, n_dims))
        self.register_buffer("recurrent", torch.randn(n_units, n_units) / math.sqrt(n_units) / 0.9)
        self.register_buffer("inputs", torch.randn(n_units, n_dims) / math.sqrt(n_dims) / 0.9)
        self.readout = self._new_readout()

    def _new_readout(self) -> nn.Module:
        return nn.Linear(self.n_units, self.n_tokens)

    def settings(self) -> dict[str, Any]:
        """Constructor arguments by name."""
        names = ("n_tokens", "n_units", "n_dims")
        return {name: getattr(self, name) for name in names} | {"context": self.window}

    @torch.no_grad()
    def read(self, tokens: Tensor) -> Tensor:
        """Normalised states (n, N) after the last of tokens (n, L), from zero."""
        with full_precision(tokens):
            for state in self._states(tokens):
                last = state
            return functional.layer_norm(last, (self.n_units,))

    @torch.no_grad()
    def prefixes(self, tokens: Tensor, first: int) -> Tensor:
        """Normalised states (B, L - first, N) of tokens (B, L), from zero, in one go."""
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
        """Normalised states (..., N) -> logits (..., V)."""
        logits: Tensor = self.readout(hidden)
        return logits

    def frozen_weights(self) -> tuple[int, int]:
        """Entries of ``W``, ``W_in`` and the embedding; none is zero."""
        n = self.recurrent.numel() + self.inputs.numel() + self.embedding.numel()
        return n, n

    def reservoir(self) -> Reservoir:
        """The same reservoir in the core; its inputs are the rows of ``embedding``."""
        kind = str(self.recurrent.dtype).removeprefix("torch.")
        made = Reservoir(self.n_units, spectral_radius=1 / 0.9, degree=self.n_units, dtype=kind)
        recurrent, inputs = (tensor.cpu().numpy() for tensor in (self.recurrent, self.inputs))
        return made.set_weights(recurrent, inputs, np.zeros(self.n_units), np.ones(self.n_units))
