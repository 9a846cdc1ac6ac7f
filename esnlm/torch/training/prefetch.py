"""Hidden vectors of many batches at once, for networks whose states take no gradient."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice

import numpy as np
from torch import Tensor

from esnlm.torch.device import on_device, share_of_memory
from esnlm.torch.networks.network import Network
from esnlm.torch.scoring import width_of
from esnlm.torch.training.batches import Batch, Batches
from esnlm.torch.training.distributed import Processes

#: Values of hidden vectors read ahead; on a CUDA device those that fill a sixteenth of it.
_VALUES = 1 << 24


@dataclass(frozen=True)
class Ready:
    """This process's rows of a batch, the number of predictions of all, and hidden vectors if read.

    ``hidden()`` (n, D): those of the counted places, row by row, once; None: not read ahead.
    """

    batch: Batch
    n_predicted: int
    hidden: Callable[[], Tensor] | None = None


class Ahead:
    """The batches of a pass, read ahead a group at a time where the network allows it.

    Groups have the same bounds wherever reading begins, so that a resumed run sees the same bits.
    """

    def __init__(self, network: Network, batches: Batches, processes: Processes) -> None:
        self.network, self.batches, self.processes = network, batches, processes
        self.is_active = network.reads_ahead and batches.from_start
        self.size = 1
        if self.is_active:
            values = share_of_memory(network.device, 64, otherwise=_VALUES)
            a_batch = width_of(network) * batches.n_read / (batches.n_batches * processes.size)
            self.size = max(1, int(values / max(1.0, a_batch)))

    def of_pass(self, number: int, first: int = 0) -> Iterator[Ready]:
        """The batches of pass ``number`` from batch ``first`` on."""
        begin = first - first % self.size
        found = self.batches.of_pass(number, begin)
        while group := list(islice(found, self.size)):
            yield from islice(self._ready(group), max(0, first - begin), None)
            begin += len(group)

    def _ready(self, group: list[Batch]) -> Iterator[Ready]:
        mine = self.processes
        parts = [batch.share(mine.rank, mine.size) for batch in group]
        harvested = cache(lambda: dict(enumerate(self._harvested(parts))))  # when first read
        for place, (batch, part) in enumerate(zip(group, parts, strict=True)):
            hidden = partial(lambda place: harvested().pop(place), place)
            yield Ready(part, int(batch.counted.sum()), hidden if self.is_active else None)

    def _harvested(self, parts: list[Batch]) -> Iterator[Tensor]:
        # The places (B, T) up to the last that counts.
        read = [np.logical_or.accumulate(p.counted[:, ::-1], axis=1)[:, ::-1] for p in parts]
        lengths = np.concatenate([marks.sum(axis=1) for marks in read])
        tokens = [part.tokens[marks] for part, marks in zip(parts, read, strict=True)]
        kept = lengths[lengths > 0]
        starts = np.cumsum(kept) - kept
        hidden = self.network.harvest(np.concatenate(tokens), starts)
        pieces = hidden.split([len(ids) for ids in tokens])
        for part, marks, piece in zip(parts, read, pieces, strict=True):
            chosen = np.flatnonzero(part.counted[marks])
            whole = len(chosen) == len(piece)
            yield piece if whole else piece.index_select(0, on_device(chosen, piece.device))
