"""The multinomial loss against finite differences, SoftmaxReadout against scikit-learn."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from esnlm import LowRankReadout, MixtureOfExpertsReadout, SoftmaxReadout
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.readout import ArrayBlocks
from esnlm.readouts.softmax import newton
from esnlm.readouts.softmax.loss import MultinomialLoss, log_softmax, softmax
from esnlm.readouts.softmax.newton import GramPreconditioner, _truncated_cg, newton_steps
from esnlm.readouts.softmax.variants import normalised


def pairs(
    n: int = 400, n_units: int = 8, n_classes: int = 5, seed: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(0.3, 1.0, size=(n, n_units)) * np.linspace(0.2, 2, n_units)
    weights = rng.normal(size=(n_units, n_classes))
    return X, (X @ weights + rng.gumbel(size=(n, n_classes))).argmax(axis=1)


def objective(readout: SoftmaxReadout, X: np.ndarray, y: np.ndarray) -> float:
    """Penalised loss, nats a row."""
    log_p = readout.predict_log_proba(X)[np.arange(len(y)), y]
    return -log_p.mean() + readout.alpha / 2 * np.sum(readout.coef_**2) / len(y)


def test_derivatives_equal_finite_differences() -> None:
    X, y = pairs(60)
    rng = np.random.default_rng(0)
    loss = MultinomialLoss([(X, y)], 0.7, X.mean(axis=0), np.zeros(5, dtype=bool))
    theta, direction = rng.normal(size=(9, 5)), rng.normal(size=(9, 5))
    up, gradient_up = loss.evaluate(theta + 1e-5 * direction)
    down, gradient_down = loss.evaluate(theta - 1e-5 * direction)
    _, gradient = loss.evaluate(theta)
    assert np.sum(gradient * direction) == pytest.approx((up - down) / 2e-5, rel=1e-7)
    product = loss.hessian_product(direction)
    np.testing.assert_allclose(product, (gradient_up - gradient_down) / 2e-5, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("alpha", [0.1, 10.0])
def test_coefficients_are_those_of_scikit_learn(n_classes: int, alpha: float) -> None:
    X, y = pairs(n_classes=n_classes)
    ours = SoftmaxReadout(alpha=alpha, tol=1e-13).fit(X, y)
    C = (2 if n_classes == 2 else 1) / alpha
    peer = LogisticRegression(C=C, tol=1e-10, max_iter=10000).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), atol=1e-5)
    assert ours.intercept_.sum() == pytest.approx(0, abs=1e-9)
    if n_classes > 2:
        np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-4)
        np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=1e-4)


@pytest.mark.parametrize("solver", ["newton-cg", "incremental"])
@pytest.mark.parametrize("alpha", [0.0, 1e5])
def test_extreme_penalties_stay_finite(solver: Any, alpha: float) -> None:
    X, y = pairs(3000)
    readout = SoftmaxReadout(alpha=alpha, solver=solver).fit(100 * X, y)
    assert np.all(np.isfinite(readout.coef_))
    assert objective(readout, 100 * X, y) < np.log(5)


def test_the_objective_never_rises() -> None:
    X, y = pairs(2000, 20, 9)
    ours = SoftmaxReadout(alpha=0.1).fit(X, y)
    assert np.all(np.diff(ours.history_) <= 0)
    assert ours.history_[-1] == pytest.approx(objective(ours, X, y), abs=1e-8)


@pytest.mark.slow
def test_one_incremental_run_comes_close_to_the_optimum() -> None:
    X, y = pairs(20000, 30, 12)
    best = SoftmaxReadout(alpha=1.0, solver="newton-cg", tol=1e-8).fit(X, y)
    two_passes = SoftmaxReadout(alpha=1.0, solver="incremental", n_passes=2).fit(X, y)
    assert objective(two_passes, X, y) - objective(best, X, y) < 0.06


def test_a_sample_of_rows_for_the_hessian_reaches_the_same_optimum() -> None:
    X, y = pairs(4000)
    moments = Moments(8, 5).add(X, y)
    ends = []
    for stride in (1, 4):
        loss = MultinomialLoss([(X, y)], 1.0, moments.mean, moments.counts == 0, stride)
        steps = newton_steps(loss, np.zeros((9, 5)), GramPreconditioner(moments), tol=1e-9)
        ends.append([value for _, value in steps][-1])
    assert ends[1] == pytest.approx(ends[0], abs=1e-6)


class Stream:
    """Blocks that are not arrays."""

    def __init__(self, X: np.ndarray, y: np.ndarray, rows: int) -> None:
        self.blocks = ArrayBlocks(X, y, rows)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return iter(self.blocks)


class Reused:
    """Blocks in memory that the next block overwrites, as a harvest's are."""

    def __init__(self, X: np.ndarray, y: np.ndarray, rows: int) -> None:
        self.X, self.y, self.rows = X, y, rows

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        memory = np.empty((self.rows, self.X.shape[1]))
        for start in range(0, len(self.X), self.rows):
            memory[:] = self.X[start : start + self.rows]
            yield memory, self.y[start : start + self.rows]
        memory[:] = 1e3


