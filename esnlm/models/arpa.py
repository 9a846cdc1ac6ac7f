"""N-gram models in the ARPA format, which KenLM and SRILM read and write."""

import gzip
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

import numpy as np
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from esnlm.models.ngram import NgramLanguageModel
from esnlm.ngrams.backoff import BackoffNgrams
from esnlm.ngrams.counts import Ints, find
from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.storage.atomic import file_aside, write_whole
from esnlm.text.backends import BEGIN, END, UNKNOWN
from esnlm.text.corpus import CorpusError, opened_text
from esnlm.text.tokenizers import Tokenizer

_LN10 = float(np.log(10))
#: Logarithm to base 10 of the probability of what a file does not hold, as KenLM has it, or -inf.
_NEVER = -100.0
# Logarithm to base 10 of a back-off weight beyond which probabilities overflow.
_LARGEST_BACKOFF = 30.0
# What parts words in KenLM and SRILM; other white space may stand inside a word.
_SPACES = " \t\r\n\0"
_COUNT = re.compile(r"ngram\s+(\d+)\s*=\s*(\d+)")


def tokenizer_of(path: str | Path) -> Path:
    """Where the tokenizer lies whose tokens the words of an ARPA file are."""
    return Path(f"{path}.tokenizer.json")


def write_arpa(model: NgramLanguageModel, path: str | Path) -> None:
    """Write a fitted model as an ARPA file, ``.gz`` packed, which appears whole or not at all.

    Probabilities are the model's, to nine digits. Words are tokens as the vocabulary spells them,
    but sentences begin with ``<s>`` and end with ``</s>``, and unknown words are ``<unk>``; or they
    are numbers where there is no tokenizer. The tokenizer is written beside it, as
    PATH.tokenizer.json, whereby `read_arpa` reads text as the model did; KenLM must be given text
    that is cut into these tokens. ValueError: a token holds white space, or the model reads on from
    one sentence to the next (``reset`` is not "sentence"), where an ARPA file's sentences each
    begin anew.

    >>> import tempfile
    >>> docs = ["the boy sees the dog", "the dog sees the boy"] * 5
    >>> model = NgramLanguageModel(order=3, tokenizer="word").fit(docs)
    >>> path = Path(tempfile.mkdtemp()) / "model.arpa"
    >>> write_arpa(model, path)
    >>> abs(read_arpa(path).score(docs) - model.score(docs)) < 1e-7
    True
    """
    if model.tokenizer_ is not None and model.reset_ != "sentence":
        raise ValueError(
            "models of ARPA files begin anew at each sentence, and this one was trained with reset"
            f" {model.reset_!r}, expected 'sentence'"
        )
    tokenizer, ngrams = model.tokenizer_, model.ngrams_
    bos, eos = (None, None) if tokenizer is None else (tokenizer.bos_id, tokenizer.eos_id)
    words = _spelled(model)
    if isinstance(ngrams, KneserNey):
        ngrams = BackoffNgrams.of(ngrams)
    orders = range(1, ngrams.order + 1)
    if tokenizer is not None:
        write_whole(tokenizer_of(path), tokenizer.to_json())
    with file_aside(Path(path)) as aside, _packed(aside, Path(path)) as file:

        def put(lines: Iterable[str]) -> None:
            file.write("".join(f"{line}\n" for line in lines).encode())

        rows_by_order = [
            np.flatnonzero([word != "" for word in words]),
            *map(np.arange, map(len, ngrams.keys[1:])),
        ]
        is_both = bos is not None and bos == eos
        counts = [len(rows) + (k == 0 and is_both) for k, rows in enumerate(rows_by_order)]
        put(["\\data\\", *(f"ngram {k}={count}" for k, count in enumerate(counts, start=1))])
        for k in orders:
            put(["", f"\\{k}-grams:"])
            tokens, rows = ngrams.tokens_of(k), rows_by_order[k - 1]
            logs, backoffs = ngrams.logs[k - 1] / _LN10, ngrams.backoffs[k - 1] / _LN10
            if k == 1 and is_both:  # a token that is two words of the file
                put([f"-99\t{BEGIN}" + (f"\t{backoffs[bos]:.9g}" if ngrams.order > 1 else "")])
                backoffs[bos] = 0.0
            for start in range(0, len(rows), 1 << 16):
                part = rows[start : start + (1 << 16)]
                texts = (_sentence_part(row, words, bos, eos) for row in tokens[part].tolist())
                ends = (f"\t{b:.9g}" if k < ngrams.order else "" for b in backoffs[part].tolist())
                numbers = (f"{x:.9g}" for x in logs[part].tolist())
                put(f"{p}\t{text}{b}" for p, text, b in zip(numbers, texts, ends, strict=True))
        put(["", "\\end\\"])


def _packed(file: IO[bytes], path: Path) -> AbstractContextManager[Any]:
    """Return a writer that packs where the path ends in ``.gz``, to the same bytes at any time."""
    if path.suffix.lower() != ".gz":
        return nullcontext(file)
    return gzip.GzipFile("", "wb", fileobj=file, mtime=0)


