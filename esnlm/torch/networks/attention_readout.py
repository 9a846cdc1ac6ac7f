"""The attention-enhanced readout of Köster & Uchida (paper 004): AERC."""

from typing import Any

import torch
from torch import Tensor, nn

from esnlm.torch.networks.character_reservoir import CharacterReservoir
from esnlm.utils.validation import check_count

#: (n_units, n_hidden) of paper 004, from about 15 000 to 155 000 trained parameters.
SIZES = ((75, 13), (75, 19), (100, 20), (150, 25), (160, 30))


class AttentionReadout(nn.Module):
    """States (..., N) -> logits (..., V), by weights that the state itself gives.

    Equations 3 to 5: ``A = F(r)``, an (H, N) matrix from a perceptron with one hidden layer of H
    rectified units; ``o = A r``; logits ``W_out o + b``. A is never formed: ``o`` is bilinear in
    the hidden units and the state, and H² products a row are fewer than H N.
    """

    def __init__(self, n_units: int, n_hidden: int, n_tokens: int) -> None:
        super().__init__()
        self.n_units = n_units
        self.n_hidden = n_hidden
        self.hidden = nn.Linear(n_units, n_hidden)
        self.attention = nn.Linear(n_hidden, n_hidden * n_units)
        self.output = nn.Linear(n_hidden, n_tokens)

    def forward(self, state: Tensor) -> Tensor:
        """Logits (..., V) of states (..., N)."""
        units = torch.relu(self.hidden(state))
        # A[h, n] = sum_k weight[h, n, k] units[k] + bias[h, n]
        weight = self.attention.weight.unflatten(0, (self.n_hidden, self.n_units))
        bias = self.attention.bias.view(self.n_hidden, self.n_units)
        products = (state @ weight.movedim(1, 0).flatten(1)).unflatten(-1, (self.n_hidden, -1))
        projected = (products @ units.unsqueeze(-1)).squeeze(-1) + state @ bias.T
        logits: Tensor = self.output(projected)
        return logits


class AttentionReservoir(CharacterReservoir):
    """The character reservoir with an `AttentionReadout`.

    Parameters
    ----------
    n_tokens, n_units, n_dims, context : int
        See `CharacterReservoir`.
    n_hidden : int
        Size H of the readout's hidden layer and of what the attention projects onto. Trained
        parameters: N H + H + H² N + H N + H V + V.

    Examples
    --------
    >>> network = AttentionReservoir(60, n_units=75, n_hidden=13)
    >>> sum(p.numel() for p in network.parameters())
    15478
    """

    def __init__(
        self,
        n_tokens: int,
        *,
        n_units: int = 75,
        n_hidden: int = 13,
        n_dims: int = 16,
        context: int = 32,
    ) -> None:
        check_count("n_hidden", n_hidden)
        self.n_hidden = n_hidden
        super().__init__(n_tokens, n_units=n_units, n_dims=n_dims, context=context)

    def _new_readout(self) -> nn.Module:
        return AttentionReadout(self.n_units, self.n_hidden, self.n_tokens)

    def settings(self) -> dict[str, Any]:
        """Constructor arguments by name."""
        return super().settings() | {"n_hidden": self.n_hidden}
