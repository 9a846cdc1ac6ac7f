"""What frozen input weights add to the units of a reservoir, token by token."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class TokenInputs(nn.Module):
    """``W_in u + b`` for one-hot u: a token's column, dense or of the few units that it drives.

    Parameters
    ----------
    W_in : array (n_units, n_tokens) or CSC matrix
    bias : array (n_units,)

    Examples
    --------
    >>> inputs = TokenInputs(scipy.sparse.csc_matrix([[0.0, 2.0], [3.0, 4.0]]), np.array([0.5, 0]))
    >>> inputs.drive(torch.tensor([[1, 0]]))(0, torch.zeros(2, 2, dtype=torch.float64)).tolist()
    [[2.5, 0.5], [4.0, 3.0]]
    """

    bias: Tensor
    weights: Tensor
    units: Tensor

    def __init__(self, W_in: Any, bias: NDArray[Any]) -> None:
        super().__init__()
        self.sparse = scipy.sparse.issparse(W_in)
        self.biased = bool(np.any(bias))
        self.register_buffer("bias", torch.from_numpy(np.array(bias))[:, None], False)
        if self.sparse:
            units, weights = padded_columns(W_in)
            self.register_buffer("units", torch.from_numpy(units), False)
        else:
            weights = np.ascontiguousarray(W_in.T)
        self.register_buffer("weights", torch.from_numpy(weights), False)

    def drive(self, tokens: Tensor) -> Callable[[int, Tensor], Tensor]:
        """Tokens (T, B) -> the function that adds what drives the units in step t to (n_units, B).

        In place: of the few units that a token drives nothing else is touched.
        """

        def add(t: int, sums: Tensor) -> Tensor:
            if self.sparse:
                sums.scatter_add_(0, self.units[tokens[t]].t(), self.weights[tokens[t]].t())
            else:
                sums.add_(self.weights[tokens[t]].t())
            return sums.add_(self.bias) if self.biased else sums

        return add


def padded_columns(matrix: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Rows and values (n_columns, k) of the entries of each column, the shorter ones ended by 0.

    Examples
    --------
    >>> rows, values = padded_columns(scipy.sparse.csc_matrix([[0.0, 2.0], [3.0, 4.0]]))
    >>> rows.tolist(), values.tolist()
    ([[1, 0], [0, 1]], [[3.0, 0.0], [2.0, 4.0]])
    """
    kept = scipy.sparse.csc_matrix(matrix)
    kept.sort_indices()
    counts = np.diff(kept.indptr)
    shape = (kept.shape[1], max(1, int(counts.max(initial=0))))
    rows, values = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=kept.dtype)
    filled = np.arange(shape[1]) < counts[:, None]
    rows[filled], values[filled] = kept.indices, kept.data
    return rows, values
