"""Hidden vectors of many batches at once, for networks whose states take no gradient."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice

import numpy as np
from torch import Tensor

from esnlm.torch.device import on_device, share_of_memory
from esnlm.torch.networks.network import Network
from esnlm.torch.training.batches import Batch, Batches
from esnlm.torch.training.distributed import Processes
from esnlm.utils.arrays import Bools

#: Values of hidden vectors read ahead; on a CUDA device those that fill a sixteenth of it.
_VALUES = 1 << 24


@dataclass(frozen=True)
class Ready:
    """Rows of a batch of one process, the number of predictions of all, and hidden vectors if read.

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
            none = np.zeros(1, dtype=np.int64)
            width = network.harvest(none, none).shape[1]
            a_batch = width * batches.n_read / (batches.n_batches * processes.size)
            self.size = max(1, int(values / max(1.0, a_batch)))

    def of_pass(self, number: int, first: int = 0) -> Iterator[Ready]:
        """Yield the batches of pass ``number`` from batch ``first`` on."""
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
            hidden = partial(lambda place: self._hidden(*harvested().pop(place)), place)
            yield Ready(part, int(batch.counted.sum()), hidden if self.is_active else None)

    def _harvested(self, parts: list[Batch]) -> Iterator[tuple[Batch, Bools, Tensor]]:
        """Each batch, its places (B, T) up to the last that counts, and what was read there."""
        read = [np.logical_or.accumulate(p.counted[:, ::-1], axis=1)[:, ::-1] for p in parts]
        lengths = np.concatenate([marks.sum(axis=1) for marks in read])
        tokens = [part.tokens[marks] for part, marks in zip(parts, read, strict=True)]
        kept = lengths[lengths > 0]
        harvested = self.network.harvest(np.concatenate(tokens), np.cumsum(kept) - kept)
        pieces = harvested.split([len(ids) for ids in tokens])
        yield from zip(parts, read, pieces, strict=True)

    def _hidden(self, part: Batch, read: Bools, harvested: Tensor) -> Tensor:
        hidden = self.network.hidden_of(harvested, read.sum(axis=1))
        chosen = np.flatnonzero(part.counted[read])
        whole = len(chosen) == len(hidden)
        return hidden if whole else hidden.index_select(0, on_device(chosen, hidden.device))
