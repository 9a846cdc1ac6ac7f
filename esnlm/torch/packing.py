"""Sequences of all lengths end to end in streams, so that none waits for the longest."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esnlm.streams import StreamPlan

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

        Examples
        --------
        >>> packing = Packing.of(np.array([0, 3, 5]), 6)
        >>> packing.source.T.tolist(), packing.restart.T.tolist()
        ([[0, 1, 2, 3, 4, 5]], [[True, False, False, True, False, True]])
        """
        n_streams = int(np.clip(n_tokens // _STEPS, 1, min(_MOST_STREAMS, len(starts))))
        # A stream plan does not read the last token of a sequence: here it gets one more.
        number = np.arange(len(starts))
        plan = StreamPlan(n_tokens + len(starts), starts + number, n_streams, 0, 0)
        step = plan.step(0, plan.n_steps)
        sequence = np.searchsorted(starts + number, step.positions, side="right") - 1
        source = step.positions - sequence
        target = np.where(step.keep, source, n_tokens)
        arrays = (source, step.restart, target)
        return cls(*(np.ascontiguousarray(array.T) for array in arrays))
