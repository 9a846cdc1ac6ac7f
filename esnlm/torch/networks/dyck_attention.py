"""Which closer may come next, by attention to earlier states of a frozen reservoir."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from esnlm.grammars.dyck import BRACKETS, PAIRS
from esnlm.torch.networks.dyck_lstm import mean_of_pass
from esnlm.utils.arrays import Array, Ints64

_HEADS, _WIDTH, _HIDDEN = 4, 128, 256
_WARM_UP, _WEIGHT_DECAY = 100, 0.01
#: Places that batches leave out of the loss: a sequence has ended there.
_OUTSIDE = -100


class Sequences(NamedTuple):
    """Sequences with their states, padded at their ends."""

    X: Tensor  #: (n, L, n_units) float32, states
    tokens: Tensor  #: (n, L) int64
    y: Tensor  #: (n, L) int64, 0 for no closer, else 1 + its kind; -100 where a sequence has ended

    @classmethod
    def of(cls, X: Array, tokens: Ints64, y: Ints64, lengths: Ints64) -> list["Sequences"]:
        """Return sequences end to end, of states (T, n_units), one by one."""
        sizes = lengths.tolist()
        parts = (torch.from_numpy(part).split(sizes) for part in (X, tokens, y))
        return [cls(*part) for part in zip(*parts, strict=True)]

    @classmethod
    def together(cls, sequences: Sequence["Sequences"], device: torch.device) -> "Sequences":
        """Return one batch of sequences."""
        parts = zip(*sequences, strict=True)
        fillers = 0, 0, _OUTSIDE
        padded = (
            pad_sequence(list(part), batch_first=True, padding_value=filler)
            for part, filler in zip(parts, fillers, strict=True)
        )
        return cls(*(part.to(device) for part in padded))


class DyckAttention(nn.Module):
    """``W relu(V [Σ_k softmax_k(q_t · k_k / √d - s (t - k)) v_k, z_t])`` over places k <= t.

    z is the state of a place with its bracket, one-hot. Queries, keys and values are a network of
    one hidden layer on z, the slopes s >= 0 of the heads are trained (Press et al. 2022).
    """

    def __init__(self, n_units: int) -> None:
        """Build the networks for states of ``n_units``."""
        super().__init__()
        n_inputs = n_units + len(BRACKETS)
        self.attend = nn.Sequential(
            nn.Linear(n_inputs, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 3 * _WIDTH)
        )
        self.slopes = nn.Parameter(torch.logspace(-3, 0, _HEADS))
        self.closer = nn.Sequential(
            nn.Linear(_WIDTH + n_inputs, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1 + len(PAIRS))
        )

    def forward(self, X: Tensor, tokens: Tensor) -> Tensor:
        """States (B, L, n_units), tokens (B, L) -> scores (B, L, 3) of no closer and of each."""
        n_rows, length = tokens.shape
        z = torch.cat([X, functional.one_hot(tokens, len(BRACKETS)).to(X.dtype)], dim=-1)
        q, k, v = self.attend(z).view(n_rows, length, 3, _HEADS, -1).permute(2, 0, 3, 1, 4)
        place = torch.arange(length, device=X.device, dtype=X.dtype)
        distance = place[:, None] - place
        bias = -self.slopes.abs()[:, None, None] * distance
        bias = bias.masked_fill(distance < 0, float("-inf"))
        read = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        scores: Tensor = self.closer(torch.cat([read.transpose(1, 2).flatten(2), z], dim=-1))
        return scores


def train(
    network: DyckAttention,
    sequences: list[Sequences],
    *,
    n_passes: int,
    batch_size: int,
    learning_rate: float,
    report: Callable[[float], None] = lambda loss: None,
) -> float:
    """Minimise the cross-entropy by AdamW; returns the mean loss of the last pass.

    The rate rises for 100 steps and falls to 0 as a cosine. Batches hold sequences of like length,
    drawn by torch's global generator. ``report(loss)`` is called after each pass.
    """
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=learning_rate, weight_decay=_WEIGHT_DECAY
    )
    n_steps = n_passes * math.ceil(len(sequences) / batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: min(1, (step + 1) / _WARM_UP) * (1 + math.cos(math.pi * step / n_steps)) / 2,
    )
    loss_of_pass = math.nan
    for _ in range(n_passes):
        losses = []
        for batch in _batches(network, sequences, batch_size):
            loss = _loss(network, batch)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            losses.append(loss.detach())
        loss_of_pass = mean_of_pass(losses)
        report(loss_of_pass)
    return loss_of_pass


@torch.inference_mode()
def predict(network: DyckAttention, sequences: list[Sequences]) -> Ints64:
    """Return the likeliest class after each bracket of all sequences, end to end."""
    device = network.slopes.device
    results: list[Tensor] = []
    for sequence in sequences:
        X, tokens, _ = Sequences.together([sequence], device)
        results.append(network(X, tokens)[0].argmax(dim=1))
    return torch.cat(results).cpu().numpy()


def _loss(network: DyckAttention, batch: Sequences) -> Tensor:
    scores = network(batch.X, batch.tokens)
    return functional.cross_entropy(scores.flatten(0, 1), batch.y.flatten(), ignore_index=_OUTSIDE)


def _batches(network: DyckAttention, sequences: list[Sequences], size: int) -> Iterator[Sequences]:
    """Yield all sequences in batches of like length, in random order."""
    lengths = torch.tensor([len(sequence.tokens) for sequence in sequences])
    groups = (lengths + 8 * torch.rand(len(sequences))).argsort().split(size)
    for number in torch.randperm(len(groups)).tolist():
        members = [sequences[row] for row in groups[number].tolist()]
        yield Sequences.together(members, network.slopes.device)
