"""Additive sufficient statistics of (state, next token) pairs, from which ridge is solved."""

import math
from typing import Any, Self

import numpy as np
from scipy.linalg import blas
from scipy.sparse import csr_array

from esnlm.kernels import rows as kernels
from esnlm.readouts.base.centred_moments import TOO_LARGE
from esnlm.utils.arrays import Array, Arrays, Floats, Floats32, Ints, check_arrays
from esnlm.utils.memory import check_memory
from esnlm.utils.state_dict import Stateful
from esnlm.utils.sums import Keyed, Sums
from esnlm.utils.threads import map_tiles
from esnlm.utils.validation import DivergenceError

# Rows whose products are summed in the states' own precision before float64 takes over.
_ROWS_IN_SINGLE = 16384
_PIECE = 8192
_STAGED = 1024
# Units whose sums one task adds up, and the numbers from which threads pay.
_UNITS = 512
_WORTH_THREADS = 1 << 20
# Sums of squares that single precision holds the roots of.
_LARGEST = 1e76
# Rows whose median is subtracted from all in products, and its largest entry.
_ORIGIN_ROWS, _FARTHEST = 128, 1e30
# Of the squared mean: what sums in single precision lose, squared what its numbers do.
_ROUNDING = 1e-6
_LAYOUTS = {
    "sums": "f V N", "counts": "i V", "gram": "f N N", "gram_sum": "f N",
    "part": "f N N", "staged": "f S N", "origin": "f N",
}  # fmt: skip


