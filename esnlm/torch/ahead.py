"""Hidden vectors of many batches at once, for networks whose states take no gradient."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esnlm.torch.batches import Batch, Batches
from esnlm.torch.network import Network
from esnlm.torch.processes import Processes
from esnlm.torch.scoring import width_of

Places = NDArray[np.int64]

#: Values of hidden vectors read ahead, by the kind of device.
_VALUES = {"cpu": 1 << 24, "cuda": 1 << 29}


@dataclass(frozen=True)
class Ready:
    """This process's rows of a batch, what all processes predict, and hidden vectors if read.

    ``hidden`` (n, D): those of the counted places, row by row; None: not read ahead.
    """

    batch: Batch
    n_predicted: int
    hidden: Tensor | None = None


class Ahead:
    """The batches of a pass, read ahead a group at a time where the network allows it.

    Groups have the same bounds wherever reading begins, so that a resumed run sees the same bits.
    """

    def __init__(self, network: Network, batches: Batches, processes: Processes) -> None:
        self.network, self.batches, self.processes = network, batches, processes
        self.size = 1
        if network.reads_ahead and batches.from_start:
            values = _VALUES.get(network.device.type, _VALUES["cpu"])
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
        n_predicted = [int(batch.counted.sum()) for batch in group]
        if not (self.network.reads_ahead and self.batches.from_start):
            yield from map(Ready, parts, n_predicted)
            return
        for part, n, hidden in zip(parts, n_predicted, self._hidden(parts), strict=True):
            yield Ready(part, n, hidden)

    def _hidden(self, parts: list[Batch]) -> Iterator[Tensor]:
        read = [_read(part) for part in parts]
        lengths = np.concatenate([marks.sum(axis=1) for marks in read])
        if not lengths.sum():
            yield from (torch.empty(0) for _ in parts)
            return
        tokens = [part.tokens[marks] for part, marks in zip(parts, read, strict=True)]
        kept = lengths[lengths > 0]
        starts = np.cumsum(kept) - kept
        hidden = self.network.harvest(np.concatenate(tokens), starts)
        pieces = hidden.split([len(ids) for ids in tokens])
        for part, marks, piece in zip(parts, read, pieces, strict=True):
            chosen = part.counted[marks]
            if chosen.all():
                yield piece
            else:
                yield piece[torch.from_numpy(np.flatnonzero(chosen)).to(piece.device)]


def _read(batch: Batch) -> NDArray[np.bool_]:
    """The places (B, T) that are read: those up to the last that counts."""
    return np.flip(np.logical_or.accumulate(np.flip(batch.counted, 1), axis=1), 1)
