"""A corpus in chunks of sequences whose order is shuffled over the whole of it."""

import numpy as np

from esnlm.text.corpus import TokenStream
from esnlm.utils.arrays import Ints64

_COUNTED = 1 << 22
_WINDOW = 1024


class ChunkOrder:
    """The sequences of a stream, in an order drawn by ``rng``, in chunks of about ``n_tokens``.

    Without ``rng`` they keep their order.

    A chunk has at least one sequence, and then as many as fit. A pass over the chunks predicts
    every predicted token of the stream once. Only one chunk is gathered at a time, so that the
    stream may be a memory map.

    Where the stream has no starts, it is cut in windows that take the place of sequences: each
    begins ``warmup`` tokens early, whose pairs are left out, so that the state can forget that it
    began at zero.
    """

    def __init__(
        self, stream: TokenStream, n_tokens: int, rng: np.random.Generator | None, warmup: int = 256
    ) -> None:
        """Order the sequences, or windows of the stream, and cut the order in chunks."""
        self._stream = stream
        if stream.starts is not None:
            self._washout = 0
            first, lengths = stream.starts, stream.lengths
        else:
            self._washout = warmup
            n, window = len(stream.tokens), max(_WINDOW, 4 * warmup)
            begin = np.arange(0, max(n - 1, 1), window, dtype=np.int64)
            first = np.maximum(begin - warmup, 0)
            # One token more: the next token of the last pair.
            lengths = np.minimum(begin + window + 1, n) - first
        order = np.arange(len(lengths)) if rng is None else rng.permutation(len(lengths))
        self._first, self._lengths = first[order], lengths[order]
        # A chunk is a run of sequences whose ends fall in the same n_tokens.
        changes = np.flatnonzero(np.diff((np.cumsum(self._lengths) - 1) // n_tokens)) + 1
        self._bounds = np.concatenate(([0], changes, [len(lengths)]))

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def chunk(self, index: int) -> list[tuple[TokenStream, int]]:
        """Chunk ``index``: sequences, and how many pairs of each are a washout.

        One item, or two where one sequence has nothing to wash out.
        """
        part = slice(self._bounds[index], self._bounds[index + 1])
        first, lengths = self._first[part], self._lengths[part]
        opening = (first == 0) | (self._washout == 0)
        return [
            (self._stream.gathered(first[mask], lengths[mask]), washout)
            for mask, washout in ((opening, 0), (~opening, self._washout))
            if mask.any()
        ]


def target_counts(stream: TokenStream, n_tokens: int) -> Ints64:
    """Count how often each token is predicted in a pass: (n_tokens,).

    >>> target_counts(TokenStream(np.array([0, 1, 1]), np.array([0]), np.array([0, 3])), 3)
    array([0, 2, 0])
    """
    first = stream.tokens[:1] if stream.starts is None else stream.tokens[stream.starts]
    counts = -np.bincount(first, minlength=n_tokens)
    for start in range(0, len(stream.tokens), _COUNTED):
        counts += np.bincount(stream.tokens[start : start + _COUNTED], minlength=n_tokens)
    return counts


def evenly_spaced(stream: TokenStream, n_tokens: int) -> TokenStream:
    """Subsample every k-th sequence, or take the first tokens if there are no sequence starts.

    About ``n_tokens`` tokens are left; a stream without more is returned as it is.
    """
    if len(stream.tokens) <= n_tokens:
        return stream
    if stream.starts is None:
        return TokenStream(stream.tokens[:n_tokens], None, np.array([0, n_tokens]))
    every = -(-len(stream.tokens) // n_tokens)
    return stream.gathered(stream.starts[::every], stream.lengths[::every])
