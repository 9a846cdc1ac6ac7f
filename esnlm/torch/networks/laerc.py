"""The layered reservoirs of Köster & Uchida (paper 004, section IV and appendix A): LAERC."""

import math
from typing import Any, ClassVar

import numpy as np
import scipy.sparse.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esnlm.reservoir.weights import measured_spectral_radius
from esnlm.torch.device import full_precision
from esnlm.torch.networks.network import Network, State
from esnlm.utils.validation import check_choice, check_count, check_flag

#: What ``radius`` is of the recurrent matrix: its largest singular value, as the authors' code
#: has it, or its largest eigenvalue, as the paper says. Gaussian matrices have half the radius.
MEASURES = ("norm", "eigenvalue")
_INITIAL_SCALE = 0.02


class LayeredReservoirs(Network):
    """Blocks of a frozen reservoir, a gate and a feed-forward net between tied embeddings.

    Parameters
    ----------
    n_tokens : int
        Size of the vocabulary V.
    n_dims : int
        Dimensions D of the embedding.
    n_layers : int
        Number of blocks. Trained parameters: n_layers (16 D² + 25 D + 2) + 2 D + V D, less
        2 D a layer where no gradient passes the reservoirs (see ``reservoir_gradient``).
    expansion : int
        A reservoir has ``expansion`` D units; the formula is that of ``expansion=4``.
    radius, last_radius : float
        ``measure`` of the recurrent matrix in the first and in the last block, in between on a
        straight line. ``last_radius=None``: the same in all, as in the authors' code. The paper
        lets it rise slightly, by figures that are lost.
    measure : {"norm", "eigenvalue"}
    reservoir_gradient : bool
        Let gradients pass the reservoirs to the blocks below, as the authors' code does. The
        paper says that they do not: the way past the reservoir is then the only one, and the
        LayerNorm before it has no parameters, which nothing could train.

    Examples
    --------
    >>> network = LayeredReservoirs(50, n_dims=8, n_layers=2)
    >>> hidden, state = network.encode(torch.zeros((3, 5), dtype=torch.int64))
    >>> hidden.shape, [layer.shape for layer in state]
    (torch.Size([3, 5, 8]), [torch.Size([3, 32]), torch.Size([3, 32])])
    """

    #: Of the paper's appendix A and the authors' code: 65 536 tokens a step.
    RECIPE: ClassVar[dict[str, Any]] = {
        "batching": "windows", "length": 1024, "batch_size": 8, "accumulate": 8,
        "learning_rate": 4e-4, "weight_decay": 0.1, "schedule": "warmup-hold-cosine",
        "warmup": 0.01, "hold": 0.1, "final": 0.1, "clip": 1.0,
    }  # fmt: skip

    def __init__(
        self,
        n_tokens: int,
        *,
        n_dims: int = 512,
        n_layers: int = 16,
        expansion: int = 4,
        radius: float = 0.9,
        last_radius: float | None = None,
        measure: str = "norm",
        reservoir_gradient: bool = False,
    ) -> None:
        super().__init__()
        sizes = {"n_tokens": n_tokens, "n_dims": n_dims, "n_layers": n_layers}
        for name, size in (sizes | {"expansion": expansion}).items():
            check_count(name, size)
        check_choice("measure", measure, MEASURES)
        self.n_tokens = n_tokens
        self.n_dims = n_dims
        self.n_layers = n_layers
        self.expansion = expansion
        self.radius = radius
        self.last_radius = last_radius
        self.measure = measure
        check_flag("reservoir_gradient", reservoir_gradient)
        self.reservoir_gradient = reservoir_gradient
        self.embedding = nn.Embedding(n_tokens, n_dims)
        self.blocks = nn.ModuleList(
            Block(n_dims, expansion, radius, measure, reservoir_gradient)
            for radius in radii(n_layers, radius, last_radius)
        )
        self.norm = nn.LayerNorm(n_dims)
        self._draw()

    def _draw(self) -> None:
        nn.init.normal_(self.embedding.weight, std=_INITIAL_SCALE)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=_INITIAL_SCALE)
                nn.init.zeros_(part.bias)

    def settings(self) -> dict[str, Any]:
        """Constructor arguments by name."""
        names = (
            "n_tokens", "n_dims", "n_layers", "expansion", "radius", "last_radius", "measure",
            "reservoir_gradient",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, D); the state is each reservoir's, (B, R)."""
        hidden = self.embedding(tokens)
        reached = []
        for i, block in enumerate(self.blocks):
            hidden, after = block(hidden, None if state is None else state[i])
            reached.append(after)
        return self.norm(hidden), tuple(reached)

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden (..., D) -> logits (..., V), by the embedding (tied)."""
        return hidden @ self.embedding.weight.T

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Weights of linear maps decay; embedding, biases, LayerNorm and scales do not."""
        linear = {id(part.weight) for part in self.modules() if isinstance(part, nn.Linear)}
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return [
            {
                "params": [p for p in trained if (id(p) in linear) is decays],
                "weight_decay": weight_decay if decays else 0.0,
            }
            for decays in (True, False)
        ]


