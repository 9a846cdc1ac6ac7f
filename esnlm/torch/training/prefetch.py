"""Hidden vectors of many batches at once, for networks whose states take no gradient."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from esnlm.torch.device import on_device, share_of_memory
from esnlm.torch.networks.network import Network
from esnlm.torch.scoring import width_of
from esnlm.torch.training.batches import Batch, Batches
from esnlm.torch.training.distributed import Processes

#: Values of hidden vectors read ahead; on a CUDA device as many as take a sixteenth of it.
_VALUES = 1 << 24


@dataclass(frozen=True)
class Ready:
    """This process's rows of a batch, what all processes predict, and hidden vectors if read.

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
        self.size = 1
        if network.reads_ahead and batches.from_start:
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
        n_predicted = [int(batch.counted.sum()) for batch in group]
        if not (self.network.reads_ahead and self.batches.from_start):
            yield from map(Ready, parts, n_predicted)
            return
        read = _Group(self.network, parts)
        for place, (part, n) in enumerate(zip(parts, n_predicted, strict=True)):
            yield Ready(part, n, partial(read.take, place))


class _Group:
    """Hidden vectors of batches, read when the first is asked for and kept until each is taken."""

    def __init__(self, network: Network, parts: list[Batch]) -> None:
        self.network, self.parts = network, parts
        self.pieces: dict[int, Tensor] = {}

    def take(self, place: int) -> Tensor:
        """The hidden vectors of one batch, which has a place that counts."""
        if place not in self.pieces:
            self.pieces = dict(enumerate(self._harvested()))
        return self.pieces.pop(place)

    def _harvested(self) -> Iterator[Tensor]:
        read = [_read(part) for part in self.parts]
        lengths = np.concatenate([marks.sum(axis=1) for marks in read])
        tokens = [part.tokens[marks] for part, marks in zip(self.parts, read, strict=True)]
        kept = lengths[lengths > 0]
        starts = np.cumsum(kept) - kept
        hidden = self.network.harvest(np.concatenate(tokens), starts)
        pieces = hidden.split([len(ids) for ids in tokens])
        for part, marks, piece in zip(self.parts, read, pieces, strict=True):
            chosen = part.counted[marks]
            if chosen.all():
                yield piece
            else:
                yield piece.index_select(0, on_device(np.flatnonzero(chosen), piece.device))


def _read(batch: Batch) -> NDArray[np.bool_]:
    """The places (B, T) that are read: those up to the last that counts."""
    return np.flip(np.logical_or.accumulate(np.flip(batch.counted, 1), axis=1), 1)
