"""How a class-factored readout puts its words into classes, of all the ways there are."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.base.moments import Moments
from esnlm.readouts.two_level.cca import canonical_directions, word_vectors
from esnlm.readouts.two_level.word_clusters import (
    default_n_classes,
    frequency_classes,
    frequent_words_and_clusters,
    given_classes,
    state_clusters,
)

#: Vocabularies of more words have classes of their own for the frequent ones.
MANY_WORDS = 256
# Classes for each √V where frequent words have their own, and the part that these are.
_CLASSES_WITH_WORDS, _SINGLE_WORDS = 4.5, 2 / 3
_DIRECTIONS = 64


class ClassAssignment(NamedTuple):
    """Words (V,) -> classes (V,) numbered from 0.

    Parameters
    ----------
    clustering, n_classes
        Of `ClassFactoredReadout`.
    words : ndarray (V,)
        Labels.
    seed : callable
        Draws the clustering's seed, where there is a clustering.

    Examples
    --------
    >>> assign = ClassAssignment("frequency", 2, np.arange(4), lambda: 0)
    >>> assign.by_vectors(np.array([3, 1, 1, 1]), np.zeros((4, 1)))
    array([0, 1, 1, 1])
    """

    clustering: Any
    n_classes: int | None
    words: NDArray[Any]
    seed: Callable[[], int]

    def by_vectors(self, counts: NDArray[Any], vectors: NDArray[Any]) -> NDArray[np.intp]:
        """Classes of words that occurred counts (V,) times, after states like vectors (V, P)."""
        if not isinstance(self.clustering, str):
            return given_classes(self.clustering, self.words)
        n_words = len(self.words)
        kind = self._kind
        n_classes = min(n_words, self.n_classes or self._default_n_classes(kind))
        if kind == "frequency":
            return frequency_classes(counts, n_classes)
        n_single = round(_SINGLE_WORDS * n_classes) if kind == "words" else 0
        n_clusters = max(1, n_classes - n_single)
        return frequent_words_and_clusters(counts, vectors, n_single, n_clusters, self.seed())

    def by_moments(self, moments: Moments) -> NDArray[np.intp]:
        """Classes of words of whose states the moments are known."""
        if self._kind == "clusters":
            n_words = len(self.words)
            n_classes = min(n_words, self.n_classes or default_n_classes(n_words))
            return state_clusters(moments, n_classes, self.seed())
        vectors: NDArray[Any] = np.zeros((moments.n_classes, 1))
        if self._kind == "words":
            vectors = word_vectors(moments, canonical_directions(moments, _DIRECTIONS)[0])
        return self.by_vectors(moments.counts, vectors)

    @property
    def _kind(self) -> str:
        """The kind of clustering; "given" where the caller gave classes."""
        if not isinstance(self.clustering, str):
            return "given"
        if self.clustering not in ("auto", "clusters", "words", "frequency"):
            raise ValueError(
                "clustering must be 'auto', 'clusters', 'words', 'frequency' or a class for every"
                f" word, got {self.clustering!r}"
            )
        if self.clustering != "auto":
            return self.clustering
        return "words" if len(self.words) > MANY_WORDS else "clusters"

    def _default_n_classes(self, kind: str) -> int:
        n_words = len(self.words)
        if kind == "words":
            return max(1, round(_CLASSES_WITH_WORDS * float(np.sqrt(n_words))))
        return default_n_classes(n_words)
