"""Word factors P(w | class(w), x) of all classes at once: one linear map, normalised by class.

Words are laid out class by class, so that a class is a run of columns.
"""

from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from threadpoolctl import threadpool_limits

from esnlm.readouts.multinomial import log_softmax
from esnlm.readouts.projection import floor_rows
from esnlm.statistics import Moments

_PATH = np.logspace(-8, 1, 28)
_CHUNK = 1024
# Of a word's frequency in its class: the least output of its ridge factor.
_LEAST_SHARE = 0.2
# Directions with less than this part of the mean variance are not stretched further.
_LEAST_VARIANCE = 1e-4


class ClassLayout:
    """Order of V words by class: word w of class c stands at column ``position[w]`` of a run.

    Attributes
    ----------
    word_class, position, order : ndarray (V,) intp
        ``order[position[w]] == w``.
    runs : list of slice, one a class

    Examples
    --------
    >>> layout = ClassLayout(np.array([1, 0, 1]))
    >>> layout.order.tolist(), layout.runs
    ([1, 0, 2], [slice(0, 1, None), slice(1, 3, None)])
    """

    def __init__(self, word_class: NDArray[np.intp]) -> None:
        self.word_class = word_class
        self.order = np.argsort(word_class, kind="stable")
        self.position = np.empty_like(self.order)
        self.position[self.order] = np.arange(len(word_class))
        bounds = np.searchsorted(word_class[self.order], np.arange(int(word_class.max()) + 2))
        self.runs = [slice(int(a), int(b)) for a, b in pairwise(bounds)]

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.runs)

    def words(self, c: int) -> NDArray[np.intp]:
        """Columns of the vocabulary that belong to class c, ascending."""
        return self.order[self.runs[c]]

    def rows_by_class(self, classes: NDArray[np.intp]) -> list[tuple[int, NDArray[np.intp]]]:
        """(class, rows of that class) for every class that occurs among the rows' classes."""
        if not len(classes):
            return []
        order = np.argsort(classes, kind="stable")
        present, first = np.unique(classes[order], return_index=True)
        return [(int(c), rows) for c, rows in zip(present, np.split(order, first[1:]), strict=True)]


class WordFactors:
    """Linear word factors: X (n, n_units) -> outputs (n, V), normalised within each class.

    Parameters
    ----------
    layout : ClassLayout
    coef : ndarray (V, n_units)
    intercept : ndarray (V,)
        Both in the layout's order.
    floor : ndarray (V,), optional
        Least output of each word; outputs are floored and divided by their sum. None: softmax.
    """

    def __init__(
        self,
        layout: ClassLayout,
        coef: NDArray[Any],
        intercept: NDArray[Any],
        floor: NDArray[Any] | None = None,
    ) -> None:
        self.layout = layout
        self.coef = coef
        self.intercept = intercept
        self.floor = floor

    def log_probabilities(self, X: NDArray[Any], log_class: NDArray[Any]) -> NDArray[Any]:
        """log P(c|x) (n, n_classes) -> log P(c|x) + log P(w|c, x), (n, V) in vocabulary order."""
        out = np.empty((len(X), len(self.coef)), dtype=X.dtype)
        coef = self.coef.T.astype(X.dtype, copy=False)
        intercept = self.intercept.astype(X.dtype, copy=False)
        for start in range(0, len(X), _CHUNK):
            rows = slice(start, start + _CHUNK)
            Z = X[rows] @ coef
            Z += intercept
            for c, run in enumerate(self.layout.runs):
                self._normalise(Z[:, run], run)
                Z[:, run] += log_class[rows, c, None]
            out[rows, self.layout.order] = Z
        return out

    def log_probability_of(self, X: NDArray[Any], words: NDArray[np.intp]) -> NDArray[Any]:
        """log P(w|class(w), x) (n,) of one word a row: only that word's class is computed."""
        layout = self.layout
        out = np.empty(len(X), dtype=X.dtype)
        with _small_products():
            for c, rows in layout.rows_by_class(layout.word_class[words]):
                run = layout.runs[c]
                Z = X[rows] @ self.coef[run].T.astype(X.dtype, copy=False)
                Z += self.intercept[run].astype(X.dtype, copy=False)
                self._normalise(Z, run)
                out[rows] = Z[np.arange(len(rows)), layout.position[words[rows]] - run.start]
        return out

    def _normalise(self, Z: NDArray[Any], run: slice) -> None:
        """Outputs (n, n_words) of the class at `run` -> log-probabilities, in place."""
        if self.floor is None:
            log_softmax(Z)
        else:
            np.log(floor_rows(Z, self.floor[run].astype(Z.dtype, copy=False)), out=Z)


