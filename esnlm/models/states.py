"""The states of a corpus, block by block, in any number of passes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from esnlm.readouts.base.last_tokens import last_tokens
from esnlm.reservoir.recurrence import Drive
from esnlm.text.corpus import TokenStream
from esnlm.utils.arrays import Array, Ints64
from esnlm.utils.messages import progress_bar

_LEAST_WARMUP = 256
_LONGEST_WARMUP = 4096


@dataclass
class StateBlocks:
    """The states of a stream as a re-iterable of (states, next tokens) blocks in reused memory.

    ``drive`` is what `Reservoir.drive_of` made of the features of tokens, None where there are
    none; see `Reservoir.harvest` for ``n_streams`` and ``washout``. With ``verbose`` each pass is
    shown as a progress bar. The ``n_last`` tokens read last are columns beside each state, in its
    dtype: float32 holds tokens up to 2^24 exactly.
    """

    reservoir: Any
    stream: TokenStream
    drive: Drive | None
    n_streams: int
    verbose: bool
    washout: int = 0
    n_last: int = 0

    def __post_init__(self) -> None:
        self.n_rows = self.stream.n_predicted  # lets a readout schedule its first pass

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Yield blocks of (states, next tokens) of one pass, with a progress bar if verbose."""
        options: dict[str, Any] = {
            "total": self.n_rows,
            "unit": "tok",
            "unit_scale": True,
            "desc": "states",
        }
        with progress_bar(self.verbose, leave=False, **options) as bar:
            for states, following, _ in self.with_positions():
                yield states, following
                bar.update(len(following))

    def with_positions(
        self, state: Any = None, before: Ints64 | None = None
    ) -> Iterator[tuple[Array, ...]]:
        """Blocks of (states, next tokens, positions read) after ``state``.

        ``before`` (n_last,) are the tokens before the first one, the newest first.
        """
        stream = self.stream
        for states, following, positions in self.reservoir.harvest(
            stream.tokens,
            starts=stream.starts,
            n_streams=self.n_streams,
            washout=self.washout,
            warmup=warmup_of(self.reservoir),
            features=self.drive,
            return_positions=True,
            initial_state=state,
            reuse=True,
        ):
            if self.n_last:
                last = last_tokens(stream.tokens, positions, stream.starts, self.n_last, before)
                states = np.concatenate([states, last.astype(states.dtype)], axis=1)
            yield states, following, positions


def warmup_of(reservoir: Any) -> int:
    """Tokens after which a state has forgotten that it began at zero."""
    # Slow units forget at the pace of their leak rate.
    slowest = float(np.min(reservoir.leak_rate_))
    return int(np.clip(16 / slowest, _LEAST_WARMUP, _LONGEST_WARMUP))
