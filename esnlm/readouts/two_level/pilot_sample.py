"""A survey of rows: what the directions of states and the classes of words are made from."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.base.moments import Moments
from esnlm.readouts.two_level.cca import canonical_directions, word_vectors

#: (counts (V,), vectors (V, P)) -> classes (V,).
Assignment = Callable[[NDArray[Any], NDArray[Any]], NDArray[np.intp]]

# Rows of which products are taken, at least and for each unit.
_GRAM_ROWS, _GRAM_ROWS_A_UNIT = 1 << 16, 32
# Sums of states are kept for as many words, the most frequent.
_SUM_BYTES = 1 << 30
_CLUSTERED_DIRECTIONS = 64
_LEAST_SCALE = 0.02


class Findings(NamedTuple):
    """What a survey finds.

    Attributes
    ----------
    directions : ndarray (n_units, P) float32
        Linear maps of a state that tell the next words apart best, uncorrelated, each scaled by
        its canonical correlation, so that a penalty weighs on those that tell little.
    shift : ndarray (P,) float32
        The mean state along them.
    scale : ndarray (P,) float64
        Deviations of the components, falling from one.
    word_class : ndarray (V,) intp
    counts : ndarray (V,)
        Occurrences of the words.
    """

    directions: NDArray[Any]
    shift: NDArray[Any]
    scale: NDArray[np.float64]
    word_class: NDArray[np.intp]
    counts: NDArray[Any]

    @classmethod
    def kept(cls, directions: NDArray[Any], shift: NDArray[Any], word_class: NDArray[Any]) -> Self:
        """Those that were saved beside what was learned since, which needs no more of them."""
        scale, counts = np.ones(len(shift)), np.zeros(len(word_class))
        return cls(directions, shift, scale, word_class.astype(np.intp), counts)

    @property
    def variance(self) -> float:
        """Mean variance of the components."""
        return float(np.mean(self.scale**2))

    @property
    def telling(self) -> NDArray[np.bool_]:
        """Which components (P,) tell more than noise does."""
        return self.scale > _LEAST_SCALE


class Survey:
    """Moments of a sample of rows, from which directions and classes are solved.

    The sums of states of all rare words are kept together where those of every word would take
    more than 1 GiB.

    Parameters
    ----------
    n_units, n_words : int
    counts : ndarray (V,), optional
        Occurrences of the words in all rows; None: those in the survey.

    Examples
    --------
    The second unit alone tells the words apart:

    >>> X = np.array([[5.0, 0.0], [-5.0, 0.0], [5.0, 1.0], [-5.0, 1.0]] * 9)
    >>> survey = Survey(2, 2)
    >>> survey.add(X, np.array([0, 0, 1, 1] * 9))
    >>> found = survey.solve(2, lambda counts, vectors: np.arange(2))
    >>> np.abs(found.directions).round(1)
    array([[0., 0.],
           [2., 0.]], dtype=float32)
    >>> found.scale, found.telling, found.counts
    (array([1.  , 0.02]), array([ True, False]), array([18, 18]))
    """

    def __init__(self, n_units: int, n_words: int, counts: NDArray[Any] | None = None) -> None:
        self.counts = counts
        n_sums, self._rank = n_words, np.arange(n_words)
        if counts is not None:
            n_sums = min(n_words, max(2, _SUM_BYTES // (8 * n_units)))
            order = np.argsort(-counts, kind="stable")
            self._rank[order] = np.minimum(np.arange(n_words), n_sums - 1)
        gram_rows = max(_GRAM_ROWS, _GRAM_ROWS_A_UNIT * n_units)
        self._moments = Moments(n_units, n_sums, gram_rows)

    def add(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Rows X (n, n_units), words (n,)."""
        self._moments.add(X, self._rank[codes])

    def solve(self, n_components: int, assign: Assignment) -> Findings:
        """The directions, ``n_components`` or as many as there are units, and the classes."""
        moments, rank = self._moments, self._rank
        directions, correlations = canonical_directions(moments, n_components)
        vectors = word_vectors(moments, directions)
        # A component counts for as much as it tells: most of many tell little but noise.
        scale = np.maximum(correlations / max(float(correlations[0]), 1e-6), _LEAST_SCALE)
        directions *= scale.astype(np.float32)
        counts = moments.counts[rank] if self.counts is None else self.counts
        if moments.n_classes < len(rank):
            vectors[-1] = 0  # of many rare words together
        classes = assign(counts, vectors[rank, :_CLUSTERED_DIRECTIONS])
        shift = (moments.mean @ directions).astype(np.float32)
        return Findings(directions, shift, scale, classes, counts)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that further rows are added to, as views."""
        return self._moments.to_arrays()

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what `to_arrays` gave."""
        self._moments = Moments.from_arrays(arrays, self._moments.gram_rows)
