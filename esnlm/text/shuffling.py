"""A corpus in chunks of sequences whose order is shuffled over the whole of it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esnlm.text.corpus import TokenStream

_COUNTED = 1 << 22
_WINDOW = 1024


@dataclass(frozen=True)
class Piece:
    """Sequences to harvest together, the first ``washout`` pairs of each left out."""

    stream: TokenStream
    washout: int = 0


class ChunkOrder:
    """The sequences of a stream, in an order drawn by ``rng``, in chunks of about ``n_tokens``.

    A pass over the chunks predicts every predicted token of the stream once. Of the stream only
    one chunk is gathered at a time, so that it may be a memory map.

    Where the stream has no starts, it is cut in windows that take the place of sequences: each
    begins ``warmup`` tokens early, whose pairs are left out, so that the state can forget that it
    began at zero.

    Parameters
    ----------
    stream : TokenStream
    n_tokens : int
        Tokens of a chunk: at least one sequence, and then as many as fit.
    rng : numpy.random.Generator
        Its state alone decides the order.
    warmup : int
        See above.

    Examples
    --------
    >>> stream = TokenStream(np.arange(9), np.array([0, 3, 5]), np.array([0, 9]))
    >>> order = ChunkOrder(stream, 5, np.random.default_rng(1))
    >>> [[piece.stream.tokens.tolist() for piece in order.chunk(i)] for i in range(len(order))]
    [[[0, 1, 2, 3, 4]], [[5, 6, 7, 8]]]
    """

    def __init__(
        self, stream: TokenStream, n_tokens: int, rng: np.random.Generator, warmup: int = 256
    ) -> None:
        self._tokens = stream.tokens
        n = len(stream.tokens)
        self._washout = 0
        if stream.starts is not None:
            first, lengths = stream.starts, np.diff(np.append(stream.starts, n))
        else:
            self._washout = warmup
            window = max(_WINDOW, 4 * warmup)
            begin = np.arange(0, max(n - 1, 1), window, dtype=np.int64)
            # One token more: the next token of the last pair.
            end = np.minimum(begin + window + 1, n)
            first = np.maximum(begin - warmup, 0)
            lengths = end - first
        order = rng.permutation(len(lengths))
        self._first, self._lengths = first[order], lengths[order]
        self._bounds = _cuts(self._lengths, n_tokens)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def chunk(self, index: int) -> list[Piece]:
        """Chunk ``index``: one piece, or two where one sequence has nothing to wash out."""
        part = slice(self._bounds[index], self._bounds[index + 1])
        first, lengths = self._first[part], self._lengths[part]
        if not self._washout:
            return [Piece(self._gathered(first, lengths))]
        opening = first == 0
        pieces = []
        if opening.any():
            pieces.append(Piece(self._gathered(first[opening], lengths[opening])))
        if not opening.all():
            rest = self._gathered(first[~opening], lengths[~opening])
            pieces.append(Piece(rest, self._washout))
        return pieces

    def _gathered(self, first: NDArray[np.int64], lengths: NDArray[np.int64]) -> TokenStream:
        starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        places = np.repeat(first - starts, lengths)
        places += np.arange(len(places))
        bounds = np.array([0, len(places)])
        return TokenStream(np.asarray(self._tokens[places]), starts, bounds)


def target_counts(stream: TokenStream, n_tokens: int) -> NDArray[np.int64]:
    """How often each token is predicted in a pass: (n_tokens,).

    Examples
    --------
    >>> target_counts(TokenStream(np.array([0, 1, 1]), np.array([0]), np.array([0, 3])), 3)
    array([0, 2, 0])
    """
    counts = np.zeros(n_tokens, dtype=np.int64)
    for start in range(0, len(stream.tokens), _COUNTED):
        counts += np.bincount(stream.tokens[start : start + _COUNTED], minlength=n_tokens)
    starts = np.zeros(min(1, len(stream.tokens)), dtype=np.int64)
    if stream.starts is not None:
        starts = stream.starts
    for start in range(0, len(starts), _COUNTED):
        first = stream.tokens[starts[start : start + _COUNTED]]
        counts -= np.bincount(first, minlength=n_tokens)
    return counts


def evenly_spaced(stream: TokenStream, n_tokens: int) -> TokenStream:
    """About ``n_tokens`` of a stream: every so manyth sequence; its beginning without starts."""
    if len(stream.tokens) <= n_tokens:
        return stream
    if stream.starts is None:
        return TokenStream(stream.tokens[:n_tokens], None, np.array([0, n_tokens]))
    lengths = np.diff(np.append(stream.starts, len(stream.tokens)))
    chosen = np.arange(0, len(lengths), -(-len(stream.tokens) // n_tokens))
    lengths = lengths[chosen]
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    places = np.repeat(stream.starts[chosen] - starts, lengths)
    places += np.arange(len(places))
    return TokenStream(stream.tokens[places], starts, np.array([0, len(places)]))


def _cuts(lengths: NDArray[np.int64], n_tokens: int) -> NDArray[np.int64]:
    """Bounds (n_chunks + 1,) of runs of sequences whose ends fall in the same n_tokens."""
    chunk_of = (np.cumsum(lengths) - 1) // n_tokens
    changes = np.flatnonzero(np.diff(chunk_of)) + 1
    return np.concatenate(([0], changes, [len(lengths)]))
