"""Surprisal of sentences, words and tokens, for studies of reading times."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from esnlm.evaluation.measures import Scored
from esnlm.text.boundaries import text_pieces
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Array, Bools, Floats, Ints64

_PLACE = ("text", "document", "sentence")
_SUMS = ("n_tokens", "n_unknown", "surprisal_bits")
#: Unit -> columns of its CSV. Documents, sentences, words and tokens are counted from 1.
SURPRISAL_COLUMNS = {
    "sentence": (*_PLACE, "string", "n_words", "n_characters", *_SUMS),
    "word": (*_PLACE, "word", "string", *_SUMS),
    "token": (*_PLACE, "word", "token", "string", "id", "surprisal_bits"),
}


def surprisal_rows(
    part: Scored, tokenizer: Tokenizer, reset: str, unit: str, name: str
) -> Iterator[tuple[Any, ...]]:
    """Rows of `SURPRISAL_COLUMNS` of a part of a text, under its last model.

    Words are separated by white space; a word's surprisal is the sum over its tokens, and white
    space belongs to the word after it, as in the vocabulary of GPT-2. The end of a sentence (EOS)
    is a row of its own after the last word, spelled as in the vocabulary, so that the rows of a
    text sum to its negative log-likelihood. A token that is not predicted (the first, where
    nothing comes before) adds nothing, and ``n_tokens`` counts the others. Sentences are lines.

    ``tokenizer`` and ``reset`` are the model's, ``name`` is the text's, for the first column.
    """
    tokens, bits = part.stream.tokens, part.scores[-1] / -log(2)
    has_bos = tokenizer.bos_id is not None and reset != "never"
    for index, doc in enumerate(part.docs):
        pieces, ends = text_pieces(doc, tokenizer, reset)
        encodings = tokenizer.backend.encode_batch(pieces, add_special_tokens=False)
        end = tokenizer.eos if ends else None
        place, n_sentences = int(part.stream.bounds[index]), 0
        for number, (text, encoding) in enumerate(zip(pieces, encodings, strict=True)):
            place += has_bos and (number == 0 or reset == "sentence")
            after = place + len(encoding.ids)
            if tokens[place:after].tolist() != encoding.ids:
                raise ValueError(f"{name}: its tokens differ from those that were scored")
            inside = slice(place, after + (end is not None))
            columns = (tokens[inside], part.predicted[inside], bits[inside])
            piece = _Piece(text, encoding.offsets, end, *columns, tokenizer.unk_id)
            for line, *values in getattr(piece, unit + "_rows")():
                yield (name, part.n_before + index + 1, n_sentences + line + 1, *values)
            n_sentences += piece.n_lines
            place = inside.stop


@dataclass
class _Piece:
    """A text that was encoded at once: its words, its lines, and the word of each token.

    ``end`` spells the last token where that is the end of the sentence.
    """

    text: str
    offsets: list[tuple[int, int]]
    end: str | None
    tokens: Array
    predicted: Bools
    bits: Floats
    unk_id: int | None

    def __post_init__(self) -> None:
        unk_id = -1 if self.unk_id is None else self.unk_id
        self.unknown = self.predicted & (self.tokens == unk_id)
        self.sentences, ends_of_sentences = _found(r"\S(?:.*\S)?", self.text)
        self.strings, ends_of_words = _found(r"\S+", self.text)
        self.n_lines = len(self.sentences)
        self.lines = _first_after(ends_of_words - 1, ends_of_sentences)
        self.firsts = np.searchsorted(self.lines, np.arange(self.n_lines + 1))
        self.owners = _first_after([low for low, _ in self.offsets], ends_of_words)
        if self.end is not None:
            self.owners = np.append(self.owners, len(self.strings))
            self.lines = np.append(self.lines, self.lines[-1:])
            self.strings.append(self.end)

    def sentence_rows(self) -> Iterator[tuple[Any, ...]]:
        """Line, string, n_words, n_characters, and `_sums`."""
        sums = self._sums(self.lines[self.owners], self.n_lines)
        for line, (string, values) in enumerate(zip(self.sentences, sums, strict=True)):
            yield (line, string, len(string.split()), len(string), *values)

    def word_rows(self) -> Iterator[tuple[Any, ...]]:
        """Line, word, string, and `_sums`."""
        for word, values in enumerate(self._sums(self.owners, len(self.strings))):
            yield (*self._place(word), self.strings[word], *values)

    def token_rows(self) -> Iterator[tuple[Any, ...]]:
        """Line, word, token, string, id and bits."""
        inside = self.lines[self.owners]
        order = np.arange(len(inside)) - np.searchsorted(inside, inside) + 1
        for t in np.flatnonzero(self.predicted).tolist():
            word = int(self.owners[t])
            string = self.text[slice(*self.offsets[t])] if t < len(self.offsets) else self.end
            values = (int(order[t]), string, int(self.tokens[t]), float(self.bits[t]))
            yield (*self._place(word), *values)

    def _place(self, word: int) -> tuple[int, int]:
        """Line of a word, and its place there, counted from 1; the end follows the last word."""
        line = int(self.lines[word])
        return line, word - int(self.firsts[line]) + 1

    def _sums(self, groups: Ints64, n_groups: int) -> Iterator[tuple[Any, ...]]:
        """Tokens, unknown tokens and bits of each group, of the predicted tokens."""
        columns = (
            np.bincount(groups[self.predicted], minlength=n_groups),
            np.bincount(groups[self.unknown], minlength=n_groups),
            np.bincount(groups, weights=self.bits * self.predicted, minlength=n_groups),
        )
        return zip(*(column.tolist() for column in columns), strict=True)


def _found(pattern: str, text: str) -> tuple[list[str], Ints64]:
    """Strings of a pattern, and the places where they end."""
    found = list(re.finditer(pattern, text))
    return [match[0] for match in found], np.array([match.end() for match in found], dtype=int)


def _first_after(places: ArrayLike, ends: Ints64) -> Ints64:
    """Number of the first string that ends after each place, or else the last."""
    return np.minimum(np.searchsorted(ends, places, side="right"), max(len(ends) - 1, 0))
