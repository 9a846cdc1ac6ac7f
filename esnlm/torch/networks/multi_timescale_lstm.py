"""The multi-timescale LSTM language model of Mahto et al. (paper 002) and its baseline."""

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from esnlm.reservoir.timescales import inverse_gamma_timescales
from esnlm.torch.networks.lstm_layer import GatedLayer
from esnlm.torch.networks.network import Network, State
from esnlm.utils.validation import check_count, check_finite

#: Timescales of the first layer, by halves (section 3.1.1).
FIRST_LAYER = (3.0, 4.0)


class AWDLSTM(Network):
    """The baseline: stacked LSTM layers between tied embeddings (Merity et al. 2018).

    Every dropout draws one mask for the whole of the text that it is given, as Merity's do: words
    leave the embedding, units leave inputs and outputs of layers, recurrent weights leave the
    layers. Embeddings start uniform in ±0.1, layers in ±1/√units as in the authors' published
    code; their text has ±1/units.

    Parameters
    ----------
    n_tokens : int
        Size of the vocabulary V.
    n_units : int
        Units of all layers but the last, which has ``n_dims``.
    n_dims : int
        Dimensions of the embedding.
    n_layers : int
        At least 2. With three layers, 10 000 words and the defaults: 24 221 600 parameters.
    dropout : float
        Of the last layer's outputs.
    hidden_dropout, input_dropout, word_dropout, weight_drop : float
        Of the outputs of other layers, of the embedded words' dimensions, of whole words of the
        vocabulary, and of recurrent weights. The defaults are those for Penn Treebank.
    activation_penalty, slowness_penalty : float
        Of the mean squared outputs of the last layer after dropout, and of the mean squared
        differences of successive ones before it, beside the loss in training (Merity et al.,
        section 4.6, whose code takes these means where the text has norms).
    """

    #: The paper's batches, with AdamW, which needs fewer passes. Its own training is ``epochs=1000
    #: optimizer=sgd learning_rate=30 patience=5 schedule=constant vary_length=true``, scored
    #: after each pass.
    RECIPE: ClassVar[dict[str, Any]] = {
        "batching": "streams", "batch_size": 20, "length": 70, "clip": 0.25,
        "weight_decay": 1.2e-6, "schedule": "cosine",
    }  # fmt: skip

    def __init__(
        self,
        n_tokens: int,
        *,
        n_units: int = 1150,
        n_dims: int = 400,
        n_layers: int = 3,
        dropout: float = 0.4,
        hidden_dropout: float = 0.25,
        input_dropout: float = 0.4,
        word_dropout: float = 0.1,
        weight_drop: float = 0.5,
        activation_penalty: float = 2.0,
        slowness_penalty: float = 1.0,
    ) -> None:
        super().__init__()
        sizes = {"n_tokens": n_tokens, "n_units": n_units, "n_dims": n_dims}
        for name, size in sizes.items():
            check_count(name, size)
        check_count("n_layers", n_layers, least=2)
        self.n_tokens = n_tokens
        self.n_units = n_units
        self.n_dims = n_dims
        self.n_layers = n_layers
        self.drops = {
            "dropout": dropout,
            "hidden_dropout": hidden_dropout,
            "input_dropout": input_dropout,
            "word_dropout": word_dropout,
            "weight_drop": weight_drop,
        }
        for name, share in self.drops.items():
            if not 0 <= share < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {share}")
        self.penalties = {
            "activation_penalty": activation_penalty,
            "slowness_penalty": slowness_penalty,
        }
        for name, weight in self.penalties.items():
            check_finite(name, weight)
            if weight < 0:
                raise ValueError(f"{name} must be at least 0, got {weight}")
        self._penalty: Tensor | None = None
        self.embedding = nn.Embedding(n_tokens, n_dims)
        self.layers = self._new_layers()
        self.bias = nn.Parameter(torch.zeros(n_tokens))
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def _new_layers(self) -> nn.ModuleList:
        sizes = [self.n_dims, *[self.n_units] * (self.n_layers - 1), self.n_dims]
        made = []
        for i in range(self.n_layers):
            times, drop = self.assigned_timescales(i), self.drops["weight_drop"]
            made.append(GatedLayer(sizes[i], sizes[i + 1], times, drop))
        return nn.ModuleList(made)

    def assigned_timescales(self, layer: int) -> NDArray[np.float64] | None:
        """Fixed timescales of a layer's units, counted from 0; None where they are learned."""
        return None

    def settings(self) -> dict[str, Any]:
        """Constructor arguments by name."""
        names = ("n_tokens", "n_units", "n_dims", "n_layers")
        return {name: getattr(self, name) for name in names} | self.drops | self.penalties

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, n_dims); the state is h and c of each layer."""
        hidden = self._locked(self._embedded(tokens), "input_dropout")
        reached = []
        for i, layer in enumerate(self.layers):
            outputs, after = layer(hidden, None if state is None else state[i])
            reached.append(after)
            last = i == self.n_layers - 1
            hidden = self._locked(outputs, "dropout" if last else "hidden_dropout")
        self._penalty = self._penalty_of(outputs, hidden) if self.training else None
        return hidden, tuple(reached)

    def penalty(self) -> Tensor | None:
        made, self._penalty = self._penalty, None
        return made

    def _penalty_of(self, outputs: Tensor, dropped: Tensor) -> Tensor | None:
        """The penalties of the last layer's outputs (B, T, D), before and after dropout."""
        weights = list(self.penalties.values())
        if not any(weights):
            return None
        total = weights[0] * dropped.float().square().mean()
        if outputs.shape[1] > 1:
            total = total + weights[1] * outputs.float().diff(dim=1).square().mean()
        return total

    def _embedded(self, tokens: Tensor) -> Tensor:
        share = self.drops["word_dropout"]
        table = self.embedding.weight
        if not self.training or not share:
            return functional.embedding(tokens, table)
        kept = functional.dropout(table.new_ones((self.n_tokens, 1)), share)
        return functional.embedding(tokens, table) * functional.embedding(tokens, kept)

    def _locked(self, values: Tensor, name: str) -> Tensor:
        """Values (B, T, D) with entries (b, :, d) left out together."""
        if not self.training:
            return values
        mask = values.new_ones((len(values), 1, values.shape[2]))
        return values * functional.dropout(mask, self.drops[name])

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden (..., n_dims) -> logits (..., V), by the embedding (tied)."""
        return functional.linear(hidden, self.embedding.weight, self.bias)


class MultiTimescaleLSTM(AWDLSTM):
    """`AWDLSTM` whose forget and input gates have fixed biases, but for the last layer's.

    Half of the first layer's units have timescale 3 and half 4; those between first and last
    layer have the quantiles of an inverse gamma distribution of shape ``alpha`` (section 3.1.1);
    the last layer is free. The authors' published code fixes all biases of these layers; the
    paper, and this class, those of the forget and input gates.

    Examples
    --------
    >>> network = MultiTimescaleLSTM(20, n_units=4, n_dims=3)
    >>> network.assigned_timescales(0).tolist(), network.assigned_timescales(1).round(2).tolist()
    ([3.0, 3.0, 4.0, 4.0], [0.77, 2.15, 6.44, 49.86])
    """

    def __init__(
        self,
        n_tokens: int,
        *,
        n_units: int = 1150,
        n_dims: int = 400,
        n_layers: int = 3,
        alpha: float = 0.56,
        dropout: float = 0.4,
        hidden_dropout: float = 0.25,
        input_dropout: float = 0.4,
        word_dropout: float = 0.1,
        weight_drop: float = 0.5,
        activation_penalty: float = 2.0,
        slowness_penalty: float = 1.0,
    ) -> None:
        if not alpha > 0:
            raise ValueError(f"alpha must be positive, got {alpha}")
        self.alpha = alpha
        super().__init__(
            n_tokens, n_units=n_units, n_dims=n_dims, n_layers=n_layers, dropout=dropout,
            hidden_dropout=hidden_dropout, input_dropout=input_dropout,
            word_dropout=word_dropout, weight_drop=weight_drop,
            activation_penalty=activation_penalty, slowness_penalty=slowness_penalty,
        )  # fmt: skip

    def assigned_timescales(self, layer: int) -> NDArray[np.float64] | None:
        """Fixed timescales of a layer's units, counted from 0; None where they are learned."""
        if layer == self.n_layers - 1:
            return None
        if layer == 0:
            first = np.full(self.n_units, FIRST_LAYER[1])
            first[: self.n_units // 2] = FIRST_LAYER[0]
            return first
        return inverse_gamma_timescales(self.alpha, self.n_units)

    def settings(self) -> dict[str, Any]:
        """Constructor arguments by name."""
        return super().settings() | {"alpha": self.alpha}
