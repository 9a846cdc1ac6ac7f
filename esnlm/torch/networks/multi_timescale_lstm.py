"""The multi-timescale LSTM of Mahto et al. (2021), its baseline, and measured timescales."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from esnlm.reservoir.timescales import estimated_timescales, inverse_gamma_timescales
from esnlm.torch.device import on_device
from esnlm.torch.networks.lstm import LSTM, GatedLayer, kept_and_lost
from esnlm.torch.networks.network import SHARE, Network, Settings, State
from esnlm.utils.arrays import Bools, Floats, Floats32, Tokens
from esnlm.utils.validation import Count, Number, limited

_TOKENS_AT_ONCE = 1024
# Of layers between the first and the last.
_LAW = ("inverse_gamma",)


@dataclass(eq=False, repr=False, kw_only=True)
class AWDLSTM(Network):
    """The baseline: stacked LSTM layers between tied embeddings (Merity et al. 2018).

    Every dropout draws one mask for a whole piece of text, as in Merity et al.: words leave the
    embedding, units leave inputs and outputs of layers, recurrent weights leave the layers.
    Embeddings start uniform in ±0.1, layers in ±1/√units as in the authors' published code; their
    text has ±1/units.

    With three layers, 10 000 words and the defaults, which are those for Penn Treebank: 24 221 600
    parameters.
    """

    #: The paper's batches, with AdamW, which needs fewer passes. Its own training is
    #: ``n_passes=1000 optimizer=sgd learning_rate=30 patience=5 schedule=constant
    #: vary_length=true``, scored after each pass.
    RECIPE: ClassVar[Settings] = {
        "batching": "streams", "batch_size": 20, "length": 70, "clip": 0.25,
        "weight_decay": 1.2e-6, "schedule": "cosine",
    }  # fmt: skip

    #: Units of all layers but the last, which has ``n_dims``.
    n_units: int = limited(1150, Count())
    n_dims: int = limited(400, Count())  #: dimensions of the embedding
    n_layers: int = limited(3, Count(2))
    dropout: float = limited(0.4, SHARE)  #: dropped share of the last layer's outputs
    hidden_dropout: float = limited(0.25, SHARE)  #: of the outputs of other layers
    input_dropout: float = limited(0.4, SHARE)  #: of the embedded words' dimensions
    word_dropout: float = limited(0.1, SHARE)  #: of whole words of the vocabulary
    weight_drop: float = limited(0.5, SHARE)  #: of recurrent weights
    #: Added to the training loss: these multiples of the mean squared outputs of the last layer
    #: after dropout, and of the mean squared differences of successive ones before it (Merity et
    #: al., section 4.6, whose code takes these means where the text has norms).
    activation_penalty: float = limited(2.0, Number(0))
    slowness_penalty: float = limited(1.0, Number(0))

    def __post_init__(self) -> None:
        """Build the LSTM layers, the embedding, uniform in ±0.1, and the output's bias."""
        super().__post_init__()
        self._penalised: tuple[Tensor, Tensor] | None = None
        self.embedding = nn.Embedding(self.n_tokens, self.n_dims)
        sizes = [self.n_dims, *[self.n_units] * (self.n_layers - 1), self.n_dims]
        self.layers = nn.ModuleList(
            GatedLayer(*pair, self.assigned_timescales(i), self.weight_drop)
            for i, pair in enumerate(pairwise(sizes))
        )
        self.bias = nn.Parameter(torch.zeros(self.n_tokens))
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    @classmethod
    def family(cls) -> Iterator[Settings]:
        """Widths in the proportion of Mahto et al., 1150 to 400."""
        yield from ({"n_units": round(2.875 * d), "n_dims": d} for d in range(1, 1 << 13))

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        h, d, middle = settings["n_units"], settings["n_dims"], settings["n_layers"] - 2
        layers = h * (d + h + 2) + middle * h * (2 * h + 2) + d * (h + d + 2)
        return int(4 * layers + n_tokens * (d + 1))

    def assigned_timescales(self, layer: int) -> Floats | None:
        """Return fixed timescales of the units of a layer, counted from 0; None: learned."""
        return None

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, n_dims); the state is h and c of each layer."""
        hidden = self._locked(self._embedded(tokens), self.input_dropout)
        state, states = state or [None] * self.n_layers, []
        shares = [self.hidden_dropout] * (self.n_layers - 1) + [self.dropout]
        for layer, before, share in zip(self.layers, state, shares, strict=True):
            outputs, after = layer(hidden, before)
            states.append(after)
            hidden = self._locked(outputs, share)
        due = self.training and (self.activation_penalty or self.slowness_penalty)
        self._penalised = (hidden, outputs) if due else None
        return hidden, tuple(states)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """All parameters decay, biases too, as in the authors' published code."""
        return [{"params": list(self.trained_parameters().values()), "weight_decay": weight_decay}]

    def penalty(self, real: Bools | None = None) -> Tensor | None:
        """Return the sum of both penalties of the last `encode`, once; None if there is none."""
        last, self._penalised = self._penalised, None
        if last is None:
            return None
        hidden, outputs = (part.float() for part in last)
        penalty = self.activation_penalty * _mean(hidden.square(), real)
        if outputs.shape[1] > 1:
            squares = outputs.diff(dim=1).square()
            slowness = _mean(squares, None if real is None else real[:, 1:])
            penalty = penalty + self.slowness_penalty * slowness
        return penalty

    def _embedded(self, tokens: Tensor) -> Tensor:
        table = self.embedding.weight
        if not self.training or not self.word_dropout:
            return functional.embedding(tokens, table)
        mask = functional.dropout(table.new_ones((self.n_tokens, 1)), self.word_dropout)
        return functional.embedding(tokens, table) * functional.embedding(tokens, mask)

    def _locked(self, values: Tensor, share: float) -> Tensor:
        """Values (B, T, D) with a share of entries (b, :, d) left out together."""
        if not self.training:
            return values
        mask = values.new_ones((len(values), 1, values.shape[2]))
        return values * functional.dropout(mask, share)

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden (..., n_dims) -> logits (..., V), by the embedding (tied)."""
        return functional.linear(hidden, self.embedding.weight, self.bias)


@dataclass(eq=False, repr=False, kw_only=True)
class MultiTimescaleLSTM(AWDLSTM):
    """`AWDLSTM` whose forget and input gates have fixed biases in all layers but the last.

    Half of the first layer's units have timescale 3 and half 4; those between first and last
    layer have the quantiles of an inverse gamma distribution of shape ``alpha`` (section 3.1.1);
    the last layer is free. ``layer_timescales`` says otherwise (section A.6). The authors'
    published code fixes all biases of these layers; the paper, and this class, those of the forget
    and input gates.
    """

    alpha: float = limited(0.56, Number(0, open="low"))
    #: One entry a layer: a list of timescales, each of an equal part of the units, or
    #: ``["inverse_gamma", alpha]``, or None where they are learned. None: as above.
    layer_timescales: Any = None

    def __post_init__(self) -> None:
        """Refuse timescales that are not one entry a layer, then build the layers."""
        laws = self.layer_timescales
        if laws is not None and (not isinstance(laws, list | tuple) or len(laws) != self.n_layers):
            raise ValueError(
                f"layer_timescales must be a list of n_layers={self.n_layers} entries, got {laws!r}"
            )
        super().__post_init__()

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        n_layers, laws = settings["n_layers"], settings.get("layer_timescales")
        sizes = [settings["n_units"]] * (n_layers - 1) + [settings["n_dims"]]
        fixed = [law is not None for law in laws] if laws else [True] * (n_layers - 1) + [False]
        biases = 4 * sum(size for size, is_fixed in zip(sizes, fixed, strict=True) if is_fixed)
        return AWDLSTM.count(n_tokens, **settings) - biases

    def assigned_timescales(self, layer: int) -> Floats | None:
        """Return the timescales of a layer's units; None where they are learned."""
        last = self.n_layers - 1
        law: Any = [3.0, 4.0] if layer == 0 else None if layer == last else _LAW
        if self.layer_timescales is not None:
            law = self.layer_timescales[layer]
        if law is None:
            return None
        n_units = self.n_dims if layer == last else self.n_units
        if law[0] == _LAW[0]:
            return inverse_gamma_timescales(law[1] if len(law) > 1 else self.alpha, n_units)
        times = np.asarray(law, dtype=np.float64)
        if not (times > 0).all():
            raise ValueError(f"layer_timescales must be positive, got {law!r}")
        return times[np.arange(n_units) * len(times) // n_units]


def _mean(values: Tensor, real: Bools | None) -> Tensor:
    """Mean of values (B, T, D) over the places where ``real`` (B, T) is true; None: over all."""
    if real is None:
        return values.mean()
    n_values = max(1, int(real.sum())) * values.shape[2]
    return (values * on_device(real[..., None], values.device)).sum() / n_values


def is_lstm(network: Network) -> bool:
    """Whether the functions below take the network."""
    return isinstance(network, LSTM | AWDLSTM)


@torch.inference_mode()
def forget_drives(
    network: LSTM | AWDLSTM, tokens: Tensor, state: State = None
) -> tuple[list[Tensor], State]:
    """Return drives (B, T, units) of each layer's forget gates, and the state after tokens (B, T).

    Without dropout; the network is left in evaluation mode.
    """
    hidden = network.eval().embedding(tokens)
    drives, states = [], []
    for layer, before in zip(network.layers, state or [None] * network.n_layers, strict=True):
        outputs, after = layer(hidden, before)
        drives.append(layer.drives(hidden, outputs, before)[1])
        states.append(after)
        hidden = outputs
    return drives, tuple(states)


@torch.inference_mode()
def cell_states(network: LSTM | AWDLSTM, tokens: Tokens) -> list[Floats32]:
    """Cells (B, T, units) of each layer after each of the tokens (B, T), from the start state.

    Without dropout; the network is left in evaluation mode.
    """
    hidden, cells = network.eval().embedding(_ids(network, tokens)), []
    for layer in network.layers:
        state, steps = None, []
        for inputs in hidden.split(1, dim=1):  # torch returns the cell after the last token alone
            output, state = layer(inputs, state)
            steps.append((output[:, 0], state[1]))
        hidden, layer_cells = (torch.stack(parts, dim=1) for parts in zip(*steps, strict=True))
        cells.append(layer_cells.cpu().numpy())
    return cells


def measured_timescales(network: LSTM | AWDLSTM, texts: Iterable[Tokens]) -> list[Floats]:
    """Timescales (units,) of each layer from its mean forget gates over texts (T,).

    Equation 3 of Mahto et al. (2021). Each text is read from the start state.
    """
    sums = [torch.zeros(2, layer.n_units, dtype=torch.float64) for layer in network.layers]
    n_read = 0
    for text in texts:
        state = None
        for part in _ids(network, text).split(_TOKENS_AT_ONCE):
            drives, state = forget_drives(network, part[None], state)
            for total, layer in zip(sums, drives, strict=True):
                total += kept_and_lost(layer[0])
            n_read += len(part)
    if not n_read:
        raise ValueError("timescales need text, got none")
    return [estimated_timescales(*(total / n_read).numpy()) for total in sums]


def _ids(network: Network, tokens: Tokens) -> Tensor:
    return torch.from_numpy(np.asarray(tokens).astype(np.int64)).to(network.device)
