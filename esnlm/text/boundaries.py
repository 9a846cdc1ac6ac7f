"""Documents as token sequences: what a sentence or a document begins and ends with."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esnlm.text.tokenizers import Tokenizer

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

    Text comes after BOS where sentences or documents have one, and its line ends are what they
    are in a document: with ``reset="sentence"`` only what follows the last of them is read.
    Integers are taken as they are, and where there are none at all BOS stands alone.

    Examples
    --------
    >>> tokenizer = Tokenizer.train_words(["a b"])
    >>> framed_prefix("a\\nb", tokenizer, "sentence").tolist()
    [1, 4]
    >>> framed_prefix("a\\nb", tokenizer, "document").tolist()
    [1, 3, 2, 4]
    """
    bos = None if tokenizer is None or reset == "never" else tokenizer.bos_id
    before = [] if bos is None else [bos]
    if not isinstance(prefix, str):
        ids = as_integers(prefix)
        return ids if len(ids) or bos is None else np.array(before)
    reader = needed(tokenizer)
    if reset != "sentence" and reader.keeps_newlines:
        return _joined(before, reader.encode(prefix))
    # A sign more: what ends with a line end has an empty line after it.
    *ended, last = f"{prefix}|".splitlines()
    last = last[:-1]
    after = [] if reader.eos_id is None else [reader.eos_id]
    if reset == "sentence":
        ended = []
    lines = [_joined(reader.encode(line), after) for line in ended if line.strip()]
    return _joined(before, *lines, reader.encode(last))


def text_pieces(text: str, tokenizer: Tokenizer, reset: str) -> tuple[list[str], bool]:
    """What of a document is encoded at a time, and whether an EOS follows each of the pieces.

    The whole document where the state lives on past a line and line ends are tokens, otherwise
    the lines that are not blank.

    >>> text_pieces("a b\\n\\nb", Tokenizer.train_words(["a b"]), "document")
    (['a b', 'b'], True)
    """
    if reset != "sentence" and tokenizer.keeps_newlines:
        return [text], reset != "never"
    return [line for line in text.splitlines() if line.strip()], True


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


def vocabulary_size(n_tokens: int | None, tokenizer: Tokenizer | None) -> int | None:
    """Entries of the vocabulary: as given, or the tokenizer's; None where neither says.

    Raises
    ------
    ValueError
        The tokenizer has more entries than were given.
    """
    if tokenizer is None:
        return n_tokens
    if n_tokens is not None and n_tokens < len(tokenizer):
        raise ValueError(
            f"n_tokens must be at least {len(tokenizer)}, the tokenizer's entries, got {n_tokens}"
        )
    return n_tokens or len(tokenizer)


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
    cut = [text_pieces(text, tokenizer, reset) for text in texts]
    encoded = tokenizer.encode_batches(chain.from_iterable(pieces for pieces, _ in cut))
    before = [] if tokenizer.bos_id is None or reset == "never" else [tokenizer.bos_id]
    after = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
    for pieces, ends in cut:
        ended = [_joined(ids, after if ends else []) for ids in islice(encoded, len(pieces))]
        if reset == "sentence":
            yield [_joined(before, ids) for ids in ended]
        else:
            yield [_joined(before, *ended)]


def _joined(*parts: Any) -> NDArray[np.int32]:
    return np.concatenate(parts).astype(np.int32)


def _is_number(value: Any) -> bool:
    return not isinstance(value, str) and np.ndim(value) == 0