def _small_products() -> AbstractContextManager[Any]:
    """One BLAS thread: waking others for products of some dozen rows costs more than it saves."""
    return threadpool_limits(1, user_api="blas")


def shared_ridge(
    moments: Moments, layout: ClassLayout, alpha: float | None
) -> tuple[WordFactors, float]:
    """Ridge word factors of every class from one matrix of products, and the penalty used.

    The centred product of class c, of which there would be n_classes, is taken to be the part
    n_c / n of their sum: one matrix (n_units, n_units) whatever the number of classes, and a
    steadier one where a class has fewer rows than units. ``alpha=None`` chooses the penalty by
    generalised cross-validation over all classes together.

    Relative to its frequency, the output for a word of n_w rows carries noise of variance
    df / n_w, df the degrees of freedom of its class: coefficients are shrunk by
    n_w / (n_w + df), and outputs floored at a fifth of the word's frequency in its class.
    (Without both, the factors of 10 000 words of Penn Treebank were 0.6 nats a word worse.)
    """
    order = layout.order
    counts = moments.counts[order].astype(np.float64)
    sums = moments.sums[order]
    starts = np.array([run.start for run in layout.runs])
    sizes = [run.stop - run.start for run in layout.runs]
    n_rows = np.add.reduceat(counts, starts)
    means = np.add.reduceat(sums, starts) / np.maximum(n_rows, 1)[:, None]
    frequencies = np.concatenate([_frequencies(counts[run]) for run in layout.runs])
    offsets = (means - moments.mean) * np.sqrt(n_rows)[:, None]
    values, vectors = linalg.eigh(moments.centred_gram() - offsets.T @ offsets, driver="evd")
    np.maximum(values, 0, out=values)
    for c, run in enumerate(layout.runs):
        sums[run] -= np.outer(counts[run], means[c])
    rotated = sums @ vectors
    spectrum = np.outer(n_rows / moments.n, values)
    if alpha is None:
        power = np.array([np.square(rotated[run]).sum(axis=0) for run in layout.runs])
        variation = float(counts.sum() - np.add.reduceat(counts**2, starts) @ _inverse(n_rows))
        path = _PATH * max(values[-1], np.finfo(np.float64).tiny)
        scores = [_gcv(a, spectrum, power, variation, moments.n) for a in path]
        alpha = float(path[int(np.argmin(scores))])
    inverse = _inverse(spectrum + alpha)
    freedom = np.repeat((spectrum * inverse).sum(axis=1), sizes)
    for c, run in enumerate(layout.runs):
        rotated[run] *= inverse[c]
    rotated *= (counts / np.maximum(counts + freedom, 1))[:, None]
    coef = np.matmul(rotated, vectors.T, out=sums)
    shifts = [coef[run] @ means[c] for c, run in enumerate(layout.runs)]
    intercept = frequencies - np.concatenate(shifts)
    return WordFactors(layout, coef, intercept, _LEAST_SHARE * frequencies), alpha


def _frequencies(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Frequencies of a class's words, each seen half a time more than it was."""
    return (counts + 0.5) / (counts + 0.5).sum()


def _inverse(values: NDArray[np.float64]) -> NDArray[np.float64]:
    least = np.finfo(np.float64).eps * max(float(values.max()), 1e-300) * len(values)
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > least)


