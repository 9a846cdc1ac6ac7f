"""Word ablation: how long a state remembers a word (Mahto et al. 2021, section A.4).

A text is read once as it is and once without one of its words; the difference of the two states
is measured some tokens later.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import gen_batches

from esnlm.models.language_model import LanguageModel
from esnlm.text.corpus import TokenStream
from esnlm.utils.arrays import Array, Floats, Ints64
from esnlm.utils.validation import Count

#: Windows (n, T) of tokens -> states (n, T, units) of each layer after each token.
Reader = Callable[[Ints64], list[Array]]

#: Columns of the losses with some units silenced.
ROUTING = (
    "model", "layer", "group", "n_units", "assigned", "by", "bin", "n_tokens", "nats",
    "silenced",
)  # fmt: skip
_STATE_BYTES = 1 << 27
#: Below this share a difference is noise of single precision.
LEAST_SHARE = 1e-4


class Decay(NamedTuple):
    """Difference that a word makes in a layer's state 0 to n_lags tokens later, mean over windows.

    ``share`` (n_lags + 1,): its length, as a share of that right after the word; ``by_unit``
    (n_lags + 1, n_units): the absolute difference of each unit.
    """

    share: Floats
    by_unit: Floats

    @np.errstate(divide="ignore", invalid="ignore")
    def timescales(self) -> Floats:
        """Timescale (n_units,) of the exponential nearest to the decay of each unit.

        ``-1 / slope`` of the logarithm over the lags, as far as a difference is more than 1e-4
        of the first; infinite for a unit that does not decay, and NaN for one that the word does
        not change.

        >>> lags = np.arange(11)[:, None]
        >>> Decay(np.ones(11), 3 * np.exp(-lags / [2.0, 20.0])).timescales().round(6).tolist()
        [2.0, 20.0]
        """
        first = self.by_unit[0]
        shares = self.by_unit / first
        # Lags from the first on, to the one at which noise begins.
        mask = np.logical_and.accumulate(shares > LEAST_SHARE, axis=0)
        n = mask.sum(axis=0)
        lags = np.arange(len(shares))[:, None]
        values = np.where(mask, np.log(shares), 0.0)
        mean = np.where(mask, lags, 0).sum(axis=0) / np.maximum(n, 1)
        apart = np.where(mask, lags - mean, 0.0)
        spread = (apart**2).sum(axis=0)
        slope = (apart * values).sum(axis=0) / spread
        times = np.where(slope < 0, -1 / slope, np.inf)
        # A unit that forgets at the next token has no slope, but a bound on its time.
        immediate = (n == 1) & (first > 0)
        times = np.where(immediate, -1 / np.log(LEAST_SHARE), times)
        return np.where(first > 0, times, np.nan)


def ablation_windows(stream: TokenStream, context: int, n_lags: int, n_windows: int) -> Ints64:
    """Windows (n, context + 1 + n_lags) of a stream, at most ``n_windows``, evenly over it.

    Each lies in one sequence. Those of a sequence follow each other without overlap.

    >>> stream = TokenStream(np.arange(12), np.array([0, 3]), np.array([0, 12]))
    >>> ablation_windows(stream, context=1, n_lags=2, n_windows=9).tolist()
    [[3, 4, 5, 6], [7, 8, 9, 10]]
    """
    length = context + 1 + n_lags
    lengths = stream.lengths
    n_fitting = lengths // length
    if not n_fitting.sum():
        longest = int(lengths.max(initial=0))
        raise ValueError(
            f"no sequence of the text has {length} tokens, context, word and lags: the longest has"
            f" {longest}"
        )
    number = np.arange(n_fitting.sum()) - np.repeat(np.cumsum(n_fitting) - n_fitting, n_fitting)
    first = np.repeat(np.cumsum(lengths) - lengths, n_fitting) + number * length
    positions = first[:: max(1, -(-len(first) // n_windows))]
    return np.asarray(stream.tokens[positions[:, None] + np.arange(length)]).astype(np.int64)


def word_ablation(
    model: Any, stream: TokenStream, *, context: int = 20, n_lags: int = 20, n_windows: int = 1000
) -> list[Decay]:
    """Measure the difference that a word makes in each layer's state, some tokens later.

    In each window of the stream the word after ``context`` tokens is left out; lag 0 compares
    the states right after it and without it, lag k those k tokens later. States are the
    reservoir's, or the cells of an LSTM's layers.
    """
    for name, value in (("context", context), ("n_lags", n_lags), ("n_windows", n_windows)):
        Count().check(name, value)
    reader, width = _reader(model)
    windows = ablation_windows(stream, context, n_lags, n_windows)
    at_once = max(1, _STATE_BYTES // (4 * width * windows.shape[1]))
    totals: list[list[Any]] = []
    for part in gen_batches(len(windows), at_once):
        whole = windows[part]
        ablated = np.delete(whole, context, axis=1)
        # Without the word, the state is one token behind.
        of_part = [
            _sums(states[:, context:], without[:, context - 1 :])
            for states, without in zip(reader(whole), reader(ablated), strict=True)
        ]
        totals = [
            [a + b for a, b in zip(total, sums, strict=True)]
            for total, sums in zip(totals, of_part, strict=False)
        ] or of_part
    return [Decay(share / max(n, 1), by_unit / len(windows)) for n, share, by_unit in totals]


def _sums(states: Array, without: Array) -> list[Any]:
    """Return the number of windows that the word changes, their summed shares and differences.

    States (n, n_lags + 1, n_units), and those without the word.
    """
    apart = np.abs(states - without).astype(np.float64)
    norms = np.linalg.norm(apart, axis=2)
    nonzero = norms[:, 0] > 0
    return [
        int(nonzero.sum()),
        (norms[nonzero] / norms[nonzero, :1]).sum(axis=0),
        apart.sum(axis=0),
    ]


def _reader(model: Any) -> tuple[Reader, int]:
    """Return the function that reads windows, and the number of units of all layers."""
    if isinstance(model, LanguageModel):
        return lambda windows: [_reservoir_states(model, windows)], model.reservoir_.n_units
    network = getattr(model, "network", None)
    if network is not None:
        from esnlm.torch.networks.multi_timescale_lstm import cell_states, is_lstm

        if is_lstm(network):
            width = sum(layer.n_units for layer in network.layers)
            return partial(cell_states, network), width
    raise ValueError("word ablation needs a reservoir or an LSTM, which have states")


def _reservoir_states(model: LanguageModel, windows: Ints64) -> Array:
    """States (n, T, n_units) after each token of windows (n, T), each from the zero state."""
    n, length = windows.shape
    # The state after the last token is harvested with the next: one is appended.
    tokens = np.concatenate([windows, np.zeros((n, 1), dtype=np.int64)], axis=1).ravel()
    starts = np.arange(n, dtype=np.int64) * (length + 1)
    stream = TokenStream(tokens, starts, np.array([0, len(tokens)]))
    units = model.reservoir_.n_units
    out = np.empty((n, length, units), dtype=model.reservoir_.W_.dtype)
    for states, _, positions in model._states.blocks(stream).with_positions():
        out[positions // (length + 1), positions % (length + 1)] = states[:, :units]
    return out
