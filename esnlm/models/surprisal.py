"""Surprisal of sentences, words and tokens, for studies of reading times."""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, nan
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from esnlm.models.context import Context, in_context
from esnlm.models.text_words import EncodedText, bare_word
from esnlm.models.token_scores import TokenScores, token_scores
from esnlm.text.backends import is_punctuation
from esnlm.text.boundaries import as_documents, as_text, needed, text_pieces, without_marks
from esnlm.text.corpus import TextCorpus, TokenStream
from esnlm.text.files import is_table
from esnlm.utils.arrays import Bools, Floats
from esnlm.utils.validation import Count

if TYPE_CHECKING:
    import pandas as pd

_PLACE = ("text", "document", "sentence")
_SUMS = ("n_tokens", "n_unknown", "surprisal_bits")
#: Unit -> columns of its CSV. Documents, sentences, words and tokens are counted from 1.
SURPRISAL_COLUMNS = {
    "sentence": (*_PLACE, "string", "n_words", "n_characters", *_SUMS),
    "word": (
        *_PLACE, "position", "word", "length", "log_frequency", "is_first", "is_last", *_SUMS,
        "surprisal_bits_without_marks", "entropy_bits", "rank",
    ),
    "token": (*_PLACE, "position", "token", "string", "id", "surprisal_bits"),
}  # fmt: skip
#: Columns of words that `surprisal` repeats for the words before.
LAG_COLUMNS = (
    "length", "log_frequency", "surprisal_bits", "surprisal_bits_without_marks", "entropy_bits",
)  # fmt: skip
_LAGS = Count(0, 3)


@dataclass(frozen=True)
class ScoredText:
    """Some documents with the scores of their tokens.

    ``docs``: the texts; empty for shards. ``n_before``: documents of the text before them.
    ``stream``: their T tokens, framed as by ``reset``. ``predicted`` (T,) bool. ``scores``: one
    array (T,) float64 a model, natural logs, 0 where nothing is predicted. ``of_words``: what
    rows of words need. ``context``: what the model reads before a sentence, see `in_context`.
    """

    docs: Sequence[str]
    n_before: int
    stream: TokenStream
    predicted: Bools
    scores: list[Floats]
    reset: str
    of_words: TokenScores | None = None
    context: Context = None


def surprisal_columns(unit: str, lags: int = 0) -> tuple[str, ...]:
    """Return the columns of rows of a unit, with those of the ``lags`` words before."""
    _LAGS.check("lags", lags)
    names = [f"{name}_lag{lag}" for lag in range(1, lags + 1) for name in LAG_COLUMNS]
    return (*SURPRISAL_COLUMNS[unit], *names)


