"""Assign words to classes: by clustering, by frequency, or as the caller gives them."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.linalg import eigh
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from esnlm.readouts.base.moments import Moments
from esnlm.readouts.class_based.cca import damped
from esnlm.utils.arrays import Array, Floats, Ints

#: Directions of the states that words are compared along.
CLUSTERED_DIRECTIONS = 64
#: Vocabularies of more words have classes of their own for the frequent ones.
MANY_WORDS = 256
# Times the mean size that a class may reach: where all words have one, and where frequent ones
# stand alone.
_LARGEST = 1.5
_LARGEST_OF_RARE = 3.0
# The mean state of a word with n rows is shrunken by n / (n + this).
_PRIOR_ROWS = 5.0


def clustering_kind(clustering: Any, n_words: int) -> str:
    """Return the kind of clustering that "auto" stands for; "given" where classes are given."""
    if not isinstance(clustering, str):
        return "given"
    if clustering not in ("auto", "clusters", "words", "frequency"):
        raise ValueError(
            "clustering must be 'auto', 'clusters', 'words', 'frequency' or a class for every"
            f" word, got {clustering!r}"
        )
    if clustering != "auto":
        return clustering
    return "words" if n_words > MANY_WORDS else "clusters"


def frequency_classes(counts: Array, n_classes: int) -> Ints:
    """Bins of about equal probability mass, most frequent words first, none of them huge.

    Most of a natural vocabulary is rare: a bin holds three times the mean number of words at
    most. counts (V,) -> classes (V,) in [0, n_classes); no class is empty.

    >>> frequency_classes(np.array([10, 1, 5, 2, 2]), 2)
    array([0, 1, 1, 1, 1])
    """
    n_words = len(counts)
    order = np.argsort(-counts, kind="stable")
    mass = np.maximum(counts[order], 1e-9).astype(np.float64)
    most = max(1, int(np.ceil(_LARGEST_OF_RARE * n_words / n_classes)))
    low, high = 0.0, float(mass.sum())
    for _ in range(60):
        middle = (low + high) / 2
        too_many = len(_bin_ends(mass, middle, most)) > n_classes
        low, high = (middle, high) if too_many else (low, middle)
    ends = _bin_ends(mass, high, most)
    # Ties may leave fewer bins than there are to be: halve the largest.
    while len(ends) < n_classes:
        sizes = np.diff(ends, prepend=0)
        widest = int(np.argmax(sizes))
        ends = np.insert(ends, widest, ends[widest] - sizes[widest] // 2)
    classes = np.empty(n_words, dtype=np.intp)
    classes[order] = np.searchsorted(ends, np.arange(n_words), side="right")
    return classes


def _bin_ends(mass: Floats, limit: float, most: int) -> Ints:
    """Return ends of bins that are filled in order up to a mass, or a number of words."""
    total = np.concatenate([[0.0], np.cumsum(mass)])
    ends, start = list[int](), 0
    while start < len(mass):
        last = int(np.searchsorted(total, total[start] + limit, side="right")) - 1
        start = int(np.clip(last, start + 1, min(start + most, len(mass))))
        ends.append(start)
    return np.array(ends, dtype=np.intp)


def given_classes(mapping: Any, words: Array) -> Ints:
    """Classes (V,) numbered from 0 of a caller's mapping: word -> class, or one class a word."""
    if isinstance(mapping, Mapping):
        missing = [word for word in words.tolist() if word not in mapping]
        if missing:
            raise ValueError(
                f"clustering gives no class to {len(missing)} of {len(words)} words, "
                f"such as {missing[:5]}"
            )
        mapping = [mapping[word] for word in words.tolist()]
    names = np.asarray(mapping)
    if names.shape != (len(words),):
        raise ValueError(
            f"clustering must give one class to each of the {len(words)} words, "
            f"got an array of shape {names.shape}"
        )
    return np.unique(names, return_inverse=True)[1].astype(np.intp)


