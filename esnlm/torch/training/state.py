"""State of a run by gradient as arrays: weights, the optimiser's moments, carried states."""

import hashlib
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from esnlm.torch.networks.network import Network, State
from esnlm.torch.training.distributed import Processes
from esnlm.torch.training.optimizer import Optimizer
from esnlm.utils.arrays import Array
from esnlm.utils.state_dict import Arrays, under_prefix, with_prefix


def training_arrays(network: Network, optimizer: Optimizer) -> Arrays:
    """Trained parameters, and the optimiser's moments of each."""
    arrays: Arrays = {}
    for name, parameter in network.trained_parameters().items():
        kept = optimizer.moments(parameter)
        arrays |= {f"optimizer.{name}.{key}": array_of(moment) for key, moment in kept.items()}
    return arrays | with_prefix("network", parameter_arrays(network))


def restore_training(network: Network, optimizer: Optimizer, arrays: Arrays) -> None:
    """Set the arrays of `training_arrays`, on the parameters' devices."""
    set_parameters(network, under_prefix("network", arrays))
    for name, parameter in network.trained_parameters().items():
        found = under_prefix(f"optimizer.{name}", arrays)
        # Names with a point are those of a parameter whose name begins with this one's.
        own = {key: torch.from_numpy(array) for key, array in found.items() if "." not in key}
        try:
            optimizer.restore(parameter, own)
        except ValueError as error:
            raise ValueError(f"the optimiser's state of {name}: {error}") from None


def parameter_arrays(network: Network) -> Arrays:
    """Trained parameters by name."""
    return {name: array_of(p) for name, p in network.trained_parameters().items()}


@torch.no_grad()
def set_parameters(network: Network, arrays: Arrays) -> None:
    """Set the arrays of `parameter_arrays`; KeyError or ValueError where they do not fit."""
    for name, parameter in network.trained_parameters().items():
        if arrays[name].shape != parameter.shape:
            raise ValueError(f"{name} must have shape {tuple(parameter.shape)}")
        parameter.copy_(torch.from_numpy(arrays[name]))


def mapped(function: Callable[[Any], Any], state: Any) -> Any:
    """Nested tuples or lists with a function of each entry that is not None, as tuples."""
    if isinstance(state, tuple | list):
        return tuple(mapped(function, part) for part in state)
    return None if state is None else function(state)


def described_state(state: State, processes: Processes) -> tuple[Any, Arrays]:
    """Return a carried state of all processes: nested numbers of its tensors, and these by name."""
    arrays: Arrays = {}
    numbers = count()

    def stored(tensor: Tensor) -> int:
        number = next(numbers)
        for rank, part in enumerate(processes.all_of(tensor)):
            arrays[f"carried.{rank}.{number}"] = array_of(part)
        return number

    return mapped(stored, state), arrays


def restored_state(shape: Any, arrays: Arrays, rank: int, device: torch.device) -> State:
    """Return the inverse of `described_state`, for one process."""
    return mapped(lambda n: torch.from_numpy(arrays[f"carried.{rank}.{n}"]).to(device), shape)


def weights_digest(network: Network) -> str:
    """SHA-256 of all parameters and buffers."""
    digest = hashlib.sha256()
    for tensors in (network.named_parameters(), network.named_buffers()):
        for name, tensor in tensors:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).data)
    return digest.hexdigest()


def array_of(tensor: Tensor) -> Array:
    """Return a copy of a tensor's values."""
    return np.array(tensor.detach().cpu().numpy(), order="C")