def test_newton_steps_are_the_same_on_blocks_in_reused_memory() -> None:
    X, y = pairs(400)
    readout = SoftmaxReadout(solver="newton-cg", tol=1e-8)
    history = readout.fit(X, y).history_
    readout.fit_blocks(Reused(X, y, 100), np.arange(5))
    np.testing.assert_allclose(readout.history_, history, rtol=1e-9)


def test_held_out_rows_stop_newton_at_its_best_step() -> None:
    X, y = pairs(420, n_units=30)
    X += 3
    held_out = ArrayBlocks(X[120:], y[120:], block_size=70)
    X, y = X[:120], y[:120]
    readout = SoftmaxReadout(alpha=1e-6, solver="newton-cg", tol=1e-12)

    def loss() -> float:
        logs = readout.predict_log_proba_of(held_out.X, held_out.y)
        return -float(logs.mean())

    readout.fit_blocks(ArrayBlocks(X, y), np.arange(5), held_out=held_out)
    stopped, n_steps = loss(), len(readout.history_) - 1
    losses = []
    for k in range(1, n_steps + 1):
        readout.set_params(max_iter=k).fit(X, y)
        losses.append(loss())
    assert 0 < np.argmin(losses) == n_steps - 3  # two steps were worse
    assert stopped == pytest.approx(min(losses), abs=1e-9)


def test_conjugate_gradient_stops_at_a_fifth_of_the_first_residual() -> None:
    X, y = pairs(500)
    moments = Moments(8, 5).add(X, y)
    loss = MultinomialLoss([(X, y)], 1.0, moments.mean, moments.counts == 0)
    _, gradient = loss.evaluate(np.random.default_rng(0).normal(size=(9, 5)))
    preconditioner = GramPreconditioner(moments)

    def length(residual: np.ndarray) -> float:
        return float(np.sum(residual * preconditioner.apply(residual, loss)))

    step, n_products = _truncated_cg(loss, gradient, preconditioner)
    assert 0 < n_products < 40
    left = gradient + loss.hessian_product(step)
    assert 0 < length(left) <= 0.2**2 * length(gradient)
    assert length(gradient + loss.hessian_product(step / 2)) > 0.2**2 * length(gradient)


def test_blocks_of_the_hessian_are_those_of_its_products() -> None:
    X, y = pairs(300)
    loss = MultinomialLoss([(X, y)], 2.0, X.mean(axis=0), np.arange(5) == 9)
    loss.evaluate(np.random.default_rng(0).normal(size=(9, 5)))
    blocks = loss.hessian_blocks()
    for unit, label in np.ndindex(9, 5):
        direction = np.zeros((9, 5))
        direction[unit, label] = 1.0
        product = loss.hessian_product(direction)[:, label]
        np.testing.assert_allclose(blocks[label, unit], product, atol=1e-9)


