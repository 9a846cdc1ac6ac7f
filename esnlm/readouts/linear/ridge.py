"""Closed-form linear readout: least squares to one-hot targets, projected to distributions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np

from esnlm.readouts.base.blocks import NO_HELD_OUT, ArrayBlocks, Block, Blocks, rows_within
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.readout import StreamingReadout
from esnlm.readouts.linear.simplex import floor_rows, least_output
from esnlm.readouts.linear.spectrum import PATH, Spectrum, inverse_of, ridge_coefficients
from esnlm.utils.arrays import Array, Arrays, Bools, Floats, Ints
from esnlm.utils.state_dict import saved
from esnlm.utils.sums import Sums
from esnlm.utils.validation import Count, Number, OneOf, at_fit, check_parameters, limited

_OUTPUT_BYTES = 1 << 24
# Products that choosing a penalty may cost, those a class costs beside its outputs, and the rows
# below which the choice would be noise.
_JUDGING_WORK = 1 << 40
_COST_OF_CLASS = 64
_FEWEST_JUDGES = 512
_OPEN = OneOf((None,))


@dataclass(eq=False, repr=False)
class RidgeReadout(StreamingReadout):
    """Ridge regression to one-hot targets, solved from additive statistics (Rachez eq. 6-7).

    Minimises ``|Y - X W - b|² + alpha |W|²`` over W (n_units, V) and b (V,), the intercept b
    unpenalised: scikit-learn's ``Ridge``. Statistics are sums over rows, so chunks of any cut give
    the same fit and memory does not depend on their number. The outputs sum to one but may be
    negative: those below ``floor`` are set to ``floor`` and the row is divided by its sum (Rachez
    says only that rows are renormalised). Every penalty of the path comes from one
    eigendecomposition.

    Parameters
    ----------
    alpha : float, optional
        Penalty, used as it is. None: one of ``alphas`` is chosen.
    alphas : sequence of float, optional
        Path of penalties. None: up to 28 values from 1e-9 to 1 times the largest eigenvalue of
        the centred Gram matrix, those that are not lost in the rounding of its entries.
    selection : "gcv", "held_out" or None
        How the penalty is chosen. "gcv": least generalised cross-validation error (Golub, Heath
        & Wahba 1979; closed form here). "held_out": least negative log-likelihood of held-out
        rows, those of ``fit_blocks`` or ``validation_fraction`` of the rows of ``fit``; without
        any, as "gcv". None: by the held-out rows of ``fit_blocks``, else as "gcv".
    floor : float or "auto"
        Least output before renormalising. "auto": ``1e-3 * min(1, 24 / V)``: 1e-3 up to
        Elman's 24 words, and never more than 0.024 of mass given away in all.
    validation_fraction : float
        Part of the rows of ``fit`` that "held_out" holds out, half of them at most: the last of
        each run of ``1 / fraction`` rows, rounded. The chosen penalty is then solved on all rows.
    gram_rows : int, optional
        Let only the first so many rows into the Gram matrix, whose cost a row is n_units²; sums
        by class use every row.

    Attributes
    ----------
    coef_ : ndarray (V, n_units) float64
    intercept_ : ndarray (V,) float64
    alpha_ : float
        Penalty used.
    path_ : dict of ndarray (n_alphas,)
        ``alphas`` and the ``scores`` they were chosen by (less is better), where chosen.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> readout = RidgeReadout(alpha=1e-6).fit(X, ["a", "a", "b", "b"])
    >>> readout.predict([[0.2], [2.9]])
    array(['a', 'b'], dtype='<U1')
    >>> readout.predict_proba([[1.5]])
    array([[0.5, 0.5]])
    """

    _scores_are_cheap: ClassVar[bool] = False
    _reads_once: ClassVar[bool] = True
    _parameters = ("coef_", "intercept_")
    _state = ("alpha_",)
    _training_state = saved(moments="_moments")
    _layouts: ClassVar[dict[str, str]] = {"coef_": "f V N", "intercept_": "f V", "alpha_": "f"}

    _: KW_ONLY
    alpha: float | None = limited(None, Number(0, none=True))
    alphas: Sequence[float] | None = limited(None, None, alpha=_OPEN)
    selection: Literal["gcv", "held_out"] | None = limited(
        None, OneOf(("gcv", "held_out", None)), alpha=_OPEN
    )
    floor: float | Literal["auto"] = "auto"
    validation_fraction: float = limited(
        0.1, Number(1e-9, 1, open="high"), selection=OneOf(("held_out",))
    )
    gram_rows: int | None = limited(None, Count(none=True))

    def _start(self) -> None:
        """Check the parameters, and forget the moments and the path of penalties."""
        check_parameters(self)
        if self.alphas is not None:
            if np.ndim(self.alphas) != 1:
                raise ValueError(f"alphas must be a list of penalties or None, got {self.alphas!r}")
            if len(self.alphas) == 0:
                raise ValueError("alphas is empty: give at least one penalty, or None")
            for alpha in self.alphas:
                Number(0).check("a penalty of alphas", alpha)
        if self.floor != "auto" and not (isinstance(self.floor, Real) and 0 < self.floor < 1):
            raise ValueError(f"floor must lie in (0, 1) or be 'auto', got {self.floor!r}")
        self._moments: Moments | None = None
        self._stale = False
        self.path_: dict[str, Floats] = {}

    def _finish(self, held_out: Blocks | None = None) -> None:
        """Choose the penalty and solve; of many held-out rows, as many as a minute allows."""
        work = (self.n_features_in_ + _COST_OF_CLASS) * len(self.classes_)
        n_alphas = len(PATH) if self.alphas is None else len(self.alphas)
        rows = max(_FEWEST_JUDGES, _JUDGING_WORK // (work * n_alphas))
        self._settle_with(None if held_out is None else _first_rows(held_out, rows))

    def _make_part(self, name: str, arrays: Arrays, training: bool) -> Moments:
        return Moments.restored(arrays, gram_rows=self.gram_rows)

    def _loaded(self, training: bool) -> None:
        # Parameters that came from a model folder are those of the same rows.
        rows = 0 if self._moments is None else self._moments.n
        self._stale = "coef_" not in self.__dict__ and rows > 0
        super()._loaded(training)

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Choose the penalty, by a held-out split if asked for, and solve on all rows."""
        part = None
        if isinstance(blocks, ArrayBlocks) and self.selection == "held_out" and held_out is None:
            blocks, part = _split(blocks, self.validation_fraction)
        for X, codes in blocks:
            self._pass_moments().add(X, codes)
        self._settle_with(part or held_out)
        if part is not None:
            moments = self._pass_moments()
            for X, codes in part:
                moments.add(X, codes)
            alpha = self.alpha_
            self._set_solution(moments, alpha, Spectrum(moments).coefficients(alpha))

    def _absorb(self, X: Array, codes: Ints) -> None:
        self._pass_moments().add(X, codes)
        for name in self._arrays():
            self.__dict__.pop(name, None)
        self._stale = True

    def _take_sums(self, number: int, sums: Sums) -> None:
        super()._take_sums(number, sums)
        self._stale = True

    def __getattr__(self, name: str) -> Any:
        """Solve for the parameters when they are first read after new rows."""
        if name in self._arrays() and self.__dict__.get("_stale"):
            self._make_current()
            return self.__dict__[name]
        return super().__getattribute__(name)  # raises the error of a property, or names what lacks

    def _pass_moments(self, number: int = 1) -> Moments:
        if self._moments is None:
            self._moments = Moments(self.n_features_in_, len(self.classes_), self.gram_rows)
        return self._moments

    def _settle(self) -> None:
        if self._stale:
            check_parameters(self)  # which may be set since the rows came
            self._settle_with(None)

    def _settle_with(self, held_out: Blocks | None) -> None:
        """Solve from the moments with ``alpha``, or the best penalty by GCV or ``held_out``."""
        moments = self._moments
        if moments is None or not moments.n:
            raise ValueError("no rows to learn from: got 0 rows, give at least one")
        if self.alpha is not None:
            alpha = float(self.alpha)
            self._set_solution(moments, alpha, ridge_coefficients(moments, alpha))
            return
        spectrum = Spectrum(moments)
        alphas = spectrum.penalties()
        if self.alphas is not None:
            alphas = np.asarray(self.alphas, dtype=np.float64)
        if held_out is None or self.selection == "gcv":
            scores = spectrum.gcv_errors(alphas)
        else:
            scores = self._held_out_scores(spectrum, alphas, held_out)
        self.path_ = {"alphas": alphas, "scores": scores}
        alpha = float(alphas[int(np.argmin(scores))])
        self._set_solution(moments, alpha, spectrum.coefficients(alpha))

    def _set_solution(self, moments: Moments, alpha: float, coef: Floats) -> None:
        self.alpha_, self.coef_ = alpha, coef
        self.intercept_ = moments.target_mean - coef @ moments.mean
        self._stale = False

    def _held_out_scores(self, spectrum: Spectrum, alphas: Floats, held_out: Blocks) -> Floats:
        """Mean negative log-likelihood of the held-out rows under each penalty (n_alphas,)."""
        total, n_rows = np.zeros(len(alphas)), 0
        floor = self._floor()
        at_once = rows_within(_OUTPUT_BYTES, len(self.classes_), np.float64)
        for X, codes in held_out:
            for start in range(0, len(X), at_once):
                rows = slice(start, start + at_once)
                rotated = (X[rows] - spectrum.mean) @ spectrum.vectors
                at = np.arange(len(rotated)), codes[rows]
                for k, alpha in enumerate(alphas):
                    shrunk = rotated * inverse_of(spectrum.values + alpha)
                    outputs = shrunk @ spectrum.rotated_sums + spectrum.target_mean
                    total[k] -= np.log(floor_rows(outputs, floor)[at]).sum()
            n_rows += len(codes)
        if n_rows == 0:
            raise ValueError(NO_HELD_OUT)
        return total / n_rows

    def _floor(self) -> float:
        floor = at_fit(self)["floor"]
        return least_output(len(self.classes_)) if floor == "auto" else float(floor)

    def _probabilities(self, X: Array) -> Array:
        return self._distributions(X.dtype)(X)

    def _predictor(self, dtype: Any) -> Callable[[Array], Array]:
        distributions = self._distributions(dtype)
        return lambda X: np.log(distributions(X))

    def _distributions(self, dtype: Any) -> Callable[[Array], Array]:
        weights = self.coef_.T.astype(dtype, copy=False)
        intercept = self.intercept_.astype(dtype, copy=False)
        return lambda X: floor_rows(X @ weights + intercept, self._floor())


def _first_rows(blocks: Blocks, n_rows: int) -> Iterator[Block]:
    for X, codes in blocks:
        yield X[:n_rows], codes[:n_rows]
        n_rows -= len(codes)
        if n_rows <= 0:
            return


def _split(blocks: ArrayBlocks, fraction: float) -> tuple[ArrayBlocks, ArrayBlocks | None]:
    """Every (1 / fraction)-th row apart from the others; None where that leaves no row."""
    rows = np.arange(len(blocks.y))
    period = max(2, round(1 / fraction))
    mask: Bools = rows % period == period - 1
    if not mask.any():
        return blocks, None
    others = ArrayBlocks(blocks.X[~mask], blocks.y[~mask])
    return others, ArrayBlocks(blocks.X[mask], blocks.y[mask])
