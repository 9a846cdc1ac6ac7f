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
    >>> inputs.drive(torch.tensor([[1, 0]]))(0).tolist()
    [[2.5, 0.5], [4.0, 3.0]]
    """

    bias: Tensor
    weights: Tensor
    units: Tensor

    def __init__(self, W_in: Any, bias: NDArray[Any]) -> None:
        super().__init__()
        self.sparse = scipy.sparse.issparse(W_in)
        self.register_buffer("bias", torch.from_numpy(np.array(bias))[:, None], False)
        if self.sparse:
            units, weights = padded_columns(W_in)
            self.register_buffer("units", torch.from_numpy(units), False)
        else:
            weights = np.ascontiguousarray(W_in.T)
        self.register_buffer("weights", torch.from_numpy(weights), False)

    def drive(self, tokens: Tensor) -> Callable[[int], Tensor]:
        """Tokens (T, B) -> the function t -> what drives the units (n_units, B) in step t."""
        return lambda t: self._sparse(tokens[t]) if self.sparse else self._dense(tokens[t])

    def _dense(self, tokens: Tensor) -> Tensor:
        return self.weights[tokens].t() + self.bias

    def _sparse(self, tokens: Tensor) -> Tensor:
        drive = self.bias.repeat(1, len(tokens))
        return drive.scatter_add_(0, self.units[tokens].t(), self.weights[tokens].t())


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
