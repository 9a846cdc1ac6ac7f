"""States of a corpus in parallel streams, block by block."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.reservoir.input_drive import Drive
from esnlm.reservoir.parallel_streams import StreamPlan
from esnlm.reservoir.recurrence import Recurrence
from esnlm.utils.threads import tile_map

_BLOCK_BYTES = 32 << 20


class DivergenceError(ValueError):
    """States of a reservoir left the range of useful numbers."""


def usual_block(n_units: int, dtype: np.dtype[Any]) -> int:
    """Pairs of a block unless the caller says: 32 MiB of states, 64 to 16 384 pairs.

    >>> usual_block(1024, np.dtype("float32"))
    8192
    """
    return min(16384, max(64, _BLOCK_BYTES // (n_units * dtype.itemsize)))


def harvest_blocks(
    recurrence: Recurrence,
    drive: Drive,
    text: NDArray[Any],
    plan: StreamPlan,
    *,
    block_size: int,
    initial_state: NDArray[Any] | None,
    n_threads: int | None,
    check: Callable[[NDArray[Any]], None],
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]]:
    """Blocks of states (n, n_units), next tokens (n,) and positions (n,) of the tokens read.

    text (T,) tokens; ``check`` is called with the states before they are yielded. A block is a view
    into memory that the next one overwrites.
    """
    if plan.n_pairs < 1:
        return
    n_steps = max(1, min(block_size // plan.n_streams, plan.n_steps))
    run = recurrence.streams(plan.n_streams, n_steps, initial_state)
    with tile_map(n_threads) as over:
        for first in range(0, plan.n_steps, n_steps):
            step = plan.step(first, min(n_steps, plan.n_steps - first))
            if first == 0 and initial_state is not None:
                step.restart[0, 0] = False
            states, positions = run(drive, text, step, over)
            check(states)
            if len(positions):
                yield states, text[positions + 1].astype(np.int64), positions
