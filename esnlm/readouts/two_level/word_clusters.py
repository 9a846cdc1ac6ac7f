"""Assign words to classes: by clustering, by frequency, or as the caller gives them."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from esnlm.readouts.base.moments import Moments
from esnlm.readouts.two_level.cca import canonical_directions, word_vectors

#: Vocabularies of more words have classes of their own for the frequent ones.
MANY_WORDS = 256
# Classes for each √V where frequent words have their own, and the share of such classes.
_CLASSES_WITH_WORDS, _SINGLE_WORDS = 4.5, 2 / 3
# Directions of the states that words are compared along, and how many times the mean size a
# class may reach: where all words have one, and where frequent ones stand alone.
_N_DIRECTIONS = 64
_LARGEST = 1.5
_LARGEST_OF_RARE = 3.0
# The mean state of a word with n rows is shrunken by n / (n + this).
_PRIOR_ROWS = 5.0
# States whose variance is this part of their squared mean are one state, but for rounding.
_SINGLE = 1e-6


class ClassAssignment(NamedTuple):
    """Assign words (V,) to classes (V,) numbered from 0.

    Parameters
    ----------
    clustering, n_classes
        Parameters of `ClassFactoredReadout`.
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
        """Classes of words with these counts (V,), which follow states like vectors (V, P)."""
        kind = self._kind
        if kind == "given":
            return given_classes(self.clustering, self.words)
        n_classes = self._number(_CLASSES_WITH_WORDS if kind == "words" else 1.0)
        if kind == "frequency":
            return frequency_classes(counts, n_classes)
        n_single = round(_SINGLE_WORDS * n_classes) if kind == "words" else 0
        n_clusters = max(1, n_classes - n_single)
        return frequent_words_and_clusters(counts, vectors, n_single, n_clusters, self.seed())

    def by_moments(self, moments: Moments) -> NDArray[np.intp]:
        """Classes of words, from the moments of the states that precede them."""
        if self._kind == "clusters":
            return state_clusters(moments, self._number(1.0), self.seed())
        vectors: NDArray[Any] = np.zeros((moments.n_classes, 1))
        if self._kind == "words":
            vectors = word_vectors(moments, canonical_directions(moments, _N_DIRECTIONS)[0])
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

    def _number(self, factor: float) -> int:
        """Number of classes: a multiple of √V (Morin & Bengio 2005) unless it is given."""
        n_words = len(self.words)
        return min(n_words, self.n_classes or max(1, round(factor * float(np.sqrt(n_words)))))


