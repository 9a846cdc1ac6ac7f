"""Surprisal of sentences, words and tokens, for studies of reading times."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.evaluation.measures import Scored
from esnlm.text.boundaries import text_pieces
from esnlm.text.tokenizers import Tokenizer

_PLACE = ("text", "document", "sentence")
_SUMS = ("n_tokens", "n_unknown", "surprisal_bits")
#: Unit -> columns of its CSV. Documents, sentences, words and tokens are counted from 1.
SURPRISAL_COLUMNS = {
    "sentence": (*_PLACE, "string", "n_words", "n_characters", *_SUMS),
    "word": (*_PLACE, "word", "string", *_SUMS),
    "token": (*_PLACE, "word", "token", "string", "id", "surprisal_bits"),
}
UNITS = tuple(SURPRISAL_COLUMNS)


class SurprisalRows:
    """Rows of `SURPRISAL_COLUMNS`, in the order of the text.

    Words are separated by white space; a word's surprisal is the sum over its tokens, and white
    space belongs to the word after it, as in the vocabulary of GPT-2. The end of a sentence (EOS)
    is a row of its own after the last word, spelled as in the vocabulary, so that the rows of a
    text sum to its negative log-likelihood. A token that is not predicted (the first, where
    nothing comes before) adds nothing, and ``n_tokens`` counts the others. Sentences are lines.

    ``tokenizer`` and ``reset`` are the model's, ``name`` is the text's, for the first column.
    """

    def __init__(self, tokenizer: Tokenizer, reset: str, unit: str, name: str) -> None:
        self.tokenizer = tokenizer
        self.reset = reset
        self.unit = unit
        self.name = name
        self.n_documents = 0

    def rows(self, part: Scored) -> Iterator[tuple[Any, ...]]:
        """Rows of the next part of the text, under its last model."""
        bits = part.scores[-1] / -log(2)
        for index, doc in enumerate(part.docs):
            self.n_documents += 1
            inside = slice(*part.stream.bounds[index : index + 2])
            columns = (part.stream.tokens[inside], part.predicted[inside], bits[inside])
            yield from self._document(doc, *columns)

    def _document(
        self, doc: str, tokens: NDArray[Any], predicted: NDArray[np.bool_], bits: NDArray[Any]
    ) -> Iterator[tuple[Any, ...]]:
        pieces, ends = text_pieces(doc, self.tokenizer, self.reset)
        encodings = self.tokenizer.backend.encode_batch(pieces, add_special_tokens=False)
        has_bos = self.tokenizer.bos_id is not None and self.reset != "never"
        end = self.tokenizer.eos if ends else None
        place = n_sentences = 0
        for index, (text, encoding) in enumerate(zip(pieces, encodings, strict=True)):
            place += has_bos and (index == 0 or self.reset == "sentence")
            after = place + len(encoding.ids)
            if tokens[place:after].tolist() != encoding.ids:
                raise ValueError(f"{self.name}: its tokens differ from those that were scored")
            inside = slice(place, after + (end is not None))
            columns = (tokens[inside], predicted[inside], bits[inside])
            piece = _Piece(text, encoding.offsets, end, *columns, self.tokenizer.unk_id)
            for line, *values in getattr(piece, self.unit + "_rows")():
                yield (self.name, self.n_documents, n_sentences + line + 1, *values)
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
    tokens: NDArray[Any]
    predicted: NDArray[np.bool_]
    bits: NDArray[np.float64]
    unk_id: int | None

    def __post_init__(self) -> None:
        text, offsets, end = self.text, self.offsets, self.end
        words = [match.span() for match in re.finditer(r"\S+", text)]
        unk_id = -1 if self.unk_id is None else self.unk_id
        self.unknown = self.predicted & (self.tokens == unk_id)
        self.strings = [text[low:high] for low, high in words]
        self.words = words
        breaks = [match.start() for match in re.finditer("\n", text)]
        raw = np.searchsorted(breaks, [low for low, _ in words])
        lines = np.unique(raw, return_inverse=True)[1]  # lines without words are no sentences
        self.n_lines = int(lines[-1]) + 1 if words else 0
        self.firsts = np.searchsorted(lines, np.arange(self.n_lines + 1))
        # A token's word is the first that ends after the token begins.
        ends = np.array([high for _, high in words], dtype=np.int64)
        owners = np.searchsorted(ends, [low for low, _ in offsets], side="right")
        self.owners = np.minimum(owners, max(len(words) - 1, 0))
        if end is not None:
            self.owners = np.append(self.owners, len(words))
            lines = np.append(lines, lines[-1:])
            self.strings.append(end)
            offsets.append((len(text), len(text)))
        self.lines = lines

    def sentence_rows(self) -> Iterator[tuple[Any, ...]]:
        """Line, string, n_words, n_characters, and `_sums`."""
        sums = self._sums(self.lines[self.owners], self.n_lines)
        for line, values in enumerate(sums):
            first, last = int(self.firsts[line]), int(self.firsts[line + 1]) - 1
            string = self.text[self.words[first][0] : self.words[last][1]]
            yield (line, string, last - first + 1, len(string), *values)

    def word_rows(self) -> Iterator[tuple[Any, ...]]:
        """Line, word, string, and `_sums`."""
        for word, values in enumerate(self._sums(self.owners, len(self.strings))):
            yield (*self._place(word), self.strings[word], *values)

    def token_rows(self) -> Iterator[tuple[Any, ...]]:
        """Line, word, token, string, id and bits."""
        inside = self.lines[self.owners]
        order = np.arange(len(inside)) - np.searchsorted(inside, inside) + 1
        for t in np.flatnonzero(self.predicted).tolist():
            word, (low, high) = int(self.owners[t]), self.offsets[t]
            string = self.text[low:high] if word < len(self.words) else self.strings[-1]
            values = (int(order[t]), string, int(self.tokens[t]), float(self.bits[t]))
            yield (*self._place(word), *values)

    def _place(self, word: int) -> tuple[int, int]:
        """Line of a word, and its place there, counted from 1; the end follows the last word."""
        line = int(self.lines[word])
        return line, word - int(self.firsts[line]) + 1

    def _sums(self, groups: NDArray[np.int64], n_groups: int) -> Iterator[tuple[Any, ...]]:
        """Tokens, unknown tokens and bits of each group, of the predicted tokens."""
        columns = (
            np.bincount(groups[self.predicted], minlength=n_groups),
            np.bincount(groups[self.unknown], minlength=n_groups),
            np.bincount(groups, weights=self.bits * self.predicted, minlength=n_groups),
        )
        return zip(*(column.tolist() for column in columns), strict=True)
