"""A frozen reservoir in torch: its recurrence, its input weights, and packed sequences."""

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from esnlm.kernels.vectors import decayed_sums
from esnlm.torch.device import full_precision
from esnlm.utils.arrays import Array, Bools, Ints64

#: (t, sums (n_units, B)) -> sums, to which the input of step t has been added in place.
Drive = Callable[[int, Tensor], Tensor]

_STEPS, _MOST_STREAMS = 64, 4096


def frozen(array: Any) -> nn.Buffer:
    """Return a copy of an array that moves with its module to a device, unsaved."""
    return nn.Buffer(torch.from_numpy(np.array(array)), persistent=False)


class FrozenMatrix(nn.Module):
    """A frozen sparse matrix (n, m), multiplied with vectors (m, B).

    ``embedding_bag`` is one compiled kernel for that on either device: weighted sums of the
    vectors' rows, in the order of the matrix's columns. From a quarter of non-zeros on, a dense
    product is faster.
    """

    def __init__(self, matrix: Any) -> None:
        """Store the matrix densely from a quarter of non-zeros on, else by rows in CSR format."""
        super().__init__()
        rows = scipy.sparse.csr_matrix(matrix)
        rows.sort_indices()
        self.n_rows, self.is_zero = rows.shape[0], not rows.data.any()
        self.is_dense = rows.nnz >= 0.25 * rows.shape[0] * rows.shape[1]
        if self.is_dense:
            self.matrix = frozen(rows.toarray())
        else:
            self.columns = frozen(rows.indices.astype(np.int32))
            self.bounds = frozen(rows.indptr.astype(np.int32))
            self.values = frozen(rows.data)

    def forward(self, vectors: Tensor) -> Tensor:
        """Vectors (m, B) -> products (n, B)."""
        if self.is_zero:
            return vectors.new_zeros((self.n_rows, vectors.shape[1]))
        if self.is_dense:
            return self.matrix @ vectors
        return embedding_bag(
            self.columns, vectors, self.bounds, mode="sum", per_sample_weights=self.values,
            include_last_offset=True,
        )  # fmt: skip


class Recurrence(nn.Module):
    """``h[t] = (1-a) h[t-1] + a f(W h[t-1] + u[t])`` for many sequences at once, W frozen.

    States are held units first, (n_units, B): every entry of W then moves a contiguous row.
    """

    def __init__(self, W: Any, leak_rate: Array, activation: str) -> None:
        super().__init__()
        self.forwards, self.backwards = FrozenMatrix(W), FrozenMatrix(W.T)
        self.leak = frozen(leak_rate[:, None])
        self.activation = activation  # by its name: functions without one cannot be pickled

    def activate(self, sums: Tensor) -> Tensor:
        """Return the activations of sums, in place."""
        return _ACTIVATIONS[self.activation][0](sums)

    def start(self, n_sequences: int) -> Tensor:
        """Return the zero state (n_units, B)."""
        return self.leak.new_zeros((len(self.leak), n_sequences))

    def step(self, state: Tensor, drive: Drive, t: int) -> tuple[Tensor, Tensor]:
        """State (n_units, B) before step t -> the state after it, and the activations."""
        active = self.activate(drive(t, self.forwards(state)))
        return torch.lerp(state, active, self.leak), active

    def harvest(self, n_steps: int, drive: Drive, state: Tensor) -> Tensor:
        """States (n_steps, n_units, B) after each step, without gradient, starting at ``state``."""
        states = state.new_empty((n_steps, *state.shape))
        with torch.no_grad(), full_precision(state):
            for t in range(n_steps):
                state, _ = self.step(state, drive, t)
                states[t] = state
        return states

    def harvest_packed(self, drive: Drive, restart: Tensor, target: Tensor, n: int) -> Tensor:
        """Hidden (n, n_units) of sequences end to end in streams.

        ``restart`` and ``target`` (n_steps, B) are those of `packed`, of n tokens.
        """
        state = self.start(restart.shape[1])
        hidden = state.new_empty((n + 1, len(state)))
        keep = (~restart).to(state.dtype)
        with torch.no_grad(), full_precision(state):
            for t in range(len(restart)):
                state, _ = self.step(state.mul_(keep[t]), drive, t)
                hidden.index_copy_(0, target[t], state.t().contiguous())
        return hidden[:n]

    def harvest_uncoupled(self, drive: Drive, rows: Ints64, ends: Ints64) -> Tensor:
        """Hidden (n, n_units) of sequences end to end, of units without coupling, on a CPU.

        Column ``rows[t]`` of the first step of ``drive`` is the input at place t; sequences end
        before the places ``ends``. Three times as fast as step by step.
        """
        with torch.no_grad(), full_precision(self.leak):
            active = self.activate(drive(0, self.start(int(rows.max(initial=-1)) + 1)))
            hidden = (self.leak * active).t().contiguous()[torch.from_numpy(rows)]
            decayed_sums(hidden.numpy(), (1 - self.leak[:, 0]).numpy(), ends, False)
        return hidden

    def forward(self, drives: Tensor, state: Tensor, truncate: int | None = None) -> Tensor:
        """States (T, n_units, B) of drives of that shape, with a gradient to both arguments.

        With ``truncate``, the gradient from a state to the one before it is dropped every
        ``truncate`` steps, as if the text were read in pieces of that length.
        """
        return _Run.apply(drives, state, self, truncate)