@pytest.mark.parametrize("alpha", [1e-4, 0.03])
def test_blocks_of_the_hessian_solve_what_the_gram_matrix_does_not(
    alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States that tell which classes are possible, as those of a grammar do."""
    generator = np.random.default_rng(0)
    groups, part = generator.integers(0, 6, 4000), generator.integers(0, 2, 4000)
    X = np.eye(6)[groups] @ generator.normal(size=(6, 20)) + generator.normal(size=(4000, 20)) / 9
    ends = []
    for most in (0, 1 << 26):
        monkeypatch.setattr(newton, "_BLOCK_BYTES", most)
        readout = SoftmaxReadout(alpha=alpha, solver="newton-cg", tol=1e-9, max_iter=12)
        ends.append(readout.fit(X, 2 * groups + part).history_[-1])
    exact = LogisticRegression(C=1 / alpha, solver="newton-cg", max_iter=10000, tol=1e-12)
    exact.fit(X, 2 * groups + part)
    readout.coef_, readout.intercept_ = exact.coef_, exact.intercept_
    least = objective(readout, X, 2 * groups + part)
    assert ends[1] - least < 1e-7
    assert ends[1] < ends[0]


@pytest.mark.parametrize("sizes", [1e-8, 1e8, np.logspace(-4, 4, 9)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_units_of_any_size_reach_the_optimum(sizes: Any, dtype: Any) -> None:
    X, y = pairs()
    readout = SoftmaxReadout(alpha=0.0, solver="newton-cg")
    least = readout.fit(X, y).history_[-1]
    X = np.insert(X, 4, 2.5, axis=1) * sizes  # a unit that is constant tells nothing
    assert readout.fit(X.astype(dtype), y).history_[-1] == pytest.approx(least, abs=1e-4)


@pytest.mark.parametrize("scale", [[1e6, *np.ones(7)], 8 * [1e-25]], ids=["one large", "tiny"])
@pytest.mark.parametrize(
    "readout",
    [
        SoftmaxReadout(solver="incremental"),
        MixtureOfExpertsReadout(n_experts=1, max_iter=2, random_state=0),
        LowRankReadout(),
    ],
    ids=lambda readout: type(readout).__name__,
)
def test_states_that_are_lost_beside_others_are_told(readout: Any, scale: Any) -> None:
    X, y = pairs(400)
    with pytest.warns(UserWarning, match="too small to be learned from, .* scale them"):
        readout.fit((X * scale).astype(np.float32), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        readout.fit(X.astype(np.float32), y)
        SoftmaxReadout().fit(X * scale, y)


def test_newton_learns_from_states_beside_large_ones_and_later_rows_do_not() -> None:
    X, y = pairs(400)
    large = X * [1e6, *np.ones(7)]
    readout = SoftmaxReadout(buffer_size=100).fit(large, y)
    expected = SoftmaxReadout().fit(X, y).predict_proba(X)
    assert np.abs(readout.predict_proba(large) - expected).mean() < 0.01
    with pytest.warns(UserWarning, match="too small to be learned from"):
        readout.partial_fit(large, y).predict(large)


def test_small_states_are_learned_in_passes_as_large_ones() -> None:
    X, y = pairs()
    readout = SoftmaxReadout(alpha=0.0, solver="incremental")
    known = readout.fit(X, y).predict_proba(X)
    np.testing.assert_allclose(readout.fit(X * 1e-8, y).predict_proba(X * 1e-8), known, atol=1e-3)


def test_units_that_are_copies_of_others_leave_the_solution_finite() -> None:
    X, y = pairs(6000, n_units=12)
    X = np.hstack([X, X, np.zeros_like(X)]).astype(np.float32)
    readout = SoftmaxReadout(alpha=0.0, solver="newton-cg", tol=1e-9).fit(X, y)
    alone = SoftmaxReadout(alpha=0.0, solver="newton-cg", tol=1e-9).fit(X[:, :12], y)
    assert readout.history_[-1] == pytest.approx(alone.history_[-1], abs=1e-5)


def test_streams_past_the_buffer_do_not_depend_on_the_cut() -> None:
    X, y = pairs(6000)
    fits = []
    for rows in (6000, 1000, 77):
        readout = SoftmaxReadout(buffer_size=1500)
        for start in range(0, 6000, rows):
            readout.partial_fit(X[start : start + rows], y[start : start + rows], np.arange(5))
        fits.append(readout.predict_proba(X))
    np.testing.assert_allclose(fits[1], fits[0], atol=1e-6)
    np.testing.assert_allclose(fits[2], fits[0], atol=1e-6)
    chosen = fits[0][np.arange(6000), y]
    best = SoftmaxReadout().fit(X, y).predict_proba(X)[np.arange(6000), y]
    assert np.mean(np.log(best) - np.log(chosen)) < 0.05


@pytest.mark.parametrize("alpha", [1.0, 100.0])
@pytest.mark.parametrize("from_buffer", [False, True])
def test_rows_after_a_newton_solution_do_not_undo_it(alpha: float, from_buffer: bool) -> None:
    X, y = pairs(30000, n_classes=8)
    readout = SoftmaxReadout(alpha=alpha, buffer_size=10000)
    if from_buffer:
        readout.partial_fit(X[:10000], y[:10000], np.arange(8))
    else:
        readout.fit(X[:10000], y[:10000])

    def loss() -> float:
        return -float(readout.predict_log_proba_of(X[24000:], y[24000:]).mean())

    losses = [loss()]
    for start in range(10000, 24000, 2000):
        readout.partial_fit(X[start : start + 2000], y[start : start + 2000])
        losses.append(loss())
    assert max(losses) < losses[0] + 1e-3
    assert losses[-1] < losses[0] + 2e-4


@pytest.mark.parametrize("tol", [1e-4, 1e-9])
@pytest.mark.parametrize("stopped", [False, True])
def test_classes_without_rows_have_the_mass_of_half_an_occurrence(
    tol: float, stopped: bool
) -> None:
    X, y = pairs(2000)
    unseen = np.isin(np.arange(12), [2, *range(6, 12)])
    codes = np.array([0, 1, 3, 4, 5])[y]
    held_out = ArrayBlocks(X[1500:], codes[1500:]) if stopped else None
    readout = SoftmaxReadout(tol=tol)
    readout.fit_blocks(ArrayBlocks(X[:1500], codes[:1500]), np.arange(12), held_out=held_out)
    P = readout.predict_proba(X[:1500])[:, unseen]
    assert np.exp(np.log(P).mean()) == pytest.approx(0.5 / (1500 + 0.5 * 12), rel=0.15)
    np.testing.assert_allclose(P, P[:, :1].repeat(7, axis=1), rtol=1e-6)


def test_classes_without_rows_change_nothing_between_the_others() -> None:
    X, y = pairs(1500)
    codes = np.array([0, 1, 3, 4, 5])[y]
    P = SoftmaxReadout(tol=1e-9).fit_blocks(ArrayBlocks(X, codes), np.arange(12)).predict_proba(X)
    P = P[:, [0, 1, 3, 4, 5]] / P[:, [0, 1, 3, 4, 5]].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(P, SoftmaxReadout(tol=1e-9).fit(X, y).predict_proba(X), atol=1e-5)


def test_held_out_rows_stop_the_incremental_solver_at_its_best_pass() -> None:
    X, y = pairs(3000)
    readout = SoftmaxReadout(solver="incremental", n_passes=3)
    held_out = ArrayBlocks(X[2000:], y[2000:])
    readout.fit_blocks(Stream(X[:2000], y[:2000], 300), np.arange(5), held_out=held_out)
    assert len(readout.history_) == 3
    loss = -readout.predict_log_proba(X[2000:])[np.arange(1000), y[2000:]].mean()
    assert loss == pytest.approx(min(readout.history_), abs=1e-5)


def test_a_rate_at_which_training_diverges_is_lowered() -> None:
    X, y = pairs(5000)
    readout = SoftmaxReadout(solver="incremental", learning_rate=10.0).fit(X, y)
    lower = SoftmaxReadout(solver="incremental", learning_rate=1.0).fit(X, y)
    np.testing.assert_array_equal(readout.coef_, lower.coef_)  # 0.1 of the rate
    shares = np.bincount(y) / len(y)
    assert objective(readout, X, y) < -(shares * np.log(shares)).sum()


def test_learning_goes_on_after_a_fit_and_after_loading() -> None:
    X, y = pairs(9000)
    readout = SoftmaxReadout(solver="incremental").fit(X[:3000], y[:3000])
    loaded = clone(readout).load_state_dict(readout.state_dict())
    for learner in (readout, loaded):
        before = objective(learner, X, y)
        learner.partial_fit(X[3000:], y[3000:])
        assert objective(learner, X, y) < before + 0.05


def test_a_one_shot_iterator_is_refused() -> None:
    X, y = pairs(50)
    with pytest.raises(TypeError, match="one-shot iterator"):
        SoftmaxReadout().fit_blocks(iter([(X, y)]), np.arange(5))


def test_extreme_logits_stay_finite() -> None:
    Z = np.array([[1e4, 0.0, -1e4], [-1e30, 0.0, 3.0]], dtype=np.float32)
    probabilities = softmax(Z.copy())
    assert np.all(np.isfinite(probabilities))
    assert probabilities[0].tolist() == [1.0, 0.0, 0.0]
    assert np.all(np.isfinite(log_softmax(Z.copy())))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"solver": "adam"}, "got 'adam'"),
        ({"alpha": -1.0}, r"alpha must lie in \[0, 1e\+12\], got -1.0"),
        ({"n_passes": 0}, "n_passes must be an integer of at least 1, got 0"),
        ({"learning_rate": 0.0}, "positive, got 0.0"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
    ],
)
def test_bad_parameters_are_named(params: dict[str, object], message: str) -> None:
    X, y = pairs(50)
    with pytest.raises(ValueError, match=message):
        SoftmaxReadout(**params).fit(X, y)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["weights", "velocity", "offset", "inverse", "centre"])
def test_learning_state_of_another_shape_is_refused(name: str) -> None:
    X, y = np.random.default_rng(0).standard_normal((60, 3)), np.arange(60) % 4
    readout = SoftmaxReadout(alpha=1.0, solver="incremental").fit(X, y)
    arrays = readout.state_dict(training=True)
    (key,) = [key for key in arrays if key.rpartition(".")[2].removeprefix("_") == name]
    for wrong in (arrays[key][None], arrays[key][:-1]):
        again = SoftmaxReadout(alpha=1.0, solver="incremental").load_state_dict(
            readout.state_dict()
        )
        with pytest.raises(ValueError, match="must have shape"):
            again.load_state_dict(arrays | {key: wrong}, training=True)


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 1e20), ("float32", 3e37), ("float64", 1e200)]
)
def test_normalised_states_whose_squares_overflow_are_refused(dtype: str, size: float) -> None:
    """They were rows of zeros, so that every state had the same prediction."""
    X = np.random.default_rng(0).standard_normal((20, 5)).astype(dtype)
    right = (X - X.mean(axis=1, keepdims=True)) / X.std(axis=1, keepdims=True)
    np.testing.assert_allclose(normalised(X * np.asarray(1e15, dtype)), right, rtol=1e-4)
    with pytest.raises(ValueError, match="states are too large"):
        normalised(X * np.asarray(size, dtype))
