"""Moments against plain formulas, however the rows were cut."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esnlm.readouts.base import moments as statistics
from esnlm.readouts.base.moments import Moments


def rows(n: int, n_units: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(1.0, 1.0, size=(n, n_units)), rng.integers(0, n_classes, size=n)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_moments_equal_their_formulas(order: str, dtype: str, tolerance: float) -> None:
    X, codes = rows(500, 37, 5)
    X = np.asarray(X, dtype=dtype, order=order)  # type: ignore[call-overload]
    moments = Moments(37, 5).add(X, codes)
    exact, one_hot = X.astype(np.float64), np.eye(5)[codes]
    centred = exact - exact.mean(axis=0)
    scale = 500.0
    np.testing.assert_allclose(moments.gram(), exact.T @ exact, atol=tolerance * scale)
    np.testing.assert_allclose(moments.sums, one_hot.T @ exact, atol=1e-9 * scale)
    np.testing.assert_array_equal(moments.counts, one_hot.sum(axis=0))
    np.testing.assert_allclose(moments.centred_gram(), centred.T @ centred, atol=tolerance * scale)
    np.testing.assert_allclose(moments.centred_sums(), one_hot.T @ centred, atol=1e-9 * scale)


@settings(max_examples=30, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 300), max_size=6).map(sorted),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_cuts_do_not_matter(cuts: list[int], dtype: str) -> None:
    X, codes = rows(300, 9, 4)
    X = X.astype(dtype)
    whole = Moments(9, 4).add(X, codes)
    added = Moments(9, 4)
    for part in np.split(np.arange(300), cuts):
        added.add(X[part], codes[part])
    assert added.n == whole.n
    tolerance = 1e-6 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(added.gram(), whole.gram(), rtol=tolerance)
    np.testing.assert_allclose(added.sums, whole.sums, rtol=1e-12, atol=1e-12)


def test_many_pieces_flow_through_both_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_PIECE", 16)
    monkeypatch.setattr(statistics, "_ROWS_IN_SINGLE", 40)
    monkeypatch.setattr(statistics, "_STAGED", 8)
    X, codes = rows(333, 6, 3)
    moments = Moments(6, 3)
    moments.add(X[:200].astype(np.float32), codes[:200])
    moments.add(X[200:203], codes[200:203])
    moments.add(np.asfortranarray(X[203:]), codes[203:])
    np.testing.assert_allclose(moments.gram(), X.T @ X, rtol=1e-5)
    moments.add(X[:5], codes[:5])
    np.testing.assert_allclose(moments.gram(), X.T @ X + X[:5].T @ X[:5], rtol=1e-5)


def test_gram_of_a_sample_is_scaled_to_all_rows() -> None:
    X, codes = rows(4000, 5, 3)
    moments = Moments(5, 3, gram_rows=2000)
    for start in range(0, 4000, 500):
        moments.add(X[start : start + 500], codes[start : start + 500])
    assert (moments.n, moments.n_gram) == (4000, 2000)
    sample = X[:2000] - X[:2000].mean(axis=0)
    np.testing.assert_allclose(moments.centred_gram(), 2 * sample.T @ sample, atol=1e-8)
    np.testing.assert_allclose(moments.mean, X.mean(axis=0))


def test_a_large_mean_costs_no_digits_however_rows_come_together() -> None:
    X, codes = rows(5000, 7, 3)
    X = (X + 3000).astype(np.float32)
    X[0] += 100  # an outlier is no origin
    centred = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
    expected = centred.T @ centred
    scale = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
    cut = Moments(7, 3)
    for part in np.array_split(np.arange(3000), 31):
        cut.add(X[part], codes[part])
    cut = Moments.restored(cut.state_dict(), gram_rows=None).add(X[3000:], codes[3000:])
    halves = [Moments(7, 3).add(X[i::2], codes[i::2]).to_sums() for i in (0, 1)]
    pooled = Moments(7, 3).add(X, codes).pooled(np.array([0, 1, 0]))
    of_none = Moments(7, 3).replace(Moments(7, 3).to_sums()).add(X, codes)
    for moments in (cut, pooled, of_none, Moments(7, 3).replace(halves[0] + halves[1])):
        np.testing.assert_allclose(moments.centred_gram() / scale, expected / scale, atol=3e-6)


def test_products_of_an_older_version_have_their_origin_at_zero() -> None:
    X, codes = rows(100, 4, 3)
    older = Moments(4, 3)
    older._origin = np.zeros(4, dtype=np.float32)
    arrays = older.add(X, codes).state_dict() | {"gram": X.T @ X}
    arrays = {name: arrays[name] for name in ("n", "n_gram", "counts", "sums", "gram")}
    moments = Moments.restored(arrays, gram_rows=None).add(X, codes)
    np.testing.assert_allclose(moments.gram(), 2 * X.T @ X)


def test_bad_shapes_are_named() -> None:
    moments = Moments(3, 2)
    with pytest.raises(ValueError, match=r"must be \(n, 3\), got \(2, 4\)"):
        moments.add(np.zeros((2, 4)), np.zeros(2, dtype=int))
    with pytest.raises(ValueError, match=r"lie in \[0, 2\)"):
        moments.add(np.zeros((1, 3)), np.array([2]))
    with pytest.raises(ValueError, match="2 rows and codes 1"):
        moments.add(np.zeros((2, 3)), np.array([0]))


@pytest.mark.parametrize("name", ["sums", "counts", "gram", "gram_sum", "part", "staged", "origin"])
def test_arrays_that_do_not_fit_are_refused(name: str) -> None:
    X, codes = rows(1500, 6, 4)
    moments = Moments(6, 4, gram_rows=1200)
    for part in (slice(0, 1100), slice(1100, 1300), slice(1300, 1500)):
        moments.add(X[part], codes[part])
    arrays = moments.state_dict()
    assert Moments.restored(arrays, gram_rows=1200).sums is moments.sums
    with pytest.raises(ValueError, match=r"statistics of \d units and \d classes: \w+ must have"):
        Moments.restored(arrays | {name: arrays[name][..., :-1]}, gram_rows=1200)
    with pytest.raises(ValueError, match=r"statistics of \d units and \d classes: \w+ must have"):
        Moments.restored(arrays | {name: arrays[name][None]}, gram_rows=1200)


def test_empty_moments_travel_light_and_halves_add_up() -> None:
    assert len(pickle.dumps(Moments(500, 10_000))) < 1000
    rng = np.random.default_rng(0)
    X, codes = rng.standard_normal((50, 4)), rng.integers(0, 6, 50)
    halves = [Moments(4, 9, 20).add(X[i::2], codes[i::2]) for i in (0, 1)]
    copies = pickle.loads(pickle.dumps(halves))
    both = Moments(4, 9, 20).replace(copies[0].to_sums() + copies[1].to_sums())
    assert np.allclose(both.sums, Moments(4, 9).add(X, codes).sums)
    assert both.n_gram == sum(half.n_gram for half in halves)
    means = sum(half._gram_sum if half._gram_sum is not None else half.sums.sum(0)
                for half in halves)  # fmt: skip
    assert np.allclose(both._gram_sum if both.n_gram < both.n else both.sums.sum(0), means)
