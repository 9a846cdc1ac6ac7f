"""Log-probabilities of many sequences, padded and read in batches on the network's device."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esnlm.torch.device import half_precision, on_device
from esnlm.torch.networks.network import Network

Places = NDArray[np.int64]

#: Values of hidden vectors in memory at once, by the kind of device.
_HIDDEN_VALUES = {"cpu": 1 << 24, "cuda": 1 << 28}
_LONGEST = 4096
_COMPARED_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Reads:
    """Pieces of text, each read from the start state and no longer than the network reads.

    ``first`` (n,): place of its first token; ``length`` (n,): tokens read; ``skip`` (n,): so many
    predictions at its beginning are another read's.
    """

    first: Places
    length: Places
    skip: Places

    @classmethod
    def of(
        cls, starts: Places, n_tokens: int, longest: int | None, stride: int, known: Places
    ) -> "Reads":
        """Reads that predict every token of each sequence but its first, once.

        ``known`` (n_sequences,): so many of the first predictions of each are not wanted.

        Examples
        --------
        >>> reads = Reads.of(np.array([0, 3]), 9, longest=3, stride=2, known=np.array([0, 1]))
        >>> reads.first.tolist(), reads.length.tolist(), reads.skip.tolist()
        ([0, 3, 5], [2, 3, 3], [0, 1, 1])
        """
        lengths = np.diff(np.append(starts, n_tokens)) - 1
        limit = np.iinfo(np.int64).max if longest is None else longest
        moves = -(-np.maximum(lengths - limit, 0) // stride)
        sequence = np.repeat(np.arange(len(starts)), moves + 1)
        number = np.arange(len(sequence)) - np.repeat(np.cumsum(moves + 1) - moves - 1, moves + 1)
        # The last window ends with the sequence, so that none reads beyond it.
        offset = np.where(number > 0, np.minimum(number * stride, lengths[sequence] - limit), 0)
        done = np.where(number > 0, limit + (number - 1) * stride, 0)
        length = np.minimum(lengths[sequence], limit)
        skip = np.where(number > 0, done - offset, known[sequence])
        return cls(starts[sequence] + offset, length, skip)

    def batches(self, n_values: int) -> Iterator["Reads"]:
        """Reads of similar length, so many values in all, the longest first."""
        order = np.argsort(-self.length, kind="stable")
        order = order[self.length[order] > self.skip[order]]
        place = 0
        while place < len(order):
            size = max(1, n_values // int(self.length[order[place]]))
            part = order[place : place + size]
            yield Reads(self.first[part], self.length[part], self.skip[part])
            place += size


@torch.inference_mode()
def log_probabilities(
    network: Network, tokens: NDArray[Any], starts: Places | None, *, bf16: bool = False
) -> NDArray[np.float64]:
    """Natural-log probability (T,) of each token after those of its sequence; 0 at starts.

    Parameters
    ----------
    network : Network
        In whatever mode it is; scores are those of evaluation.
    tokens : (T,) integers
    starts : (n_sequences,) int64, 0 among them, or None: all is one sequence
    bf16 : bool
        Compute in bfloat16 where autocast does.

    Examples
    --------
    >>> from esnlm.torch.networks.esn import EchoStateNetwork
    >>> network = EchoStateNetwork(5, reservoir={"n_units": 20, "random_state": 0})
    >>> log_probabilities(network, np.array([0, 1, 2, 0, 3]), np.array([0, 3])) < 0
    array([False,  True,  True, False,  True])
    """
    training = network.training
    network.eval()
    begins = np.zeros(1, dtype=np.int64) if starts is None else np.asarray(starts)
    scores = np.zeros(len(tokens))
    known = _known(np.asarray(tokens), begins, network.longest)
    reads = Reads.of(begins, len(tokens), network.longest, network.stride, known)
    n_values = _HIDDEN_VALUES.get(network.device.type, _HIDDEN_VALUES["cpu"]) // width_of(network)
    with half_precision(network.device, bf16):
        for batch in reads.batches(n_values):
            if network.longest is None and batch.length[0] > _LONGEST:
                for first, length in zip(batch.first, batch.length, strict=True):
                    _read_on(network, tokens, int(first), int(length), scores)
            else:
                _read_batch(network, tokens, batch, scores)
    network.train(training)
    for place in np.flatnonzero(known).tolist():  # in order: one may have it from one that has it
        n, here, before = known[place] + 1, begins[place], begins[place - 1]
        scores[here + 1 : here + n] = scores[before + 1 : before + n]
    return scores


def _known(tokens: NDArray[Any], starts: Places, longest: int | None) -> Places:
    """How many first predictions of each sequence are also the previous one's, from the start.

    None of those that are read in pieces.
    """
    known = np.clip(_shared_with_previous(tokens, starts) - 1, 0, longest)
    lengths = np.diff(np.append(starts, len(tokens))) - 1
    return np.where(lengths > _LONGEST, 0, known)


def _shared_with_previous(tokens: NDArray[Any], starts: Places) -> Places:
    """How many tokens each sequence (n,) has in common with the one before, from the first on.

    Examples
    --------
    >>> _shared_with_previous(np.array([1, 2, 3, 1, 2, 4, 5, 1, 2]), np.array([0, 3, 7])).tolist()
    [0, 2, 2]
    """
    ends = np.append(starts[1:], len(tokens))
    shared = np.zeros(len(starts), dtype=np.int64)
    for first in range(1, len(starts), _COMPARED_AT_ONCE):
        part = np.arange(first, min(first + _COMPARED_AT_ONCE, len(starts)))
        here, before = starts[part], starts[part - 1]
        lengths = np.minimum(ends[part] - here, here - before)
        begins = np.cumsum(lengths) - lengths
        steps = np.arange(int(lengths.sum())) - np.repeat(begins, lengths)
        differ = (
            tokens[np.repeat(here, lengths) + steps] != tokens[np.repeat(before, lengths) + steps]
        )
        places = np.append(np.flatnonzero(differ), len(differ))
        shared[part] = np.minimum(places[np.searchsorted(places, begins)] - begins, lengths)
    return shared


def width_of(network: Network) -> int:
    """Entries D of a hidden vector."""
    with torch.inference_mode():
        token = torch.zeros((1, 1), dtype=torch.int64, device=network.device)
        return int(network.encode(token)[0].shape[-1])


def selected(hidden: Tensor, rows: Places, steps: Places) -> Tensor:
    """Hidden (B, T, D) -> (n, D): those of n places.

    Examples
    --------
    >>> hidden = torch.arange(6).reshape(2, 3, 1)
    >>> selected(hidden, np.array([0, 1]), np.array([2, 0])).tolist()
    [[2], [3]]
    """
    if hidden.is_contiguous():
        places = on_device(rows * hidden.shape[1] + steps, hidden.device)
        return hidden.flatten(0, 1).index_select(0, places)
    return hidden[on_device(rows, hidden.device), on_device(steps, hidden.device)]


def _read_batch(
    network: Network, tokens: NDArray[Any], batch: Reads, scores: NDArray[np.float64]
) -> None:
    steps = np.arange(int(batch.length.max()))
    places = batch.first[:, None] + steps
    counted = (steps >= batch.skip[:, None]) & (steps < batch.length[:, None])
    read = _on(network, tokens[np.minimum(places, len(tokens) - 1)])
    following = places[counted] + 1
    hidden, _ = network.encode(read)
    chosen = selected(hidden, *np.nonzero(counted))
    scores[following] = _scores(network, chosen, tokens[following])


def _read_on(
    network: Network, tokens: NDArray[Any], first: int, length: int, scores: NDArray[np.float64]
) -> None:
    """One long sequence, in pieces between which the state is carried."""
    state = None
    for begin in range(first, first + length, _LONGEST):
        end = min(begin + _LONGEST, first + length)
        hidden, state = network.encode(_on(network, tokens[begin:end])[None], state)
        scores[begin + 1 : end + 1] = _scores(network, hidden[0], tokens[begin + 1 : end + 1])


def _scores(network: Network, hidden: Tensor, targets: NDArray[Any]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = -network.loss(hidden, _on(network, targets)).double().cpu().numpy()
    return found


def _on(network: Network, ids: NDArray[Any]) -> Tensor:
    return on_device(np.asarray(ids).astype(np.int64), network.device)
