"""LSTM layers whose gates can be read and timescales be fixed, and the LSTM of Ueda et al."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from esnlm.reservoir.timescales import forget_bias
from esnlm.torch.device import full_precision
from esnlm.torch.networks.dropout import Dropout
from esnlm.torch.networks.network import SHARE, Network, State
from esnlm.torch.networks.two_level_softmax import TwoLevelSoftmax
from esnlm.utils.validation import Count, Flag, limited

LayerState = tuple[Tensor, Tensor]


class GatedLayer(nn.Module):
    """Inputs (B, T, D) -> outputs (B, T, H) of an LSTM (Hochreiter & Schmidhuber 1997).

    ::

        i, f, o = sigmoid(W_x x[t] + W_h h[t-1] + b),  g = tanh(W_x x[t] + W_h h[t-1] + b)
        c[t] = f c[t-1] + i g,  h[t] = o tanh(c[t])

    The weights are those of ``torch.nn.LSTM``, in its order (i, f, g, o) and with its two biases,
    uniform in ±1/√H: 4 H (D + H + 2) parameters for the sizes D, ``n_inputs``, and H, ``n_units``.

    ``timescales`` (n_units,) fix the bias of the forget gates to ``-log(exp(1/T) - 1)`` (equation 5
    of Mahto et al. 2021) and that of the input gates to its negative; neither is trained. A fixed
    bias is stored once: 2 H parameters fewer, and 4 H trained parameters fewer. ``weight_drop`` is
    the share of recurrent weights dropped in training, the same for a whole batch (Merity et al.
    2018).
    """

    def __init__(
        self,
        n_inputs: int,
        n_units: int,
        timescales: ArrayLike | None = None,
        weight_drop: float = 0.0,
    ) -> None:
        """Draw weights uniformly in ±1/√H, and fix gate biases if timescales are given."""
        super().__init__()
        self.n_units, self.weight_drop = n_units, weight_drop
        n_biases = (4 if timescales is None else 2) * n_units
        self.weight_ih = nn.Parameter(torch.empty(4 * n_units, n_inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * n_units, n_units))
        self.bias_ih = nn.Parameter(torch.empty(n_biases))
        self.bias_hh = nn.Parameter(torch.empty(n_biases))
        bound = 1 / math.sqrt(n_units)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)
        self.gate_bias: nn.Parameter | None = None
        if timescales is not None:
            forget = torch.as_tensor(forget_bias(timescales)).float()
            self.gate_bias = nn.Parameter(torch.cat([-forget, forget]), requires_grad=False)

    def weights(self) -> list[Tensor]:
        """Recurrent and input weights and both biases, as ``torch.lstm`` takes them."""
        recurrent = functional.dropout(self.weight_hh, self.weight_drop, self.training)
        first, second = self.bias_ih, self.bias_hh
        if self.gate_bias is not None:
            first = torch.cat([self.gate_bias, first])
            second = torch.cat([torch.zeros_like(self.gate_bias), second])
        return [self.weight_ih, recurrent, first, second]

    def forward(self, inputs: Tensor, state: LayerState | None = None) -> tuple[Tensor, LayerState]:
        """Return outputs (B, T, H), and h and c (B, H) after the last input; state None: zeros.

        In training under autocast on a CPU products are in bfloat16 and the rest in float32: see
        `_Run`. Otherwise, and with ``timescales``, all is in the weights' precision: in bfloat16 a
        gate of a timescale above 256 would be 1, and cuDNN would use float16, in which small
        gradients are 0.
        """
        half = self.training and inputs.is_cpu and torch.is_autocast_enabled("cpu")
        if half and self.gate_bias is None:
            weight_ih, recurrent, first, second = self.weights()
            h, c = state or self._start(inputs)
            drives = functional.linear(inputs.transpose(0, 1), weight_ih, first + second)
            outputs, h, c = _Run.apply(drives, h, c, recurrent)
            return outputs.transpose(0, 1), (h, c)
        with full_precision(inputs):
            inputs = inputs.to(self.weight_ih.dtype)
            with warnings.catch_warnings():  # cuDNN copies the weights together, which is fast
                warnings.filterwarnings("ignore", "RNN module weights are not part", UserWarning)
                outputs, h, c = torch.lstm(
                    inputs, [part[None] for part in state or self._start(inputs)], self.weights(),
                    True, 1, 0.0, self.training, False, True,
                )  # fmt: skip
        return outputs, (h[0], c[0])

    def _start(self, inputs: Tensor) -> LayerState:
        """Return the zero state for inputs (B, T, D)."""
        zeros = inputs.new_zeros((len(inputs), self.n_units))
        return zeros, zeros

    def drives(
        self, inputs: Tensor, outputs: Tensor, state: LayerState | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return what i, f, g and o (B, T, H) are the sigmoid or tanh of, at each step.

        ``outputs`` are what `forward` returned.
        """
        first = (state or self._start(inputs))[0]
        before = torch.cat([first[:, None], outputs[:, :-1]], dim=1)
        weight_ih, weight_hh, bias_ih, bias_hh = self.weights()
        sums = inputs @ weight_ih.T + before @ weight_hh.T + (bias_ih + bias_hh)
        i, f, g, o = sums.chunk(4, dim=-1)
        return i, f, g, o


