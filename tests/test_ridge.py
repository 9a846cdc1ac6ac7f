"""RidgeReadout against scikit-learn's Ridge and against cross-validation done by hand."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

from esnlm import RidgeReadout
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.readout import ArrayBlocks
from esnlm.readouts.class_based.word_factors import ClassLayout, shared_ridge
from esnlm.readouts.linear.spectrum import Spectrum


def pairs(n: int = 150, n_units: int = 12, n_classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(0.5, 1.0, size=(n, n_units))
    y = (X @ rng.normal(size=(n_units, n_classes)) + rng.gumbel(size=(n, n_classes))).argmax(1)
    return X, y


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("chosen", [False, True])
def test_coefficients_are_those_of_scikit_learn(alpha: float, chosen: bool) -> None:
    X, y = pairs()
    ours = (RidgeReadout(alphas=[alpha]) if chosen else RidgeReadout(alpha=alpha)).fit(X, y)
    peer = Ridge(alpha=alpha).fit(X, np.eye(5)[y])
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-10)
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=1e-10)


@pytest.mark.parametrize("apart", [0.0, 7e-8])
def test_no_penalty_on_singular_states_is_least_squares(apart: float) -> None:
    X, y = pairs()
    noise = np.random.default_rng(0).normal(size=(len(X), 2))
    X = np.hstack([X, X[:, :2] + apart * noise] + [np.zeros((len(X), 1))] * (apart == 0))
    ours = RidgeReadout(alpha=0.0).fit(X, y)
    outputs = X @ ours.coef_.T + ours.intercept_
    design = np.hstack([X, np.ones((len(X), 1))])
    best = design @ np.linalg.lstsq(design, np.eye(5)[y], rcond=1e-6)[0]
    np.testing.assert_allclose(outputs, best, atol=1e-6)


def test_no_variance_is_below_zero_however_singular_the_states() -> None:
    X, y = pairs()
    moments = Moments(36, 5).add(np.hstack([X, X, X]), y)
    assert np.linalg.eigvalsh(moments.centred_gram()).min() < 0  # by rounding
    assert Spectrum(moments).values.min() == 0


def test_generalised_cross_validation_equals_its_definition() -> None:
    X, y = pairs(60, 8)
    alphas = [0.01, 0.1, 1.0, 10.0, 100.0]
    ours = RidgeReadout(alphas=alphas).fit(X, y)
    n, centred = len(X), X - X.mean(axis=0)
    for alpha, score in zip(alphas, ours.path_["scores"], strict=True):
        inverse = np.linalg.inv(centred.T @ centred + alpha * np.eye(8))
        hat = centred @ inverse @ centred.T + np.full((n, n), 1 / n)
        left = np.eye(5)[y] - hat @ np.eye(5)[y]
        definition = n * np.sum(left**2) / np.trace(np.eye(n) - hat) ** 2
        assert score == pytest.approx(definition, rel=1e-9)
    assert ours.alpha_ == alphas[int(np.argmin(ours.path_["scores"]))]


def test_held_out_rows_choose_the_likeliest_penalty() -> None:
    X, y = pairs(200)
    alphas = [1e-3, 1.0, 10.0, 100.0, 1000.0]
    ours = RidgeReadout(alphas=alphas).fit_blocks(
        ArrayBlocks(X[:150], y[:150]), np.arange(5), held_out=ArrayBlocks(X[150:], y[150:], 20)
    )
    losses = []
    for alpha in alphas:
        fixed = RidgeReadout(alpha=alpha).fit_blocks(ArrayBlocks(X[:150], y[:150]), np.arange(5))
        losses.append(-fixed.predict_log_proba(X[150:])[np.arange(50), y[150:]].mean())
    np.testing.assert_allclose(ours.path_["scores"], losses, rtol=1e-9)
    assert ours.alpha_ == alphas[int(np.argmin(losses))]


def test_a_fraction_of_the_rows_may_be_held_out() -> None:
    X, y = pairs(200)
    ours = RidgeReadout(selection="held_out", alphas=[0.1, 10.0, 1e4]).fit(X, y)
    whole = RidgeReadout(alpha=ours.alpha_).fit(X, y)
    np.testing.assert_allclose(ours.coef_, whole.coef_, atol=1e-9)
    assert RidgeReadout(selection="held_out").fit(X[:5], y[:5]).alpha_ > 0


@pytest.mark.parametrize(("fraction", "period"), [(0.1, 10), (0.4, 2), (0.9, 2)])
def test_the_last_row_of_each_run_is_held_out(fraction: float, period: int) -> None:
    X, y = pairs(200)
    alphas = [0.1, 10.0, 1e4]
    held = np.arange(200) % period == period - 1
    ours = RidgeReadout(alphas=alphas, selection="held_out", validation_fraction=fraction).fit(X, y)
    apart = RidgeReadout(alphas=alphas).fit_blocks(
        ArrayBlocks(X[~held], y[~held]), np.arange(5), held_out=ArrayBlocks(X[held], y[held])
    )
    np.testing.assert_allclose(ours.path_["scores"], apart.path_["scores"], rtol=1e-9)


def test_held_out_rows_beyond_what_a_choice_may_cost_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("esnlm.readouts.linear.ridge._JUDGING_WORK", 0)
    X, y = pairs(1100)

    class Chunks:
        first = 0

        def read(self, number: int, n_rows: int | None = None) -> Iterator[Any]:
            yield [(X[:200], y[:200])]

    def held_out() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield X[200:500], y[200:500]
        yield X[500:800], y[500:800]
        raise AssertionError("512 rows are enough")

    streamed = RidgeReadout()._begin(np.arange(5), 12, n_rows=200)
    assert list(streamed._train(Chunks(), held_out())) == [(1, False)]
    few = RidgeReadout().fit_blocks(
        ArrayBlocks(X[:200], y[:200]), np.arange(5), held_out=ArrayBlocks(X[200:712], y[200:712])
    )
    np.testing.assert_allclose(streamed.path_["scores"], few.path_["scores"], rtol=1e-9)


def test_states_whose_squares_are_zero_leave_the_frequencies() -> None:
    X, y = pairs()
    tiny = (1e-30 * X).astype(np.float32)
    expected = np.broadcast_to(np.bincount(y) / len(y), (len(y), 5))
    for readout in (RidgeReadout(), RidgeReadout(alpha=1.0)):
        with pytest.warns(UserWarning, match="states are too small to be learned from"):
            readout.fit(tiny, y)
        np.testing.assert_allclose(readout.predict_proba(tiny), expected, atol=1e-5)


def test_one_held_out_row_is_enough_and_none_is_too_few() -> None:
    X, y = pairs()
    blocks = ArrayBlocks(X, y)
    assert RidgeReadout().fit_blocks(blocks, np.arange(5), held_out=[(X[:1], y[:1])]).alpha_ > 0
    with pytest.raises(ValueError, match="held_out has no rows"):
        RidgeReadout().fit_blocks(blocks, np.arange(5), held_out=[])


def test_cross_validation_refuses_a_fit_that_passes_through_every_row() -> None:
    X, y = pairs(10, 20)
    ours = RidgeReadout(alphas=[0.0, 1e-12, 1.0]).fit(X, y)
    assert ours.path_["scores"][:2].tolist() == [np.inf, np.inf]
    assert ours.alpha_ == 1.0


def test_outputs_below_the_floor_are_raised_to_it() -> None:
    X, y = pairs()
    ours = RidgeReadout(alpha=1e-3, floor=1e-2).fit(X, y)
    outputs = X @ ours.coef_.T + ours.intercept_
    np.testing.assert_allclose(outputs.sum(axis=1), 1, atol=1e-9)
    assert outputs.min() < 0
    floored = np.maximum(outputs, 1e-2)
    expected = floored / floored.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(ours.predict_proba(X), expected, atol=1e-12)


def test_the_floor_shrinks_with_the_vocabulary() -> None:
    X, y = pairs()
    wide = RidgeReadout().partial_fit(X, y, classes=np.arange(240))
    assert 2e-5 < wide.predict_proba(X).min() < 1e-4


def test_float32_states_reach_float64_coefficients() -> None:
    X, y = pairs(3000)
    double = RidgeReadout(alpha=1.0).fit(X, y)
    single = RidgeReadout(alpha=1.0).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.coef_, double.coef_, atol=1e-5)


@pytest.mark.parametrize("layout", ["one matrix", "by classes"])
def test_no_penalty_is_chosen_that_is_lost_in_rounding(layout: str) -> None:
    # Units that six numbers drive weakly: most eigenvalues are below what float32 resolves.
    rng = np.random.default_rng(0)
    driven = rng.standard_normal((20_000, 6))
    states = np.tanh(0.15 * driven @ rng.standard_normal((6, 400)) + rng.standard_normal(400))
    logits = driven @ rng.standard_normal((6, 8))
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    seen, unseen = slice(15_000), slice(15_000, None)
    losses, chosen = [], []
    for X in (states, states.astype(np.float32)):
        if layout == "one matrix":
            readout = RidgeReadout().fit(X[seen], y[seen])
            log_p = np.log(readout.predict_proba(X[unseen]))
            chosen.append(readout.alpha_)
        else:
            moments = Moments(400, 8).add(X[seen], y[seen])
            factors, alpha = shared_ridge(moments, ClassLayout(np.arange(8) // 4), None)
            log_p = factors.log_probabilities(X[unseen])
            chosen.append(alpha)
        losses.append(-log_p[np.arange(len(log_p)), y[unseen]].mean())
    assert losses[1] < losses[0] + 0.01, (losses, chosen)


def test_a_loaded_readout_says_that_it_cannot_learn_more() -> None:
    X, y = pairs()
    fitted = RidgeReadout().fit(X, y)
    loaded = clone(fitted).load_state_dict(fitted.state_dict())
    with pytest.raises(ValueError, match="without its training state"):
        loaded.partial_fit(X, y)
    before = fitted.predict_proba(X)
    assert not np.allclose(fitted.partial_fit(X[:50], y[:50]).predict_proba(X), before, atol=1e-12)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"alpha": -1.0}, "alpha must not be negative"),
        ({"alphas": []}, "alphas is empty"),
        ({"alpha": 1.0, "alphas": [1.0]}, "leave out alphas, or change alpha"),
        ({"alpha": 1.0, "selection": "gcv"}, "leave out selection, or change alpha"),
        ({"selection": "aic"}, "got 'aic'"),
        ({"selection": np.ones(2)}, "selection must be .* got array"),
        ({"floor": 2.0}, "floor must lie in"),
        ({"floor": 1.0}, "floor must lie in"),
        ({"floor": 0.0}, "floor must lie in"),
        ({"validation_fraction": 1.0}, r"must lie in \[1e-09, 1\), got 1.0"),
        ({"validation_fraction": 0.0}, r"must lie in \[1e-09, 1\), got 0.0"),
    ],
)
def test_bad_parameters_are_named(params: dict[str, object], message: str) -> None:
    X, y = pairs()
    with pytest.raises(ValueError, match=message):
        RidgeReadout(**params).fit(X, y)  # type: ignore[arg-type]


def test_a_grid_of_penalties_has_scores_of_its_own() -> None:
    X, y = pairs(200)
    grid = {"alpha": [1e-6, 1.0, 1e6]}
    search = GridSearchCV(RidgeReadout(), grid, scoring="neg_log_loss", cv=3).fit(X, y)
    assert len(set(search.cv_results_["mean_test_score"].round(6))) == 3


def test_cross_validation_that_is_asked_for_reads_no_held_out_rows() -> None:
    X, y = pairs(200)
    rows = ArrayBlocks(X[:150], y[:150])
    held = ArrayBlocks(X[150:], y[150:])
    ours = RidgeReadout(selection="gcv").fit_blocks(rows, np.arange(5), held_out=held)
    assert ours.alpha_ == RidgeReadout().fit(X[:150], y[:150]).alpha_
    by_rows = RidgeReadout().fit_blocks(rows, np.arange(5), held_out=held)
    assert not np.allclose(by_rows.path_["scores"], ours.path_["scores"])


def test_coefficients_of_ridge_are_there_after_partial_fit():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 4)), rng.integers(3, size=60)
    assert not hasattr(RidgeReadout(), "coef_")
    readout = RidgeReadout().partial_fit(X[:30], y[:30], classes=[0, 1, 2])
    for rows in (30, 60):
        whole = RidgeReadout().fit(X[:rows], y[:rows])
        for name in ("coef_", "intercept_", "alpha_"):
            np.testing.assert_allclose(getattr(readout, name), getattr(whole, name), rtol=1e-9)
        readout.partial_fit(X[30:], y[30:])
