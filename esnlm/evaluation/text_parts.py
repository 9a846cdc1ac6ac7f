"""Text and shards, scored part by part in bounded memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from esnlm.text.corpus import TokenStream

if TYPE_CHECKING:
    from esnlm.text.shards import Shards

_PART_CHARACTERS = 1 << 20
_PART_TOKENS = 1 << 18
#: Tokens before a part that are read again where a state is never reset: it forgets the rest.
_OVERLAP = 4096


@dataclass(frozen=True)
class Scored:
    """Some documents with the scores of their tokens.

    ``docs``: the texts; empty for shards. ``stream``: their T tokens. ``predicted`` (T,) bool.
    ``scores``: one array (T,) float64 a model, natural logs, 0 where nothing is predicted.
    """

    docs: Sequence[str]
    stream: TokenStream
    predicted: NDArray[np.bool_]
    scores: list[NDArray[np.float64]]


def scored_texts(models: Sequence[Any], docs: Iterable[str]) -> Iterator[Scored]:
    """Documents under models that read text alike, about a million characters at a time.

    Memory is that of the longest document, or of a part. With ``reset="never"`` a part begins
    with the state after the 4 096 tokens before it.
    """
    before: NDArray[Any] | None = None
    for part in text_parts(docs):
        stream = models[0].tokenize(part)
        yield _scored(models, part, stream, before)
        if stream.starts is None:
            kept = stream.tokens if before is None else np.append(before, stream.tokens)
            before = kept[-_OVERLAP:]


def scored_shards(models: Sequence[Any], shards: "Shards") -> Iterator[Scored]:
    """Prepared shards, as `scored_texts`.

    Raises
    ------
    ValueError
        The shards have another tokenizer than the models, which must reset at sentences.
    """
    for stream in shard_streams(models[0], shards):
        yield _scored(models, [], stream, None)


def shard_streams(model: Any, shards: "Shards") -> Iterator[TokenStream]:
    """Shards as streams of whole sentences, of a bounded number of tokens unless one is longer."""
    one, two = (t and t.__getstate__() for t in (model.tokenizer_, shards.tokenizer))
    if one != two:
        raise ValueError(
            f"the tokenizer of the shards in {shards.folder} is not the model's: prepare the text"
            " with the model's tokenizer.json"
        )
    if model.reset != "sentence":
        raise ValueError(f"shards hold sentences, but the model has reset={model.reset!r}")
    whole = shards.stream()
    assert whole.starts is not None
    starts = np.append(whole.starts, len(whole.tokens))
    first = 0
    while first < len(starts) - 1:
        end = int(np.searchsorted(starts, starts[first] + _PART_TOKENS))
        end = min(max(end, first + 1), len(starts) - 1)
        low, high = int(starts[first]), int(starts[end])
        bounds = np.array([0, high - low])
        yield TokenStream(whole.tokens[low:high], starts[first:end] - low, bounds)
        first = end


def text_parts(docs: Iterable[str]) -> Iterator[list[str]]:
    """Documents in lists of about a million characters."""
    part: list[str] = []
    size = 0
    for doc in docs:
        part.append(doc)
        size += len(doc)
        if size >= _PART_CHARACTERS:
            yield part
            part, size = [], 0
    if part:
        yield part


def _scored(
    models: Sequence[Any], docs: Sequence[str], stream: TokenStream, before: NDArray[Any] | None
) -> Scored:
    n = len(stream.tokens)
    predicted = stream.predicted()
    tokens = stream.tokens
    if before is not None:
        predicted[:] = True
        tokens = np.append(before, tokens)
    whole = TokenStream(tokens, stream.starts, np.array([0, len(tokens)]))
    scores = []
    for model in models:
        (found,) = model.log_likelihood(whole)
        scores.append(np.zeros(n))
        scores[-1][predicted] = found[len(found) - np.count_nonzero(predicted) :]
    return Scored(docs, stream, predicted, scores)
