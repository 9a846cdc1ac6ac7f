"""The states of a corpus, block by block, in any number of passes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from esnlm.readouts.base.last_tokens import last_tokens
from esnlm.reservoir.recurrence import Drive
from esnlm.text.corpus import TokenStream
from esnlm.utils.arrays import Array, Ints64
from esnlm.utils.messages import progress_bar

_LEAST_WARMUP = 256
_LONGEST_WARMUP = 4096


@dataclass(frozen=True)
class States:
    """What harvests streams for a readout: a reservoir, and vectors (V, n_features) of tokens.

    ``embedding`` is None where tokens drive the reservoir themselves. ``n_streams``: see
    `Reservoir.harvest`. The ``n_last`` tokens read last are columns beside each state, in its
    dtype: float32 holds tokens up to 2^24 exactly.
    """

    reservoir: Any
    embedding: Array | None
    n_streams: int
    n_last: int

    @cached_property
    def drive(self) -> Drive | None:
        """What drives the reservoir for each token, made when needed, as it is large."""
        return None if self.embedding is None else self.reservoir.drive_of(self.embedding)

    def blocks(
        self, stream: TokenStream, *, washout: int = 0, verbose: bool = False
    ) -> "StateBlocks":
        """Return the states and next tokens along a stream, without the first of a washout."""
        return StateBlocks(self, stream, washout, verbose)


@dataclass
class StateBlocks:
    """The states of a stream as a re-iterable of (states, next tokens) blocks in reused memory.

    With ``verbose`` each pass is shown as a progress bar.
    """

    states: States
    stream: TokenStream
    washout: int
    verbose: bool

    def __post_init__(self) -> None:
        self.n_rows = self.stream.n_predicted  # lets a readout schedule its first pass

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Return the blocks of (states, next tokens) of one pass."""
        return self._pass(2, verbose=self.verbose)

    def with_positions(
        self, state: Any = None, before: Ints64 | None = None
    ) -> Iterator[tuple[Array, ...]]:
        """Return blocks of (states, next tokens, positions read) after ``state``.

        ``before`` (n_last,) are the tokens before the first one, the newest first.
        """
        return self._pass(3, state, before)

    def _pass(
        self, n_arrays: int, state: Any = None, before: Ints64 | None = None, verbose: bool = False
    ) -> Iterator[Any]:
        stream, reservoir, n_last = self.stream, self.states.reservoir, self.states.n_last
        blocks = reservoir.harvest(
            stream.tokens,
            starts=stream.starts,
            n_streams=self.states.n_streams,
            washout=self.washout,
            warmup=warmup_of(reservoir),
            features=self.states.drive,
            return_positions=True,
            initial_state=state,
            reuse=True,
        )
        bar = progress_bar(
            verbose, leave=False, total=self.n_rows, unit="tok", unit_scale=True, desc="states"
        )
        memory: Array = np.empty((0, 0))
        with bar:
            for states, following, positions in blocks:
                if n_last:
                    last = last_tokens(stream.tokens, positions, stream.starts, n_last, before)
                    if len(memory) < len(states):
                        shape = len(states), states.shape[1] + n_last
                        memory = np.empty(shape, dtype=states.dtype)
                    states = np.concatenate([states, last], axis=1, out=memory[: len(states)])
                yield (states, following, positions)[:n_arrays]
                bar.update(len(following))


def warmup_of(reservoir: Any) -> int:
    """Tokens after which a state has forgotten that it began at zero."""
    # Slow units forget at the pace of their leak rate.
    slowest = float(np.min(reservoir.leak_rate_))
    return int(np.clip(16 / slowest, _LEAST_WARMUP, _LONGEST_WARMUP))