def _spelled(model: NgramLanguageModel) -> list[str]:
    """Return the word of each token, "" for numbers that are no token."""
    tokenizer = model.tokenizer_
    if tokenizer is None:
        return [str(token) for token in range(model.n_tokens_)]
    words = tokenizer.vocabulary + [""] * (model.n_tokens_ - len(tokenizer))
    for word in words:
        if any(space in word for space in _SPACES):
            raise ValueError(f"ARPA files part words by spaces, and the token {word!r} holds some")
    for name, token in ((BEGIN, tokenizer.bos_id), (END, tokenizer.eos_id)):
        if token is not None and name in words and words[token] != name:
            raise ValueError(
                f"ARPA files begin and end sentences with <s> and </s>: {name} is another token"
            )
    unknown = tokenizer.unk_id
    is_boundary = unknown in (tokenizer.bos_id, tokenizer.eos_id)
    if unknown is not None and not is_boundary and UNKNOWN not in words:
        words[unknown] = UNKNOWN  # else KenLM gives unknown words a probability of 10^-100
    return words


def _sentence_part(row: list[int], words: list[str], bos: int | None, eos: int | None) -> str:
    """Return the words of an n-gram, ``<s>`` and ``</s>`` at the ends of a sentence."""
    spelled = [words[token] for token in row]
    if row[0] == bos:
        spelled[0] = BEGIN
    if row[-1] == eos:
        spelled[-1] = END
    return " ".join(spelled)


def read_arpa(path: str | Path, tokenizer: Tokenizer | None = None) -> NgramLanguageModel:
    """Return the model of an ARPA file, plain or ``.gz``, of whatever smoothing.

    ``tokenizer``: the one whose tokens the words are; None: PATH.tokenizer.json, which `write_arpa`
    wrote, or else words between spaces, in the file's order; ``<unk>``, ``<s>`` and ``</s>`` are
    added where they are missing, with a probability of 10^-100, which -inf is read as, too.
    CorpusError: the file is missing, damaged or no ARPA file.
    """
    place = Path(path)
    try:
        with opened_text(place) as (file, _):
            tables = list(_tables(iter(file)))
    except FileNotFoundError:
        raise CorpusError(f"no such file: {place}") from None
    except CorpusError as error:  # the encoding of a model cannot be named
        reason = re.sub(r"encoding='\S+' reads it if that is its encoding, or ", "", str(error))
        raise CorpusError(f"{reason}; expected an ARPA file in UTF-8, or a model folder") from error
    except ValueError as error:
        raise CorpusError(
            f"{place} is not a whole ARPA file: {error}; expected one, or a model folder"
        ) from error
    words = [row[0] for row, _, _ in tables[0]]
    if UNKNOWN not in words and UNKNOWN.upper() in words:  # as CMU, IRSTLM and Kaldi spell it
        for table in tables:
            for row, _, _ in table:
                row[:] = [UNKNOWN if word == UNKNOWN.upper() else word for word in row]
        words[words.index(UNKNOWN.upper())] = UNKNOWN
    beside = tokenizer_of(place)
    if tokenizer is None and beside.is_file():
        tokenizer = _with_boundaries(Tokenizer.from_file(beside), words)
    if tokenizer is None:
        if END not in words:
            warnings.warn(
                f"{place} has no {END}, so ends of sentences are scored as impossible: name the"
                f" word that ends sentences {END}, and the one that begins them {BEGIN}",
                stacklevel=2,
            )
        if UNKNOWN.upper() in words:
            warnings.warn(
                f"{place} has {UNKNOWN}, which unknown words are here, and {UNKNOWN.upper()}, which"
                " is a word of its own, though unknown to KenLM: rename one of them",
                stacklevel=2,
            )
        words += [word for word in (UNKNOWN, BEGIN, END) if word not in set(words)]
        tokenizer = _of_words(words)
    numbers = {word: i for i, word in enumerate(tokenizer.vocabulary)}
    ends = ((BEGIN, tokenizer.bos_id), (END, tokenizer.eos_id))
    numbers |= {word: token for word, token in ends if token is not None}
    if tokenizer.unk_id is not None:
        numbers.setdefault(UNKNOWN, tokenizer.unk_id)
    try:
        ngrams = _numbered(tables, numbers, len(tokenizer))
    except KeyError as error:
        raise CorpusError(f"{place}: {error.args[0]!r} is no token of the vocabulary") from None
    except ValueError as error:
        raise CorpusError(f"{place} is not a whole ARPA file: {error}") from None
    model = NgramLanguageModel(order=len(tables), tokenizer=tokenizer)
    model.tokenizer_, model.n_tokens_, model.ngrams_ = tokenizer, len(tokenizer), ngrams
    return model