class Moments(Stateful):
    """Additive moments of states X (n, n_units) and of their target columns (n,).

    ``counts`` (n_classes,) int64 and ``sums`` (n_classes, n_units) float64 are of the ``n`` rows
    by class. Rows enter the Gram matrix in their own precision, at most 16 384 at a time, and
    the sums of those are float64: with float32 states an entry of the centred Gram matrix is within
    about 1e-6 of the float64 one relative to the diagonal, however rows were cut into calls. So
    that a large mean costs no digits, products are those of rows less an origin, the median of
    some first ones. The Gram matrix (n_units² operations a row, against n_units for the sums) is of
    the first ``gram_rows``; ``n_gram`` rows are in it.

    >>> X, codes = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([0, 1, 0])
    >>> moments = Moments(2, 2).add(X[:1], codes[:1]).add(X[1:], codes[1:])
    >>> bool(np.array_equal(moments.gram(), X.T @ X)), moments.sums.tolist()
    (True, [[6.0, 8.0], [3.0, 4.0]])
    """

    _rows: Ints | None = None  # of ``sums``, for each class, where not all are kept

    def __init__(self, n_units: int, n_classes: int, gram_rows: int | None = None) -> None:
        """Set all statistics to zero, after a check that they fit in memory."""
        n_bytes = 16 * n_units**2 + 8 * n_units * n_classes
        check_memory(f"moments of {n_units} units and {n_classes} classes", n_bytes, "lower one")
        self.n_units = n_units
        self.n_classes = n_classes
        self.gram_rows = gram_rows
        self.n = 0
        self.n_gram = 0
        self._make_zeros()
        self._gram_sum: Floats | None = None
        self._origin: Array | None = None
        self._part: Array | None = None
        self._rows_in_part = 0
        self._staged: Array | None = None
        self._n_staged = 0

    def add(self, X: Array, codes: Ints) -> Self:
        """Absorb states X (n, n_units), C or F order, and their columns (n,); returns self."""
        if X.ndim != 2 or X.shape[1] != self.n_units:
            raise ValueError(f"X must be (n, {self.n_units}), got {X.shape}")
        if len(codes) != len(X):
            raise ValueError(f"X has {len(X)} rows and codes {len(codes)}")
        if len(codes) and (codes.min() < 0 or codes.max() >= self.n_classes):
            raise ValueError(f"codes must lie in [0, {self.n_classes})")
        room = len(X) if self.gram_rows is None else self.gram_rows - self.n_gram
        if 0 < room < len(X):
            return self.add(X[:room], codes[:room]).add(X[room:], codes[room:])
        in_gram = self.gram_rows is None or room > 0
        if not in_gram and self._gram_sum is None:
            self._gram_sum = self.sums.sum(axis=0)
        self.n += len(X)
        self.counts += np.bincount(codes, minlength=self.n_classes)
        self._add_sums(X, codes if self._rows is None else self._rows_of(codes))
        if in_gram:
            self.n_gram += len(X)
            if self._gram_sum is not None:
                self._gram_sum += X.sum(axis=0, dtype=np.float64)
            self._add_products(X)
        return self

    def _make_zeros(self) -> None:
        self.counts = np.zeros(self.n_classes, dtype=np.int64)
        self.sums = np.zeros((self.n_classes, self.n_units))
        self._rows = None
        self._gram = np.zeros((self.n_units, self.n_units))

    @property
    def mean(self) -> Floats:
        """Mean state (n_units,)."""
        return self.sums.sum(axis=0) / max(self.n, 1)

    @property
    def target_mean(self) -> Floats:
        """Relative frequency of each class (n_classes,)."""
        return self.counts / self.n

    @property
    def rounding(self) -> float:
        """Variance, of all units together, that may be rounding alone."""
        _, total = self._shifted_sum()
        shift, mean = total / max(self.n_gram, 1), self.mean
        return _ROUNDING * max(float(shift @ shift), _ROUNDING * float(mean @ mean))

    @property
    def variation(self) -> float:
        """Sum of squares of the centred one-hot targets: n, less n_v² / n for each class."""
        return self.n - float(np.sum(self.counts**2.0)) / self.n

    def gram(self) -> Floats:
        """XᵀX (n_units, n_units) of the ``n_gram`` rows that entered it, a copy."""
        return self._add_origin(self._products().copy(), 1)

    def _add_origin(self, gram: Floats, sign: int) -> Floats:
        """Add to products of rows less the origin, in place, what those of the rows have more."""
        origin, shifted = self._shifted_sum()
        half = sign * (shifted + (self.n_gram / 2) * origin)
        gram += np.outer(origin, half)
        gram += np.outer(half, origin)
        return gram

    def _products(self) -> Floats:
        """Products (n_units, n_units) of the rows less the origin."""
        self.make_writable()
        self._empty_stage()
        self._empty_part()
        kernels.mirror_upper_triangle(self._gram)
        return self._gram

    def _shifted_sum(self) -> tuple[Floats, Floats]:
        """Return the origin (n_units,), and the sum (n_units,) of the rows in `_products`."""
        origin = np.zeros(self.n_units) if self._origin is None else self._origin.astype(float)
        # Kept apart once rows are left out of the Gram matrix.
        total = self.sums.sum(axis=0) if self._gram_sum is None else self._gram_sum
        return origin, total - self.n_gram * origin

    def centred_gram(self) -> Floats:
        """(X - mean)ᵀ(X - mean) (n_units, n_units); of a sample, scaled to all n rows.

        Raise DivergenceError where states are too large for their squares.
        """
        if self.n_gram == 0:
            return np.zeros((self.n_units, self.n_units))
        with np.errstate(over="ignore", invalid="ignore"):
            gram, (_, total) = self._products(), self._shifted_sum()
            centred = gram - np.outer(total, total / self.n_gram)
        if not np.trace(centred) < _LARGEST:
            raise DivergenceError(TOO_LARGE)
        if self.n_gram != self.n:
            centred *= self.n / self.n_gram
        return centred

    def centred_sums(self) -> Floats:
        """(Y - mean)ᵀ(X - mean) (n_classes, n_units) for one-hot Y."""
        return self.sums - np.outer(self.counts, self.mean)

    def pooled(self, groups: Ints) -> Self:
        """Moments of the same rows whose targets are groups (n_classes,) of classes.

        The Gram matrix is shared with this one, not copied.

        >>> moments = Moments(1, 3).add(np.array([[1.0], [2.0], [4.0]]), np.arange(3))
        >>> moments.pooled(np.array([0, 1, 0])).sums.tolist()
        [[5.0], [2.0]]
        """
        moments = type(self)(self.n_units, int(groups.max()) + 1)
        moments.n, moments.n_gram = self.n, self.n_gram
        np.add.at(moments.counts, groups, self.counts)
        member = csr_array((np.ones(len(groups)), (groups, np.arange(len(groups)))))
        moments.sums[...] = member @ self.sums
        moments._gram, moments._gram_sum = self._products(), self._gram_sum
        moments._origin = self._origin
        return moments

    def restrict_to_part(self, share: float, most: int) -> None:
        """Read a share of the rows alone, and let as large a one of ``gram_rows`` in the Gram.

        Only `to_sums` can be asked for afterwards: sums are kept of classes that occur, at most
        ``most``, which need not touch the memory of all.
        """
        self._rows = np.full(self.n_classes, -1, dtype=np.int32)
        self.sums = np.zeros((min(most, self.n_classes), self.n_units))
        if self.gram_rows is not None:
            self.gram_rows = math.ceil(share * self.gram_rows)

    def to_sums(self) -> Sums:
        """Return the moments to add to those of other rows: classes seen, half the Gram matrix.

        >>> X, codes = np.arange(8.0).reshape(4, 2), np.array([0, 2, 2, 1])
        >>> parts = [Moments(2, 3).add(X[i:j], codes[i:j]) for i, j in ((0, 3), (3, 4))]
        >>> both = Moments(2, 3).replace(parts[0].to_sums() + parts[1].to_sums())
        >>> both.n, both.counts.tolist(), bool(np.array_equal(both.gram(), X.T @ X))
        (4, [1, 1, 2], True)
        """
        classes = np.flatnonzero(self.counts)
        sums = self.sums[classes if self._rows is None else self._rows[classes]]
        in_gram = sums.sum(axis=0) if self._gram_sum is None else self._gram_sum
        gram = self.gram()
        triangle = np.concatenate([row[i:] for i, row in enumerate(gram)])
        plain = {"n": self.n, "n_gram": self.n_gram, "gram_sum": in_gram, "gram": triangle}
        rows = Keyed(classes, (self.counts[classes], sums))
        return Sums({name: np.asarray(value) for name, value in plain.items()}, {"classes": rows})

    def replace(self, sums: Sums) -> Self:
        """Replace all statistics by those of ``sums``."""
        rows, plain = sums.keyed["classes"], sums.plain
        self.n, self.n_gram = int(plain["n"]), int(plain["n_gram"])
        self._make_zeros()
        self.counts[rows.keys], self.sums[rows.keys] = rows.values
        start = 0
        for i, row in enumerate(self._gram):
            row[i:] = plain["gram"][start : start + self.n_units - i]
            start += self.n_units - i
        self._gram_sum = None if self.n == self.n_gram else plain["gram_sum"].copy()
        self._origin = _as_origin(plain["gram_sum"] / self.n_gram) if self.n_gram else None
        self._add_origin(self._gram, -1)
        self._rows_in_part = self._n_staged = 0
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Attributes, without arrays of zeros where there are no rows: they can be large."""
        empty = () if self.n else ("counts", "sums", "_gram")
        return {name: value for name, value in vars(self).items() if name not in empty}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if not self.n:
            self._make_zeros()

    def state_dict(self, *, training: bool = False) -> Arrays:
        """Everything that further rows are added to, as views, rounding and all."""
        arrays: Arrays = {"n": np.asarray(self.n), "n_gram": np.asarray(self.n_gram)}
        arrays |= {"counts": self.counts, "sums": self.sums, "gram": self._gram}
        if self._gram_sum is not None:
            arrays["gram_sum"] = self._gram_sum
        if self._origin is not None:
            arrays["origin"] = self._origin
        if self._part is not None and self._rows_in_part:
            arrays["part"], arrays["rows_in_part"] = self._part, np.asarray(self._rows_in_part)
        if self._staged is not None and self._n_staged:
            arrays["staged"] = self._staged[: self._n_staged]
        return arrays

    def load_state_dict(self, arrays: Arrays, *, training: bool = False) -> Self:
        """Continue from a `state_dict`: later sums are the same to the last bit."""
        _check_shapes(arrays)
        self.n, self.n_gram = int(arrays["n"]), int(arrays["n_gram"])
        self.counts, self.sums, self._gram = arrays["counts"], arrays["sums"], arrays["gram"]
        self.n_classes, self.n_units = self.sums.shape
        self._gram_sum, self._origin = arrays.get("gram_sum"), arrays.get("origin")
        if self._origin is None and ("part" in arrays or self._gram.any()):  # of an older version
            self._origin = np.zeros(self.n_units, dtype=np.float32)
        self._part = np.asfortranarray(arrays["part"]) if "part" in arrays else None
        self._rows_in_part = int(arrays.get("rows_in_part", 0))
        staged = arrays.get("staged", np.empty((0, self.n_units)))
        self._staged, self._n_staged = None, len(staged)
        if len(staged):
            self._staged = np.empty((_STAGED, self.n_units), dtype=staged.dtype)
            self._staged[: len(staged)] = staged
        return self

    def _rows_of(self, codes: Ints) -> Ints:
        """Rows of ``sums`` (n,) that are kept of classes (n,), new ones for those that are new."""
        assert self._rows is not None
        new = np.unique(codes[self._rows[codes] < 0])
        n_known = int((self._rows >= 0).sum())
        if n_known + len(new) > len(self.sums):
            raise ValueError(f"at most {len(self.sums)} classes were to occur, got another one")
        self._rows[new] = np.arange(n_known, n_known + len(new))
        return self._rows[codes]

    def _add_sums(self, X: Array, codes: Ints) -> None:
        by_columns = X.strides[1] != X.itemsize and self.n_classes <= len(X)
        add = kernels.add_grouped_columns if by_columns else kernels.add_grouped_rows

        def part(first: int) -> None:
            add(self.sums, X, codes, first, min(first + _UNITS, self.n_units))

        n_threads = 1 if X.size < _WORTH_THREADS else None
        map_tiles(part, range(0, self.n_units, _UNITS), n_threads)

    def _add_products(self, X: Array) -> None:
        """Add XᵀX; small blocks are staged so that each product has many rows."""
        if len(X) >= _STAGED:
            for start in range(0, len(X), _PIECE):
                self._add_piece(X[start : start + _PIECE])
            return
        if self._staged is None or self._staged.dtype != X.dtype:
            self._empty_stage()
            self._staged = np.empty((_STAGED, self.n_units), dtype=X.dtype)
        start = 0
        while start < len(X):
            stop = min(len(X), start + _STAGED - self._n_staged)
            self._staged[self._n_staged : self._n_staged + stop - start] = X[start:stop]
            self._n_staged += stop - start
            start = stop
            if self._n_staged == _STAGED:
                self._empty_stage()

    def _empty_stage(self) -> None:
        if self._staged is not None and self._n_staged:
            rows, self._n_staged = self._n_staged, 0
            self._add_piece(self._staged[:rows])

    def _add_piece(self, X: Array) -> None:
        """Add XᵀX of at most ``_PIECE`` rows to the part that is summed in X's precision."""
        if self._part is not None and self._part.dtype != X.dtype:
            self._empty_part()
            self._part = None
        if self._part is None:
            self._part = np.zeros((self.n_units, self.n_units), dtype=X.dtype, order="F")
        if self._rows_in_part + len(X) > _ROWS_IN_SINGLE:
            self._empty_part()
        if self._origin is None:
            self._origin = _as_origin(np.median(X[:_ORIGIN_ROWS], axis=0))
        X = X - self._origin.astype(X.dtype)
        syrk = blas.ssyrk if X.dtype == np.float32 else blas.dsyrk
        # A C-ordered X is X.T in the Fortran order that BLAS reads without a copy. The lower
        # triangle of the Fortran-ordered result is the upper one of its transposed view.
        fresh = 0.0 if self._rows_in_part == 0 else 1.0
        factor, trans = (X.T, 0) if X.flags.c_contiguous else (X, 1)
        self._part = syrk(
            1.0, factor, beta=fresh, c=self._part, trans=trans, lower=1, overwrite_c=1
        )
        self._rows_in_part += len(X)

    def _empty_part(self) -> None:
        if self._part is not None and self._rows_in_part:
            kernels.add_upper_triangle(self._gram, self._part.T)
            self._rows_in_part = 0


def _as_origin(middle: Array) -> Floats32:
    """Return the middle (n_units,) of rows in single precision, which is exact in either."""
    return np.clip(middle, -_FARTHEST, _FARTHEST).astype(np.float32)


def _check_shapes(arrays: Arrays) -> None:
    """Raise ValueError unless arrays fit each other: compiled code adds to them without checks."""
    shape = arrays["sums"].shape
    n_classes, n_units = shape if len(shape) == 2 else (0, 0)
    n_staged = min(_STAGED, len(arrays.get("staged", ())))
    try:
        check_arrays(arrays, _LAYOUTS, V=n_classes, N=n_units, S=n_staged)
    except ValueError as error:
        what = f"statistics of {n_units} units and {n_classes} classes"
        raise ValueError(f"{what}: {error}") from error