def surprisal_rows(
    part: ScoredText, model: Any, unit: str, name: str, *, counts: Any = None, lags: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield rows of `surprisal_columns` of a part of a text, under its last model.

    Words are separated by white space, which belongs to the word after it, as in the vocabulary of
    GPT-2. The end of a sentence (EOS) is a row of its own after the last word, spelled as in the
    vocabulary. A word's surprisal is the sum over its tokens, corrected for the ends of words. A
    token that is not predicted (the first, where nothing comes before) adds nothing, and
    ``n_tokens`` counts the others. Sentences are lines, and have the sum over their tokens.

    ``name`` is the text's, for the first column. ``counts``: see `word_counts`.
    """
    rows = _rows(part, model, unit, name)
    if unit != "word":
        return rows
    rows = _with_frequencies(rows, Counter() if counts is None else counts)
    alone = part.reset == "sentence" and part.context in (None, "sentence")
    return _with_lags(rows, lags, within="sentence" if alone else "document")


def _rows(part: ScoredText, model: Any, unit: str, name: str) -> Iterator[dict[str, Any]]:
    columns = SURPRISAL_COLUMNS[unit]
    for document, n_before, piece in _encoded_texts(part, model, name):
        for line, *values in getattr(piece, f"{unit}_rows")():
            row = (name, document, n_before + line + 1, *values)
            yield dict(zip(columns, row, strict=True))


def _encoded_texts(
    part: ScoredText, model: Any, name: str
) -> Iterator[tuple[int, int, EncodedText]]:
    """Yield what was encoded at once: its document, the lines of that before it, and its tokens."""
    tokenizer, reset = needed(model.tokenizer_), part.reset
    tokens, bits = part.stream.tokens, part.scores[-1] / -log(2)
    unknown = unknown_tokens(model)[tokens] & part.predicted
    has_bos = tokenizer.bos_id is not None and reset != "never"
    for index, doc in enumerate(part.docs):
        texts, ends = text_pieces(as_text(doc), tokenizer, reset)
        encodings = tokenizer.backend.encode_batch(texts, add_special_tokens=False)
        end = tokenizer.eos if ends else None
        place, n_sentences = int(part.stream.bounds[index]), 0
        for number, (text, encoding) in enumerate(zip(texts, encodings, strict=True)):
            place += has_bos and (number == 0 or reset == "sentence")
            after = place + len(encoding.ids)
            if tokens[place:after].tolist() != encoding.ids:
                raise ValueError(f"{name}: its tokens differ from those that were scored")
            inside = slice(place, after + (end is not None))
            of_words = None if part.of_words is None else part.of_words[inside]
            columns = (tokens[inside], part.predicted[inside], unknown[inside], bits[inside])
            piece = EncodedText(text, encoding.offsets, end, *columns, of_words, tokenizer)
            if text.strip():  # white space alone has no words, though it may have tokens
                yield part.n_before + index + 1, n_sentences, piece
            n_sentences += piece.n_lines
            place = inside.stop


def _with_frequencies(
    rows: Iterable[dict[str, Any]], counts: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Set the log frequency of words."""
    log_frequency = log_frequencies(counts)
    for row in rows:
        if row["length"] == row["length"]:  # the end of a sentence has none
            row["log_frequency"] = log_frequency(bare_word(row["word"]))
        yield row


def _with_lags(rows: Iterable[dict[str, Any]], lags: int, within: str) -> Iterator[dict[str, Any]]:
    """Add the values of the words before, as far as the model reads on; NaN before the first."""
    before: deque[dict[str, Any]] = deque(maxlen=int(lags))  # numpy's integers are refused
    place = None
    for row in rows:
        if place != (place := (row["document"], within == "document" or row["sentence"])):
            before.clear()
        values = {name: row[name] for name in LAG_COLUMNS}
        for lag in range(1, lags + 1):
            values_before = before[-lag] if lag <= len(before) else {}
            row |= {f"{name}_lag{lag}": values_before.get(name, nan) for name in LAG_COLUMNS}
        yield row
        if values["length"] == values["length"]:
            before.append(values)


def surprisal_table(
    model: Any,
    text: Any,
    *,
    counts: Any = None,
    correct_boundaries: bool = True,
    lags: int = 0,
    context: str | int | None = None,
) -> "pd.DataFrame":
    """Return the table of `SequenceModel.surprisal`; ends of sentences are left out."""
    import pandas as pd

    columns = surprisal_columns("word", lags)[1:]
    docs = [as_text(doc) for doc in as_documents(text)]
    for doc in docs:
        if not isinstance(doc, str):
            raise ValueError(f"surprisal reads text, got a document of {type(doc).__name__}")
    part = scored(model, docs, correct_boundaries=correct_boundaries, context=context)
    rows = surprisal_rows(
        part, model, "word", "the text", counts=word_counts(model, counts), lags=lags
    )
    words = (row for row in rows if row["length"] == row["length"])
    table = pd.DataFrame(words, columns=[*columns])
    return table.astype({"length": int})


def scored(
    model: Any, docs: Sequence[str], *, correct_boundaries: bool, context: str | int | None
) -> ScoredText:
    """Return texts with all that rows of words need."""
    stream, reset, walk, places = in_context(model, docs, context)
    scores = model._scores(walk)[places]
    predicted = stream.predicted()
    of_words = token_scores(model, walk, correct_boundaries)[places]
    return ScoredText(docs, 0, stream, predicted, [scores * predicted], reset, of_words, context)


def unknown_tokens(model: Any) -> Bools:
    """Mark tokens (V,) that training did not have: the unknown one, and those never seen."""
    unknown = np.zeros(model.n_tokens_, dtype=bool)
    if model.token_counts_ is not None:
        unknown |= model.token_counts_ == 0
    tokenizer = model.tokenizer_
    for token, is_unknown in (
        (tokenizer.bos_id, False), (tokenizer.eos_id, False), (tokenizer.unk_id, True)
    ):  # fmt: skip
        if token is not None:
            unknown[token] = is_unknown
    return unknown


def log_frequencies(counts: Counter[str]) -> Callable[[str], float]:
    """Return a function of bare words: natural logs of their shares, one occurrence added.

    Without counts it is NaN.

    >>> log_frequencies(Counter(dog=3, cat=1))("dog")
    0.0
    """
    total = counts.total()
    return lambda word: log((counts[word] + 1) / total) if total else nan


def word_counts(model: Any, counts: Any = None) -> Counter[str]:
    """Return how often bare words occur in ``counts``, or else in the training text.

    ``counts``: numbers by word (a Series of pandas, too), texts, or the name of a file of text
    (``.gz``, too).
    """
    if getattr(getattr(counts, "dtype", None), "kind", "O") in "iuf" and hasattr(counts, "to_dict"):
        counts = counts.to_dict()
    if is_of_training := counts is None:
        tokenizer, token_counts = model.tokenizer_, model.token_counts_
        if token_counts is None or not tokenizer.has_words:
            return Counter()
        counts = dict(zip(tokenizer.vocabulary, token_counts.tolist(), strict=False))
        no_words = {tokenizer.bos, tokenizer.eos}
        if tokenizer.parts_punctuation:  # a comma is of the word before it, as in a text
            no_words |= {token for token in counts if is_punctuation(token)}
        counts = {word: n for word, n in counts.items() if word not in no_words}
    elif not isinstance(counts, Mapping):
        docs = (as_text(doc) for doc in as_documents(_text_of_file(counts)))
        if (tokenizer := getattr(model, "tokenizer_", None)) is not None:
            docs = (without_marks(doc, tokenizer, "sentence") for doc in docs)
        counts = Counter(word for doc in docs for word in doc.split())
    bare = Counter[str]()
    for word, n in counts.items():
        is_number = isinstance(n, Real)
        if not (isinstance(word, str) and is_number and 0 <= n < inf):
            raise ValueError(f"counts must be numbers by word, got {n!r} for {word!r}")
        bare[bare_word(word)] += n
    if not (bare.total() or is_of_training):
        raise ValueError("counts must be of one word at least, got none")
    if 0 < max(bare.values(), default=0) < 1:
        raise ValueError(
            f"counts must be occurrences, got at most {max(bare.values()):g}: multiply shares by"
            " the number of words that were counted"
        )
    return bare


def _text_of_file(text: Any) -> Any:
    """Return the documents of a file that is named; anything else as it is."""
    one_word = isinstance(text, str) and not re.search(r"\s", text.strip())
    if isinstance(text, Path) or (one_word and (Path(text).exists() or re.search(r"[./]", text))):
        if is_table(text):
            raise ValueError(
                f"{text} is a table, and counts are of a text: in Python give its numbers by word"
            )
        return TextCorpus([str(text)])
    return text