def frequency_classes(counts: NDArray[Any], n_classes: int) -> NDArray[np.intp]:
    """Bins of about equal probability mass, most frequent words first, none of them huge.

    Rare words are many: bins of equal mass alone would put most of a natural vocabulary in the
    last ones, and every row of theirs would cost as much. So a bin holds three times the mean
    number of words at most, and the others share the mass that is left.

    counts (V,) -> classes (V,) in [0, n_classes); no class is empty.

    Examples
    --------
    >>> frequency_classes(np.array([10, 1, 5, 2, 2]), 2)
    array([0, 1, 1, 1, 1])
    >>> np.bincount(frequency_classes(1000 // np.arange(1, 101), 10)).max()
    np.int64(30)
    """
    n_words = len(counts)
    order = np.argsort(-counts, kind="stable")
    mass = np.maximum(counts[order], 1e-9).astype(np.float64)
    most = max(1, int(np.ceil(_LARGEST_OF_RARE * n_words / n_classes)))
    low, high = 0.0, float(mass.sum())
    for _ in range(60):
        middle = (low + high) / 2
        if len(_bin_ends(mass, middle, most)) > n_classes:
            low = middle
        else:
            high = middle
    ends = _bin_ends(mass, high, most)
    # Ties may leave fewer bins than there are to be: halve the largest.
    while len(ends) < n_classes:
        sizes = np.diff(ends, prepend=0)
        widest = int(np.argmax(sizes))
        ends = np.insert(ends, widest, ends[widest] - sizes[widest] // 2)
    classes = np.empty(n_words, dtype=np.intp)
    classes[order] = np.searchsorted(ends, np.arange(n_words), side="right")
    return classes


def _bin_ends(mass: NDArray[np.float64], limit: float, most: int) -> NDArray[np.intp]:
    """Ends of bins that are filled in order up to a mass, or to so many words."""
    total = np.concatenate([[0.0], np.cumsum(mass)])
    ends, start = list[int](), 0
    while start < len(mass):
        reached = int(np.searchsorted(total, total[start] + limit, side="right")) - 1
        start = int(np.clip(reached, start + 1, min(start + most, len(mass))))
        ends.append(start)
    return np.array(ends, dtype=np.intp)


def given_classes(mapping: Any, words: NDArray[Any]) -> NDArray[np.intp]:
    """Classes (V,) numbered from 0 of a caller's mapping: word -> class, or one class a word.

    Raises
    ------
    ValueError
        A word has no class.
    """
    if isinstance(mapping, Mapping):
        missing = [word for word in words.tolist() if word not in mapping]
        if missing:
            raise ValueError(
                f"clustering gives no class to {len(missing)} of {len(words)} words, "
                f"such as {missing[:5]}"
            )
        labels: ArrayLike = [mapping[word] for word in words.tolist()]
    else:
        labels = mapping
    names = np.asarray(labels)
    if names.shape != (len(words),):
        raise ValueError(
            f"clustering must give one class to each of the {len(words)} words, "
            f"got an array of shape {names.shape}"
        )
    return np.unique(names, return_inverse=True)[1].astype(np.intp)


def state_clusters(moments: Moments, n_classes: int, seed: int) -> NDArray[np.intp]:
    """Words (V,) -> clusters of words that follow similar states, at most 1.5 V / C a cluster.

    Spherical k-means on the mean state before each word, in the coordinates where the states'
    variance within words is one, weighted by the words' counts. Words that never occurred fill
    the smallest clusters.
    """
    seen = np.flatnonzero(moments.counts)
    n_words, counts = moments.n_classes, moments.counts[seen].astype(np.float64)
    capacity = int(np.ceil(_LARGEST * n_words / n_classes))
    order = np.argsort(-counts, kind="stable")
    points = _directions(moments, seen)
    k = min(n_classes, len(np.unique(points, axis=0)))
    means = KMeans(k, n_init=4, max_iter=50, random_state=seed)
    classes = np.zeros(n_words, dtype=np.intp)
    classes[seen] = _bounded_clusters(means, points, counts, order, n_classes, capacity)
    sizes = np.bincount(classes[seen], minlength=n_classes)
    for word in np.flatnonzero(moments.counts == 0):
        classes[word] = np.argmin(sizes)
        sizes[classes[word]] += 1
    return np.unique(classes, return_inverse=True)[1].astype(np.intp)


def frequent_words_and_clusters(
    counts: NDArray[Any], vectors: NDArray[Any], n_frequent: int, n_clusters: int, seed: int
) -> NDArray[np.intp]:
    """Classes (V,) in which frequent words stand alone and the others beside similar ones.

    A row's cost is the number of classes and the number of words in its target's class. Most
    rows of a text have one of a few hundred words as their target: these have classes of their
    own, and cost nothing within one. The other words that have a vector are put in
    ``n_clusters`` clusters of at most 3 times the mean size, by spherical k-means; words
    without one in bins of that size, the more frequent first.

    Parameters
    ----------
    counts : ndarray (V,)
    vectors : ndarray (V, P)
        Zeros for words that never occurred.
    n_frequent, n_clusters : int
    seed : int

    Examples
    --------
    >>> vectors = np.array([[1.0, 0], [1, 0], [0, 1], [0, 2], [1, 0], [0, 0], [0, 0]])
    >>> frequent_words_and_clusters(np.array([9, 1, 1, 1, 1, 1, 0]), vectors, 1, 2, 0).tolist()
    [0, 1, 2, 2, 1, 3, 3]
    """
    order = np.argsort(-counts, kind="stable")
    classes = np.empty(len(counts), dtype=np.intp)
    n_frequent = min(n_frequent, len(counts))
    classes[order[:n_frequent]] = np.arange(n_frequent)
    rest = order[n_frequent:]
    lengths = np.linalg.norm(vectors[rest], axis=1)
    known, unknown = rest[lengths > 0], rest[lengths == 0]
    following = n_frequent
    if len(known):
        points = vectors[known] / lengths[lengths > 0, None]
        k = min(n_clusters, len(np.unique(points, axis=0)))
        largest = int(np.ceil(_LARGEST_OF_RARE * len(points) / k))
        means = KMeans(k, n_init=1, max_iter=25, random_state=seed)
        weights, in_order = np.sqrt(counts[known] + 1.0), np.arange(len(points))
        found = _bounded_clusters(means, points, weights, in_order, k, largest)
        found = np.unique(found, return_inverse=True)[1]
        classes[known] = following + found
        following += int(found.max()) + 1
    capacity = max(1, int(np.ceil(_LARGEST_OF_RARE * len(rest) / max(n_clusters, 1))))
    classes[unknown] = following + np.arange(len(unknown)) // capacity
    # Numbered by their first word, whatever the numbers that the clustering gave.
    _, first, names = np.unique(classes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first, kind="stable"))[names].astype(np.intp)