def state_clusters(moments: Moments, n_classes: int, seed: int) -> Ints:
    """Words (V,) -> clusters of words that follow similar states, at most 1.5 V / C a cluster.

    Spherical k-means on the mean state before each word, in the coordinates where the states'
    variance is one, weighted by the words' counts. Words that never occurred fill
    the smallest clusters.
    """
    words = np.flatnonzero(moments.counts)
    n_words, counts = moments.n_classes, moments.counts[words].astype(np.float64)
    capacity = int(np.ceil(_LARGEST * n_words / n_classes))
    points = _directions(moments, words)
    k = min(n_classes, len(np.unique(points, axis=0)))
    means = KMeans(k, n_init=4, max_iter=50, random_state=seed)
    classes = np.zeros(n_words, dtype=np.intp)
    classes[words] = _bounded_clusters(means, points, counts, n_classes, capacity)
    sizes = np.bincount(classes[words], minlength=n_classes)
    for word in np.flatnonzero(moments.counts == 0):
        classes[word] = np.argmin(sizes)
        sizes[classes[word]] += 1
    return np.unique(classes, return_inverse=True)[1].astype(np.intp)


def frequent_words_and_clusters(
    counts: Array, vectors: Array, n_frequent: int, n_clusters: int, seed: int
) -> Ints:
    """Classes (V,) in which frequent words stand alone and the others beside similar ones.

    Most rows of a text have one of a few hundred words as their target: these have classes of
    their own, and cost nothing within one. The other words whose vector (of vectors (V, P)) is
    not zero are put in ``n_clusters`` clusters of at most 3 times the mean size, by spherical
    k-means; those without one in bins of that size, the more frequent first.

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
    nonzero, zero = rest[lengths > 0], rest[lengths == 0]
    if len(nonzero):
        points = vectors[nonzero] / lengths[lengths > 0, None]
        k = min(n_clusters, len(np.unique(points, axis=0)))
        largest = int(np.ceil(_LARGEST_OF_RARE * len(points) / k))
        means = KMeans(k, n_init=1, max_iter=25, random_state=seed)
        weights = np.sqrt(counts[nonzero] + 1.0)
        classes[nonzero] = n_frequent + _bounded_clusters(means, points, weights, k, largest)
    capacity = max(1, int(np.ceil(_LARGEST_OF_RARE * len(rest) / max(n_clusters, 1))))
    classes[zero] = len(counts) + np.arange(len(zero)) // capacity
    # Numbered by their first word, whatever the numbers that the clustering gave.
    _, first, names = np.unique(classes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first, kind="stable"))[names].astype(np.intp)


def _bounded_clusters(
    means: KMeans, points: Array, weights: Floats, n_clusters: int, capacity: int
) -> Ints:
    """For unit vectors (n, P), heaviest first, the nearest cluster (n,) with room."""
    k = means.n_clusters
    distances = np.zeros((len(points), n_clusters))
    if k > 1:
        # One thread: sums in one order, so the clusters are those of the seed on any machine.
        with threadpool_limits(1), warnings.catch_warnings():
            # Points that differ by rounding alone make fewer clusters than there are to be.
            warnings.simplefilter("ignore", ConvergenceWarning)
            distances[:, :k] = means.fit(points, sample_weight=weights).transform(points)
        distances[:, k:] = distances[:, :k].max() + 1.0  # clusters without points come last
    clusters = np.empty(len(points), dtype=np.intp)
    sizes = np.zeros(n_clusters, dtype=np.intp)
    for i in np.argsort(-weights, kind="stable"):
        nearest = clusters[i] = np.argmin(distances[i])
        sizes[nearest] += 1
        if sizes[nearest] == capacity:
            distances[:, nearest] = np.inf
    return clusters


def _directions(moments: Moments, words: Ints) -> Floats:
    """Return unit vectors (n_seen, <= 64): shrunken mean states along their main directions."""
    counts, n = moments.counts[words].astype(np.float64), max(moments.n, 1)
    offsets = moments.sums[words] / counts[:, None] - moments.mean
    shrunken = offsets * (counts / (counts + _PRIOR_ROWS))[:, None]
    between = (shrunken * counts[:, None]).T @ shrunken / n
    n_units = moments.n_units
    ends = [max(0, n_units - CLUSTERED_DIRECTIONS), n_units - 1]

    def axes_of(total: Floats) -> Floats:
        return eigh(between, total, subset_by_index=ends)[1]

    if np.trace(moments.centred_gram()) <= n * moments.rounding:
        return np.zeros((len(words), 1))
    axes = damped(moments, lambda variance, _: 1e-4 * variance / n_units + 1e-12, axes_of)
    # Float32 sums differ in their last digits: equal words should stay equal.
    points = np.round(shrunken @ axes, 6)
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.maximum(norms, 1e-12)
