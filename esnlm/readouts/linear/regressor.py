"""Closed-form linear readout of real targets: the values of a series, not tokens."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from esnlm.readouts.base.centred_moments import CentredMoments
from esnlm.readouts.linear.spectrum import Spectrum, ridge_coefficients
from esnlm.utils.arrays import Array, Floats
from esnlm.utils.state_dict import Linkable
from esnlm.utils.validation import (
    DivergenceError,
    Number,
    check_parameters,
    limited,
    restored_after_error,
)


@dataclass(eq=False, repr=False)
class RidgeRegressor(Linkable, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Ridge regression of real targets on states, solved from additive moments.

    Minimises ``|Y - X W - b|² + alpha |W|²``, the intercept b unpenalised: scikit-learn's
    ``Ridge``. Moments are sums over rows in float64, so chunks of any cut give the same fit and
    memory does not depend on their number. `Reservoir.run_closed_loop` runs on its predictions.

    Parameters
    ----------
    alpha : float, optional
        Penalty. None: the one of least generalised cross-validation error (Golub, Heath & Wahba
        1979), of up to 28 values from 1e-9 to 1 times the largest eigenvalue of the centred
        Gram matrix.

    Attributes
    ----------
    coef_ : ndarray (n_units,), or (n_outputs, n_units) for several outputs
    intercept_ : float, or ndarray (n_outputs,) for targets (n, n_outputs)
    alpha_ : float
        Penalty used.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> RidgeRegressor(alpha=0).fit(X, 2 * X[:, 0] + 1).predict([[5.0]]).round(6)
    array([11.])
    """

    _: KW_ONLY
    alpha: float | None = limited(1.0, Number(0, none=True))

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from states X (n, n_units) and targets y (n,) or (n, n_outputs) alone."""
        with restored_after_error(self):
            self._add(X, y, first=True)
            self._solve()
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from one more chunk of rows; it is solved when a coefficient is first read."""
        self._add(X, y, first=not hasattr(self, "_moments"))
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Return predictions after states X (n, n_units): (n,), or (n, n_outputs) of several."""
        check_is_fitted(self, "_moments")
        states = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return np.asarray(states @ self.coef_.T + self.intercept_)

    def _add(self, X: ArrayLike, y: ArrayLike, *, first: bool) -> None:
        check_parameters(self)
        states, targets = validate_data(
            self, X, y, reset=first, dtype=[np.float64, np.float32], multi_output=True,
            y_numeric=True,
        )  # fmt: skip
        if targets.dtype.kind not in "biuf":
            raise ValueError(
                f"y must hold real numbers, got {targets.dtype}: a readout such as RidgeReadout"
                " predicts labels"
            )
        if first:
            self._shape = targets.shape[1:]
            self._moments = CentredMoments(states.shape[1], int(np.prod(self._shape)))
        elif targets.shape[1:] != self._shape:
            expected = ", ".join(map(str, ("n", *self._shape)))
            raise ValueError(
                f"y must have shape ({expected}), as at the first call, got {targets.shape}:"
                " fit a clone for other targets"
            )
        self._moments.make_writable()
        self._moments.add(states, targets.reshape(len(states), -1))
        for name in ("coef_", "intercept_", "alpha_"):
            self.__dict__.pop(name, None)

    def _solve(self) -> None:
        moments = self._moments
        if self.alpha is None:
            spectrum = Spectrum(moments)
            squares = sum(spectrum.power.tolist(), spectrum.variation)
            if not np.isfinite(squares) or (squares == 0 and spectrum.rotated_sums.any()):
                raise DivergenceError(
                    "y is too large or too small for the sum of its squares, by which alpha=None"
                    " chooses: scale it, or give alpha"
                )
            alphas = spectrum.penalties()
            self.alpha_ = float(alphas[int(np.argmin(spectrum.gcv_errors(alphas)))])
            coef: Floats = spectrum.coefficients(self.alpha_)
        else:
            self.alpha_ = float(self.alpha)
            coef = ridge_coefficients(moments, self.alpha_)
        intercept = moments.target_mean - coef @ moments.mean
        self.coef_ = coef if len(coef) > 1 else coef[0]  # as in scikit-learn, for (n, 1) too
        self.intercept_: Any = intercept if self._shape else float(intercept[0])

    def __getattr__(self, name: str) -> Any:
        """Solve for the parameters when they are first read after new rows."""
        if name in ("coef_", "intercept_", "alpha_") and "_moments" in self.__dict__:
            check_parameters(self)  # which may be set since the rows came
            self._solve()
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
