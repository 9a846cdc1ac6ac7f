"""Residual layers: attention to the last places of a sequence, and hidden units."""

from collections import OrderedDict

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from esnlm.torch.device import on_device
from esnlm.utils.arrays import Ints64


class Attention(nn.Module):
    """``O Σ_k softmax_k(q_t · k_t-k / √d + b_k) v_t-k`` over the last ``length`` places, per head.

    q, k and v are linear in LayerNorm(z) (Vaswani et al. 2017; Xiong et al. 2020), and b, one
    number a distance and head, is trained (Raffel et al. 2020). Nothing before the beginning of a
    sequence is read. Sequences of all lengths are read end to end, cut into chunks of ``length``
    places, of which each attends to itself and to the one before: time and memory are linear.
    """

    def __init__(self, width: int, n_heads: int, length: int) -> None:
        """Build the linear maps, and biases (n_heads, length) of distances, zero at first."""
        super().__init__()
        self.n_heads, self.length = n_heads, length
        self.norm = nn.LayerNorm(width)
        self.queries, self.others = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.distances = nn.Parameter(torch.zeros(n_heads, length))
        nn.init.normal_(self.out.weight, std=0.02)
        # Of place i of a chunk to place j of the chunk before and of its own.
        places = torch.arange(length)
        distance = length + places[:, None] - torch.arange(2 * length)
        self.distance = nn.Buffer(distance, persistent=False)

    @staticmethod
    def count(width: int, n_heads: int, length: int) -> int:
        """Return number of trained parameters."""
        return 4 * width * (width + 1) + 2 * width + n_heads * length

    def forward(self, z: Tensor, cache: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return what each place of z (B, T, width) reads, and the memory (B, m, 2 width).

        ``cache`` is what the call for the places before returned; None: the beginning.
        """
        normed = self.norm(z)
        others = self.others(normed)
        if cache is not None:
            others = torch.cat([cache, others], dim=1)
        n_rows, n_all, _ = others.shape
        n_before = n_all - z.shape[1]
        queries = functional.pad(self.queries(normed), (0, 0, n_before, 0))
        lengths = np.full(n_rows, n_all, dtype=np.int64)
        outputs = self._over(queries.flatten(0, 1), others.flatten(0, 1), lengths)
        outputs = outputs.unflatten(0, (n_rows, n_all))[:, n_before:]
        # In full precision, as all states are: a checkpoint holds no other one.
        latest = others[:, max(0, n_all - self.length + 1) :].to(self.distances.dtype)
        return self.out(outputs), latest

    def packed(self, z: Tensor, lengths: Ints64) -> Tensor:
        """Return what each place reads of z (n, width), sequences of ``lengths`` end to end."""
        normed = self.norm(z)
        outputs: Tensor = self.out(self._over(self.queries(normed), self.others(normed), lengths))
        return outputs

    def _over(self, queries: Tensor, others: Tensor, lengths: Ints64) -> Tensor:
        """Return what queries (n, width) read from ``others``, keys and values (n, 2 width)."""
        n, width = queries.shape
        size = self.length
        n_chunks = -(-n // size)
        after = n_chunks * size - n
        since = np.arange(n) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        since_start = on_device(
            np.pad(since, (0, after)).reshape(n_chunks, 1, size, 1), queries.device
        )
        q = functional.pad(queries, (0, 0, 0, after)).view(n_chunks, size, self.n_heads, -1)
        q = q.transpose(1, 2) * (width // self.n_heads) ** -0.5
        kv = functional.pad(others, (0, 0, size, after))
        kv = kv.view(n_chunks + 1, size, 2, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        k, v = kv.contiguous().unbind()  # (n_chunks + 1, n_heads, size, d)
        # Of the chunk before, then of its own: no chunk is copied beside the other.
        scores = torch.cat([q @ k[:-1].transpose(2, 3), q @ k[1:].transpose(2, 3)], dim=-1)
        mask = (self.distance >= 0) & (self.distance < size) & (self.distance <= since_start)
        by_distance = self.distances[:, self.distance.clamp(0, size - 1)]
        scores = (scores + by_distance).masked_fill(~mask, float("-inf"))
        shares = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        before, own = shares.to(v.dtype).split(size, dim=-1)
        outputs = before @ v[:-1] + own @ v[1:]
        return outputs.transpose(1, 2).reshape(n_chunks * size, width)[:n]


def feed_forward(width: int, n_hidden: int) -> nn.Sequential:
    """``B gelu(A LayerNorm(z) + a) + b``, small at first."""
    up, down = nn.Linear(width, n_hidden), nn.Linear(n_hidden, width)
    nn.init.normal_(down.weight, std=0.02)
    layers = OrderedDict(norm=nn.LayerNorm(width), up=up, activation=nn.GELU(), down=down)
    return nn.Sequential(layers)
