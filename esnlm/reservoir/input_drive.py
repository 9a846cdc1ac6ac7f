"""Input drive W_in u + b of each token, as rows of a table."""

from typing import Any

import numpy as np
import scipy.sparse

from esnlm.utils.arrays import Array, Ints64

_TABLE_BYTES = 256 << 20


class Drive:
    """Drive W_in u + b (n_units,) of each token, as rows of a table.

    W_in (n_units, n_inputs) lies column by column in memory, or is a CSC matrix. features
    (n_tokens, n_inputs) are input vectors of tokens; without them a token is a column of W_in.
    """

    def __init__(self, W_in: Any, bias: Array, features: Array | None = None) -> None:
        self._W_in, self._bias = W_in, bias
        self._features = features
        self.n_tokens = W_in.shape[1] if features is None else len(features)
        self._sparse = scipy.sparse.issparse(W_in)
        self._table = self._whole_table()

    def rows(self, tokens: Array) -> tuple[Array, Ints64]:
        """Return a table (n_rows, n_units) and the row of each token, in the shape of tokens.

        Compiled code reads rows without checks, and the array of tokens may have changed since it
        was checked: a copy is checked again.
        """
        rows = tokens.astype(np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < self.n_tokens:
            raise ValueError(f"the tokens changed while they were read: {rows.max()} is none")
        if self._table is not None:
            return self._table, rows
        distinct, inverse = np.unique(rows, return_inverse=True)
        return self._of(distinct), inverse.reshape(tokens.shape)

    def _whole_table(self) -> Array | None:
        if self._features is None and not self._sparse and not self._bias.any():
            # Compiled code takes a read-only array for another type.
            return np.require(self._W_in.T, requirements=["C", "W"])
        if self.n_tokens * self._bias.nbytes > _TABLE_BYTES:
            return None
        return self._of(np.arange(self.n_tokens))

    def _of(self, tokens: Array) -> Array:
        if self._features is not None:
            vectors = self._features[tokens].astype(self._bias.dtype, copy=False)
            return np.ascontiguousarray((self._W_in @ vectors.T).T + self._bias)
        columns = self._W_in[:, tokens]
        return np.ascontiguousarray((columns.toarray() if self._sparse else columns).T + self._bias)
