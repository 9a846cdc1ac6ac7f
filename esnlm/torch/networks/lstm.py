"""The LSTM language model of Ueda et al. (papers 000 and 001)."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from esnlm.torch.networks.lstm_layer import GatedLayer
from esnlm.torch.networks.network import SHARE, Network, State
from esnlm.utils.validation import Count, limited


@dataclass(eq=False, repr=False, kw_only=True)
class LSTM(Network):
    """Embedding, LSTM, linear map; dropout after the embedding and before the map.

    Trained parameters, with V tokens and H units in embedding and layers: 2 V H + V + n_layers 8 H
    (H + 1), 53.6 million with GPT-2's vocabulary, which table 3 of paper 000 has as 54 million and
    table 1 of paper 001 as 53 million.
    """

    n_units: int = limited(512, Count())
    n_layers: int = limited(1, Count())
    dropout: float = limited(0.1, SHARE)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.embedding = nn.Embedding(self.n_tokens, self.n_units)
        layers = (GatedLayer(self.n_units, self.n_units) for _ in range(self.n_layers))
        self.layers = nn.ModuleList(layers)
        self.drop = nn.Dropout(self.dropout)
        self.output = nn.Linear(self.n_units, self.n_tokens)

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        """Return the number of trained parameters: 2 V H + V + n_layers 8 H (H + 1)."""
        h = settings["n_units"]
        return int(2 * n_tokens * h + n_tokens + settings["n_layers"] * 8 * h * (h + 1))

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, H); the state is h and c (B, H) of each layer."""
        hidden, reached = self.through(self.layers, self.drop(self.embedding(tokens)), state)
        return self.drop(hidden), reached
