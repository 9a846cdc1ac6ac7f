"""How long a state remembers a word: word ablation (Mahto et al. 2021, paper 002, section A.4).

A text is read once as it is and once without one of its words. How far the two states are from
each other, some tokens later, is what is left of the word.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from esnlm.models.reservoir import LanguageModel
from esnlm.text.corpus import TokenStream
from esnlm.utils.validation import check_count

#: Windows (n, T) of tokens -> states (n, T, units) of each layer after each token.
Reader = Callable[[NDArray[np.int64]], list[NDArray[Any]]]

_STATE_BYTES = 1 << 27
# What is left of a difference is noise of single precision below this share.
_LEAST_SHARE = 1e-4


class Decay(NamedTuple):
    """What is left of a word in a layer, on the mean of windows, 0 to n_lags tokens later.

    Attributes
    ----------
    share : ndarray (n_lags + 1,)
        Length of the difference of the states, as a share of that right after the word.
    by_unit : ndarray (n_lags + 1, n_units)
        Absolute difference of each unit.
    """

    share: NDArray[np.float64]
    by_unit: NDArray[np.float64]

    def timescales(self) -> NDArray[np.float64]:
        """Timescale T (n_units,) of each unit: that of the exponential nearest to its decay.

        ``-1 / slope`` of the logarithm over the lags, as far as a difference is more than 1e-4
        of the first; infinite for a unit that does not decay, and NaN for one that the word does
        not move.

        Examples
        --------
        >>> lags = np.arange(11)[:, None]
        >>> Decay(np.ones(11), 3 * np.exp(-lags / [2.0, 20.0])).timescales().round(6).tolist()
        [2.0, 20.0]
        """
        first = self.by_unit[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = self.by_unit / first
            logs = np.log(shares)
        # Lags from the first on, to the one at which noise begins.
        told = np.logical_and.accumulate(shares > _LEAST_SHARE, axis=0)
        n = told.sum(axis=0)
        lags = np.arange(len(shares))[:, None]
        where = np.where(told, lags, 0).astype(np.float64)
        values = np.where(told, logs, 0.0)
        mean = where.sum(axis=0) / np.maximum(n, 1)
        apart = np.where(told, lags - mean, 0.0)
        spread = (apart**2).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (apart * values).sum(axis=0) / spread
            times = np.where(slope < 0, -1 / slope, np.inf)
            # Gone at the next token: no slope is to be had, but a bound on the time.
            gone = (n == 1) & (first > 0)
            times = np.where(gone, -1 / np.log(_LEAST_SHARE), times)
        return np.where(first > 0, times, np.nan)


def ablation_windows(
    stream: TokenStream, context: int, n_lags: int, n_windows: int
) -> NDArray[np.int64]:
    """Windows (n, context + 1 + n_lags) of a stream, at most ``n_windows``, evenly over it.

    Each lies in one sequence. Those of a sequence follow each other without overlap.

    Raises
    ------
    ValueError
        No sequence is as long as a window.

    Examples
    --------
    >>> stream = TokenStream(np.arange(12), np.array([0, 3]), np.array([0, 12]))
    >>> ablation_windows(stream, context=1, n_lags=2, n_windows=9).tolist()
    [[3, 4, 5, 6], [7, 8, 9, 10]]
    """
    length = context + 1 + n_lags
    starts = np.zeros(1, dtype=np.int64) if stream.starts is None else stream.starts
    lengths = np.diff(np.append(starts, len(stream.tokens)))
    held = lengths // length
    if not held.sum():
        longest = int(lengths.max(initial=0))
        raise ValueError(
            f"no sequence of the text has {length} tokens, context, word and lags: the longest has"
            f" {longest}"
        )
    first = np.repeat(starts, held)
    number = np.arange(len(first)) - np.repeat(np.cumsum(held) - held, held)
    first = first + number * length
    chosen = first[:: max(1, -(-len(first) // n_windows))]
    return np.asarray(stream.tokens[chosen[:, None] + np.arange(length)]).astype(np.int64)


def word_ablation(
    model: Any, stream: TokenStream, *, context: int = 20, n_lags: int = 20, n_windows: int = 1000
) -> list[Decay]:
    """What is left of a word in each layer's state, some tokens later.

    Of each window of the stream the word after ``context`` tokens is left out; lag 0 compares
    the states right after it and without it, lag k those k tokens later. States are the
    reservoir's, or the cells of an LSTM's layers.

    Parameters
    ----------
    model : LanguageModel, or TorchLanguageModel with an LSTM
    stream : TokenStream
        Tokens of the model.
    context, n_lags : int
        At least 1.
    n_windows : int
        At most so many are read.

    Raises
    ------
    ValueError
        The model has no such state, or the text no sequence that is long enough.

    Examples
    --------
    >>> from esnlm import Reservoir, RidgeReadout
    >>> docs = ["the boy sees the dog and the girl", "the girl sees the boy and the dog"] * 5
    >>> reservoir = Reservoir(30, leak_rate=0.5, random_state=0)
    >>> model = LanguageModel(reservoir, RidgeReadout(), tokenizer="word").fit(docs)
    >>> (layer,) = word_ablation(model, model.tokenize(docs), context=2, n_lags=4)
    >>> layer.share.shape, layer.by_unit.shape, bool(layer.share[4] < layer.share[0])
    ((5,), (5, 30), True)
    """
    for name, value in (("context", context), ("n_lags", n_lags), ("n_windows", n_windows)):
        check_count(name, value)
    read, width = _reader(model)
    windows = ablation_windows(stream, context, n_lags, n_windows)
    at_once = max(1, _STATE_BYTES // (4 * width * windows.shape[1]))
    totals: list[_Total] = []
    for start in range(0, len(windows), at_once):
        whole = windows[start : start + at_once]
        ablated = np.delete(whole, context, axis=1)
        layers = list(zip(read(whole), read(ablated), strict=True))
        totals = totals or [_Total(n_lags, states.shape[2]) for states, _ in layers]
        for total, (states, without) in zip(totals, layers, strict=True):
            # Without the word, the state is one token behind.
            total.add(states[:, context:], without[:, context - 1 :])
    return [total.decay() for total in totals]


class _Total:
    """Sums over windows of one layer."""

    def __init__(self, n_lags: int, n_units: int) -> None:
        self._share = np.zeros(n_lags + 1)
        self._by_unit = np.zeros((n_lags + 1, n_units))
        self._n = self._n_moved = 0

    def add(self, states: NDArray[Any], without: NDArray[Any]) -> None:
        """States (n, n_lags + 1, n_units) of windows, and those without the word."""
        apart = np.abs(states - without).astype(np.float64)
        norms = np.linalg.norm(apart, axis=2)
        moved = norms[:, 0] > 0
        self._share += (norms[moved] / norms[moved, :1]).sum(axis=0)
        self._by_unit += apart.sum(axis=0)
        self._n += len(apart)
        self._n_moved += int(moved.sum())

    def decay(self) -> Decay:
        """The means."""
        return Decay(self._share / max(self._n_moved, 1), self._by_unit / self._n)


def _reader(model: Any) -> tuple[Reader, int]:
    """What reads windows, and the units of all layers."""
    if isinstance(model, LanguageModel):
        return lambda windows: [_reservoir_states(model, windows)], model.reservoir_.n_units
    network = getattr(model, "network", None)
    if network is not None:
        from esnlm.torch.networks.forget_gates import cell_states, is_lstm

        if is_lstm(network):
            width = sum(layer.n_units for layer in network.layers)
            return lambda windows: cell_states(network, windows), width
    raise ValueError("word ablation needs a reservoir or an LSTM, which have states")


def _reservoir_states(model: LanguageModel, windows: NDArray[np.int64]) -> NDArray[Any]:
    """States (n, T, n_units) after each token of windows (n, T), each from the zero state."""
    n, length = windows.shape
    # The state after a last token stands before the next: one is put there.
    tokens = np.concatenate([windows, np.zeros((n, 1), dtype=np.int64)], axis=1).ravel()
    starts = np.arange(n, dtype=np.int64) * (length + 1)
    stream = TokenStream(tokens, starts, np.array([0, len(tokens)]))
    units = model.reservoir_.n_units
    out = np.empty((n, length, units), dtype=model.reservoir_.W_.dtype)
    for states, _, positions in model.states_of(stream).with_positions():
        out[positions // (length + 1), positions % (length + 1)] = states[:, :units]
    return out
