"""A readout for the class, and one for the words of each class, each trained on its own rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from esnlm.readouts.base.blocks import ArrayBlocks, Block, Blocks
from esnlm.readouts.class_based.word_factors import ClassLayout
from esnlm.utils.arrays import Array, Arrays, Ints
from esnlm.utils.state_dict import Stateful, under_prefix, with_prefix

_MEMORY = 1 << 28


class SeparateFactors(Stateful):
    """P(class | x) and P(w | class, x) of every class, by independent readouts.

    Templates of the readout for the class, and of those for the words of each class, are cloned.
    There is no readout for a single class, nor within classes of one word.
    """

    def __init__(self, word_class: Ints, class_template: Any, word_template: Any) -> None:
        self.class_template, self.word_template = class_template, word_template
        self.layout = ClassLayout(word_class)
        self.n_units = 0  # set before training states are loaded
        self._column = self.layout.position - self.layout.starts[word_class]
        # Under the names of their arrays: "class" and, for the words of class 0, "word0".
        self.readouts: dict[str, Any] = {}

    def state_dict(self, *, training: bool = False) -> Arrays:
        """Classes, and the states of all readouts."""
        arrays: Arrays = {"word_class" if training else "word_class_": self.layout.word_class}
        for name, readout in self.readouts.items():
            arrays |= with_prefix(name, readout.state_dict(training=training))
        return arrays

    def load_state_dict(self, arrays: Arrays, *, training: bool = False) -> Self:
        """Load each readout in ``arrays``, and raise ValueError where its labels do not fit."""
        parts = dict.fromkeys(name.partition(".")[0] for name in arrays if "." in name)
        for name in (part for part in parts if part != "buffer"):
            readout = self.readouts[name] = self._new(name)
            if training:
                readout.classes_, readout.n_features_in_ = self._labels(name), self.n_units
                readout._forget(fitted=False)
            readout.load_state_dict(under_prefix(name, arrays), training=training)
            if not np.array_equal(readout.classes_, self._labels(name)):
                raise ValueError(f"the labels of the factor {name!r} are not those of its words")
        return self

    def _labels(self, name: str) -> Ints:
        if name == "class":
            return np.arange(self.layout.n_classes)
        return self.layout.words(int(name.removeprefix("word")))

    def _new(self, name: str) -> Any:
        return clone(self.class_template if name == "class" else self.word_template)

    def fit(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Learn from all rows; those of each class are copied together where memory allows."""
        layout = self.layout
        if layout.n_classes > 1:
            self.readouts["class"] = self._new("class").fit_blocks(
                _ClassOf(blocks, layout.word_class),
                np.arange(layout.n_classes),
                held_out=None if held_out is None else _ClassOf(held_out, layout.word_class),
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
                factor = self._new(f"word{c}")
                self.readouts[f"word{c}"] = factor.fit_blocks(part, words, held_out=judges.get(c))

    def learn_later(self, X: Array, codes: Ints) -> None:
        """Learn from more rows."""
        if "class" in self.readouts:
            self.readouts["class"].partial_fit(X, self.layout.word_class[codes])
        self._learn_words(X, codes)

    def log_probabilities(self, X: Array) -> Array:
        """Return log P(w | x) of every word: X (n, n_units) -> (n, V)."""
        log_class = self._log_class(X)
        out = np.empty((len(X), len(self._column)), dtype=X.dtype)
        for c in range(self.layout.n_classes):
            out[:, self.layout.words(c)] = log_class[:, c, None] + self._within(c, X)
        return out

    def log_probability_of(self, X: Array, codes: Ints) -> Array:
        """Return log P(w | x) (n,) of one word a row."""
        classes = self.layout.word_class[codes]
        total: Array = self._log_class(X)[np.arange(len(codes)), classes]
        for c, rows in self.layout.rows_by_class(classes):
            inside = self._within(c, X[rows])
            total[rows] += inside[np.arange(len(rows)), self._column[codes[rows]]]
        return total

    def _learn_words(self, X: Array, codes: Ints) -> None:
        for c, rows in self.layout.rows_by_class(self.layout.word_class[codes]):
            words = self.layout.words(c)
            if len(words) > 1:
                name = f"word{c}"
                factor = self.readouts.setdefault(name, self._new(name))
                factor.partial_fit(X[rows], codes[rows], classes=words)

    def _log_class(self, X: Array) -> Any:
        """Return log P(class | x): (n, n_classes)."""
        if "class" not in self.readouts:
            return np.zeros((len(X), 1), dtype=X.dtype)
        return self.readouts["class"].predict_log_proba(X)

    def _within(self, c: int, X: Array) -> Any:
        """Return log P(w | class c, x) over the words of class c; uniform if none was seen."""
        if f"word{c}" in self.readouts:
            return self.readouts[f"word{c}"].predict_log_proba(X)
        n_words = len(self.layout.words(c))
        return np.full((len(X), n_words), -np.log(n_words), dtype=X.dtype)


def fits_memory(blocks: Blocks) -> bool:
    """Whether copies of the rows stay within 256 MiB."""
    return all(n_bytes <= _MEMORY for n_bytes in accumulate(X.nbytes for X, _ in blocks))


@dataclass
class _ClassOf:
    """Blocks of (X, word) as blocks of (X, class of the word)."""

    blocks: Blocks
    word_class: Ints

    def __iter__(self) -> Iterator[Block]:
        for X, codes in self.blocks:
            yield X, self.word_class[codes]


def _by_class(blocks: Blocks, layout: ClassLayout) -> dict[int, ArrayBlocks]:
    """Return the rows of each class that occurs, copied together."""
    parts: dict[int, list[Block]] = {}
    for X, codes in blocks:
        for c, rows in layout.rows_by_class(layout.word_class[codes]):
            parts.setdefault(c, []).append((X[rows], codes[rows]))
    copied = {}
    for c, part in sorted(parts.items()):
        X, codes = map(np.concatenate, zip(*part, strict=True))
        copied[c] = ArrayBlocks(X, codes)
    return copied
