"""The frozen recurrence of a reservoir in torch: a gather of the rows that units read."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from esnlm.torch.device import full_precision

#: (t, sums (n_units, B)) -> sums, to which what drives the units in step t is added in place.
Drive = Callable[[int, Tensor], Tensor]

_DENSE_SHARE = 0.25


class SparseRows(nn.Module):
    """A frozen sparse matrix (n, m) whose product with (m, B) gathers rows: a weighted sum each.

    ``embedding_bag`` is that gather as one compiled kernel on either device; only the non-zero
    entries are read, in the order of their columns.

    Examples
    --------
    >>> rows = SparseRows(scipy.sparse.csr_matrix([[0.0, 2.0], [0.0, 0.0]]))
    >>> rows(torch.tensor([[1.0], [3.0]], dtype=torch.float64)).tolist()
    [[6.0], [0.0]]
    """

    columns: Tensor
    bounds: Tensor
    values: Tensor

    def __init__(self, matrix: Any) -> None:
        super().__init__()
        kept = scipy.sparse.csr_matrix(matrix)
        kept.sort_indices()
        for name, array in (
            ("columns", kept.indices.astype(np.int32)),
            ("bounds", kept.indptr.astype(np.int32)),
            ("values", kept.data),
        ):
            self.register_buffer(name, torch.from_numpy(np.array(array)), persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Vectors (m, B) -> products (n, B)."""
        return embedding_bag(
            self.columns,
            vectors,
            self.bounds,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )


class DenseRows(nn.Module):
    """The same of a matrix so full that a gather would read more than it leaves out."""

    matrix: Tensor

    def __init__(self, matrix: Any) -> None:
        super().__init__()
        full = torch.from_numpy(scipy.sparse.csr_matrix(matrix).toarray())
        self.register_buffer("matrix", full, persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Vectors (m, B) -> products (n, B)."""
        return self.matrix @ vectors


def frozen_rows(matrix: Any) -> nn.Module:
    """The kernel that fits the matrix: a gather, or from a quarter of non-zeros on a product."""
    full = matrix.nnz >= _DENSE_SHARE * matrix.shape[0] * matrix.shape[1]
    return DenseRows(matrix) if full else SparseRows(matrix)


class Recurrence(nn.Module):
    """``h[t] = (1-a) h[t-1] + a f(W h[t-1] + u[t])`` for many sequences at once, W frozen.

    States are held units first, (n_units, B): every entry of W then moves a contiguous row.

    Parameters
    ----------
    W : sparse (n_units, n_units)
    leak_rate : array (n_units,)
    activation : {"tanh", "relu", "identity"}
    """

    leak: Tensor

    def __init__(self, W: Any, leak_rate: NDArray[Any], activation: str) -> None:
        super().__init__()
        self.forwards, self.backwards = frozen_rows(W), frozen_rows(W.T)
        self.register_buffer("leak", torch.from_numpy(np.array(leak_rate))[:, None], False)
        self.activate, self.slope = _ACTIVATIONS[activation]

    def start(self, n_sequences: int) -> Tensor:
        """The zero state (n_units, B)."""
        return self.leak.new_zeros((len(self.leak), n_sequences))

    def step(self, state: Tensor, drive: Drive, t: int) -> tuple[Tensor, Tensor]:
        """State (n_units, B) before step t -> the state after it, and the activation in it."""
        active = self.activate(drive(t, self.forwards(state)))
        return torch.lerp(state, active, self.leak), active

    def harvest(self, n_steps: int, drive: Drive, state: Tensor) -> Tensor:
        """States (n_steps, n_units, B) after each step, without gradient, from ``state`` on."""
        states = state.new_empty((n_steps, *state.shape))
        with torch.no_grad(), full_precision(state):
            for t in range(n_steps):
                state, _ = self.step(state, drive, t)
                states[t] = state
        return states

    def harvest_packed(self, drive: Drive, restart: Tensor, target: Tensor, n: int) -> Tensor:
        """Hidden (n, n_units) of sequences that are read one after another in each stream.

        ``restart`` (n_steps, B) bool: the state before that step is zero; ``target`` alike: the
        row that the state after it goes to, ``n`` for none.
        """
        state = self.start(restart.shape[1])
        hidden = state.new_empty((n + 1, len(state)))
        keep = (~restart).to(state.dtype)
        with torch.no_grad(), full_precision(state):
            for t in range(len(restart)):
                state, _ = self.step(state.mul_(keep[t]), drive, t)
                hidden.index_copy_(0, target[t], state.t().contiguous())
        return hidden[:n]

    def forward(self, drives: Tensor, state: Tensor, truncate: int | None = None) -> Tensor:
        """States (T, n_units, B) of drives alike, with a gradient to both arguments.

        With ``truncate``, the gradient that a state hands to the one before it is dropped every
        so many steps, as if the text were read in pieces of that length.
        """
        states: Tensor = _Run.apply(drives, state, self, truncate)
        return states


class _Run(torch.autograd.Function):
    """The recurrence over a sequence; of its steps it keeps states and activations alone."""

    @staticmethod
    def forward(
        ctx: Any, drives: Tensor, state: Tensor, cell: Recurrence, truncate: int | None
    ) -> Tensor:
        states, actives = torch.empty_like(drives), torch.empty_like(drives)
        with full_precision(state):
            for t in range(len(drives)):
                state, actives[t] = cell.step(state, lambda t, sums: sums.add_(drives[t]), t)
                states[t] = state
        ctx.save_for_backward(actives)
        ctx.cell, ctx.truncate = cell, truncate
        return states

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (actives,) = ctx.saved_tensors
        cell: Recurrence = ctx.cell
        drives = torch.empty_like(actives)
        before = torch.zeros_like(actives[0])
        for t in range(len(actives) - 1, -1, -1):
            total = above[t] + before
            drives[t] = cell.slope(actives[t]) * (cell.leak * total)
            before = cell.backwards(drives[t]).add_((1 - cell.leak) * total)
            if ctx.truncate is not None and t % ctx.truncate == 0:
                before = torch.zeros_like(before)
        return drives, before, None, None


def _tanh_slope(active: Tensor) -> Tensor:
    return 1 - active * active


def _relu_slope(active: Tensor) -> Tensor:
    return (active > 0).to(active.dtype)


#: Activation -> the function, which may write over its argument, and its slope by its value.
_ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "tanh": (torch.tanh_, _tanh_slope),
    "relu": (torch.relu_, _relu_slope),
    "identity": (lambda values: values, torch.ones_like),
}
