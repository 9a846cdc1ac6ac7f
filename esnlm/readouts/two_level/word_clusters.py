"""Assignment of words to classes for a class-factored readout."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from esnlm.readouts.base.moments import Moments

# Directions of the states that words are compared along, and how many times the mean size a
# class may reach: where all words have one, and where frequent ones stand alone.
_DIRECTIONS = 64
_LARGEST = 1.5
_LARGEST_OF_RARE = 3.0
# A word's mean state counts as n / (n + this) of what its n rows say.
_PRIOR_ROWS = 5.0
# States whose variance is this part of their squared mean are one state, but for rounding.
_SINGLE = 1e-6


def default_n_classes(n_words: int) -> int:
    """About √V classes of about √V words (Morin & Bengio 2005)."""
    return max(1, round(float(np.sqrt(n_words))))


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
    variance within words is one, weighted by the words' counts; then words choose, the most
    frequent first, the nearest cluster that has room. Words that never occurred fill the
    smallest ones.
    """
    seen = np.flatnonzero(moments.counts)
    n_words = moments.n_classes
    directions = _word_directions(moments, seen)
    distinct = len(np.unique(directions, axis=0))
    k = min(n_classes, distinct)
    classes = np.zeros(n_words, dtype=np.intp)
    affinity = np.zeros((len(seen), n_classes))
    if k > 1:
        # One thread: sums in one order, so the clusters are those of the seed on any machine.
        with threadpool_limits(1):
            means = KMeans(k, n_init=4, max_iter=50, random_state=seed)
            means.fit(directions, sample_weight=moments.counts[seen].astype(np.float64))
            affinity[:, :k] = -means.transform(directions)
        affinity[:, k:] = affinity[:, :k].min() - 1.0
    order = np.argsort(-moments.counts[seen], kind="stable")
    capacity = int(np.ceil(_LARGEST * n_words / n_classes))
    sizes = np.zeros(n_classes, dtype=np.intp)
    for i in order:
        chosen = np.argmax(np.where(sizes < capacity, affinity[i], -np.inf))
        classes[seen[i]] = chosen
        sizes[chosen] += 1
    for word in np.flatnonzero(moments.counts == 0):
        classes[word] = np.argmin(sizes)
        sizes[classes[word]] += 1
    return np.unique(classes, return_inverse=True)[1].astype(np.intp)


def _word_directions(moments: Moments, seen: NDArray[np.intp]) -> NDArray[np.float64]:
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
    first = max(0, n_units - _DIRECTIONS)
    _, axes = eigh(between, total, subset_by_index=[first, n_units - 1])
    # Float32 sums differ in their last digits: equal words should stay equal.
    points = np.round(shrunken @ axes, 6)
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.maximum(norms, 1e-12)


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
        Zeros for words of which nothing is known.
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
    capacity = max(1, int(np.ceil(_LARGEST_OF_RARE * len(rest) / max(n_clusters, 1))))
    if len(known):
        points = vectors[known] / lengths[lengths > 0, None]
        found = _filled_clusters(points, counts[known], n_clusters, seed)
        classes[known] = following + found
        following += int(found.max()) + 1
    classes[unknown] = following + np.arange(len(unknown)) // capacity
    # Numbered by their first word, whatever the numbers that the clustering gave.
    _, first, names = np.unique(classes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first, kind="stable"))[names].astype(np.intp)


def _filled_clusters(
    points: NDArray[Any], counts: NDArray[Any], n_clusters: int, seed: int
) -> NDArray[np.intp]:
    """Clusters (n,) of unit vectors (n, P) in the order of their counts; none is overfull."""
    k = min(n_clusters, len(np.unique(points, axis=0)))
    if k <= 1:
        return np.zeros(len(points), dtype=np.intp)
    capacity = int(np.ceil(_LARGEST_OF_RARE * len(points) / k))
    with threadpool_limits(1), warnings.catch_warnings():
        # Points that differ by rounding alone make fewer clusters than there are to be.
        warnings.simplefilter("ignore", ConvergenceWarning)
        means = KMeans(k, n_init=1, max_iter=25, random_state=seed)
        means.fit(points, sample_weight=np.sqrt(counts + 1.0))
        distances = means.transform(points)
    clusters = np.empty(len(points), dtype=np.intp)
    full = np.zeros(k)
    sizes = np.zeros(k, dtype=np.intp)
    for i in range(len(points)):
        c = np.argmin(distances[i] + full)
        clusters[i] = c
        sizes[c] += 1
        if sizes[c] == capacity:
            full[c] = np.inf
    return np.unique(clusters, return_inverse=True)[1].astype(np.intp)
