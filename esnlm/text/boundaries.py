"""Documents as token sequences with boundary tokens around sentences or documents."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from os.path import isfile
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from esnlm.text.corpus import TokenStream, join_sequences, lines_of
from esnlm.text.named_tokenizers import trained
from esnlm.text.tokenizers import Ids, Tokenizer
from esnlm.utils.arrays import Array

RESETS = ("sentence", "document", "never")
#: Names of tokenizers that are trained on the documents of a model.
TRAINED = ("word", "wordpunct", "auto", "char")
_BATCH = 1024
_FILE = re.compile(r".\.(txt|gz|csv|tsv|jsonl?|tok|zip)$")


def framed(docs: Iterable[Any], tokenizer: Tokenizer | None, reset: str) -> Iterator[list[Array]]:
    """Documents -> the token arrays of each, one a sequence.

    Integer documents are one array, taken as they are. Text is framed by ``reset``:

    - ``sentence``: every line that is not blank, as BOS ... EOS.
    - ``document``: BOS ... EOS; where the tokenizer drops line ends, an EOS after every line.
    - ``never``: no BOS; where the tokenizer drops line ends, an EOS after every line.

    Boundary tokens that the tokenizer does not have are left out.

    >>> tokenizer = Tokenizer.train_words(["a b"])
    >>> [array.tolist() for array in next(framed(["a b\\nb"], tokenizer, "sentence"))]
    [[1, 3, 4, 2], [1, 4, 2]]
    >>> [array.tolist() for array in next(framed(["a b\\nb"], tokenizer, "never"))]
    [[3, 4, 2, 4, 2]]
    """
    source = iter(docs)
    while batch := list(islice(source, _BATCH)):
        batch = [as_text(doc) for doc in batch]
        kinds = {isinstance(doc, str) for doc in batch}
        if len(kinds) > 1:
            types = ", ".join(sorted({type(doc).__name__ for doc in batch}))
            raise ValueError(
                f"docs must be all strings or all integer arrays, got {types}: leave out what is"
                " neither, such as missing values"
            )
        if kinds == {False}:
            yield from ([_as_integers(doc)] for doc in batch)
            continue
        tokenizer = needed(tokenizer)
        before, after = _boundaries(tokenizer, reset)
        cut = [text_pieces(text, tokenizer, reset) for text in batch]
        encoded = tokenizer.encode_batches(chain.from_iterable(pieces for pieces, _ in cut))
        for pieces, ends in cut:
            last = after if ends else after[:0]
            ended = [(ids, last) for ids in islice(encoded, len(pieces))]
            if reset == "sentence":
                yield [np.concatenate([before, *pair]) for pair in ended]
            else:
                yield [np.concatenate([before, *chain.from_iterable(ended)])]


def joined(docs: Any, tokenizer: Tokenizer | None, reset: str, n_tokens: int | None) -> TokenStream:
    """Documents, `framed`, as one stream, whose sequences have starts unless ``reset="never"``.

    A stream is returned as it is. See `esnlm.text.corpus.join_sequences` for ``n_tokens``.
    """
    if isinstance(docs, TokenStream):
        return docs.checked()
    sequences = framed(as_documents(docs), tokenizer, reset)
    return join_sequences(sequences, n_tokens=n_tokens, reset=reset != "never")


def framed_prefix(prefix: str | ArrayLike, tokenizer: Tokenizer | None, reset: str) -> Array:
    """Tokens to read before the next one is predicted: (n,) integers.

    Text comes after BOS where sentences or documents have one, and its line ends are what they
    are in a document: with ``reset="sentence"`` only what follows the last of them is read. A BOS
    that a line of text begins with is that one. Integers are taken as they are, and where there
    are none at all BOS stands alone.
    """
    prefix = as_text(prefix)
    if not isinstance(prefix, str):
        ids = _as_integers(prefix)
        bos = ids if tokenizer is None else _boundaries(tokenizer, reset)[0]
        return ids if len(ids) or not len(bos) else bos
    tokenizer = needed(tokenizer)
    before, after = _boundaries(tokenizer, reset)
    if reset != "sentence" and tokenizer.keeps_newlines:
        return np.concatenate([before, tokenizer.encode(prefix)])
    *ended, last = lines_of(without_marks(prefix, tokenizer, reset))
    if tokenizer.bos and tokenizer.eos:  # of a line whose end is still to come
        last = re.sub(rf"\A\s*{re.escape(tokenizer.bos)}(?: |\Z)", "", last)
    if reset == "sentence":
        ended = []
    lines = [part for line in ended if line.strip() for part in (tokenizer.encode(line), after)]
    return np.concatenate([before, *lines, tokenizer.encode(last)])


def listed_prefixes(prefixes: Any) -> list[Any] | None:
    """Return the prefixes of a list of them; None for one alone, a string or integers.

    Strings in a list are a prefix each.

    >>> listed_prefixes(["the boy", "the"]), listed_prefixes([[0, 1], [2]]), listed_prefixes([0, 1])
    (['the boy', 'the'], [[0, 1], [2]], None)
    """
    is_scalar = getattr(prefixes, "ndim", 1) == 0
    if is_scalar or isinstance(prefixes, str) or not isinstance(prefixes, Iterable):
        return None
    items = list(prefixes)
    return None if all(map(_has_no_axis, items)) else items


def text_pieces(text: str, tokenizer: Tokenizer, reset: str) -> tuple[list[str], bool]:
    """Return the parts of a document that are encoded at a time, and whether an EOS follows each.

    The whole document where the state outlives a line and line ends are tokens, otherwise the
    lines that are not blank.

    >>> text_pieces("a b\\n\\nb", Tokenizer.train_words(["a b"]), "document")
    (['a b', 'b'], True)
    """
    text = without_marks(text, tokenizer, reset)
    if reset != "sentence" and tokenizer.keeps_newlines:
        return [text], reset != "never"
    return [line for line in lines_of(text) if line.strip()], True


def without_marks(text: str, tokenizer: Tokenizer, reset: str) -> str:
    """Return a text as it is read: without BOS and EOS around lines, which scripts write for SRILM.

    >>> without_marks("<s> a b </s>\\nb", Tokenizer.train_words(["a b"]), "sentence")
    'a b\\nb'
    """
    bos, eos = tokenizer.bos, tokenizer.eos
    whole = reset != "sentence" and tokenizer.keeps_newlines
    if whole or not bos or not eos or bos not in text:
        return text

    def bare(line: str) -> str:
        inside = line.strip()
        is_marked = inside.startswith(f"{bos} ") and inside.endswith(f" {eos}")
        return inside[len(bos) : -len(eos)].strip() if is_marked else line

    return "\n".join(map(bare, lines_of(text)))


def trained_tokenizer(
    tokenizer: Tokenizer | str | None, docs: Iterable[Any], reset: str
) -> Tokenizer | None:
    """Yield the tokenizer as it is, or the one of its name, trained on the documents.

    None is "auto" where documents are text.
    """

    def texts() -> Iterator[str]:
        if not isinstance(docs, Iterable):
            raise ValueError(
                f"docs must be strings to train a tokenizer on, got a {type(docs).__name__}: give"
                " the Tokenizer that made its tokens"
            )
        for doc in map(as_text, docs):
            if not isinstance(doc, str):
                raise ValueError(
                    f"docs must be strings to train a tokenizer on, got one of {type(doc).__name__}"
                )
            yield doc

    read = iter(docs) if isinstance(docs, Iterable) else iter(())  # a stream of tokens is not
    if tokenizer is None and isinstance(as_text(next(read, None)), str):
        tokenizer = "auto"
    if tokenizer is None or isinstance(tokenizer, Tokenizer):
        return tokenizer
    if isinstance(tokenizer, str) and tokenizer in TRAINED:
        return trained(tokenizer, texts(), boundaries=tokenizer != "char" or reset != "never")
    names = ", ".join(map(repr, TRAINED))
    raise ValueError(
        f"tokenizer must be a Tokenizer, {names} or None, got {tokenizer!r:.80}:"
        " Tokenizer.from_file reads others, and Shards(folder).tokenizer is that of `prepare`"
    )


def as_documents(docs: Any) -> Any:
    """Documents that can be read twice; a text or an integer sequence alone is one document.

    >>> as_documents("a text"), as_documents([[0, 1], [0, 2]])
    (['a text'], [[0, 1], [0, 2]])
    """
    if isinstance(docs, np.ndarray) and not docs.ndim:
        docs = docs[()]
    if hasattr(docs, "columns") or isinstance(docs, Mapping):
        names = ", ".join(map(str, getattr(docs, "columns", docs)))[:200]
        raise ValueError(f"docs must be documents, got a table of {names}: pass one of its columns")
    if isinstance(docs, str | PurePath | bytes):
        _check_text(docs)
        return [docs]
    if isinstance(docs, list | tuple):
        for doc in docs[:1]:
            _check_text(doc)
    if hasattr(docs, "dtype") and np.ndim(docs) == 1:  # of numpy, pandas or torch
        docs = np.asarray(docs)
        if docs.dtype.kind in "US":
            return as_documents(docs.tolist())
        if docs.dtype != object:
            return [docs]
    if not isinstance(docs, Iterable):
        advice = ": pass its stream()" if hasattr(docs, "stream") else ""
        raise ValueError(
            f"docs must be an iterable of documents, got {type(docs).__name__}{advice}"
        )
    listed = isinstance(docs, list | tuple) and len(docs) > 0
    if listed and all(map(_has_no_axis, docs)):
        return [np.asarray(docs)]
    return list(docs) if iter(docs) is docs else docs


def _has_no_axis(value: Any) -> bool:
    """Return whether a value is no text, list or array, as a number."""
    return not isinstance(value, str | list | tuple) and np.ndim(value) == 0


def _check_text(doc: Any) -> None:
    """Raise ValueError for bytes, a path, or a string that is the name of a file and no text."""
    if isinstance(doc, bytes):
        raise ValueError(f"docs must be texts, got bytes, {doc[:40]!r}: decode them")
    is_name = isinstance(doc, str) and not re.search(r"\s", doc)
    if isinstance(doc, PurePath) or (is_name and (_FILE.search(doc) or isfile(doc))):
        raise ValueError(
            f"docs must be texts, got the name of a file, {str(doc)!r}: pass"
            " esnlm.text.corpus.TextCorpus(name), or the text that it holds"
        )


def as_text(doc: Any) -> Any:
    """Words (a list, tuple or array of strings) as the text of them; any other document as it is.

    A byte order mark is no text, as in a file.

    >>> as_text(["a", "text"]), as_text([0, 1])
    ('a text', [0, 1])
    """
    if isinstance(doc, np.ndarray) and not doc.ndim:
        doc = doc[()]
    if isinstance(doc, str):
        return doc.removeprefix("\ufeff")
    if isinstance(doc, list | tuple):
        words = len(doc) > 0 and all(isinstance(each, str) for each in doc)
    else:
        words = isinstance(doc, np.ndarray) and doc.dtype.kind == "U"
    if not words:
        return doc
    text = " ".join(doc).removeprefix("\ufeff")
    if len(text.split()) != len(doc):
        raise ValueError(
            f"a document that is a list must hold words, one an entry, got {doc!r:.200}: join"
            " sentences by line ends"
        )
    return text


def _as_integers(doc: Any) -> Array:
    """Return a document (n,) of integers, checked; an empty one is int64."""
    try:
        ids = np.asarray(doc)
    except ValueError:  # it holds lists of several lengths
        ids = np.asarray(doc, dtype=object)
    if ids.size == 0 and ids.ndim == 1:
        return ids.astype(np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"a document must be text or a 1-D array of integers, got {ids.dtype} of shape"
            f" {ids.shape}"
        )
    return ids


def needed(tokenizer: Tokenizer | None) -> Tokenizer:
    """Return the tokenizer, or an error that says why text cannot be read."""
    if tokenizer is None:
        raise ValueError("got text, expected integer arrays: set a tokenizer to read strings")
    return tokenizer


def _boundaries(tokenizer: Tokenizer, reset: str) -> tuple[Ids, Ids]:
    """Return the tokens before a sequence and after a sentence, if there are such tokens."""
    bos = None if reset == "never" else tokenizer.bos_id
    before, after = (
        np.array([] if token is None else [token], dtype=np.int32)
        for token in (bos, tokenizer.eos_id)
    )
    return before, after