def _gcv(
    alpha: float,
    spectrum: NDArray[np.float64],
    power: NDArray[np.float64],
    variation: float,
    n: int,
) -> float:
    """n RSS / (n - df)² of regressions with eigenvalues and rotated sums (n_classes, n_units)."""
    inverse = _inverse(spectrum + alpha)
    residual = max(variation - float((power * (2 * inverse - spectrum * inverse**2)).sum()), 0.0)
    left = n - len(spectrum) - float((spectrum * inverse).sum())
    return np.inf if left < 1e-6 * n else n * residual / left**2


class SoftmaxWordSolver:
    """Incremental softmax word factors of every class: one step a batch of rows.

    Coordinates are the principal components of the states, each of variance one: a step along
    the gradient there is one along the gradient times the inverse Gram matrix. The step of word
    w is 1 / (sum over rows so far of p(1 - p) + n_units + penalty): the inverse of the
    curvature met so far, so steps fall off like 1 / rows, sooner for frequent words.

    Minimises ``sum -log p(w | class(w), x) + alpha / 2 |W|²`` over W in the states' own
    coordinates, intercepts unpenalised, on about ``n_rows`` rows a pass.
    """

    def __init__(self, moments: Moments, layout: ClassLayout, alpha: float) -> None:
        n_units = moments.n_units
        covariance = moments.centred_gram() / moments.n
        values, vectors = linalg.eigh(covariance, driver="evd")
        values = np.maximum(values, 0) + _LEAST_VARIANCE * max(values.mean(), 1e-30)
        self.layout = layout
        self.mean = moments.mean.astype(np.float32)
        self.whiten = (vectors / np.sqrt(values)).astype(np.float32)
        self.penalty = (alpha / values).astype(np.float32)
        self.n_rows = moments.n
        counts = moments.counts[layout.order].astype(np.float64)
        logs = [np.log(_frequencies(counts[run])) for run in layout.runs]
        self.intercept = np.concatenate(logs).astype(np.float32)
        self.coef = np.zeros((len(counts), n_units), dtype=np.float32)
        self.curvature = np.full(len(counts), n_units, dtype=np.float32)

    def step(self, X: NDArray[Any], words: NDArray[np.intp]) -> float:
        """One step for rows X (n, n_units) whose targets are words (n,); their summed loss."""
        layout = self.layout
        whitened = (X.astype(np.float32, copy=False) - self.mean) @ self.whiten
        share = np.float32(len(X) / max(self.n_rows, len(X)))
        loss = 0.0
        with _small_products():
            for c, rows in layout.rows_by_class(layout.word_class[words]):
                run = layout.runs[c]
                if run.stop - run.start > 1:
                    targets = layout.position[words[rows]] - run.start
                    loss += self._class_step(whitened[rows], targets, run, share)
        return loss

    def _class_step(
        self, Z: NDArray[Any], targets: NDArray[np.intp], run: slice, share: np.float32
    ) -> float:
        coef, intercept = self.coef[run], self.intercept[run]
        P = Z @ coef.T
        P += intercept
        P -= P.max(axis=1, keepdims=True)
        np.exp(P, out=P)
        P /= P.sum(axis=1, keepdims=True)
        # Denormal numbers make the products below twenty times slower.
        P[P < 1e-20] = 0
        rows = np.arange(len(Z))
        loss = -float(np.log(np.maximum(P[rows, targets], 1e-20)).sum(dtype=np.float64))
        self.curvature[run] += (P * (1 - P)).sum(axis=0)
        P[rows, targets] -= 1
        curvature = self.curvature[run, None]
        gradient = P.T @ Z
        gradient += share * self.penalty * coef
        coef -= gradient / (curvature + self.penalty)
        intercept -= P.sum(axis=0) / curvature[:, 0]
        return loss

    def factors(self) -> WordFactors:
        """The factors in the states' own coordinates."""
        coef = self.coef @ self.whiten.T
        return WordFactors(self.layout, coef, self.intercept - coef @ self.mean)
