"""Surprisal of sentences, words and tokens, for studies of reading times."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from esnlm.text.boundaries import as_documents, as_text, needed, text_pieces
from esnlm.text.corpus import TextCorpus, TokenStream
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Array, Bools, Floats, Ints64

if TYPE_CHECKING:
    import pandas as pd

_PLACE = ("text", "document", "sentence")
_SUMS = ("n_tokens", "n_unknown", "surprisal_bits")
#: Unit -> columns of its CSV. Documents, sentences, words and tokens are counted from 1.
SURPRISAL_COLUMNS = {
    "sentence": (*_PLACE, "string", "n_words", "n_characters", *_SUMS),
    "word": (*_PLACE, "word", "string", *_SUMS),
    "token": (*_PLACE, "word", "token", "string", "id", "surprisal_bits"),
}


# Columns of a table of words, before lengths and frequencies stand between them.
_TABLE = ("document", "sentence", "position", "word", *_SUMS)


@dataclass(frozen=True)
class ScoredText:
    """Some documents with the scores of their tokens.

    ``docs``: the texts; empty for shards. ``n_before``: documents of the text before them.
    ``stream``: their T tokens. ``predicted`` (T,) bool. ``scores``: one array (T,) float64 a model,
    natural logs, 0 where nothing is predicted. ``ends``: see `end_bits`; None leaves the words'
    surprisals the sums of their tokens'.
    """

    docs: Sequence[str]
    n_before: int
    stream: TokenStream
    predicted: Bools
    scores: list[Floats]
    ends: Floats | None = None


def surprisal_rows(
    part: ScoredText, tokenizer: Tokenizer, reset: str, unit: str, name: str
) -> Iterator[tuple[Any, ...]]:
    """Rows of `SURPRISAL_COLUMNS` of a part of a text, under its last model.

    Words are separated by white space, which belongs to the word after it, as in the vocabulary of
    GPT-2. The end of a sentence (EOS) is a row of its own after the last word, spelled as in the
    vocabulary. A word's surprisal is the sum over its tokens, corrected by ``part.ends``. A token
    that is not predicted (the first, where nothing comes before) adds nothing, and ``n_tokens``
    counts the others. Sentences are lines, and have the sum over their tokens.

    ``tokenizer`` and ``reset`` are the model's, ``name`` is the text's, for the first column.
    """
    for document, n_before, piece in _pieces(part, tokenizer, reset, name):
        for line, *values in getattr(piece, unit + "_rows")():
            yield (name, document, n_before + line + 1, *values)


def _pieces(
    part: ScoredText, tokenizer: Tokenizer, reset: str, name: str
) -> Iterator[tuple[int, int, "_Piece"]]:
    """Yield what was encoded at once: its document, the lines of that before it, and its tokens."""
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
            of_ends = None if part.ends is None else part.ends[:, inside]
            piece = _Piece(text, encoding.offsets, end, *columns, of_ends, tokenizer)
            yield part.n_before + index + 1, n_sentences, piece
            n_sentences += piece.n_lines
            place = inside.stop


def end_bits(model: Any, stream: TokenStream) -> Floats | None:
    """Return -log2 of two probabilities (2, T) before each token of a stream.

    The first is that the word before it ends there: the sum over all tokens that begin a word, BOS
    and EOS. The second, used at the start of a text, is that a token without space or EOS comes.
    None where the tokens are words, which end by themselves.

    Equations: Pimentel & Meister 2024, arXiv 2406.14561, theorem 1; Oh & Schuler 2024, arXiv
    2406.10851.
    """
    tokenizer = needed(model.tokenizer_)
    begins = tokenizer.begins_word
    if begins is None:
        return None
    starts = ~begins
    if tokenizer.eos_id is not None:
        starts[tokenizer.eos_id] = True
    kinds = np.zeros((model.n_tokens_, 2))
    kinds[: len(begins)] = np.stack([begins, starts], axis=1)
    probabilities = np.ones((len(stream.tokens), 2))
    for rows, places in model._distributions(stream):
        probabilities[places] = rows @ kinds
    return np.asarray(-np.log2(np.clip(probabilities, np.finfo(float).tiny, 1.0)).T)


def surprisal_table(
    model: Any, text: Any, *, counts: Any = None, corrected: bool = True
) -> "pd.DataFrame":
    """Return the table of `SequenceModel.surprisal`; ends of sentences are left out."""
    import pandas as pd

    docs = [as_text(doc) for doc in as_documents(text)]
    for doc in docs:
        if not isinstance(doc, str):
            raise ValueError(f"surprisal reads text, got a document of {type(doc).__name__}")
    tokenizer = needed(model.tokenizer_)
    stream = model.tokenize(docs)
    ends = end_bits(model, stream) if corrected else None
    part = ScoredText(docs, 0, stream, stream.predicted(), [model._scores(stream)], ends)
    rows = []
    for document, n_before, piece in _pieces(part, tokenizer, model.reset_, "the text"):
        words = islice(piece.word_rows(), len(piece.strings) - (piece.end is not None))
        rows += [(document, n_before + line + 1, *values) for line, *values in words]
    table = pd.DataFrame(rows, columns=[*_TABLE])
    bare = table["word"].map(_bare)
    frequency = _log_frequencies(bare.tolist(), _occurrences(model, counts))
    table = table.assign(length=bare.str.len().astype(int), log_frequency=frequency)
    return table[[*_TABLE[:4], "length", "log_frequency", *_SUMS]]


def _bare(word: str) -> str:
    """Return a word in lower case without punctuation at its ends; a mark alone as it is.

    >>> _bare("Dogs,"), _bare("--")
    ('dogs', '--')
    """
    return re.sub(r"^[\W_]+|[\W_]+$", "", word).lower() or word


def _occurrences(model: Any, counts: Any) -> Counter[str]:
    """How often bare words occur, in given counts or text, or else in the training text."""
    if counts is None:
        tokenizer, known = model.tokenizer_, model.token_counts_
        if known is None or not tokenizer.has_words:
            return Counter()
        counts = dict(zip(tokenizer.vocabulary, known.tolist(), strict=False))
        for boundary in (tokenizer.bos, tokenizer.eos):
            counts.pop(boundary, None)
    elif not isinstance(counts, Mapping):
        docs = (as_text(doc) for doc in as_documents(_text_of_file(counts)))
        counts = Counter(word for doc in docs for word in doc.split())
    found = Counter[str]()
    for word, n in counts.items():
        found[_bare(word)] += n
    return found


def _text_of_file(text: Any) -> Any:
    """Return the documents of a file that is named; anything else as it is."""
    one_word = isinstance(text, str) and not re.search(r"\s", text.strip())
    if isinstance(text, Path) or (one_word and (Path(text).exists() or re.search(r"[./]", text))):
        return TextCorpus([str(text)])
    return text


def _log_frequencies(words: Sequence[str], counts: Counter[str]) -> Floats:
    """Natural logs of the shares (n,) of words, one occurrence added; NaN without counts."""
    total = counts.total()
    if not total:
        return np.full(len(words), np.nan)
    return np.log([(counts[word] + 1) / total for word in words])


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
    ends: Floats | None
    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        """Find sentences and words in the text, and map words to lines and tokens to words."""
        unk_id = -1 if self.tokenizer.unk_id is None else self.tokenizer.unk_id
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
        moved = self._end_bits()
        for word, (*numbers, bits) in enumerate(self._sums(self.owners, len(self.strings))):
            yield (*self._place(word), self.strings[word], *numbers, bits + moved[word])

    def _end_bits(self) -> list[float]:
        """Return the bits of each word's end, less those of the end of the word before it."""
        if self.ends is None or not len(self.tokens):
            return [0.0] * len(self.strings)
        ends = np.append(self.ends[0], 0.0)
        begins = self.tokenizer.begins_word
        if begins is not None and not begins[self.tokens[0]]:
            ends[0] = self.ends[1, 0]
        firsts = np.searchsorted(self.owners, np.arange(len(self.strings) + 1))
        return [float(bits) for bits in np.diff(ends[firsts])]

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
    """Return number of the first string that ends after each place, or else the last."""
    return np.minimum(np.searchsorted(ends, places, side="right"), max(len(ends) - 1, 0))
