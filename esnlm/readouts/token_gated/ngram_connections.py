"""Direct connections from the n-grams of the last tokens to the next one's logits."""

from collections.abc import Iterable, Mapping

import numpy as np

from esnlm.kernels import ngrams as kernels
from esnlm.readouts.base.blocks import rows_within
from esnlm.readouts.token_gated.ngram_tables import N_PARTS, NgramTables, WindowCounts, tables_of
from esnlm.utils.arrays import Array, Arrays, Ints, Ints64, check_arrays
from esnlm.utils.state_dict import Stateful, saved
from esnlm.utils.threads import map_tiles

_RATE, _BATCH, _LEAST_SQUARE = 0.2, 8192, 1e-12
# Multiples of it fill [0, 1) evenly.
_GOLDEN = 0.6180339887498949
# Tables are made anew when rows wait that are more than this part of those in them.
_WAITING_SHARE = 4
# Entries of a tile are kept from its logits to its gradients.
_TILE_BYTES, _ENTRY_BYTES, _WORTH_THREADS = 1 << 24, 8, 2048


# Some rows, and what contexts add to their logits: see `esnlm.kernels.ngrams.lifts`.
_Tile = tuple[slice, tuple[Array, Array, Array, Array]]


class NgramConnections(Stateful):
    """N-grams of up to ``n_last`` tokens, each of which adds to the logits of what followed it.

    What an n-gram adds to class v is its lift, ``log p_k(v) - log p_(k-1)(v)``: how much the
    interpolated Kneser-Ney probability grows by the k-th last token. With all lifts as they are the
    softmax of the logits is the Kneser-Ney distribution itself. Here each lift has a trained
    weight, its ``trust``, and a ``bias``, by kind: the length k, how often the context was met,
    how many classes followed it, and how often v did. So smoothing is learned, together with what
    else adds to the logits.

    N-grams are not trusted on what they were counted in: the rows are cut into eight parts, as they
    come, and to learn from a row its part is left out of the counts. Neighbouring text repeats
    names and phrases, and two editions of a play all of it, more than new text repeats old;
    leaving out single rows would trust that. Where a window was met in several parts, each of its
    rows learns without one of these, drawn as often as it was met there.

    ``trust`` and ``bias`` (n_last + 1, 8, 5, 6) float64 are trained by AdaGrad (Duchi et al. 2011):
    ``squares`` (2, n_last + 1, 8, 5, 6) sums the squares of both gradients.
    """

    _saved = saved("counted", "trust", "bias", "squares", "gradient", "waiting")

    def __init__(self, n_last: int, n_tokens: int, n_classes: int) -> None:
        self.counted = WindowCounts(n_last, n_tokens, n_classes)
        self._tables: NgramTables | None = None
        self._n_in_tables = 0
        shape = (n_last + 1, kernels.N_TOTALS, kernels.N_SPREADS, kernels.N_COUNTS)
        self.trust, self.bias = np.ones(shape), np.zeros(shape)
        self.squares, self.gradient = np.zeros((2, 2, *shape))
        self.waiting = 0

    def count(self, last: Array, codes: Ints, before: int = 0, n_rows: int = 0) -> None:
        """Count rows of last tokens (n, n_last) and classes (n,).

        They come after ``before`` others of the ``n_rows`` that are cut into parts; by default they
        are cut by themselves.
        """
        places = before + np.arange(len(codes))
        parts = np.minimum(places * N_PARTS // max(n_rows, len(codes), 1), N_PARTS - 1)
        self.counted.add(last, codes, parts)

    def settle(self) -> None:
        """Make predictions follow from every row counted."""
        if self._n_waiting:
            self._tables = tables_of(self.counted)
            self._n_in_tables = self.counted.n_rows

    @property
    def _n_waiting(self) -> int:
        """Rows counted that are in no table yet."""
        return self.counted.n_rows - self._n_in_tables

    @property
    def n_ngrams(self) -> int:
        """Distinct n-grams of all lengths."""
        return 0 if self._tables is None else len(self._tables.counts)

    def add_to(self, Z: Array, last: Array, codes: Ints | None = None) -> list[_Tile]:
        """Add to logits Z (n, V), in place, after last tokens (n, n_last).

        Rows whose ``codes`` (n,) are given are learned from: the part of the text in which they
        were counted is left out. Returns what `learn` needs.
        """
        if self._n_waiting * _WAITING_SHARE > self._n_in_tables:
            self.settle()
        if self._tables is None:
            return []
        parts = np.full(len(Z), -1)
        if codes is not None and not self._n_waiting:
            draws = (self.waiting + np.arange(len(codes))) * _GOLDEN % 1
            parts = self.counted.parts_of(last, codes, draws)

        def tile(rows: slice) -> _Tile:
            entries = self._lifts(last[rows], parts[rows])
            kernels.add_lifts(Z[rows], *entries, self.trust.ravel(), self.bias.ravel())
            return rows, entries

        widest = self.trust.shape[0] * self.counted.n_classes
        size = rows_within(_TILE_BYTES, widest, f"V{_ENTRY_BYTES}")
        tiles = [slice(first, first + size) for first in range(0, len(Z), size)]
        return map_tiles(tile, tiles, 1 if len(Z) < _WORTH_THREADS else None)

    @property
    def room(self) -> int:
        """Rows until the next step."""
        return _BATCH - self.waiting

    def learn(self, tiles: list[_Tile], R: Array, rate: float) -> None:
        """Learn from residuals R (n, V) of all rows of `add_to`, at most as many as there is room.

        A step is made when the gradients are of 8 192 rows, however these were cut; ``rate`` is a
        share of its size.
        """
        for rows, entries in tiles:
            kernels.add_gradients(R[rows], *entries, *self.gradient.reshape(2, -1))
        self.waiting += len(R)
        if self.room:
            return
        for values, squares, gradient in zip(
            (self.trust, self.bias), self.squares, self.gradient / self.waiting, strict=True
        ):
            squares += gradient * gradient
            values -= _RATE * rate * gradient / np.sqrt(squares + _LEAST_SQUARE)
        self.gradient[:], self.waiting = 0, 0

    def _lifts(self, last: Ints64, parts: Ints64) -> tuple[Array, Array, Array, Array]:
        assert self._tables is not None, "tables are current"
        n_classes = self.counted.n_classes
        room = len(last) * self.trust.shape[0] * n_classes
        ends = np.empty(len(last), dtype=np.int64)
        classes = np.empty(room, dtype=np.min_scalar_type(n_classes))
        values, kinds = np.empty(room, dtype=np.float32), np.empty(room, dtype=np.uint16)
        kernels.lifts(last, parts, *self._tables, n_classes, ends, classes, values, kinds)
        n = int(ends[-1]) if len(ends) else 0
        return ends, classes[:n].copy(), values[:n].copy(), kinds[:n].copy()

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        layouts = dict.fromkeys(("trust", "bias"), "f K T S C")
        layouts |= dict.fromkeys(("squares", "gradient"), "f G K T S C")
        check_arrays(arrays, layouts, G=2, **dict(zip("KTSC", self.trust.shape, strict=True)))
        return arrays

    def _required(self, arrays: Arrays, training: bool) -> Iterable[str]:
        return "counted.windows", "counted.times", *self._names(training).keys() - {"counted"}

    def _loaded(self, training: bool) -> None:
        self._n_in_tables = 0
        self.settle()

    def _names(self, training: bool) -> Mapping[str, str]:
        return self._saved if training else saved("counted", "trust", "bias")