def _tables(lines: Iterator[str]) -> Iterator[list[tuple[list[str], float, float]]]:
    """Words, logarithm and back-off weight (base 10) of each n-gram, order by order.

    What stands before the head, and lines without words, are passed over.
    """
    texts = (line.strip(_SPACES) for line in lines)
    for text in texts:
        if text.removeprefix("\ufeff") == "\\data\\":
            break
        if text == "iARPA":
            raise ValueError(
                "it is IRSTLM's iARPA, whose numbers are no probabilities yet: compile-lm"
                " --text=yes converts it"
            )
    counts = []
    for text in texts:
        if text.startswith("\\"):
            break
        if match := _COUNT.match(text):
            counts.append(int(match[2]))
    if not counts:
        raise ValueError("it has no counts of n-grams")
    for order, count in enumerate(counts, start=1):
        if text != f"\\{order}-grams:":
            raise ValueError(f"expected the {order}-grams, got {text!r}")
        table = []
        for text in filter(None, texts):
            if text.startswith("\\") and text.rstrip(":").endswith(("-grams", "end\\")):
                break
            log, *words = re.split(f"[{_SPACES}]+", text)
            last = words.pop() if len(words) > order else "0"
            if len(words) != order:
                raise ValueError(f"expected a {order}-gram, got {text!r}")
            # An infinite number can be neither summed up to a word nor saved.
            value, backoff = (_NEVER if x == -np.inf else x for x in map(float, (log, last)))
            if not (value <= 0 and backoff <= _LARGEST_BACKOFF):  # NaN neither
                raise ValueError(f"expected a logarithm of at most 0 and a back-off, got {text!r}")
            # KenLM's lmplz writes a probability of one for what is never predicted.
            table.append((words, _NEVER if value == 0 and words == [BEGIN] else value, backoff))
        else:
            text = ""
        if len(table) != count:
            raise ValueError(f"expected {count} {order}-grams, got {len(table)}")
        if count and not all(counts[:order]):
            raise ValueError(f"the contexts of its {order}-grams are in no table")
        if count:  # pruning may leave nothing of the highest orders
            yield table
    if text != "\\end\\":
        raise ValueError(f"expected \\end\\, got {text!r}")
    for _ in lines:  # the checksum of a packed file is at its end
        pass


def _numbered(tables: list[Any], numbers: dict[str, int], n_tokens: int) -> BackoffNgrams:
    """Return the tables with tokens in place of words."""
    columns: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for order, table in enumerate(tables, start=1):
        tokens = np.array([[numbers[word] for word in row] for row, _, _ in table], dtype=np.int64)
        tokens = tokens.reshape(len(table), order)
        values = np.array([row[1:] for row in table]).reshape(len(table), 2) * _LN10
        if order == 1:
            words = [word for (word,), _, _ in table]
            if len(set(words)) < len(words):
                raise ValueError(f"{Counter(words).most_common(1)[0][0]!r} is there twice")
            whole = np.full((n_tokens, 2), [_NEVER * _LN10, 0.0])
            # Where one token begins and ends sentences, <s> has its back-off and </s> its log.
            np.maximum.at(whole[:, 0], tokens[:, 0], values[:, 0])
            np.add.at(whole[:, 1], tokens[:, 0], values[:, 1])
            keys: Ints = np.arange(n_tokens)
            values = whole
        else:
            context: Ints = tokens[:, 0]
            for shorter in range(1, order - 1):
                context = find(columns[0][shorter], context * n_tokens + tokens[:, shorter])
                if (context < 0).any():
                    raise ValueError(f"the context of a {order}-gram is in no table")
            keys = context * n_tokens + tokens[:, -1]
            rising = np.argsort(keys)
            keys, values = keys[rising], values[rising]
            if twice := np.flatnonzero(np.diff(keys) == 0).tolist():
                raise ValueError(f"{' '.join(table[rising[twice[0]]][0])!r} is there twice")
        for part, array in zip(columns, (keys, *values.T), strict=True):
            part.append(np.ascontiguousarray(array))
    return BackoffNgrams(n_tokens, *columns)


def _with_boundaries(tokenizer: Tokenizer, words: list[str]) -> Tokenizer:
    """Return a tokenizer of a file with the boundaries that it had, whatever they are called.

    Of those that no file of a tokenizer names, the words ``<s>`` and ``</s>`` have taken the place.
    """
    if tokenizer.bos or tokenizer.eos:
        return tokenizer
    vocabulary, spelled = tokenizer.vocabulary, set(words)
    renamed: list[Any] = [
        token
        for i, token in enumerate(vocabulary)
        if token and token not in spelled and i != tokenizer.unk_id
    ]
    renamed = renamed or [None]
    bos, eos = (
        (name if name in vocabulary else renamed[place]) if name in spelled else None
        for name, place in ((BEGIN, 0), (END, -1))
    )
    return Tokenizer(tokenizer.backend, bos=bos, eos=eos)


def _of_words(words: list[str]) -> Tokenizer:
    """Words between white space, numbered in this order."""
    backend = Backend(models.WordLevel({word: i for i, word in enumerate(words)}, UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(f"[{_SPACES}]+"), "removed")
    backend.add_special_tokens([BEGIN, END])
    return Tokenizer(backend, bos=BEGIN, eos=END).prepend_bos()
