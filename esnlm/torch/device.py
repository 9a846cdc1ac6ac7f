"""Devices, memory and precision that networks compute with, and processes that train one together.

The processes are those that torch's launcher starts (torchrun).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from esnlm.utils import memory
from esnlm.utils.arrays import Array


def chosen_device(name: str = "auto") -> torch.device:
    """Return the device of that name; ``auto``: a CUDA device if there is one, else the CPU.

    Without a number, a process uses the CUDA device of its number on the machine.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:NUMBER, got {name!r}")
    if kind == "cpu":
        return torch.device("cpu")
    index = int(number or (os.environ.get("LOCAL_RANK", "0") if _n_processes() else 0))
    if index >= (n := torch.cuda.device_count()):
        raise ValueError(f"this machine has {n} CUDA devices that torch sees, got {name!r}")
    return torch.device("cuda", index)


def device_name(device: torch.device) -> str:
    """Return the name of a CUDA device, or ``cpu``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


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
    return memory.peak_memory()


def full_precision(like: Tensor) -> torch.autocast:
    """Disable autocast: states are in full precision, and cheap beside an output layer."""
    return torch.autocast(like.device.type, enabled=False)


def half_precision(device: torch.device, enabled: bool = True) -> torch.autocast:
    """Autocast to bfloat16 on a device, if enabled."""
    if enabled and device.type == "cpu":
        # oneDNN keeps 1024 kernels, one for each number of rows, and memory for each: gigabytes in
        # training on sentences of all lengths. Padded batches use few.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies in bfloat16 itself; True where that is not known.

    Other processors of the x86 family convert to float32 and back, which takes more time than
    float32 alone.
    """
    if device.type != "cpu" or not hasattr(torch.cpu, "get_capabilities"):
        return True
    has = torch.cpu.get_capabilities()
    is_x86 = has.get("architecture") == "x86_64"
    return not is_x86 or has.get("avx512_bf16", True) or has.get("amx_bf16", True)


@dataclass(frozen=True)
class Processes:
    """Process number ``rank`` among ``size`` that run the same program.

    With one process, the methods change nothing.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in place."""
        if self.size == 1 or not tensors:
            return
        flat = parameters_to_vector(tensors)
        distributed.all_reduce(flat)
        vector_to_parameters(flat, tensors)

    def from_first(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the first process, in place."""
        if self.size > 1:
            for tensor in tensors:
                distributed.broadcast(tensor, 0)

    def all_of(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all processes, which are of one shape."""
        if self.size == 1:
            return [tensor]
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        distributed.all_gather(parts, tensor.contiguous())
        return parts


def _n_processes() -> int:
    """How many processes torch's launcher started; 0: it did not start this one."""
    return int(os.environ["WORLD_SIZE"]) if {"RANK", "WORLD_SIZE"} <= os.environ.keys() else 0


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """Yield this process, which computes on ``device``, among those that the launcher started."""
    if _n_processes() < 2:
        yield Processes()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()
