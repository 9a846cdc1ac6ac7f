"""Stochastic solver of a softmax over classes and, within each, a softmax over its words."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from operator import iadd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.base.state_dict import Arrays, after_start, with_start
from esnlm.readouts.softmax.loss import log_softmax, residuals
from esnlm.readouts.two_level.direct_connections import DirectConnections
from esnlm.readouts.two_level.word_factors import ClassLayout, WordFactors
from esnlm.readouts.two_level.word_softmax import step_of_class
from esnlm.utils.threads import TileMap, one_blas_thread, tile_map

# Rows that one thread works on at a time, and batches of classes to one batch of words.
_TILE = 1024
_WORD_BATCHES = 4
_WARM_UP = 20
_CURVATURE_MEMORY = 0.05
_LEAST_CURVATURE = 1e-6
# Products of fewer operations are not worth threads.
_WORTH_THREADS = 1 << 22
_ARRAYS = (
    "class_coef", "class_offset", "class_velocity", "class_offset_velocity", "variances",
    "word_coef", "word_offset", "curvature",
)  # fmt: skip


class Rows(NamedTuple):
    """Rows to learn: Z (n, P), words (n,), and the last tokens (n, n_direct) before them."""

    Z: NDArray[np.float32]
    words: NDArray[np.intp]
    last: NDArray[np.int64]

    def of(self, part: slice | NDArray[np.bool_]) -> "Rows":
        """Some of the rows."""
        return Rows(self.Z[part], self.words[part], self.last[part])


class Rates(NamedTuple):
    """Learning rates of the softmax over classes and of direct connections."""

    classes: float
    direct: float = 0.0


class TwoLevelSolver:
    """Incremental minimiser of ``-log P(class(w)|z) - log P(w|class(w), z)`` over rows z.

    Rows z (n, P) are taken to be centred, and their columns uncorrelated and of variance one
    at most, so that a gradient is a Gram-preconditioned one as it stands; columns of less
    variance are learned later, and penalised more.

    - Classes, of which each row has something to say: heavy-ball steps of ``rate / sqrt(c)``,
      c the running mean of p (1 - p), as in `IncrementalSolver`.
    - Words, of which most rows say nothing: online Newton steps, each word's gradient divided
      by ``prior P`` + the sum over all rows so far of p (1 - p). They fall off like 1 / rows,
      sooner for frequent words, and keep neither velocity nor schedule. ``prior`` is the
      inverse of the step that a first row takes.
    - Direct connections, where there are any: what the last tokens add to z is learned down the
      gradients of both softmaxes with respect to z.

    Rows are learned in batches of ``batch`` (words: four of them), whatever the calls.

    Parameters
    ----------
    layout : ClassLayout
    n_components : int
        P.
    counts : ndarray (V,)
        Occurrences of the words, for the first offsets.
    batch : int
    momentum, prior : float
    penalty : float
        Of half the squared weights, for each row.
    n_direct, pairs
        Of `DirectConnections`.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> Z = random.standard_normal((4096, 2)).astype(np.float32)
    >>> words = 2 * (Z[:, 0] > 0) + (Z[:, 1] > 0)
    >>> none = np.empty((4096, 0), dtype=np.int64)
    >>> solver = TwoLevelSolver(ClassLayout(np.array([0, 0, 1, 1])), 2, np.ones(4), batch=64)
    >>> for k in range(0, 4096, 64):
    ...     solver.learn(Rows(Z[k : k + 64], words[k : k + 64], none[k : k + 64]), Rates(0.1))
    >>> bool(np.exp(solver.log_probability_of(Z, words)).mean() > 0.75)
    True
    """

    def __init__(
        self,
        layout: ClassLayout,
        n_components: int,
        counts: NDArray[Any],
        *,
        batch: int,
        momentum: float = 0.9,
        prior: float = 1.0,
        penalty: float = 0.0,
        n_direct: int = 0,
        pairs: NDArray[np.int64] | None = None,
    ) -> None:
        self.layout = layout
        self.penalty = penalty
        self.batch = batch
        self.momentum = momentum
        self.n_steps = 0
        mass = counts + 0.5
        class_mass = np.bincount(layout.word_class, mass, layout.n_classes)
        frequencies = class_mass / class_mass.sum()
        self.class_coef = np.zeros((n_components, layout.n_classes), dtype=np.float32)
        self.class_offset = np.log(frequencies).astype(np.float32)
        self.class_velocity = np.zeros_like(self.class_coef)
        self.class_offset_velocity = np.zeros_like(self.class_offset)
        self.variances = frequencies * (1 - frequencies)
        self.word_coef = np.zeros((len(counts), n_components), dtype=np.float32)
        shares = (mass / class_mass[layout.word_class])[layout.order]
        self.word_offset = np.log(shares).astype(np.float32)
        self.curvature = np.full(len(counts), prior * n_components, dtype=np.float32)
        self.direct = DirectConnections(n_direct, len(counts), n_components, pairs)
        self._rows: list[Rows] = []
        self._word_rows: list[Rows] = []
        self._n_rows = self._n_word_rows = 0

    def learn(self, rows: Rows, rates: Rates) -> None:
        """Take rows; Z is kept, and not to be changed."""
        start, n = 0, len(rows.Z)
        with self._tiles() as over:
            while start < n:
                part = slice(start, min(n, start + self.batch - self._n_rows))
                self._rows.append(rows.of(part))
                self._n_rows += part.stop - start
                start = part.stop
                if self._n_rows == self.batch:
                    self._step(rates, over)

    def flush(self, rates: Rates) -> None:
        """Learn the rows still waiting."""
        with self._tiles() as over:
            if self._n_rows:
                self._step(rates, over)
            if self._word_rows:
                self._step_words(rates, over)

    def log_classes(self, Z: NDArray[Any]) -> NDArray[Any]:
        """log P(class | z): (n, n_classes), in the dtype of Z."""
        logits = Z @ self.class_coef.astype(Z.dtype, copy=False)
        logits += self.class_offset.astype(Z.dtype, copy=False)
        return log_softmax(logits)

    @property
    def words(self) -> WordFactors:
        """The factors of words within classes."""
        return WordFactors(self.layout, self.word_coef, self.word_offset)

    def log_probability_of(self, Z: NDArray[Any], words: NDArray[np.intp]) -> NDArray[Any]:
        """log P(w | z) (n,) of one word a row: the classes, and the words of one class, a row."""
        out = np.empty(len(Z), dtype=Z.dtype)
        classes = self.layout.word_class[words]

        def tile(start: int) -> None:
            part = slice(start, start + _TILE)
            logs = self.log_classes(Z[part])
            out[part] = logs[np.arange(len(logs)), classes[part]]

        with self._tiles() as over:
            over(tile, range(0, len(Z), _TILE))
        inside = self.layout.sizes[classes] > 1
        out[inside] += self.words.log_probability_of(Z[inside], words[inside])
        return out

    def to_arrays(self) -> Arrays:
        """Parameters, velocities, counters and waiting rows: all that `learn` goes on from."""
        arrays: Arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays["n_steps"] = np.asarray(self.n_steps)
        arrays["n_word_rows"] = np.asarray(self._n_word_rows)
        arrays |= with_start("direct.", self.direct.to_arrays())
        for name, rows in (("rows", self._rows), ("word_rows", self._word_rows)):
            if rows:
                whole = _joined(rows)
                arrays |= {f"{name}.{field}": getattr(whole, field) for field in Rows._fields}
                arrays[f"{name}.sizes"] = np.array([len(part.Z) for part in rows])
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """Take over what `to_arrays` gave."""
        for name in _ARRAYS:
            setattr(self, name, arrays[name])
        self.direct.restore(after_start("direct.", arrays))
        self.n_steps = int(arrays["n_steps"])
        self._rows, self._word_rows = _parts("rows", arrays), _parts("word_rows", arrays)
        self._n_rows = sum(len(part.Z) for part in self._rows)
        self._n_word_rows = int(arrays["n_word_rows"])

    @contextmanager
    def _tiles(self) -> Iterator[TileMap]:
        """A map over tiles of rows or classes, each on one BLAS thread; serial for small steps."""
        if self.batch * self.class_coef.size < _WORTH_THREADS:
            with tile_map(1) as over:
                yield over
            return
        with one_blas_thread(), tile_map() as over:
            yield over

    def _step(self, rates: Rates, over: TileMap) -> None:
        """One step of the classes on the waiting rows; of the words when there are enough."""
        Z, words, last = _joined(self._rows)
        self._rows, self._n_rows = [], 0
        self.direct.add_to(Z, last)
        classes = self.layout.word_class[words]
        gradient = self._step_classes(Z, classes, rates.classes, over)
        if gradient is not None:
            self.direct.step(last, gradient, rates.direct)
        inside = self.layout.sizes[classes] > 1
        self._word_rows.append(Rows(Z, words, last).of(inside))
        self._n_word_rows += len(Z)
        if len(self._word_rows) == _WORD_BATCHES:
            self._step_words(rates, over)

    def _step_classes(
        self, Z: NDArray[Any], classes: NDArray[np.intp], rate: float, over: TileMap
    ) -> NDArray[Any] | None:
        """A heavy-ball step of the softmax over classes; the loss's gradient (n, P) in Z.

        None without direct connections, which alone need it.
        """
        ones = np.ones(_TILE, dtype=np.float32)
        downwards = np.empty_like(Z) if len(self.direct.coef) else None

        def tile(start: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
            z, targets = Z[start : start + _TILE], classes[start : start + _TILE]
            logits = z @ self.class_coef
            logits += self.class_offset
            _, P, R = residuals(logits, targets, ones[: len(z)])
            squares = np.einsum("iv,iv->v", P, P)
            if downwards is not None:
                np.matmul(R, self.class_coef.T, out=downwards[start : start + _TILE])
            return z.T @ R, R.sum(axis=0), P.sum(axis=0), squares

        parts = over(tile, range(0, len(Z), _TILE))
        # Tiles are added in their order: the sums do not depend on the threads.
        gradient, offset_gradient, mean, squares = (
            reduce(iadd, [part[k] for part in parts]) for k in range(4)
        )
        memory = max(_CURVATURE_MEMORY, 1 / (self.n_steps + 2))
        variances = (mean - squares).astype(np.float64) / len(Z)
        self.variances += memory * (variances - self.variances)
        size = rate * min(1.0, (self.n_steps + 1) / _WARM_UP) / len(Z)
        scale = (size / np.sqrt(np.maximum(self.variances, 0) + _LEAST_CURVATURE)).astype(
            np.float32
        )
        gradient *= scale
        self.class_velocity *= np.float32(self.momentum)
        self.class_velocity -= gradient
        self.class_coef += self.class_velocity
        # The penalty's step is implicit, hence stable; momentum makes steps 1 / (1 - m) as long.
        self.class_coef /= 1 + scale * np.float32(self.penalty * len(Z) / (1 - self.momentum))
        self.class_offset_velocity *= np.float32(self.momentum)
        self.class_offset_velocity -= offset_gradient * scale
        self.class_offset += self.class_offset_velocity
        self.n_steps += 1
        return downwards

    def _step_words(self, rates: Rates, over: TileMap) -> None:
        """One step of the words of every class that occurs in the waiting rows."""
        Z, words, last = _joined(self._word_rows)
        downwards = np.empty_like(Z) if len(self.direct.coef) else None
        decay = np.float32(self.penalty * self._n_word_rows)
        self._word_rows, self._n_word_rows = [], 0
        layout = self.layout

        def step(part: tuple[int, NDArray[np.intp]]) -> None:
            c, rows = part
            run = layout.runs[c]
            targets = layout.position[words[rows]] - run.start
            arrays = self.word_coef[run], self.word_offset[run], self.curvature[run]
            in_z = step_of_class(Z[rows], targets, *arrays, decay, downwards=downwards is not None)
            if downwards is not None:
                downwards[rows] = in_z

        over(step, layout.rows_by_class(layout.word_class[words]))
        if downwards is not None:
            self.direct.step(last, downwards, rates.direct)


def _joined(rows: list[Rows]) -> Rows:
    """Rows one after another, in memory of their own."""
    return Rows(*(np.concatenate(arrays) for arrays in zip(*rows, strict=True)))


def _parts(name: str, arrays: Arrays) -> list[Rows]:
    """The rows under ``name``, cut as they were."""
    if f"{name}.sizes" not in arrays:
        return []
    cuts = np.cumsum(arrays[f"{name}.sizes"])[:-1]
    fields = (np.split(arrays[f"{name}.{field}"], cuts) for field in Rows._fields)
    return [Rows(*part) for part in zip(*fields, strict=True)]
