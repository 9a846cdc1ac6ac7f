"""N-gram models in the ARPA format, which KenLM and SRILM read and write."""

import gzip
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from esnlm.models.ngram import NgramLanguageModel
from esnlm.ngrams.backoff import BackoffNgrams
from esnlm.ngrams.counts import Ints, find
from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.storage.atomic import file_aside
from esnlm.text.corpus import CorpusError
from esnlm.text.tokenizers import BEGIN, END, UNKNOWN, Tokenizer

_LN10 = float(np.log(10))
#: Logarithm to base 10 of the probability of what a file does not hold, as KenLM has it.
_NEVER = -100.0
_COUNT = re.compile(r"ngram\s+(\d+)\s*=\s*(\d+)")


def write_arpa(model: NgramLanguageModel, path: str | Path) -> None:
    """Write a fitted model as an ARPA file, which appears whole or not at all.

    Probabilities are the model's, to nine digits. Words are tokens as the vocabulary spells them,
    or their numbers where there is no tokenizer. ValueError: one holds white space.

    >>> import tempfile
    >>> docs = ["the boy sees the dog", "the dog sees the boy"] * 5
    >>> model = NgramLanguageModel(3, tokenizer="word").fit(docs)
    >>> path = Path(tempfile.mkdtemp()) / "model.arpa"
    >>> write_arpa(model, path)
    >>> abs(read_arpa(path).score(docs) - model.score(docs)) < 1e-7
    True
    """
    words = _spelled(model)
    ngrams = model.ngrams_
    if isinstance(ngrams, KneserNey):
        ngrams = BackoffNgrams.of(ngrams)
    orders = range(1, ngrams.order + 1)
    with file_aside(Path(path)) as file:

        def put(lines: Iterable[str]) -> None:
            file.write("".join(f"{line}\n" for line in lines).encode())

        kept = [
            np.flatnonzero([word != "" for word in words]),
            *map(np.arange, map(len, ngrams.keys[1:])),
        ]
        put(["\\data\\", *(f"ngram {k}={len(kept[k - 1])}" for k in orders)])
        for k in orders:
            put(["", f"\\{k}-grams:"])
            tokens, rows = ngrams.tokens_of(k), kept[k - 1]
            logs, backoffs = ngrams.logs[k - 1] / _LN10, ngrams.backoffs[k - 1] / _LN10
            for start in range(0, len(rows), 1 << 16):
                part = rows[start : start + (1 << 16)]
                texts = (" ".join(words[i] for i in row) for row in tokens[part].tolist())
                ends = (f"\t{b:.9g}" if k < ngrams.order else "" for b in backoffs[part].tolist())
                numbers = (f"{x:.9g}" for x in logs[part].tolist())
                put(f"{p}\t{text}{b}" for p, text, b in zip(numbers, texts, ends, strict=True))
        put(["", "\\end\\"])


def _spelled(model: NgramLanguageModel) -> list[str]:
    """The word of each token, "" for numbers that are no token."""
    tokenizer = model.tokenizer_
    if tokenizer is None:
        return [str(token) for token in range(model.n_tokens_)]
    words = tokenizer.vocabulary + [""] * (model.n_tokens_ - len(tokenizer))
    for word in words:
        if word.split() != [word][: len(word)]:
            raise ValueError(f"ARPA files part words by spaces, and the token {word!r} holds some")
    return words


def read_arpa(
    path: str | Path, tokenizer: Tokenizer | None = None, reset: str = "sentence"
) -> NgramLanguageModel:
    """The model of an ARPA file, plain or ``.gz``, of whatever smoothing.

    Its tokens are the words of the file, in its order; ``<unk>``, ``<s>`` and ``</s>`` are added
    where they are missing, with a probability of 10^-100. ``tokenizer``: the one whose tokens the
    words are, as of sub-words. CorpusError: the file is missing, damaged or no ARPA file.
    """
    place = Path(path)
    try:
        with (gzip.open(place, "rt", encoding="utf-8") if place.suffix == ".gz"
              else open(place, encoding="utf-8")) as file:  # fmt: skip
            tables = list(_tables(iter(file)))
    except FileNotFoundError:
        raise CorpusError(f"no such file: {place}") from None
    except (EOFError, ValueError, gzip.BadGzipFile) as error:
        raise CorpusError(f"{place} is not a whole ARPA file: {error}") from error
    words = [row[0] for row, _, _ in tables[0]]
    if tokenizer is None:
        words += [word for word in (UNKNOWN, BEGIN, END) if word not in set(words)]
        tokenizer = _of_words(words)
    numbers = {word: i for i, word in enumerate(tokenizer.vocabulary)}
    try:
        ngrams = _numbered(tables, numbers)
    except KeyError as error:
        raise CorpusError(f"{place}: {error.args[0]!r} is no token of the vocabulary") from None
    model = NgramLanguageModel(len(tables), tokenizer, reset)
    model.tokenizer_, model.n_tokens_, model.ngrams_ = tokenizer, len(tokenizer), ngrams
    return model


def _tables(lines: Iterator[str]) -> Iterator[list[tuple[list[str], float, float]]]:
    """Words, logarithm and back-off weight (base 10) of each n-gram, order by order."""
    counts = []
    for line in lines:
        if line.startswith("\\1-grams:"):
            break
        if match := _COUNT.match(line.strip()):
            counts.append(int(match[2]))
    if not counts:
        raise ValueError("it has no counts of n-grams")
    for order, count in enumerate(counts, start=1):
        if (
            order > 1
            and next((line for line in lines if line.strip()), "").strip() != f"\\{order}-grams:"
        ):
            raise ValueError(f"expected the {order}-grams")
        table = []
        for line in islice(lines, count):
            log, *words = line.split() or [""]
            if not words:
                break
            backoff = float(words.pop()) if len(words) > order else 0.0
            if len(words) != order:
                raise ValueError(f"expected a {order}-gram, got {line.strip()!r}")
            table.append((words, float(log), backoff))
        if len(table) < count:
            raise ValueError(f"expected {count} {order}-grams, got {len(table)}")
        yield table


def _numbered(tables: list[Any], numbers: dict[str, int]) -> BackoffNgrams:
    """The tables with tokens in place of words."""
    n_tokens = len(numbers)
    found: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for order, table in enumerate(tables, start=1):
        tokens = np.array([[numbers[word] for word in row] for row, _, _ in table], dtype=np.int64)
        tokens = tokens.reshape(len(table), order)
        values = np.array([row[1:] for row in table]).reshape(len(table), 2) * _LN10
        if order == 1:
            whole = np.full((n_tokens, 2), [_NEVER * _LN10, 0.0])
            whole[tokens[:, 0]] = values
            keys: Ints = np.arange(n_tokens)
            values = whole
        else:
            context: Ints = tokens[:, 0]
            for shorter in range(1, order - 1):
                context = find(found[0][shorter], context * n_tokens + tokens[:, shorter])
                if (context < 0).any():
                    raise ValueError(f"the context of a {order}-gram is in no table")
            keys = context * n_tokens + tokens[:, -1]
            rising = np.argsort(keys)
            keys, values = keys[rising], values[rising]
        for part, array in zip(found, (keys, *values.T), strict=True):
            part.append(np.ascontiguousarray(array))
    return BackoffNgrams(n_tokens, *found)


def _of_words(words: list[str]) -> Tokenizer:
    """Words between white space, numbered in this order."""
    backend = Backend(models.WordLevel({word: i for i, word in enumerate(words)}, UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([BEGIN, END])
    return Tokenizer(backend, bos=BEGIN, eos=END).prepend_bos()
