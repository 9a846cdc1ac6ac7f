"""The layered reservoirs of Köster & Uchida (2025, section IV and appendix A): LAERC."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import scipy.sparse.linalg
import torch
from torch import Tensor, nn

from esnlm.reservoir.weights import measured_spectral_radius
from esnlm.torch.device import full_precision
from esnlm.torch.networks.network import Network, Settings, State, decaying
from esnlm.utils.arrays import Array, Arrays
from esnlm.utils.validation import Count, Flag, Number, OneOf, limited

#: Measures of the recurrent matrix that ``radius`` sets: its largest eigenvalue, as in the paper,
#: or its largest singular value, as in the authors' code. Gaussian matrices have half the radius
#: under the latter.
MEASURES = ("eigenvalue", "norm")
_INITIAL_SCALE = 0.02


@dataclass(eq=False, repr=False, kw_only=True)
class LayeredReservoirs(Network):
    """Blocks of a frozen reservoir, a gate and a feed-forward net between tied embeddings."""

    #: Of the paper's appendix A and the authors' code: 65 536 tokens a step.
    RECIPE: ClassVar[Settings] = {
        "batching": "windows", "length": 1024, "batch_size": 8, "accumulate": 8,
        "learning_rate": 4e-4, "weight_decay": 0.1, "schedule": "warmup-hold-cosine",
        "warmup": 0.01, "hold": 0.1, "final": 0.1, "clip": 1.0,
    }  # fmt: skip

    n_dims: int = limited(512, Count())  #: dimensions D of the embedding
    n_layers: int = limited(16, Count())  #: number of blocks
    expansion: int = limited(4, Count())  #: a reservoir has ``expansion`` D units
    #: ``measure`` of the recurrent matrix in the first block (equation 13).
    radius: float = limited(0.9, Number(0, open="low"))
    #: That in the last block, linear in between (equation 14). None: the same in all. The authors'
    #: code has a norm of 0.9 in all blocks; the ends of the paper's line are not in its text.
    last_radius: float | None = limited(0.99, Number(0, open="low", none=True))
    measure: str = limited("eigenvalue", OneOf(MEASURES))
    #: Let gradients pass the reservoirs to the blocks below, as the authors' code does. The paper
    #: says that they do not: then they pass beside the reservoirs alone, and the LayerNorm before
    #: each has no parameters.
    reservoir_gradient: bool = limited(False, Flag())

    def __post_init__(self) -> None:
        """Build blocks and embedding, and draw weights of linear maps from N(0, 0.02²)."""
        super().__post_init__()
        self.embedding = nn.Embedding(self.n_tokens, self.n_dims)
        last = self.radius if self.last_radius is None else self.last_radius
        self.blocks = nn.ModuleList(
            Block(self.n_dims, self.expansion, float(r), self.measure, self.reservoir_gradient)
            for r in np.linspace(self.radius, last, self.n_layers)
        )
        self.norm = nn.LayerNorm(self.n_dims)
        nn.init.normal_(self.embedding.weight, std=_INITIAL_SCALE)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=_INITIAL_SCALE)
                nn.init.zeros_(part.bias)

    @classmethod
    def of_saved(cls, settings: Settings, weights: Arrays) -> Network:
        """Return the network without weights of its own: all of them are saved, none is drawn."""
        with torch.device("meta"):
            network = cls(**settings)
        return network.to_empty(device="cpu")

    @classmethod
    def family(cls) -> Iterator[Settings]:
        """Depth and width grow together, through the paper's 16 layers of 512."""
        for d in chain(range(4, 64, 4), range(64, 1 << 12, 16)):
            for n_layers in range(max(1, d // 40), d // 24 + 2):
                yield {"n_dims": d, "n_layers": n_layers}

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        d, e = settings["n_dims"], settings["expansion"]
        ends = 2 if settings["reservoir_gradient"] else 0  # of the LayerNorm before a reservoir
        layer = (12 + e) * d * d + (15 + 2 * e + ends) * d + 2
        return int(settings["n_layers"] * layer + (2 + n_tokens) * d)

    @staticmethod
    def count_frozen(n_tokens: int, **settings: Any) -> int:
        d, e = settings["n_dims"], settings["expansion"]
        return int(settings["n_layers"] * (e * e + e) * d * d)

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, D); the state is each reservoir's, (B, R)."""
        hidden, after = self.through(self.blocks, self.embedding(tokens), state)
        return self.norm(hidden), after

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden (..., D) -> logits (..., V), by the embedding (tied)."""
        return hidden @ self.embedding.weight.T

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Weights of linear maps decay; embedding, biases, LayerNorm and scales do not."""
        linear = {id(part.weight) for part in self.modules() if isinstance(part, nn.Linear)}
        trained = self.trained_parameters().values()
        return decaying(trained, weight_decay, lambda parameter: id(parameter) in linear)


class Block(nn.Module):
    """One layer: x (B, T, D), state (B, R) or None -> y (B, T, D), state after the last token.

    ``s = RNN(LN(x))``, ``r = exp(c) MLP(LN(s))`` (equations 11 to 17), ``g = sigmoid(MLP(LN([x,
    r])))``, ``m = g r + (1 - g) x`` (18 to 21), ``y = m + alpha FFN(LN(m))`` (22 to 25); ``c``
    and ``alpha`` begin at 0. The biases of the authors' frozen RNN are zero and left out.
    """

    def __init__(
        self, n_dims: int, expansion: int, radius: float, measure: str, gradient: bool
    ) -> None:
        """Draw the frozen reservoir, scale it to ``radius``, and build the trained layers."""
        super().__init__()
        n_units = expansion * n_dims
        self.gradient = gradient
        self.input_norm = nn.LayerNorm(n_dims, elementwise_affine=gradient)
        self.reservoir = nn.RNN(n_dims, n_units, bias=False, batch_first=True)
        recurrent = self.reservoir.weight_hh_l0
        with torch.no_grad():
            self.reservoir.weight_ih_l0.normal_(std=1 / math.sqrt(n_dims))
            recurrent.normal_(std=1 / math.sqrt(n_units))
            if not recurrent.is_meta:
                recurrent.mul_(radius / size_of(recurrent.double().cpu().numpy(), measure))
        self.reservoir.requires_grad_(False)
        self.readout = nn.Sequential(*_perceptron(n_units, n_dims, n_dims))
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.gate = nn.Sequential(*_perceptron(2 * n_dims, n_dims, n_dims), nn.Sigmoid())
        self.feed_forward = nn.Sequential(*_perceptron(n_dims, 4 * n_dims, n_dims))
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return outputs (B, T, D) and the state (B, R) after the last token."""
        start = None if state is None else state[None]
        with torch.set_grad_enabled(self.gradient and torch.is_grad_enabled()), full_precision(x):
            states, after = self.reservoir(self.input_norm(x.to(self.alpha.dtype)), start)
        r = self.log_scale.exp() * self.readout(states)
        g = self.gate(torch.cat([x, r], dim=-1))
        m = g * r + (1 - g) * x
        return m + self.alpha * self.feed_forward(m), after[0]


def _perceptron(n_inputs: int, n_hidden: int, n_outputs: int) -> list[nn.Module]:
    hidden = nn.Linear(n_inputs, n_hidden)
    return [nn.LayerNorm(n_inputs), hidden, nn.GELU(), nn.Linear(n_hidden, n_outputs)]


def size_of(matrix: Array, measure: str) -> float:
    """Largest singular value, or modulus of the eigenvalues, of a square matrix.

    >>> [round(size_of(np.array([[0, 4], [1, 0]]), measure), 9) for measure in MEASURES]
    [2.0, 4.0]
    """
    if measure == "eigenvalue":
        return measured_spectral_radius(matrix)
    if len(matrix) <= 256:
        return float(np.linalg.norm(matrix, 2))
    start = np.ones(len(matrix))
    return float(scipy.sparse.linalg.svds(matrix, k=1, v0=start, return_singular_vectors=False)[0])
