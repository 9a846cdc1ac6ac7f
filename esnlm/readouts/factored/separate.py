"""A readout for the class, and one for the words of each class, each trained on its own rows."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from esnlm.readouts.base.blocks import ArrayBlocks, Block, Blocks
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.two_level.word_factors import ClassLayout
from esnlm.utils.state_dict import Arrays, under_prefix, with_prefix

_MEMORY = 1 << 28


class SeparateFactors:
    """P(class | x) and P(w | class, x) of every class, by independent readouts.

    Parameters
    ----------
    word_class : ndarray (V,) intp
    class_template, word_template : readout
        Cloned, for the class and for the words of each class.

    Attributes
    ----------
    layout : ClassLayout
    class_factor : readout for the class; None when there is one class only
    word_factors : dict of class -> readout (classes of one word have none)

    Examples
    --------
    >>> from esnlm import RidgeReadout
    >>> X, codes = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 2])
    >>> factors = SeparateFactors(np.array([0, 1, 1]), RidgeReadout(), RidgeReadout())
    >>> factors.fit(ArrayBlocks(X, codes), None)
    >>> factors.log_probabilities(X).argmax(axis=1)
    array([0, 0, 1, 2])
    >>> list(factors.word_factors)
    [1]
    """

    def __init__(
        self, word_class: NDArray[np.intp], class_template: Any, word_template: Any
    ) -> None:
        self.class_template, self.word_template = class_template, word_template
        self.layout = ClassLayout(word_class)
        self._column = self.layout.position - self.layout.starts[word_class]
        self.class_factor: Any = None
        self.word_factors: dict[int, Any] = {}

    def to_arrays(self) -> Arrays:
        """What predictions need, arrays of readouts under "class." and, of words, "word0."."""
        return {"word_class_": self.layout.word_class} | self._nested("to_arrays")

    def load_arrays(self, arrays: Arrays) -> None:
        """Set the readouts that `to_arrays` described."""
        for c, part, template in self._parts(arrays):
            self._set(c, type(template).from_arrays(template.get_params(deep=False), part))

    def state_dict(self) -> Arrays:
        """Classes, statistics and the training state of every readout."""
        return {"word_class": self.layout.word_class} | self._nested("state_dict")

    def load_state_dict(self, arrays: Arrays, n_units: int) -> None:
        """Continue from what `state_dict` gave; the arrays are taken over."""
        for c, part, template in self._parts(arrays):
            factor = clone(template)
            factor.classes_ = (
                np.arange(self.layout.n_classes) if c is None else self.layout.words(c)
            )
            factor.n_features_in_ = n_units
            factor._start()
            factor.load_state_dict(part)
            self._set(c, factor)

    def _nested(self, method: str) -> Arrays:
        """What a method of the readouts gives, under "class." and, of words, "word0."."""
        arrays: Arrays = {}
        if self.class_factor is not None:
            arrays |= with_prefix("class", getattr(self.class_factor, method)())
        for c, factor in self.word_factors.items():
            arrays |= with_prefix(f"word{c}", getattr(factor, method)())
        return arrays

    def _parts(self, arrays: Arrays) -> Iterator[tuple[int | None, Arrays, Any]]:
        """(class of the words or None, arrays, template) of the readouts with arrays."""
        if part := under_prefix("class", arrays):
            yield None, part, self.class_template
        for name in sorted({name.partition(".")[0] for name in arrays if "." in name} - {"class"}):
            if name.startswith("word"):
                c = int(name.removeprefix("word"))
                yield c, under_prefix(name, arrays), self.word_template

    def _set(self, c: int | None, factor: Any) -> None:
        if c is None:
            self.class_factor = factor
        else:
            self.word_factors[c] = factor

    def fit(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Learn from all rows; those of each class are copied together where memory allows."""
        layout = self.layout
        if layout.n_classes > 1:
            self.class_factor = clone(self.class_template).fit_blocks(
                _ClassOf(blocks, layout.word_class),
                np.arange(layout.n_classes),
                None if held_out is None else _ClassOf(held_out, layout.word_class),
            )
        if not fits_memory(blocks):
            for X, codes in blocks:
                self._learn_words(X, codes)
            return
        parts = _by_class(blocks, layout)
        judges = {} if held_out is None else _by_class(held_out, layout)
        for c, part in parts.items():
            words = layout.words(c)
            if len(words) > 1:
                factor = clone(self.word_template)
                self.word_factors[c] = factor.fit_blocks(part, words, judges.get(c))

    def learn_later(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        """Learn from more rows."""
        if self.class_factor is not None:
            self.class_factor.partial_fit(X, self.layout.word_class[codes])
        self._learn_words(X, codes)

    def log_probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        """log P(w | x) of every word: X (n, n_units) -> (n, V)."""
        log_class = self._log_class(X)
        out = np.empty((len(X), len(self._column)), dtype=X.dtype)
        for c in range(self.layout.n_classes):
            out[:, self.layout.words(c)] = log_class[:, c, None] + self._within(c, X)
        return out

    def log_probability_of(self, X: NDArray[Any], codes: NDArray[np.intp]) -> NDArray[Any]:
        """log P(w | x) (n,) of one word a row: the classes, and the words of one, are computed."""
        classes = self.layout.word_class[codes]
        total: NDArray[Any] = self._log_class(X)[np.arange(len(codes)), classes]
        for c, rows in self.layout.rows_by_class(classes):
            inside = self._within(c, X[rows])
            total[rows] += inside[np.arange(len(rows)), self._column[codes[rows]]]
        return total

    def _learn_words(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        for c, rows in self.layout.rows_by_class(self.layout.word_class[codes]):
            words = self.layout.words(c)
            if len(words) > 1:
                factor = self.word_factors.setdefault(c, clone(self.word_template))
                factor.partial_fit(X[rows], codes[rows], classes=words)

    def _log_class(self, X: NDArray[Any]) -> NDArray[Any]:
        """log P(class | x): (n, n_classes)."""
        if self.class_factor is None:
            return np.zeros((len(X), 1), dtype=X.dtype)
        logs: NDArray[Any] = self.class_factor.predict_log_proba(X)
        return logs

    def _within(self, c: int, X: NDArray[Any]) -> NDArray[Any]:
        """log P(w | class c, x) over the words of class c, ascending; uniform if none was seen."""
        if c in self.word_factors:
            logs: NDArray[Any] = self.word_factors[c].predict_log_proba(X)
            return logs
        n_words = len(self.layout.words(c))
        return np.full((len(X), n_words), -np.log(n_words), dtype=X.dtype)


def fits_memory(blocks: Blocks) -> bool:
    """Whether copies of the rows stay within 256 MiB."""
    n_bytes = 0
    for X, _ in blocks:
        n_bytes += X.nbytes
        if n_bytes > _MEMORY:
            return False
    return True


def blocks_moments(blocks: Blocks, n_words: int) -> Moments:
    """Statistics of one pass over the blocks."""
    moments: Moments | None = None
    for X, codes in blocks:
        if moments is None:
            moments = Moments(X.shape[1], n_words)
        moments.add(X, codes)
    if moments is None:
        raise ValueError("no rows to learn from: got 0 rows, give at least one")
    return moments


class _ClassOf:
    """Blocks of (X, word) as blocks of (X, class of the word)."""

    def __init__(self, blocks: Blocks, word_class: NDArray[np.intp]) -> None:
        self.blocks = blocks
        self.word_class = word_class

    def __iter__(self) -> Iterator[Block]:
        for X, codes in self.blocks:
            yield X, self.word_class[codes]


def _by_class(blocks: Blocks, layout: ClassLayout) -> dict[int, ArrayBlocks]:
    """The rows of each class that occurs, copied together."""
    parts: dict[int, list[Block]] = {}
    for X, codes in blocks:
        for c, rows in layout.rows_by_class(layout.word_class[codes]):
            parts.setdefault(c, []).append((X[rows], codes[rows]))
    return {
        c: ArrayBlocks(
            np.concatenate([X for X, _ in part]), np.concatenate([codes for _, codes in part])
        )
        for c, part in sorted(parts.items())
    }
