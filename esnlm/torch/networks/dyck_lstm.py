"""The Dyck-2 pair of Mahto et al. (2021): which closers may come next, by one LSTM layer."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from esnlm.grammars.dyck import BRACKETS, PAIRS, allowed_closers
from esnlm.reservoir.timescales import estimated_timescales, inverse_gamma_timescales
from esnlm.torch.networks.lstm import GatedLayer, kept_and_lost
from esnlm.utils.arrays import Bools, Floats

#: Training stops where the loss on validation sequences falls below this, as in the authors' code.
CONVERGED = 1e-4


class Brackets(NamedTuple):
    """Sequences as tensors, padded at their ends."""

    tokens: Tensor  #: (n, L) int64
    allowed: Tensor  #: (n, L, 2) bool, the closers that may come next
    inside: Tensor  #: (n, L) bool, false where a sequence has ended

    @classmethod
    def of(cls, sequences: Sequence[str], device: str | torch.device = "cpu") -> "Brackets":
        """Return the tensors of sequences of brackets.

        >>> Brackets.of(["()", "[[]]"]).inside.sum(dim=1).tolist()
        [2, 4]
        """
        places = [[BRACKETS.index(bracket) for bracket in sequence] for sequence in sequences]
        tokens = [torch.tensor(place, dtype=torch.int64) for place in places]
        allowed = [torch.from_numpy(allowed_closers(sequence)) for sequence in sequences]
        inside = [torch.ones(len(sequence), dtype=torch.bool) for sequence in sequences]
        padded = (pad_sequence(part, batch_first=True) for part in (tokens, allowed, inside))
        return cls(*(part.to(device) for part in padded))

    def batches(self, order: Tensor | None = None, size: int = 256) -> Iterator["Brackets"]:
        """Yield the sequences in an order, ``size`` at a time, without padding."""
        for rows in (self.by_length() if order is None else order).split(size):
            longest = int(self.inside[rows].sum(dim=1).max())
            yield Brackets(*(part[rows, :longest] for part in self))

    def by_length(self) -> Tensor:
        """Return the row numbers (n,) of the sequences, the shortest first."""
        return self.inside.sum(dim=1).argsort(stable=True)


class DyckLSTM(nn.Module):
    """One-hot brackets -> LSTM -> a number in (0, 1) for each kind of closer.

    With ``alpha`` the timescales of the layer are fixed to the quantiles of an inverse gamma
    distribution of this shape: the multi-timescale model (1.5 in the paper). None: the baseline,
    whose trained parameters are 4 H (4 + H + 2) + 2 (H + 1) with H units.
    """

    def __init__(self, n_units: int = 256, alpha: float | None = None) -> None:
        super().__init__()
        self.timescales = None if alpha is None else inverse_gamma_timescales(alpha, n_units)
        self.layer = GatedLayer(len(BRACKETS), n_units, self.timescales)
        self.output = nn.Linear(n_units, len(PAIRS))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (B, T) int64 -> scores (B, T, 2) in (0, 1): whether each closer may come next."""
        outputs, _ = self.layer(self._one_hot(tokens))
        return self.output(outputs).sigmoid()

    def forget_drives(self, tokens: Tensor) -> Tensor:
        """Return the drives (B, T, H) of the forget gates on tokens (B, T)."""
        inputs = self._one_hot(tokens)
        return self.layer.drives(inputs, self.layer(inputs)[0])[1]

    def _one_hot(self, tokens: Tensor) -> Tensor:
        return functional.one_hot(tokens, len(BRACKETS)).to(self.output.weight.dtype)


def train(
    network: DyckLSTM,
    sequences: Brackets,
    validation: Brackets,
    *,
    n_passes: int = 2000,
    batch_size: int = 32,
    learning_rate: float = 1e-4,
    clip: float = 1.0,
    report: Callable[[int, float, float], None] = lambda number, loss, held_out: None,
) -> int:
    """Minimise the mean squared error by Adam; returns the number of passes.

    Batches are drawn by torch's global generator. ``report(number, loss, held_out)`` is called
    after each pass; training ends early once the held-out loss is below `CONVERGED`.
    """
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(trained, lr=learning_rate)
    for number in range(1, n_passes + 1):
        network.train()
        losses = []
        order = torch.randperm(len(sequences.tokens)).to(sequences.tokens.device)
        for batch in sequences.batches(order, batch_size):
            error = squared_error(network, batch)
            optimiser.zero_grad()
            error.backward()
            nn.utils.clip_grad_norm_(trained, clip)
            optimiser.step()
            losses.append(error.detach())
        held_out = mean_squared_error(network, validation)
        report(number, mean_of_pass(losses), held_out)
        if held_out < CONVERGED:
            return number
    return n_passes


def mean_of_pass(losses: list[Tensor]) -> float:
    """Return the mean of losses (); raise ValueError where it is no number."""
    mean = float(torch.stack(losses).mean())
    if not math.isfinite(mean):
        raise ValueError(f"learning_rate must be lower: training diverged, its loss is {mean}")
    return mean


def squared_error(network: DyckLSTM, batch: Brackets) -> Tensor:
    """Mean over steps and closers of the squared difference to what is allowed, 0 or 1."""
    errors = (network(batch.tokens) - batch.allowed.to(torch.float32)).square()
    return errors[batch.inside].mean()


@torch.inference_mode()
def mean_squared_error(network: DyckLSTM, sequences: Brackets) -> float:
    """`squared_error` of all sequences, every step with the same weight."""
    network.eval()
    total = 0.0
    for batch in sequences.batches():
        total += float(squared_error(network, batch)) * int(batch.inside.sum())
    return total / int(sequences.inside.sum())


@torch.inference_mode()
def right_sequences(network: DyckLSTM, sequences: Brackets) -> Bools:
    """Whether the allowed closers are those above 1/2 at every step of a sequence, (n,)."""
    network.eval()
    results = [
        (((network(batch.tokens) > 0.5) == batch.allowed).all(dim=2) | ~batch.inside).all(dim=1)
        for batch in sequences.batches()
    ]
    return torch.cat(results)[sequences.by_length().argsort()].cpu().numpy()


@torch.inference_mode()
def measured_timescales(network: DyckLSTM, sequences: Brackets) -> Floats:
    """Timescales (H,) from the mean forget gates over all steps (equation 3)."""
    network.eval()
    total = torch.zeros(2, network.layer.n_units, dtype=torch.float64)
    for batch in sequences.batches():
        total += kept_and_lost(network.forget_drives(batch.tokens)[batch.inside])
    return estimated_timescales(*(total / int(sequences.inside.sum())).numpy())
