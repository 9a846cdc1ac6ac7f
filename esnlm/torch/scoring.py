"""Log-probabilities of many sequences, padded and scored in batches on the network's device."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from esnlm.torch.device import half_precision, on_device
from esnlm.torch.networks.network import Network
from esnlm.utils.arrays import Array, Floats, Ints64

#: Values of hidden vectors at once, by the kind of device; on a CPU as many as its cache holds.
_HIDDEN_VALUES = {"cpu": 1 << 20, "cuda": 1 << 28}
_LONGEST = 4096


def windows(
    starts: Ints64, n_tokens: int, longest: int | None, stride: int, prefixes: Ints64
) -> Ints64:
    """Pieces of text, each read from the start state, that predict every token once: (3, n).

    The rows are places of first tokens, numbers of tokens read, at most ``longest``, and numbers of
    predictions at the beginning that another piece makes. ``prefixes`` (n_sequences,): number of
    first predictions of each sequence that are left out.

    >>> windows(np.array([0, 3]), 9, longest=3, stride=2, prefixes=np.array([0, 1])).tolist()
    [[0, 3, 5], [2, 3, 3], [0, 1, 1]]
    """
    lengths = np.diff(np.append(starts, n_tokens)) - 1
    pieces = []
    for start, length, skip in np.stack([starts, lengths, prefixes], axis=1).tolist():
        limit = length if longest is None else longest
        pieces.append((start, min(length, limit), skip))
        for position in range(limit, length, stride):
            # The last window ends with the sequence, so that none reads beyond it.
            offset = min(position + stride, length) - limit
            pieces.append((start + offset, limit, position - offset))
    return np.array(pieces).T


def _batches(pieces: Ints64, n_tokens: int, longest: int) -> Iterator[Ints64]:
    """Yield pieces (3, n) of similar length, ``n_tokens`` a batch, or one beyond ``longest``."""
    _, lengths, skips = pieces
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > skips[order]]
    while len(order):
        length = int(lengths[order[0]])
        size = max(1, n_tokens // length) if length <= longest else 1
        yield pieces[:, order[:size]]
        order = order[size:]


@torch.inference_mode()
def log_probabilities(
    network: Network, tokens: Array, starts: Ints64 | None, *, bf16: bool = False
) -> Floats:
    """Natural-log probability (T,) of each token after those of its sequence; 0 at starts.

    ``starts`` (n_sequences,) int64, 0 among them; None: all is one sequence. ``bf16``: compute in
    bfloat16 where autocast does. The network is scored in evaluation mode; its own mode is kept.
    """
    training = network.training
    network.eval()
    begins = np.zeros(1, dtype=np.int64) if starts is None else np.asarray(starts)
    scores = np.zeros(len(tokens))
    prefixes = _known(np.asarray(tokens), begins, network.longest)
    pieces = windows(begins, len(tokens), network.longest, network.stride, prefixes)
    n_read = _HIDDEN_VALUES.get(network.device.type, _HIDDEN_VALUES["cpu"]) // width_of(network)
    at_once = _LONGEST if network.longest is None else network.longest
    with half_precision(network.device, bf16):
        for batch in _batches(pieces, n_read, at_once):
            _score_batch(network, tokens, batch, at_once, scores)
    network.train(training)
    for place in np.flatnonzero(prefixes).tolist():  # in order: copies may be copied again
        n, here, before = prefixes[place] + 1, begins[place], begins[place - 1]
        scores[here + 1 : here + n] = scores[before + 1 : before + n]
    return scores


def _known(tokens: Array, starts: Ints64, longest: int | None) -> Ints64:
    """Count the first predictions of each sequence (n,) that are those of the one before.

    0 for sequences that are read in pieces.

    >>> _known(np.array([1, 2, 3, 1, 2, 4, 5, 1, 2]), np.array([0, 3, 7]), None).tolist()
    [0, 1, 1]
    """
    prefixes = np.zeros(len(starts), dtype=np.int64)
    for i, (before, here) in enumerate(pairwise(np.split(tokens, starts[1:])), 1):
        n = min(len(before), len(here))
        alike = np.append(before[:n] == here[:n], False)
        if len(here) <= _LONGEST + 1:
            prefixes[i] = max(0, int(alike.argmin()) - 1)
    return prefixes if longest is None else np.minimum(prefixes, longest)


def width_of(network: Network) -> int:
    """Entries D of a hidden vector."""
    with torch.inference_mode():
        token = torch.zeros((1, 1), dtype=torch.int64, device=network.device)
        return int(network.encode(token)[0].shape[-1])


def selected(hidden: Tensor, rows: Ints64, steps: Ints64) -> Tensor:
    """Hidden (B, T, D) -> (n, D): the vectors at n places."""
    if hidden.is_contiguous():
        places = on_device(rows * hidden.shape[1] + steps, hidden.device)
        return hidden.flatten(0, 1).index_select(0, places)
    return hidden[on_device(rows, hidden.device), on_device(steps, hidden.device)]


def _score_batch(
    network: Network, tokens: Array, pieces: Ints64, at_once: int, scores: Floats
) -> None:
    """Set the scores of the predictions of pieces (3, n), read ``at_once`` steps at a time."""
    first, lengths, skips = pieces[:, :, None]
    state, n_steps = None, int(lengths.max())
    for begin in range(0, n_steps, at_once):
        steps = np.arange(begin, min(begin + at_once, n_steps))
        places = first + steps
        counted = (steps >= skips) & (steps < lengths)
        following = places[counted] + 1
        inputs, targets = (
            on_device(np.asarray(tokens[where]).astype(np.int64), network.device)
            for where in (np.minimum(places, len(tokens) - 1), following)
        )
        hidden, state = network.encode(inputs, state)
        losses = network.loss(selected(hidden, *np.nonzero(counted)), targets)
        scores[following] = -losses.double().cpu().numpy()
