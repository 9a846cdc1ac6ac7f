"""Documents as token sequences: what a sentence or a document begins and ends with."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esnlm.tokenizers import Tokenizer

RESETS = ("sentence", "document", "never")
_BATCH = 1024

Sequences = list[NDArray[Any]]


def framed(docs: Iterable[Any], tokenizer: Tokenizer | None, reset: str) -> Iterator[Sequences]:
    """Documents -> the token arrays of each, one a sequence.

    Integer documents are one array, taken as they are. Text is framed by ``reset``:

    - ``sentence``: every line that is not blank, as BOS ... EOS.
    - ``document``: BOS ... EOS; where the tokenizer drops line ends, an EOS after every line.
    - ``never``: no BOS; where the tokenizer drops line ends, an EOS after every line.

    Boundary tokens that the tokenizer does not have are left out.

    Examples
    --------
    >>> tokenizer = Tokenizer.train_words(["a b"])
    >>> [array.tolist() for array in next(framed(["a b\\nb"], tokenizer, "sentence"))]
    [[1, 3, 4, 2], [1, 4, 2]]
    >>> [array.tolist() for array in next(framed(["a b\\nb"], tokenizer, "never"))]
    [[3, 4, 2, 4, 2]]
    """
    source = iter(docs)
    while batch := list(islice(source, _BATCH)):
        texts = [doc for doc in batch if isinstance(doc, str)]
        if not texts:
            yield from ([as_integers(doc)] for doc in batch)
        elif len(texts) == len(batch):
            yield from _text_sequences(texts, needed(tokenizer), reset)
        else:
            raise ValueError("docs must be all strings or all integer arrays, got both")


def framed_prefix(prefix: str | ArrayLike, tokenizer: Tokenizer | None, reset: str) -> NDArray[Any]:
    """What is read before the next token is predicted: (n,) integers.

    Text comes after BOS where sentences or documents have one, integers are taken as they are,
    and where there are none at all BOS stands alone.
    """
    bos = None if tokenizer is None or reset == "never" else tokenizer.bos_id
    ids = needed(tokenizer).encode(prefix) if isinstance(prefix, str) else as_integers(prefix)
    if bos is None or (len(ids) and not isinstance(prefix, str)):
        return ids
    return np.concatenate([[bos], ids])


def trained_tokenizer(
    tokenizer: Tokenizer | str | None, docs: Iterable[Any], reset: str
) -> Tokenizer | None:
    """The tokenizer as it is, or the one of its name, trained on the documents."""
    if tokenizer is None or isinstance(tokenizer, Tokenizer):
        return tokenizer
    if tokenizer == "word":
        return Tokenizer.train_words(_texts(docs))
    if tokenizer == "char":
        return Tokenizer.train_characters(_texts(docs), boundaries=reset != "never")
    raise ValueError(f"tokenizer must be a Tokenizer, 'word', 'char' or None, got {tokenizer!r}")


def as_documents(docs: Any) -> Any:
    """Documents that can be read twice; a text or an integer sequence alone is one document.

    Examples
    --------
    >>> as_documents("a text"), as_documents([[0, 1], [0, 2]])
    (['a text'], [[0, 1], [0, 2]])
    """
    if isinstance(docs, str):
        return [docs]
    if isinstance(docs, np.ndarray) and docs.ndim == 1 and docs.dtype.kind in "US":
        return docs.tolist()
    if isinstance(docs, np.ndarray) and docs.ndim == 1 and docs.dtype != object:
        return [docs]
    if not isinstance(docs, Iterable):
        raise ValueError(f"docs must be an iterable of documents, got {type(docs).__name__}")
    if isinstance(docs, list | tuple) and docs and all(map(_is_number, docs)):
        return [np.asarray(docs)]
    return list(docs) if iter(docs) is docs else docs


def as_integers(doc: Any) -> NDArray[Any]:
    """A document (n,) of integers, checked; an empty one is int64."""
    ids = np.asarray(doc)
    if ids.size == 0 and ids.ndim == 1:
        return ids.astype(np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"a document must be text or a 1-D array of integers, got {ids.dtype} of shape"
            f" {ids.shape}"
        )
    return ids


def needed(tokenizer: Tokenizer | None) -> Tokenizer:
    """The tokenizer, or an error that says why text cannot be read."""
    if tokenizer is None:
        raise ValueError("got text, expected integer arrays: set a tokenizer to read strings")
    return tokenizer


def _texts(docs: Iterable[Any]) -> Iterator[str]:
    """The documents, one by one, once they are strings."""
    for doc in docs:
        if not isinstance(doc, str):
            raise ValueError(
                f"docs must be strings to train a tokenizer on, got one of {type(doc).__name__}"
            )
        yield doc


def _text_sequences(texts: list[str], tokenizer: Tokenizer, reset: str) -> Iterator[Sequences]:
    whole = reset != "sentence" and tokenizer.keeps_newlines
    pieces = [[text] if whole else [x for x in text.splitlines() if x.strip()] for text in texts]
    encoded = tokenizer.encode_batches(chain.from_iterable(pieces))
    before = [] if tokenizer.bos_id is None or reset == "never" else [tokenizer.bos_id]
    after = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
    for lines in pieces:
        ids = list(islice(encoded, len(lines)))
        if reset == "sentence":
            yield [_joined(before, line, after) for line in ids]
        elif whole:
            yield [_joined(before, *ids, [] if reset == "never" else after)]
        else:
            ended = [_joined(line, after) for line in ids]
            yield [_joined(before, *ended)]


def _joined(*parts: Any) -> NDArray[np.int32]:
    return np.concatenate(parts).astype(np.int32)


def _is_number(value: Any) -> bool:
    return not isinstance(value, str) and np.ndim(value) == 0
