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
from esnlm.utils.state_dict import Arrays, under_prefix, with_prefix


def training_arrays(network: Network, optimizer: torch.optim.Optimizer) -> Arrays:
    """Trained parameters, and the optimiser's moments of each."""
    arrays: Arrays = {}
    for name, parameter in network.trained_parameters().items():
        arrays[f"network.{name}"] = _array(parameter)
        kept = optimizer.state.get(parameter, {})
        arrays |= with_prefix(f"optimizer.{name}", {k: _array(v) for k, v in kept.items()})
    return arrays


def restore_training(network: Network, optimizer: torch.optim.Optimizer, arrays: Arrays) -> None:
    """Set the arrays of `training_arrays`, on the parameters' devices."""
    for name, parameter in network.trained_parameters().items():
        with torch.no_grad():
            trained = torch.from_numpy(arrays[f"network.{name}"])
            if trained.shape != parameter.shape:
                raise ValueError(f"{name} must have shape {tuple(parameter.shape)}")
            parameter.copy_(trained)
        kept = {
            key: torch.from_numpy(value)
            for key, value in under_prefix(f"optimizer.{name}", arrays).items()
            if "." not in key
        }
        for key, moment in kept.items():
            # The optimiser's compiled steps write to moments without a look at their shapes.
            shape, dtype = (
                ((), moment.dtype) if key == "step" else (parameter.shape, parameter.dtype)
            )
            if moment.shape != shape or moment.dtype != dtype or not moment.is_floating_point():
                raise ValueError(f"{key} of {name} must be {dtype} of shape {tuple(shape)}")
        # AdamW counts its steps on the CPU, unless one kernel does all.
        counts = parameter.device if optimizer.defaults.get("fused") else "cpu"
        optimizer.state[parameter] = {
            key: moment.to(counts if key == "step" else parameter.device)
            for key, moment in kept.items()
        }


def mapped(function: Callable[[Any], Any], state: Any) -> Any:
    """Nested tuples or lists with a function of each entry that is not None, as tuples."""
    if isinstance(state, tuple | list):
        return tuple(mapped(function, part) for part in state)
    return None if state is None else function(state)


def described_state(state: State, processes: Processes) -> tuple[Any, Arrays]:
    """A carried state of all processes: nested numbers of its tensors, and these by name."""
    arrays: Arrays = {}
    numbers = count()

    def stored(tensor: Tensor) -> int:
        number = next(numbers)
        for rank, part in enumerate(processes.all_of(tensor)):
            arrays[f"carried.{rank}.{number}"] = _array(part)
        return number

    return mapped(stored, state), arrays


def restored_state(shape: Any, arrays: Arrays, rank: int, device: torch.device) -> State:
    """The inverse of `described_state`, for one process."""
    return mapped(lambda n: torch.from_numpy(arrays[f"carried.{rank}.{n}"]).to(device), shape)


def weights_digest(network: Network) -> str:
    """SHA-256 of all parameters and buffers."""
    digest = hashlib.sha256()
    for tensors in (network.named_parameters(), network.named_buffers()):
        for name, tensor in tensors:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).data)
    return digest.hexdigest()


def _array(tensor: Tensor) -> Any:
    return np.array(tensor.detach().cpu().numpy())