def kept_and_lost(drives: Tensor) -> Tensor:
    """Return sums (2, H) of forget gates f and of 1 - f over their drives (n, H).

    In single precision a gate of a timescale beyond 10^7 is 1.
    """
    drives = drives.double()
    return torch.stack([drives.sigmoid().sum(dim=0), (-drives).sigmoid().sum(dim=0)]).cpu()


class _Run(torch.autograd.Function):
    """An LSTM over a sequence: recurrent products in bfloat16, gates, h and c in float32.

    The gradient of the recurrent weights is one product over all steps.
    """

    @staticmethod
    def forward(
        ctx: Any, drives: Tensor, h: Tensor, c: Tensor, recurrent: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return outputs (T, B, H), and the last h and c (B, H), of drives (T, B, 4 H)."""
        n_steps, n = len(drives), h.shape[1]
        half = recurrent.to(torch.bfloat16)
        gates = torch.empty(drives.shape)
        before, cells = h.new_empty((n_steps + 1, *h.shape)), c.new_empty((n_steps + 1, *c.shape))
        before[0], cells[0] = h, c
        for t in range(n_steps):
            step = gates[t].copy_(before[t].to(torch.bfloat16) @ half.t()).add_(drives[t])
            step[:, : 2 * n].sigmoid_()
            step[:, 2 * n : 3 * n].tanh_()
            step[:, 3 * n :].sigmoid_()
            i, f, g, o = step.chunk(4, dim=1)
            torch.addcmul(f * cells[t], i, g, out=cells[t + 1])
            torch.mul(o, cells[t + 1].tanh(), out=before[t + 1])
        ctx.save_for_backward(gates, before, cells, half)
        return before[1:].clone(), before[-1].clone(), cells[-1].clone()

    @staticmethod
    def backward(ctx: Any, above: Tensor, dh: Tensor, dc: Tensor) -> tuple[Tensor, ...]:
        """Return gradients of drives, first h and c, and the recurrent weights."""
        gates, before, cells, half = ctx.saved_tensors
        to_drives = torch.empty(gates.shape, dtype=torch.bfloat16)
        for t in range(len(gates) - 1, -1, -1):
            dh = above[t] + dh
            i, f, g, o = gates[t].chunk(4, dim=1)
            tanh = cells[t + 1].tanh()
            dc = dc + dh * o * (1 - tanh * tanh)
            parts = (
                dc * g * i * (1 - i), dc * cells[t] * f * (1 - f),
                dc * i * (1 - g * g), dh * tanh * o * (1 - o),
            )  # fmt: skip
            to_drives[t] = torch.cat(parts, dim=1)
            dh, dc = (to_drives[t] @ half).float(), dc * f
        h = before[:-1].to(torch.bfloat16).flatten(0, 1)
        to_recurrent = (to_drives.flatten(0, 1).t() @ h).float()
        return to_drives, dh, dc, to_recurrent


@dataclass(eq=False, repr=False, kw_only=True)
class LSTM(Network):
    """Embedding, LSTM, linear map; dropout after the embedding and before the map.

    The language model of Ueda et al. (2025) and (2025b). Trained parameters, with V tokens and H
    units in embedding and layers: 2 V H + V + n_layers 8 H (H + 1), 53.6 million with GPT-2's
    vocabulary. Table 3 of the first paper has 54 million, table 1 of the second 53 million.
    """

    n_units: int = limited(512, Count())
    n_layers: int = limited(1, Count())
    dropout: float = limited(0.1, SHARE)
    #: Classes of words first, and LayerNorm before them: faster, and not the papers'.
    two_level: bool = limited(False, Flag())

    def __post_init__(self) -> None:
        super().__post_init__()
        self.embedding = nn.Embedding(self.n_tokens, self.n_units)
        layers = (GatedLayer(self.n_units, self.n_units) for _ in range(self.n_layers))
        self.layers = nn.ModuleList(layers)
        self.drop = Dropout(self.dropout)
        self.norm = nn.LayerNorm(self.n_units) if self.two_level else nn.Identity()
        kind: Any = TwoLevelSoftmax if self.two_level else nn.Linear
        self.output = kind(self.n_units, self.n_tokens)

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        h = settings["n_units"]
        total = n_tokens * h + settings["n_layers"] * 8 * h * (h + 1)
        if settings["two_level"]:
            return int(total + 2 * h + TwoLevelSoftmax.count(h, n_tokens))
        return int(total + n_tokens * (h + 1))

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, H); the state is h and c (B, H) of each layer."""
        hidden, state = self.through(self.layers, self.drop(self.embedding(tokens)), state)
        return self.drop(self.norm(hidden)), state

    def start(self, width: int) -> Tensor:
        """Return what the output reads of a hidden vector of zeros."""
        hidden: Tensor = self.norm(super().start(width))
        return hidden
