"""Data-parallel training in processes started by torch's launcher (torchrun)."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed


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
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        distributed.all_reduce(flat)
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

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


def launched() -> int:
    """How many processes torch's launcher started; 0: it did not start this one."""
    return int(os.environ["WORLD_SIZE"]) if {"RANK", "WORLD_SIZE"} <= os.environ.keys() else 0


def local_rank() -> int:
    """Return the number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if launched() else 0


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """Yield this process, which computes on ``device``, among those that the launcher started."""
    if launched() < 2:
        yield Processes()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(int(os.environ["RANK"]), launched())
    finally:
        distributed.destroy_process_group()
