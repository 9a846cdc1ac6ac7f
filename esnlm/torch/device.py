"""Devices and memory of networks, and the precision that they compute in."""

import os
import resource
import sys

import torch
from torch import Tensor

from esnlm.utils.arrays import Array


def chosen_device(name: str = "auto", local_rank: int = 0) -> torch.device:
    """Return the device of that name; ``auto``: a CUDA device if there is one, else the CPU.

    Without a number, a process uses the CUDA device of its ``local_rank`` on the machine.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:NUMBER, got {name!r}")
    if kind == "cpu":
        return torch.device("cpu")
    index = int(number) if number else local_rank
    if index >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise ValueError(f"this machine has {found} CUDA devices that torch sees, got {name!r}")
    return torch.device("cuda", index)


def on_device(array: Array, device: torch.device) -> Tensor:
    """Return the array as a tensor on a device; a copy to a CUDA device is not waited for."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":  # a copy of pageable memory may wait for all work before it
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def share_of_memory(device: torch.device, parts: int, otherwise: int) -> int:
    """Bytes: a CUDA device's memory divided by ``parts``; on other devices ``otherwise``."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory) // parts
    return otherwise


def peak_memory(device: torch.device) -> int:
    """Bytes: the most allocated on a CUDA device, or the largest resident set of the process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def full_precision(like: Tensor) -> torch.autocast:
    """Disable autocast: states are in full precision, and cheap beside an output layer."""
    return torch.autocast(like.device.type, enabled=False)


def half_precision(device: torch.device, enabled: bool = True) -> torch.autocast:
    """Autocast to bfloat16 on a device, if enabled."""
    if enabled and device.type == "cpu":
        # oneDNN keeps 1024 kernels, one for each number of rows, and memory for each: gigabytes in
        # training on sentences. Sixteen are as fast.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)