class Block(nn.Module):
    """One layer: x (B, T, D), state (B, R) or None -> y (B, T, D), state after the last token.

    ``s = RNN(LN(x))``, ``r = exp(c) MLP(LN(s))`` (equations 11 to 17), ``g = sigmoid(MLP(LN([x,
    r])))``, ``m = g r + (1 - g) x`` (18 to 21), ``y = m + alpha FFN(LN(m))`` (22 to 25); ``c``
    and ``alpha`` begin at 0. The biases of the authors' frozen RNN are zero and left out.
    """

    def __init__(
        self, n_dims: int, expansion: int, radius: float, measure: str, gradient: bool
    ) -> None:
        super().__init__()
        n_units = expansion * n_dims
        self.gradient = gradient
        self.input_norm = nn.LayerNorm(n_dims, elementwise_affine=gradient)
        self.reservoir = nn.RNN(n_dims, n_units, bias=False, batch_first=True)
        with torch.no_grad():
            self.reservoir.weight_ih_l0.normal_(std=1 / math.sqrt(n_dims))
            self.reservoir.weight_hh_l0.normal_(std=1 / math.sqrt(n_units))
            found = size_of(self.reservoir.weight_hh_l0.double().cpu().numpy(), measure)
            self.reservoir.weight_hh_l0.mul_(radius / found)
        self.reservoir.requires_grad_(False)
        self.readout = nn.Sequential(
            nn.LayerNorm(n_units), nn.Linear(n_units, n_dims), nn.GELU(), nn.Linear(n_dims, n_dims)
        )
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.gate = nn.Sequential(
            nn.LayerNorm(2 * n_dims), nn.Linear(2 * n_dims, n_dims), nn.GELU(),
            nn.Linear(n_dims, n_dims), nn.Sigmoid(),
        )  # fmt: skip
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(n_dims), nn.Linear(n_dims, 4 * n_dims), nn.GELU(),
            nn.Linear(4 * n_dims, n_dims),
        )  # fmt: skip
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """See the class."""
        start = None if state is None else state[None]
        with torch.set_grad_enabled(self.gradient and torch.is_grad_enabled()), full_precision(x):
            states, reached = self.reservoir(self.input_norm(x.to(self.alpha.dtype)), start)
        r = self.log_scale.exp() * self.readout(states)
        g = self.gate(torch.cat([x, r], dim=-1))
        m = g * r + (1 - g) * x
        return m + self.alpha * self.feed_forward(m), reached[0]


def radii(n_layers: int, first: float, last: float | None) -> list[float]:
    """Radius of each layer, on a line from first to last.

    Examples
    --------
    >>> radii(3, 0.5, 1.0), radii(2, 0.9, None)
    ([0.5, 0.75, 1.0], [0.9, 0.9])
    """
    for name, value in (("radius", first), ("last_radius", first if last is None else last)):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number above 0, got {value}")
    return [float(r) for r in np.linspace(first, first if last is None else last, n_layers)]


def size_of(matrix: NDArray[Any], measure: str) -> float:
    """Largest singular value, or modulus of the eigenvalues, of a square matrix.

    Examples
    --------
    >>> [round(size_of(np.array([[0, 4], [1, 0]]), measure), 9) for measure in MEASURES]
    [4.0, 2.0]
    """
    if measure == "eigenvalue":
        return measured_spectral_radius(matrix)
    if len(matrix) <= 256:
        return float(np.linalg.norm(matrix, 2))
    start = np.ones(len(matrix))
    return float(scipy.sparse.linalg.svds(matrix, k=1, v0=start, return_singular_vectors=False)[0])
