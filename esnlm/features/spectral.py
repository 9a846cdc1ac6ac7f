"""Word features from a singular value decomposition of bigram counts: no descent, one pass."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from esnlm.features.online import BaseWordFeatures
from esnlm.reservoir.parallel_streams import checked_starts
from esnlm.utils.arrays import Array, Ints64, checked_tokens
from esnlm.utils.state_dict import saved
from esnlm.utils.validation import Count, check_parameters, limited

# Pairs that are counted at once, and iterations of the randomised decomposition.
_PIECE = 1 << 22
_ITERATIONS = 3


@dataclass(eq=False, repr=False)
class SpectralWordFeatures(BaseWordFeatures):
    """Dense word features from the company that words keep, in closed form.

    Words that stand before and after the same words get similar features, so a reservoir that
    they drive is in similar states after them, and what a readout learns of one word holds for
    the others.

    With c(u, v) the number of times v follows u, and sums c(u) over v and c(v) over u, the rows of
    ``[A, Aᵀ]``, ``A[u, v] = sqrt(c(u, v)) / ((c(u) + 1) (c(v) + 1))^¼``, are cut to their F leading
    singular directions, which keep a word's next and previous words: the canonical correlations of
    neighbouring words on square-rooted counts of Stratos, Collins & Hsu (2015, sections 4 and 5).
    Directions are weighted by the root of their singular values (Levy, Goldberg & Dagan 2015,
    section 3.3) and each word's features scaled to length one.

    Parameters
    ----------
    n_features : int
        Dimensions of a word's features, F; at most the size of the vocabulary.
    window : int
        Words up to this many tokens apart count as following each other.
    random_state : int, RandomState instance or None
        Starts the randomised decomposition.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_tokens, n_features), float32
        Row v is the feature vector of token v, of length one; zero for words without a neighbour.
    singular_values_ : ndarray of shape (n_features,), float64
        Falling.

    Examples
    --------
    Words 0 and 1 are always followed by 2 or 3, and these by 0 or 1:

    >>> import numpy as np
    >>> from esnlm import SpectralWordFeatures
    >>> tokens = np.random.default_rng(0).choice([0, 1], 2000)
    >>> tokens[1::2] += 2
    >>> words = SpectralWordFeatures(n_features=2, random_state=0).fit(tokens)
    >>> np.abs(words.embedding_ @ words.embedding_.T).round(1)
    array([[1., 1., 0., 0.],
           [1., 1., 0., 0.],
           [0., 0., 1., 1.],
           [0., 0., 1., 1.]], dtype=float32)
    """

    _saved = saved(embedding="embedding_", singular_values="singular_values_")

    _: KW_ONLY
    n_features: int = limited(128, Count())
    window: int = limited(1, Count())
    random_state: int | np.random.RandomState | None = None

    def fit(
        self,
        tokens: ArrayLike,
        y: None = None,
        *,
        reservoir: Any = None,
        n_tokens: int | None = None,
        starts: ArrayLike | None = None,
    ) -> Self:
        """Learn the features from integers (T,), a memory map of which is read piece by piece.

        ``n_tokens`` and ``starts`` are those of `WordFeatures.fit`; y and the reservoir are
        ignored: the features do not depend on what they will drive. Raises ValueError for tokens
        outside the vocabulary, no two neighbouring ones, or more features than words.
        """
        check_parameters(self)
        Count(none=True).check("n_tokens", n_tokens)
        ids = checked_tokens(tokens, n_tokens)
        size = int(ids.max(initial=0)) + 1 if n_tokens is None else int(n_tokens)
        self._check_size(size)
        return self.fit_counts(self.count(ids, size, checked_starts(starts, len(ids))))

    def _check_size(self, n_tokens: int) -> None:
        if self.n_features > n_tokens:
            raise ValueError(
                f"n_features must be at most the {n_tokens} words of the vocabulary,"
                f" got {self.n_features}"
            )

    def count(self, tokens: Array, n_tokens: int, starts: Ints64 | None) -> scipy.sparse.csr_matrix:
        """Count how often v follows u within the window: (n_tokens, n_tokens) float64, exact."""
        counts = pair_counts(tokens, n_tokens, starts)
        for distance in range(2, self.window + 1):
            counts += pair_counts(tokens, n_tokens, starts, distance)
        return counts

    def fit_counts(self, counts: scipy.sparse.csr_matrix) -> Self:
        """Learn the features from `count` of a text, or from the sum of those of its parts."""
        check_parameters(self)
        self._check_size(counts.shape[0])
        if not counts.nnz:
            raise ValueError("no token follows another, so words have no neighbours to learn from")
        scaled = _scaled(counts)
        # One thread: sums in one order, so the features are those of the seed on any machine.
        with threadpool_limits(1):
            vectors, values, _ = randomized_svd(
                scipy.sparse.hstack([scaled, scaled.T], format="csr"),
                self.n_features,
                n_iter=_ITERATIONS,
                random_state=check_random_state(self.random_state),
            )
        rows = vectors * np.sqrt(values)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        nonzero = lengths[:, 0] > 1e-12 * float(lengths.max())
        rows[nonzero] /= lengths[nonzero]
        rows[~nonzero] = 0
        self.embedding_ = rows.astype(np.float32)
        self.singular_values_ = values.astype(np.float64)
        return self


def pair_counts(
    tokens: Array, n_tokens: int, starts: Ints64 | None = None, distance: int = 1
) -> scipy.sparse.csr_matrix:
    """Count how often v follows u: tokens (T,) -> (n_tokens, n_tokens) float64, row u, column v.

    v is the token ``distance`` places after u, and none of ``starts`` lies after u up to v. Memory
    beside the result is that of some million pairs, and two bytes for each of T tokens.

    >>> pair_counts(np.array([0, 1, 1, 0, 1]), 2, np.array([0, 3])).toarray()
    array([[0., 2.],
           [0., 1.]])
    """
    total = scipy.sparse.csr_matrix((n_tokens, n_tokens), dtype=np.float64)
    if not len(tokens):
        return total
    inside = np.ones(len(tokens), dtype=bool)
    inside[0 if starts is None else starts] = False
    follows = inside.copy()
    for apart in range(1, min(distance, len(tokens))):
        follows[apart:] &= inside[:-apart]
    for first in range(0, len(tokens) - distance, _PIECE):
        piece = np.asarray(tokens[first : first + _PIECE + distance]).astype(np.int64)
        counted = follows[first + distance : first + len(piece)]
        keys = (piece[:-distance] * n_tokens + piece[distance:])[counted]
        pairs, times = np.unique(keys, return_counts=True)
        total += scipy.sparse.csr_matrix(
            (times.astype(np.float64), np.divmod(pairs, n_tokens)), shape=total.shape
        )
    return total


def _scaled(counts: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    """Return root counts over the root of the geometric mean of both words' counts plus one."""
    before, after = (
        scipy.sparse.diags_array((np.asarray(counts.sum(axis=axis)).ravel() + 1.0) ** -0.25)
        for axis in (1, 0)
    )
    return scipy.sparse.csr_matrix(before @ counts.sqrt() @ after)
