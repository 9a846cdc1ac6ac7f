"""Direct connections from the last tokens to the components of a readout."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from esnlm.kernels import direct as kernels
from esnlm.readouts.base.last_tokens import NO_TOKEN
from esnlm.utils.arrays import Array, Ints64, Tokens
from esnlm.utils.state_dict import Stateful, saved

_LEAST_ROOT = np.float32(1e-4)
# Longest n-grams with a vector: longer ones gained nothing (reports/trials).
_LONGEST = 3
# N-grams that wait to be added up, or as many as were met.
_MOST_WAITING = 1 << 20


class DirectConnections(Stateful):
    """Trained vectors of the last tokens and of frequent n-grams of them, added to components z.

    ``z += Σ_k C_k[token read k steps ago] + Σ_n D[the last n tokens]``. The first sum is the direct
    connection from input to output of an echo state network (Jaeger 2001, section 2.1), with
    tapped delays and the rank of the components, as in a log-bilinear model (Mnih & Hinton 2007).
    The second has a row for each of some n-grams and nothing for the others, as the n-gram features
    in the output layer of RNNME (Mikolov et al. 2011).

    Trained by AdaGrad (Duchi et al. 2011), each weight by its own sum of squared gradients:
    rare tokens are learned as fast as frequent ones.

    ``ngrams`` (n_ngrams,) have a row of their own: numbers of `ngram_keys`, sorted; they need
    ``n_direct >= 2``. ``coef`` is (n_direct, n_tokens + 1, n_components) float32, the last row of
    each table that of no token; ``ngram_coef`` (n_ngrams, n_components). ``squares`` of both are
    sums of squared gradients.
    """

    _saved = saved("coef", "squares", "ngrams", "ngram_coef", "ngram_squares")

    def __init__(
        self, n_direct: int, n_tokens: int, n_components: int, ngrams: Ints64 | None = None
    ) -> None:
        self.ngrams = np.empty(0, dtype=np.int64) if ngrams is None else ngrams
        shape = n_direct, n_tokens + 1, n_components
        ngram_shape = len(self.ngrams), n_components
        self.coef = np.zeros(shape, dtype=np.float32)
        self.ngram_coef = np.zeros(ngram_shape, dtype=np.float32)
        # Zeros take no memory until they are written to.
        self.squares = np.zeros(shape, dtype=np.float32)
        self.ngram_squares = np.zeros(ngram_shape, dtype=np.float32)

    def add_to(self, Z: Array, last: Tokens) -> None:
        """Add the vectors of the last tokens (n, n_direct) to components Z (n, P), in place."""
        for table, _, rows, places in self._tables(last):
            kernels.add_rows(Z, table, rows, places)

    def step(self, last: Tokens, gradient: Array, rate: float) -> None:
        """Take a step down the gradient (n, P) of the summed loss with respect to components."""
        for table, squares, rows, places in self._tables(last):
            order = np.argsort(rows, kind="stable")
            kernels.adagrad_rows(
                table, squares, rows, places, order, gradient, np.float32(rate), _LEAST_ROOT
            )

    def _names(self, training: bool) -> Mapping[str, str]:
        return self._saved if len(self.coef) else {}

    def _tables(self, last: Tokens) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Tables, their sums of squares, and which of their rows belong to which of ``last``."""
        n_tokens, everywhere = self.coef.shape[1] - 1, np.arange(len(last))
        for k, (table, squares) in enumerate(zip(self.coef, self.squares, strict=True)):
            yield table, squares, last[:, k].astype(np.intp) % (n_tokens + 1), everywhere
        if not len(self.ngrams):
            return
        for keys in ngram_keys(last, n_tokens):
            rows = np.minimum(np.searchsorted(self.ngrams, keys), len(self.ngrams) - 1)
            places = np.flatnonzero(self.ngrams[rows] == keys)
            yield self.ngram_coef, self.ngram_squares, rows[places], places


def ngram_keys(last: Tokens, n_tokens: int) -> Iterator[Ints64]:
    """Yield numbers (n,) of the last two and three tokens of rows, -1 where one is missing.

    Where rows (n, n_direct) have fewer tokens, of those that they have. No two n-grams share one.

    >>> [keys.tolist() for keys in ngram_keys(np.array([[3, 1, 0], [3, 1, -1]]), 10)]
    [[13, 13], [113, -1]]
    """
    keys, first = last[:, 0].astype(np.int64), 0
    for k in range(1, min(last.shape[1], _LONGEST)):
        keys = keys + last[:, k].astype(np.int64) * n_tokens**k
        missing = (last[:, : k + 1] == NO_TOKEN).any(axis=1)
        yield np.where(missing, NO_TOKEN, first + keys)
        first += n_tokens ** (k + 1)


class NgramCounts(Stateful):
    """N-grams of last tokens, and how often each was met."""

    _saved = saved("totals")

    def __init__(self, n_tokens: int) -> None:
        self.n_tokens = n_tokens
        self._parts = [np.empty((2, 0), dtype=np.int64)]

    def add(self, last: Tokens) -> None:
        """Count the n-grams of last tokens (n, n_direct)."""
        for keys in ngram_keys(last, self.n_tokens):
            present = keys[keys != NO_TOKEN]
            self._parts.append(np.stack([present, np.ones_like(present)]))
        n_entries, *waiting = (part.shape[1] for part in self._parts)
        if sum(waiting) > max(n_entries, _MOST_WAITING):
            self._add_up()

    @property
    def totals(self) -> Ints64:
        """Keys, sorted, and how often each was met: (2, n)."""
        if len(self._parts) > 1:
            self._add_up()
        return self._parts[0]

    @totals.setter
    def totals(self, totals: Ints64) -> None:
        self._parts = [totals]

    def _add_up(self) -> None:
        """Keep an entry an n-gram that was met, not one a row."""
        all_keys, times = np.concatenate(self._parts, axis=1)
        keys, places = np.unique(all_keys, return_inverse=True)
        counts = np.bincount(places, times, len(keys)).astype(np.int64)
        self._parts = [np.stack([keys, counts])]

    def most_frequent(self, n: int) -> Ints64:
        """Keys of the n most frequent n-grams that were met twice at least, sorted."""
        keys, counts = self.totals
        order = np.argsort(-counts, kind="stable")[:n]
        return np.sort(keys[order[counts[order] > 1]])
