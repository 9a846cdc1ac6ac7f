"""Sequences of all lengths end to end in streams, so that none waits for the longest."""

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]

_STEPS, _MOST_STREAMS = 64, 4096


@dataclass(frozen=True)
class Packing:
    """Sequences end to end in parallel streams, which are read step by step.

    Every array is (n_steps, n_streams): ``source``, the place of the token to read;
    ``restart``, where the state before it is zero; ``target``, the place of its hidden vector, and
    where a stream has ended the place after the last.
    """

    source: Places
    restart: NDArray[np.bool_]
    target: Places

    @classmethod
    def of(cls, starts: Places, n_tokens: int) -> "Packing":
        """Streams of about as many tokens each, at least as long as the longest sequence.

        The longest go first, each to the stream that has the fewest tokens yet.

        Examples
        --------
        >>> packing = Packing.of(np.array([0, 3, 5]), 6)
        >>> packing.source.T.tolist(), packing.restart.T.tolist()
        ([[0, 1, 2, 3, 4, 5]], [[True, False, False, True, False, True]])
        """
        lengths = np.diff(np.append(starts, n_tokens))
        least = max(_STEPS, int(lengths.max()))
        n_streams = int(np.clip(n_tokens // least, 1, min(_MOST_STREAMS, len(starts))))
        stream, offset = np.empty((2, len(starts)), dtype=np.int64)
        loads = [(0, number) for number in range(n_streams)]
        for place in np.argsort(-lengths, kind="stable"):
            load, number = loads[0]
            stream[place], offset[place] = number, load
            heapq.heapreplace(loads, (load + int(lengths[place]), number))
        shape = (max(load for load, _ in loads), n_streams)
        ids = np.arange(n_tokens)
        where = np.repeat(offset - starts, lengths) + ids, np.repeat(stream, lengths)
        source, target = np.zeros(shape, dtype=np.int64), np.full(shape, n_tokens)
        source[where] = target[where] = ids
        restart = np.ones(shape, dtype=bool)
        restart[where] = False
        restart[offset, stream] = True
        return cls(source, restart, target)
