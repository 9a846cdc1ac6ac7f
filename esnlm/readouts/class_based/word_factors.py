"""Word factors P(w | class(w), x) of all classes at once: one linear map, normalised by class.

Words are laid out class by class, so that a class is a run of columns.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import linalg

from esnlm.readouts.base.blocks import rows_within
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.linear.simplex import floor_rows
from esnlm.readouts.linear.spectrum import gcv_error, inverse_of, penalty_path
from esnlm.readouts.softmax.loss import log_softmax, logits
from esnlm.utils.arrays import Array, Floats, Ints
from esnlm.utils.threads import map_tiles, one_blas_thread

_PATH = np.logspace(-8, 1, 28)
_CHUNK_BYTES = 1 << 24
# Tasks that classes are shared out among, and the rows from which threads pay.
TASKS, _WORTH_THREADS = 16, 256
# Of a word's frequency in its class: the least output of its ridge factor.
_LEAST_SHARE = 0.2


class ClassLayout:
    """Order of V words by class: word w of class c stands at column ``position[w]`` of a run.

    ``order[position[w]] == w``; no run is empty. ``shares`` (n_classes,) of the words, float32.

    >>> layout = ClassLayout(np.array([1, 0, 1]))
    >>> layout.order.tolist(), layout.runs
    ([1, 0, 2], [slice(0, 1, None), slice(1, 3, None)])
    """

    def __init__(self, word_class: Ints) -> None:
        """Sort the words by class, or raise ValueError where a class is missing or empty."""
        n_classes = int(word_class.max(initial=-1)) + 1
        if not 0 < n_classes <= len(word_class) or not (np.bincount(word_class) > 0).all():
            raise ValueError("word classes must be numbered from 0, and none of them empty")
        self.word_class = word_class
        self.order = np.argsort(word_class, kind="stable")
        self.position = np.empty_like(self.order)
        self.position[self.order] = np.arange(len(word_class))
        bounds = np.searchsorted(word_class[self.order], np.arange(n_classes + 1))
        self.runs = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
        self.starts, self.sizes = bounds[:-1], np.diff(bounds)
        self.shares = (self.sizes / len(word_class)).astype(np.float32)

    @property
    def n_classes(self) -> int:
        """Return the number of classes."""
        return len(self.runs)

    def words(self, c: int) -> Ints:
        """Those of class c, ascending."""
        return self.order[self.runs[c]]

    def rows_by_class(self, classes: Ints) -> list[tuple[int, Ints]]:
        """(class, rows of that class) for every class that occurs among the rows' classes."""
        if not len(classes):
            return []
        order = np.argsort(classes, kind="stable")
        present, first = np.unique(classes[order], return_index=True)
        return [(int(c), rows) for c, rows in zip(present, np.split(order, first[1:]), strict=True)]


@dataclass(eq=False)
class WordFactors:
    """Linear word factors: X (n, n_units) -> outputs (n, V), normalised within each class.

    ``coef`` (V, n_units), ``intercept`` (V,) and ``floor`` (V,) are in the layout's order. Outputs
    below the floor are set to it, and divided by their sum; where it is None, they go through a
    softmax.
    """

    layout: ClassLayout
    coef: Array
    intercept: Array
    floor: Array | None = None

    def log_probabilities(self, X: Array, log_class: Array | None = None) -> Array:
        """Return log P(w|c, x) (n, V) in vocabulary order, plus log P(c|x) if it is given."""
        if log_class is None:
            log_class = np.zeros((len(X), self.layout.n_classes), dtype=X.dtype)
        out = np.empty((len(X), len(self.coef)), dtype=X.dtype)
        coef = self.coef.T.astype(X.dtype, copy=False)
        step = rows_within(_CHUNK_BYTES, len(self.coef), X.dtype)

        def chunk(start: int) -> None:
            rows = slice(start, start + step)
            Z = logits(X[rows], coef, self.intercept)
            self._normalise(Z, log_class[rows])
            np.take(Z, self.layout.position, axis=1, out=out[rows], mode="clip")

        if len(X) <= step:  # a few rows: the product alone may have threads
            chunk(0)
            return out
        with one_blas_thread():
            map_tiles(chunk, range(0, len(X), step))
        return out

    def log_probability_of(self, X: Array, words: Ints) -> Array:
        """Return log P(w|class(w), x) (n,) of one word a row, from its class alone."""
        layout = self.layout
        out = np.empty(len(X), dtype=X.dtype)
        parts = layout.rows_by_class(layout.word_class[words])

        def classes(first: int) -> None:
            for c, rows in parts[first::TASKS]:
                run = layout.runs[c]
                Z = logits(X[rows], self.coef[run].T, self.intercept[run])
                if self.floor is None:
                    log_softmax(Z)
                else:
                    np.log(floor_rows(Z, self.floor[run].astype(Z.dtype, copy=False)), out=Z)
                out[rows] = Z[np.arange(len(rows)), layout.position[words[rows]] - run.start]

        with one_blas_thread():
            n_threads = None if len(X) >= _WORTH_THREADS else 1
            map_tiles(classes, range(min(TASKS, len(parts))), n_threads)
        return out

    def _normalise(self, Z: Array, log_class: Array) -> None:
        """Turn outputs (n, V) into log-probabilities in each class, in place."""
        starts, sizes = self.layout.starts, self.layout.sizes
        if self.floor is None:
            Z -= np.repeat(np.maximum.reduceat(Z, starts, axis=1), sizes, axis=1)
            total = np.add.reduceat(np.exp(Z), starts, axis=1)
        else:
            np.maximum(Z, self.floor.astype(Z.dtype, copy=False), out=Z)
            total = np.add.reduceat(Z, starts, axis=1)
            np.log(Z, out=Z)
        Z += np.repeat(log_class - np.log(total), sizes, axis=1)