class _Run(torch.autograd.Function):
    """The recurrence over a sequence; the backward pass needs the activations alone."""

    @staticmethod
    def forward(
        ctx: Any, drives: Tensor, state: Tensor, cell: Recurrence, truncate: int | None
    ) -> Tensor:
        """Return states (T, n_units, B) of ``drives``, and save activations for the gradient."""
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
        """Return gradients of drives (T, n_units, B) and of the first state (n_units, B)."""
        (actives,) = ctx.saved_tensors
        cell: Recurrence = ctx.cell
        _, slope = _ACTIVATIONS[cell.activation]
        drives = torch.empty_like(actives)
        before = torch.zeros_like(actives[0])
        for t in range(len(actives) - 1, -1, -1):
            total = above[t] + before
            drives[t] = slope(actives[t]) * (cell.leak * total)
            before = cell.backwards(drives[t]).add_((1 - cell.leak) * total)
            if ctx.truncate is not None and t % ctx.truncate == 0:
                before = torch.zeros_like(before)
        return drives, before, None, None


#: Activation -> the function, in place, and its slope as a function of its value.
_ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "tanh": (torch.tanh_, lambda active: 1 - active * active),
    "relu": (torch.relu_, lambda active: (active > 0).to(active.dtype)),
    "identity": (lambda values: values, torch.ones_like),
}


class TokenInputs(nn.Module):
    """``W_in u + b`` for one-hot u: a token's column, dense, or sparse as padded lists of units.

    ``W_in`` (n_units, n_tokens): an array or CSC matrix, dense from a quarter of non-zeros on;
    ``bias`` (n_units,).
    """

    def __init__(self, W_in: Any, bias: Array) -> None:
        super().__init__()
        if scipy.sparse.issparse(W_in) and W_in.nnz >= 0.25 * W_in.shape[0] * W_in.shape[1]:
            W_in = W_in.toarray()
        self.sparse = scipy.sparse.issparse(W_in)
        self.biased = bool(np.any(bias))
        self.bias = frozen(bias[:, None])
        if self.sparse:
            self.units, self.weights = map(frozen, padded_columns(W_in))
        else:
            self.weights = frozen(np.ascontiguousarray(W_in.T))

    def add(self, tokens: Tensor, t: int, sums: Tensor) -> Tensor:
        """Add the inputs of step t of tokens (T, B) to sums (n_units, B), in place."""
        if self.sparse:
            sums.scatter_add_(0, self.units[tokens[t]].t(), self.weights[tokens[t]].t())
        else:
            sums.add_(self.weights[tokens[t]].t())
        return sums.add_(self.bias) if self.biased else sums


class FeatureInputs(nn.Module):
    """``W_in f(u) + b`` of the feature vector f(u) that stands for token u, in ``vectors`` (V, F).

    ``W_in`` (n_units, F) and ``bias`` (n_units,) are arrays.
    """

    def __init__(self, W_in: Any, bias: Array, n_tokens: int) -> None:
        super().__init__()
        dense = W_in.toarray() if hasattr(W_in, "toarray") else W_in
        self.weights = frozen(np.ascontiguousarray(dense))
        self.bias = frozen(bias[:, None])
        self.vectors = nn.Buffer(self.weights.new_zeros((n_tokens, dense.shape[1])))

    def add(self, tokens: Tensor, t: int, sums: Tensor) -> Tensor:
        """Add the inputs of step t of tokens (T, B) to sums (n_units, B), in place."""
        return sums.addmm_(self.weights, self.vectors[tokens[t]].t()).add_(self.bias)


def padded_columns(matrix: Any) -> tuple[Ints64, Array]:
    """Rows and values (n_columns, k) of the entries of each column, padded with zeros."""
    columns = scipy.sparse.csc_matrix(matrix)
    columns.sort_indices()
    counts = np.diff(columns.indptr)
    shape = (columns.shape[1], max(1, int(counts.max(initial=0))))
    rows, values = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=columns.dtype)
    inside = np.arange(shape[1]) < counts[:, None]
    rows[inside], values[inside] = columns.indices, columns.data
    return rows, values


def packed(starts: Ints64, n_tokens: int) -> tuple[Ints64, Bools, Ints64]:
    """Sequences of all lengths end to end in parallel streams of about equally many tokens.

    Each array is (n_steps, n_streams): the place of the token to read; where the state before it
    is zero; the place of its hidden vector, or the one after the last where a stream has ended.
    The longest sequences are placed first, each in the stream that has the fewest tokens yet.

    >>> source, restart, _ = packed(np.array([0, 3, 5]), 6)
    >>> source.T.tolist(), restart.T.tolist()
    ([[0, 1, 2, 3, 4, 5]], [[True, False, False, True, False, True]])
    """
    lengths = np.diff(np.append(starts, n_tokens))
    least = max(_STEPS, int(lengths.max()))
    n_streams = int(np.clip(n_tokens // least, 1, min(_MOST_STREAMS, len(starts))))
    stream, offset = np.empty((2, len(starts)), dtype=np.int64)
    loads = [(0, number) for number in range(n_streams)]
    for place in np.argsort(-lengths, kind="stable"):
        load, number = loads[0]
        stream[place], offset[place] = number, load
        heapq.heapreplace(loads, (load + int(lengths[place]), number))
    shape = (max(load for load, _ in loads), n_streams)
    ids = np.arange(n_tokens)
    where = np.repeat(offset - starts, lengths) + ids, np.repeat(stream, lengths)
    source, target = np.zeros(shape, dtype=np.int64), np.full(shape, n_tokens)
    source[where] = target[where] = ids
    restart = np.ones(shape, dtype=bool)
    restart[where] = False
    restart[offset, stream] = True
    return source, restart, target
