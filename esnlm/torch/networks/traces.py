"""Traces of trained vectors: leaky units whose decays are fixed and whose inputs are trained."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from esnlm.kernels.vectors import decayed_sums
from esnlm.torch.device import on_device
from esnlm.torch.networks.recurrence import frozen
from esnlm.utils.arrays import Array, Ints64


class Traces(nn.Module):
    """``s[t] = (1-a) s[t-1] + sqrt(a (2-a)) v[t]``, the leak rates a (N,) fixed.

    Vectors v of variance one that are independent over time give units of variance one. The
    recurrence is linear, so that its gradient is the same sum backwards in time: exact, and as
    cheap. Jaeger (2001) has these units under a nonlinearity, with inputs that are not trained.
    """

    def __init__(self, leak_rate: Array) -> None:
        super().__init__()
        self.decay = frozen(1 - leak_rate)
        self.scale = frozen(np.sqrt(leak_rate * (2 - leak_rate)))

    def forward(self, vectors: Tensor, lengths: Ints64) -> Tensor:
        """Return states (n, N) after vectors (n, N), sequences of ``lengths`` end to end."""
        drives = vectors * self.scale
        if drives.is_cpu:
            return _Sums.apply(drives, self.decay, np.cumsum(lengths))
        # As many sums as doublings: each adds those that ended `shift` places before.
        since = np.arange(len(drives)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        places, shift = on_device(since, drives.device)[:, None], 1
        while shift <= since.max(initial=0):
            before = nn.functional.pad(drives[:-shift], (0, 0, shift, 0))
            drives = drives + self.decay**shift * before.masked_fill(places < shift, 0.0)
            shift *= 2
        return drives

    def read(self, vectors: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return states (B, T, N) after vectors (B, T, N), and the last (B, N).

        ``state`` is the last of the vectors before; None: the beginning.
        """
        n_rows, n_steps, _ = vectors.shape
        if state is not None:
            first = vectors[:, :1] + (self.decay / self.scale * state)[:, None]
            vectors = torch.cat([first, vectors[:, 1:]], dim=1)
        states = self(vectors.flatten(0, 1), np.full(n_rows, n_steps, dtype=np.int64))
        states = states.unflatten(0, (n_rows, n_steps))
        return states, states[:, -1]


class _Sums(torch.autograd.Function):
    """Decayed sums over sequences end to end, and their gradient, by the compiled kernel."""

    @staticmethod
    def forward(ctx: Any, drives: Tensor, decay: Tensor, ends: Ints64) -> Tensor:
        """Return sums (n, N) of drives (n, N)."""
        ctx.decay, ctx.ends = decay, ends
        return _summed(drives, decay, ends, False)

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the drives."""
        return _summed(above, ctx.decay, ctx.ends, True), None, None


def _summed(drives: Tensor, decay: Tensor, ends: Ints64, backwards: bool) -> Tensor:
    sums = drives.detach().to(decay.dtype, copy=True).contiguous()
    decayed_sums(sums.numpy(), decay.numpy(), ends, backwards)
    return sums
