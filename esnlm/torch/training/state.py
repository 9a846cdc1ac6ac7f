"""What a run by gradient goes on from: weights, the optimiser's moments, carried states."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from esnlm.torch.networks.network import Network, State
from esnlm.torch.training.distributed import Processes
from esnlm.utils.state_dict import Arrays, under_prefix, with_prefix


def trained_parameters(network: Network) -> dict[str, Tensor]:
    """The trained parameters by name; shared ones once."""
    return {name: p for name, p in network.named_parameters() if p.requires_grad}


def training_arrays(network: Network, optimizer: torch.optim.Optimizer) -> Arrays:
    """Trained parameters, and what the optimiser keeps of each."""
    arrays: Arrays = {}
    for name, parameter in trained_parameters(network).items():
        arrays[f"network.{name}"] = _array(parameter)
        kept = optimizer.state.get(parameter, {})
        arrays |= with_prefix(f"optimizer.{name}", {k: _array(v) for k, v in kept.items()})
    return arrays


def restore_training(network: Network, optimizer: torch.optim.Optimizer, arrays: Arrays) -> None:
    """Set what `training_arrays` took, on the parameters' devices."""
    for name, parameter in trained_parameters(network).items():
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(arrays[f"network.{name}"]))
        kept = under_prefix(f"optimizer.{name}", arrays)
        # AdamW counts its steps on the CPU, unless one kernel does all.
        counts = parameter.device if optimizer.defaults.get("fused") else "cpu"
        optimizer.state[parameter] = {
            key: torch.from_numpy(value).to(counts if key == "step" else parameter.device)
            for key, value in kept.items()
            if "." not in key
        }


def described_state(state: State, processes: Processes) -> tuple[Any, Arrays]:
    """A carried state of all processes: its shape as JSON holds it, and its tensors.

    Examples
    --------
    >>> shape, arrays = described_state((torch.ones(2), (None, torch.zeros(1))), Processes())
    >>> shape, sorted(arrays)
    ([0, [None, 1]], ['carried.0.0', 'carried.0.1'])
    >>> restored_state(shape, arrays, 0, torch.device("cpu"))
    (tensor([1., 1.]), (None, tensor([0.])))
    """
    tensors: list[Tensor] = []

    def walk(part: State) -> Any:
        if part is None:
            return None
        if isinstance(part, Tensor):
            tensors.append(part)
            return len(tensors) - 1
        return [walk(inner) for inner in part]

    shape = walk(state)
    arrays = {
        f"carried.{rank}.{number}": _array(part)
        for number, tensor in enumerate(tensors)
        for rank, part in enumerate(processes.all_of(tensor))
    }
    return shape, arrays


def restored_state(shape: Any, arrays: Arrays, rank: int, device: torch.device) -> State:
    """The inverse of `described_state`, for one process."""
    if shape is None:
        return None
    if isinstance(shape, int):
        return torch.from_numpy(arrays[f"carried.{rank}.{shape}"]).to(device)
    return tuple(restored_state(inner, arrays, rank, device) for inner in shape)


def detached(state: State) -> State:
    """The same state, through which no gradient passes."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        return state.detach()
    return tuple(detached(part) for part in state)


def _array(tensor: Tensor) -> Any:
    return np.array(tensor.detach().cpu().numpy())
