"""The ridge readout of real targets, beside scikit-learn's Ridge and cross-validation."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from esnlm import RidgeRegressor
from esnlm.utils.validation import DivergenceError


@parametrize_with_checks([RidgeRegressor(), RidgeRegressor(alpha=None)])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(estimator)


def series(shape: tuple[int, ...], n: int = 300, n_units: int = 20) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, n_units)) @ rng.normal(size=(n_units, n_units)) + 50
    targets = X @ rng.normal(size=(n_units, *shape))
    return X, targets + rng.normal(size=targets.shape) - 1000


@pytest.mark.parametrize("alpha", [0, 1e-6, 1.0, 1e4])
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_it_is_the_ridge_of_scikit_learn(alpha: float, shape: tuple[int, ...]) -> None:
    X, y = series(shape)
    ours, theirs = RidgeRegressor(alpha=alpha).fit(X, y), Ridge(alpha, solver="svd").fit(X, y)
    for name in ("coef_", "intercept_"):
        got, expected = getattr(ours, name), getattr(theirs, name)
        assert np.shape(got) == np.shape(expected)
        np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-8)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-12)


@pytest.mark.parametrize("cuts", [[1], [7, 8, 200], list(range(2, 300))])
def test_the_cut_of_rows_does_not_matter(cuts: list[int]) -> None:
    X, y = series((2,))
    whole, parts = RidgeRegressor().fit(X, y), RidgeRegressor()
    for rows, targets in zip(np.split(X, cuts), np.split(y, cuts), strict=True):
        parts.partial_fit(rows, targets)
        parts._moments._products.flags.writeable = False  # as joblib maps it in its workers
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(parts.predict(X), whole.predict(X), rtol=1e-12)
    parts.partial_fit(X[:1], y[:1])
    assert np.abs(parts.coef_ - whole.coef_).max() > 1e-10  # solved anew


def test_states_in_single_precision_are_summed_in_double_precision() -> None:
    X, y = series((), n=40_000)
    X = X.astype(np.float32)
    expected = Ridge(1.0).fit(X.astype(np.float64), y)
    np.testing.assert_allclose(RidgeRegressor().fit(X, y).coef_, expected.coef_, atol=1e-8)


def test_the_penalty_of_least_cross_validation_error_is_near_that_of_leaving_one_out() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 40))
    y = X[:, :2] @ rng.normal(size=(2, 2)) + 3 * rng.normal(size=(60, 2))
    ours = RidgeRegressor(alpha=None).fit(X, y)
    left_out = RidgeCV(np.logspace(-6, 6, 200)).fit(X, y)
    assert left_out.alpha_ / 3 < ours.alpha_ < left_out.alpha_ * 3
    np.testing.assert_allclose(ours.coef_, Ridge(ours.alpha_).fit(X, y).coef_, atol=1e-8)


def test_more_units_than_rows_without_a_penalty_is_the_least_solution() -> None:
    X, y = series((), n=10)
    ours = RidgeRegressor(alpha=0).fit(X, y)
    centred = np.linalg.lstsq(X - X.mean(0), y - y.mean(), rcond=None)[0]
    np.testing.assert_allclose(ours.predict(X), y, rtol=1e-8)
    np.testing.assert_allclose(ours.coef_, centred, atol=1e-6)


def test_other_targets_than_before_are_refused() -> None:
    X, y = series((2,))
    fitted = RidgeRegressor().fit(X, y)
    with pytest.raises(ValueError, match=r"y must have shape \(n, 2\), .* got \(300,\)"):
        fitted.partial_fit(X, y[:, 0])
    assert clone(fitted).fit(X, y[:, 0]).coef_.shape == (20,)
    with pytest.raises(ValueError, match=r"y must hold real numbers, got <U1: .* predicts labels"):
        RidgeRegressor().fit(X, ["a"] * 300)
    with pytest.raises(ValueError, match="alpha must not be negative, got -1"):
        RidgeRegressor(alpha=-1).fit(X, y)


@pytest.mark.parametrize("targets", [["a"] * 300, np.full((300, 2), 1e200)])
def test_a_fit_that_fails_leaves_the_last(targets: Any) -> None:
    X, y = series((2,))
    fitted = RidgeRegressor(alpha=None).fit(X, y)
    with pytest.raises(ValueError, match=r"^y "):
        fitted.fit(X[:, :3], targets)
    expected = Ridge(alpha=fitted.alpha_).fit(X, y).predict(X)
    np.testing.assert_allclose(fitted.predict(X), expected, atol=1e-9)


@pytest.mark.parametrize("alpha", [None, 1.0])
def test_states_whose_squares_overflow_are_named(alpha: float | None) -> None:
    X, y = series(())
    with pytest.raises(DivergenceError, match="too large for the sum of their squares: scale them"):
        RidgeRegressor(alpha=alpha).fit(X * 1e160, y)


@pytest.mark.parametrize("scale", [1e-170, 1e152, 1e160])
def test_targets_whose_squares_are_no_numbers_choose_no_penalty(scale: float) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 40))
    y = X[:, 0] + 3 * rng.normal(size=60)
    expected = RidgeRegressor(alpha=None).fit(X, y).alpha_
    for valid in (1e-150, 1e150):
        assert RidgeRegressor(alpha=None).fit(X, valid * y).alpha_ == pytest.approx(expected)
    with pytest.raises(DivergenceError, match="y is too large or too small for"):
        RidgeRegressor(alpha=None).fit(X, scale * y)
    ours, theirs = (each.fit(X, scale * y) for each in (RidgeRegressor(), Ridge()))
    np.testing.assert_allclose(ours.coef_ / scale, theirs.coef_ / scale, rtol=1e-9)


def test_units_of_any_sizes_without_a_penalty_are_least_squares() -> None:
    """A unit of small numbers beside one of large ones is not taken for a combination of others."""
    sizes = np.array([1.0, 1e6, 1e-6, 1.0])
    X = np.random.default_rng(0).normal(size=(60, 4))
    fitted = RidgeRegressor(alpha=0).fit(X * sizes, X @ [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(fitted.coef_ * sizes, [1.0, 2.0, 3.0, 4.0], rtol=1e-9)
