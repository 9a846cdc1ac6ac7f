"""Forget gates, cell states and measured timescales of trained LSTMs."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from esnlm.reservoir.timescales import estimated_timescales
from esnlm.torch.networks.lstm import LSTM
from esnlm.torch.networks.multi_timescale_lstm import AWDLSTM
from esnlm.torch.networks.network import Network, State
from esnlm.utils.arrays import Floats, Floats32, Tokens

_TOKENS_AT_ONCE = 1024


def is_lstm(network: Network) -> bool:
    """Whether the functions below take the network."""
    return isinstance(network, LSTM | AWDLSTM)


@torch.inference_mode()
def forget_gates(
    network: LSTM | AWDLSTM, tokens: Tensor, state: State = None
) -> tuple[list[Tensor], State]:
    """Forget gates (B, T, units) of each layer on tokens (B, T), and the state after them.

    Without dropout; the network is left in evaluation mode.
    """
    hidden = network.eval().embedding(tokens)
    gates, reached = [], []
    for i, layer in enumerate(network.layers):
        before = None if state is None else state[i]
        outputs, after = layer(hidden, before)
        gates.append(layer.gates(hidden, outputs, before)[1])
        reached.append(after)
        hidden = outputs
    return gates, tuple(reached)


@torch.inference_mode()
def cell_states(network: LSTM | AWDLSTM, tokens: Tokens) -> list[Floats32]:
    """Cells (B, T, units) of each layer after each of the tokens (B, T), from the start state.

    Without dropout; the network is left in evaluation mode.
    """
    hidden = network.eval().embedding(_ids(network, tokens))
    found = []
    for layer in network.layers:
        state, steps = None, []
        for inputs in hidden.split(1, dim=1):  # torch returns the cell after the last token alone
            output, state = layer(inputs, state)
            steps.append((output[:, 0], state[1]))
        hidden, cells = (torch.stack(parts, dim=1) for parts in zip(*steps, strict=True))
        found.append(cells.cpu().numpy())
    return found


def measured_timescales(network: LSTM | AWDLSTM, texts: Iterable[Tokens]) -> list[Floats]:
    """Timescales (units,) of each layer from its mean forget gates over texts (T,).

    Equation 3 of Mahto et al. (2021). Each text is read from the start state.
    """
    sums = [torch.zeros(layer.n_units, dtype=torch.float64) for layer in network.layers]
    n_read = 0
    for text in texts:
        state = None
        for part in _ids(network, text).split(_TOKENS_AT_ONCE):
            gates, state = forget_gates(network, part[None], state)
            for total, layer in zip(sums, gates, strict=True):
                total += layer[0].double().sum(dim=0).cpu()
            n_read += len(part)
    if not n_read:
        raise ValueError("timescales need text, got none")
    return [estimated_timescales((total / n_read).numpy()) for total in sums]


def _ids(network: Network, tokens: Tokens) -> Tensor:
    return torch.from_numpy(np.asarray(tokens).astype(np.int64)).to(network.device)