def shared_ridge(
    moments: Moments, layout: ClassLayout, alpha: float | None, doubt: Floats | float = 0.5
) -> tuple[WordFactors, float]:
    """Ridge word factors of every class from one matrix of products, and the penalty used.

    The centred Gram matrix of class c is approximated by n_c / n of the sum over classes: one
    matrix (n_units, n_units) whatever the number of classes, and less noise where a class has
    fewer rows than units. ``doubt`` (V,) is added to the occurrences of each word.
    ``alpha=None`` chooses the penalty by generalised cross-validation over all classes together.

    Relative to its frequency, the output for a word of n_w rows carries noise of variance
    df / n_w, df the degrees of freedom of its class: coefficients are shrunk by
    n_w / (n_w + df), and outputs floored at a fifth of the word's frequency in its class.
    (Without both, the factors of 10 000 words of Penn Treebank were 0.6 nats a word worse.)
    """
    order = layout.order
    counts = moments.counts[order].astype(np.float64)
    sums = moments.sums[order]
    starts, sizes = layout.starts, layout.sizes
    n_rows = np.add.reduceat(counts, starts)
    means = np.add.reduceat(sums, starts) / np.maximum(n_rows, 1)[:, None]
    mass = counts + (np.ones(len(counts)) * doubt)[order]
    frequencies = mass / np.repeat(np.add.reduceat(mass, starts), sizes)
    offsets = (means - moments.mean) * np.sqrt(n_rows)[:, None]
    values, vectors = linalg.eigh(moments.centred_gram() - offsets.T @ offsets, driver="evd")
    rounding = max(-float(values[0]), 0.0) * float(n_rows.max()) / moments.n
    np.maximum(values, 0, out=values)
    for c, run in enumerate(layout.runs):
        sums[run] -= np.outer(counts[run], means[c])
    rotated = sums @ vectors
    spectrum = np.outer(n_rows / moments.n, values)
    if alpha is None:
        power = np.array([np.square(rotated[run]).sum(axis=0) for run in layout.runs])
        variation = float(counts.sum() - np.add.reduceat(counts**2, starts) @ inverse_of(n_rows))
        path = penalty_path(_PATH, values[-1], rounding)
        n, n_classes = moments.n, len(spectrum)
        scores = [gcv_error(a, spectrum, power, variation, n, n_classes) for a in path]
        alpha = float(path[int(np.argmin(scores))])
    inverse = inverse_of(spectrum + alpha)
    freedom = np.repeat((spectrum * inverse).sum(axis=1), sizes)
    for c, run in enumerate(layout.runs):
        rotated[run] *= inverse[c]
    rotated *= (counts / np.maximum(counts + freedom, 1))[:, None]
    coef = np.matmul(rotated, vectors.T, out=sums)
    shifts = [coef[run] @ means[c] for c, run in enumerate(layout.runs)]
    intercept = frequencies - np.concatenate(shifts)
    return WordFactors(layout, coef, intercept, _LEAST_SHARE * frequencies), alpha
