"""How much of the text before a sentence a model reads when it is scored."""

from collections.abc import Iterator
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np

from esnlm.text.boundaries import joined
from esnlm.text.corpus import TokenStream
from esnlm.utils.arrays import Ints64

#: None, "sentence", "document", or a number of sentences.
Context = str | int | None


def check_context(context: Context, model: Any) -> None:
    """Raise ValueError unless a model can read such a context."""
    if context is None:
        return
    is_number = isinstance(context, Integral) and not isinstance(context, bool)
    if not (context in ("sentence", "document") or (is_number and int(context) >= 1)):
        raise ValueError(
            "context must be 'sentence', 'document' or a number of sentences of at least 1,"
            f" got {context!r}"
        )
    if model.tokenizer_ is None:
        raise ValueError("context is of text, and the model has no tokenizer")
    keeps_newlines = model.reset_ == "document" and model.tokenizer_.keeps_newlines
    if model.reset_ == "never" or (keeps_newlines and context != "document"):
        raise ValueError(
            "context needs a model that learnt sentences, each with an end, got one with"
            f" reset={model.reset_!r} that reads on over line ends: leave context out"
        )


def in_context(
    model: Any, docs: Any, context: Context
) -> tuple[TokenStream, str, TokenStream, Ints64]:
    """Return tokens, how they are framed, what a model is to read, and the tokens' places there.

    ``docs`` are texts, or a stream of sentences. ``context``: the model reads each sentence alone
    ("sentence"), after all of its document ("document"), or after so many sentences of it; None
    leaves the model its own. The model reads the second stream; token t of the first is token
    ``places[t]`` of it.
    """
    check_context(context, model)
    if context in (None, model.reset_):
        stream = model.tokenize(docs)
        return stream, model.reset_, stream, np.arange(len(stream.tokens))
    stream = model.tokenize(joined(docs, model.tokenizer_, "sentence", model.n_tokens_))
    if context == "sentence":
        return stream, "sentence", stream, np.arange(len(stream.tokens))
    # A model of documents learnt one BOS a document.
    n_bos = int(model.reset_ == "document" and model.tokenizer_.bos_id is not None)
    order, starts, length = [], [], 0
    places = np.zeros(len(stream.tokens), dtype=np.int64)
    limits = np.append(np.asarray(stream.starts), len(stream.tokens)).tolist()
    for first, new, after in _sequences(stream, context):
        indices = np.concatenate(
            [
                np.arange(limits[i] + (n_bos if i > first else 0), limits[i + 1])
                for i in range(first, after)
            ]
        )
        is_new = indices >= limits[new]
        places[indices[is_new]] = length + np.flatnonzero(is_new)
        order.append(indices)
        starts.append(length)
        length += len(indices)
    tokens = np.asarray(stream.tokens)[np.concatenate(order)]
    walk = TokenStream(tokens, np.array(starts, dtype=np.int64), np.array([0, length]))
    return stream, "sentence", walk, places


def _sequences(stream: TokenStream, context: str | int) -> Iterator[tuple[int, int, int]]:
    """Yield sentences to read as one: the first, the first that is to be scored, and one more."""
    starts = np.asarray(stream.starts)
    sentences = np.searchsorted(starts, stream.bounds).tolist()
    for first, after in pairwise(sentences):
        if context == "document" and after > first:
            yield first, first, after
        elif context != "document":
            for sentence in range(first, after):
                yield max(first, sentence - int(context)), sentence, sentence + 1