def _bounded_clusters(
    means: KMeans,
    points: NDArray[Any],
    weights: NDArray[np.float64],
    order: NDArray[np.intp],
    n_clusters: int,
    capacity: int,
) -> NDArray[np.intp]:
    """For unit vectors (n, P) in turn, the nearest cluster (n,) with room; extra ones are last."""
    k = means.n_clusters
    distances = np.zeros((len(points), n_clusters))
    if k > 1:
        # One thread: sums in one order, so the clusters are those of the seed on any machine.
        with threadpool_limits(1), warnings.catch_warnings():
            # Points that differ by rounding alone make fewer clusters than there are to be.
            warnings.simplefilter("ignore", ConvergenceWarning)
            distances[:, :k] = means.fit(points, sample_weight=weights).transform(points)
        distances[:, k:] = distances[:, :k].max() + 1.0
    clusters = np.empty(len(points), dtype=np.intp)
    sizes, full = np.zeros(n_clusters, dtype=np.intp), np.zeros(n_clusters)
    for i in order:
        chosen = clusters[i] = np.argmin(distances[i] + full)
        sizes[chosen] += 1
        if sizes[chosen] == capacity:
            full[chosen] = np.inf
    return clusters


def _directions(moments: Moments, seen: NDArray[np.intp]) -> NDArray[np.float64]:
    """Unit vectors (n_seen, <= 64): shrunken mean states, along the directions that differ most."""
    counts = moments.counts[seen].astype(np.float64)
    n = max(moments.n, 1)
    offsets = moments.sums[seen] / counts[:, None] - moments.mean
    shrunken = offsets * (counts / (counts + _PRIOR_ROWS))[:, None]
    between = (shrunken * counts[:, None]).T @ shrunken / n
    total = moments.centred_gram() / n
    n_units = moments.n_units
    if np.trace(total) <= _SINGLE * float(moments.mean @ moments.mean):
        return np.zeros((len(seen), 1))
    total.flat[:: n_units + 1] += 1e-4 * np.trace(total) / n_units + 1e-12
    first = max(0, n_units - _N_DIRECTIONS)
    _, axes = eigh(between, total, subset_by_index=[first, n_units - 1])
    # Float32 sums differ in their last digits: equal words should stay equal.
    points = np.round(shrunken @ axes, 6)
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.maximum(norms, 1e-12)
