"""Mixture of experts: EM rises at every step, its parts equal brute force, streams equal arrays."""

import logging
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from esnlm import MixtureOfExpertsReadout
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.readout import ArrayBlocks
from esnlm.readouts.mixture.em import Prior, softmax_in_place
from esnlm.readouts.mixture.experts import SoftmaxExperts
from esnlm.readouts.mixture.optimize import (
    ConvergenceMonitor,
    QuasiNewtonMemory,
    conjugate_gradient,
)
from esnlm.readouts.mixture.whitening import Source, Whitening, in_held_out

both = pytest.mark.parametrize("experts", ["softmax", "linear"])


def mixed(
    n: int = 1500, n_units: int = 5, n_classes: int = 4, n_experts: int = 2, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States, labels of a mixture of experts, and its true distributions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_units))
    gate = softmax(4 * X @ rng.normal(size=(n_units, n_experts)), axis=1)
    experts = softmax(np.einsum("nd,dkv->nkv", 3 * X, rng.normal(size=(n_units, 2, n_classes))), 2)
    truth = np.einsum("nk,nkv->nv", gate, experts)
    y = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=n_classes - 1)
    return X, y, truth


def loss(P: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(P[np.arange(len(y)), y]).mean())


def rises(history: list[float]) -> bool:
    """At every single step, not only on the whole."""
    return len(history) > 2 and all(b >= a for a, b in pairwise(history))


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n_experts", "alpha", "seed"), [(2, 0.3, 0), (5, 0.0, 1), (10, 0.01, 2), (3, 10.0, 3)]
)
def test_penalised_likelihood_rises_at_every_step(
    experts: str, dtype: Any, n_experts: int, alpha: float, seed: int
) -> None:
    X, y, _ = mixed(n=600, seed=seed)
    readout = MixtureOfExpertsReadout(
        n_experts=n_experts,
        experts=experts,
        alpha=alpha,
        gate_alpha=alpha,
        early_stopping=False,
        tol=0.0,
        max_iter=30,
        random_state=seed,
    ).fit(X.astype(dtype), y)
    assert rises(readout.monitor_.penalised)
    if alpha == 0.0:
        gaps = np.diff(readout.monitor_.log_likelihood) - np.diff(readout.monitor_.penalised)
        assert np.abs(gaps).max() < 0.05


@both
def test_penalised_likelihood_rises_at_every_step_of_a_stream(experts: str) -> None:
    X, y, _ = mixed(n=900)
    readout = MixtureOfExpertsReadout(
        n_experts=3, experts=experts, max_iter=12, buffer_size=100, tol=0.0
    )
    readout.set_params(random_state=0, early_stopping=False)
    readout.fit_blocks(ArrayBlocks(X, y, 130), np.arange(4))
    assert rises(readout.monitor_.penalised)


@both
@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_stream_equals_arrays(experts: str, early_stopping: bool) -> None:
    X, y, _ = mixed(n=3000)
    readout = MixtureOfExpertsReadout(
        n_experts=3, experts=experts, max_iter=8, early_stopping=early_stopping, random_state=0
    )
    whole = readout.fit(X, y).predict_proba(X)
    history = readout.monitor_.penalised
    readout.set_params(buffer_size=50).fit_blocks(ArrayBlocks(X, y, 321), np.arange(4))
    np.testing.assert_allclose(readout.monitor_.penalised, history, rtol=1e-7)
    np.testing.assert_allclose(readout.predict_proba(X), whole, atol=1e-5)


class Repeated:
    """A long corpus that is never in memory: the same block over and over."""

    def __init__(self, X: np.ndarray, y: np.ndarray, times: int) -> None:
        self.block = X, y
        self.times = times

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return (self.block for _ in range(self.times))


@both
def test_memory_of_a_stream_does_not_grow_with_the_corpus(experts: str) -> None:
    X, y, _ = mixed(n=512, n_units=20)
    readout = MixtureOfExpertsReadout(
        n_experts=3, experts=experts, max_iter=2, buffer_size=100, n_threads=1, random_state=0
    )

    def peak(times: int) -> int:
        tracemalloc.start()
        readout.fit_blocks(Repeated(X, y, times), np.arange(4))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(2)
    # What other threads of the test run allocate meanwhile counts too: the least of several.
    many, few = (min(peak(times) for _ in range(3)) for times in (40, 10))
    assert many < 1.2 * few + (1 << 17)  # the states of all rows take 3 MiB more


def test_responsibilities_are_bayes_rule() -> None:
    X, y, _ = mixed(n=400)
    readout = MixtureOfExpertsReadout(n_experts=3, random_state=0, max_iter=5).fit(X, y)
    Z = np.c_[(X - readout.whitening_mean_) @ readout.whitening_map_, np.ones(len(X))]
    gate = softmax(Z @ readout.gate_coef_.T, axis=1)
    experts = softmax(np.einsum("nd,kvd->nkv", Z, readout.expert_coef_), axis=2)
    joint = gate * experts[np.arange(len(y)), :, y]
    r = readout.responsibilities(X, y)
    np.testing.assert_allclose(r.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(r, joint / joint.sum(axis=1, keepdims=True), atol=1e-8)
    np.testing.assert_allclose(readout.gate_proba(X), gate, atol=1e-8)
    np.testing.assert_allclose(
        readout.predict_proba(X), np.einsum("nk,nkv->nv", gate, experts), atol=1e-8
    )


def test_linear_responsibilities_are_bayes_rule() -> None:
    X, y, _ = mixed(n=400)
    readout = MixtureOfExpertsReadout(
        n_experts=3, experts="linear", random_state=0, max_iter=5
    ).fit(X, y)
    Z = np.c_[(X - readout.whitening_mean_) @ readout.whitening_map_, np.ones(len(X))]
    means = np.einsum("nd,kvd->nkv", Z, readout.expert_coef_)
    squared = np.square(np.eye(4)[y][:, None] - means).sum(axis=2)
    joint = np.log(softmax(Z @ readout.gate_coef_.T, axis=1)) - squared / (2 * readout.variance)
    r = readout.responsibilities(X, y)
    np.testing.assert_allclose(r.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(r, softmax(joint, axis=1), atol=1e-8)


def problem(n_experts: int = 3, n_classes: int = 4) -> tuple[SoftmaxExperts, Source, Any, Any, Any]:
    rng = np.random.default_rng(0)
    X, y, _ = mixed(n=50)
    Z = np.c_[X, np.ones(len(X))]
    prior = Prior.of_weights(
        n_experts, n_classes, np.linspace(0.5, 1.5, 5), alpha=0.3, common_alpha=0.1, gate_alpha=0.2
    )
    model = SoftmaxExperts(n_experts, n_classes, prior, n_conjugate=2)
    source = Source([(Z, y)], len(Z), 1)
    weights = 0.5 * rng.normal(size=(n_experts * (n_classes + 1), 6))
    return model, source, Z, y, weights


def expected_likelihood(
    weights: np.ndarray, r: np.ndarray, Z: np.ndarray, y: np.ndarray, prior: Prior
) -> float:
    """Penalised Q by brute force; responsibilities r (n, K) are given."""
    K = r.shape[1]
    logits = np.einsum("nd,kvd->nkv", Z, weights[:-K].reshape(K, -1, Z.shape[1]))
    log_experts = logits - logsumexp(logits, axis=2, keepdims=True)
    gate = Z @ weights[-K:].T
    log_gate = gate - logsumexp(gate, axis=1, keepdims=True)
    q = np.sum(r * (log_gate + log_experts[np.arange(len(y)), :, y]))
    return float(q + sum(prior.log_density(weights)))


def differences(function: Any, at: np.ndarray, step: float = 1e-5) -> np.ndarray:
    slopes = np.empty(at.shape)
    for index in np.ndindex(at.shape):
        moved = at.copy()
        moved[index] += step
        up = function(moved)
        moved[index] -= 2 * step
        slopes[index] = (up - function(moved)) / (2 * step)
    return slopes


def test_gradient_of_q_and_of_the_likelihood_by_differences() -> None:
    model, source, Z, y, weights = problem()
    expectation = model.e_step(source, weights)
    r = model.posterior(Z, y, weights).responsibilities.T
    slopes = differences(lambda W: expected_likelihood(W, r, Z, y, model.prior), weights)
    np.testing.assert_allclose(expectation.gradient, slopes, atol=1e-6)
    slopes = differences(lambda W: model.e_step(source, W).penalised, weights)
    np.testing.assert_allclose(expectation.gradient, slopes, atol=1e-6)


def test_curvature_products_by_differences() -> None:
    model, source, Z, y, weights = problem()
    r = model.posterior(Z, y, weights).responsibilities.T
    direction = np.random.default_rng(1).normal(size=weights.shape)
    kept = model.e_step(source, weights).statistics
    product = model._curved(source, weights, kept, direction) + model.prior.product(direction)

    def slope(step: float) -> np.ndarray:
        return differences(
            lambda W: expected_likelihood(W, r, Z, y, model.prior), weights + step * direction
        )

    np.testing.assert_allclose(product, (slope(-1e-3) - slope(1e-3)) / 2e-3, atol=1e-4)


def test_no_share_falls_below_a_hundred_billionth() -> None:
    logits = np.array([[3.0, 2.0, -900.0], [0.0, -np.inf, 0.0]])
    shares = softmax_in_place(logits.copy(), axis=1)
    np.testing.assert_allclose(shares, softmax(logits, axis=1), atol=2e-11)
    assert 1e-11 < 2 * shares[1, 1] < 2e-11


def test_prior_is_the_least_energy_over_what_experts_share() -> None:
    prior = Prior.of_weights(3, 2, np.ones(2), alpha=0.5, common_alpha=0.2, gate_alpha=0.1)
    weights = np.random.default_rng(0).normal(size=(9, 3))
    weights[:, -1] = 0
    experts = weights[:6].reshape(3, 2, 3)
    alpha, common_alpha, gate_alpha = 1.0, 0.4, 0.2  # times two units
    centre = alpha * experts.sum(axis=0) / (3 * alpha + common_alpha)
    energy = alpha * np.sum((experts - centre) ** 2) + common_alpha * np.sum(centre**2)
    energy += gate_alpha * np.sum(weights[6:] ** 2)
    assert sum(prior.log_density(weights)) == pytest.approx(-energy / 2)


def test_one_expert_is_softmax_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    X, y, _ = mixed(n=800)
    readout = MixtureOfExpertsReadout(
        n_experts=1, alpha=2e-3, common_alpha=2e-3, max_iter=200, tol=1e-12, early_stopping=False
    ).fit(X, y)
    # Both penalties in a row make half of one, along coordinates of about unit variance.
    peer = LogisticRegression(C=1 / (1e-3 * 5), tol=1e-8, max_iter=1000).fit(X, y)
    assert loss(readout.predict_proba(X), y) == pytest.approx(loss(peer.predict_proba(X), y), 1e-4)
    np.testing.assert_allclose(readout.predict_proba(X), peer.predict_proba(X), atol=2e-3)


@pytest.mark.parametrize("experts", ["softmax", "linear"])
def test_one_expert_learns_without_a_penalty_of_the_gate(experts: str) -> None:
    X, y, _ = mixed(n=800)
    free, penalised = (
        MixtureOfExpertsReadout(
            n_experts=1, experts=experts, gate_alpha=alpha, early_stopping=False
        )
        for alpha in (0.0, 1.0)
    )
    found = loss(free.fit(X, y).predict_proba(X), y)
    assert found == pytest.approx(loss(penalised.fit(X, y).predict_proba(X), y), abs=1e-3)
    assert found < loss(np.full((len(y), 5), 0.2), y) - 0.1


def test_a_known_mixture_is_recovered() -> None:
    X, y, truth = mixed(n=6000)
    readout = MixtureOfExpertsReadout(
        n_experts=2, alpha=0.01, common_alpha=0.01, gate_alpha=0.01, n_restarts=10, random_state=0
    ).fit(X[:5000], y[:5000])
    single = MixtureOfExpertsReadout(n_experts=1, alpha=0.01, random_state=0).fit(
        X[:5000], y[:5000]
    )
    rest = y[5000:]
    floor = loss(truth[5000:], rest)
    found = loss(readout.predict_proba(X[5000:]), rest)
    assert found - floor < 0.03
    assert loss(single.predict_proba(X[5000:]), rest) - floor > 0.1


def test_linear_experts_beat_one_linear_readout() -> None:
    X, y, _ = mixed(n=4000)
    many = MixtureOfExpertsReadout(n_experts=4, experts="linear", random_state=0).fit(
        X[:3000], y[:3000]
    )
    one = MixtureOfExpertsReadout(n_experts=1, experts="linear", random_state=0).fit(
        X[:3000], y[:3000]
    )
    many_loss = loss(many.predict_proba(X[3000:]), y[3000:])
    assert many_loss < loss(one.predict_proba(X[3000:]), y[3000:]) - 0.03


def test_early_stopping_helps_where_the_penalty_does_not() -> None:
    X, y, _ = mixed(n=900, n_units=20)
    readout = MixtureOfExpertsReadout(
        n_experts=8, alpha=1e-4, common_alpha=1e-4, gate_alpha=1e-4, max_iter=60, random_state=0
    )
    held_out = ArrayBlocks(X[600:700], y[600:700])
    train = ArrayBlocks(X[:600], y[:600])
    stopped = readout.fit_blocks(train, np.arange(4), held_out=held_out).predict_proba(X[700:])
    monitor = readout.monitor_
    assert monitor.stopped_early
    assert monitor.best == int(np.argmax(monitor.held_out))
    assert monitor.n_iter == monitor.best + readout.patience
    full = readout.set_params(early_stopping=False).fit_blocks(train, np.arange(4))
    assert loss(stopped, y[700:]) < loss(full.predict_proba(X[700:]), y[700:]) - 0.1


@both
@pytest.mark.parametrize("given", [False, True])
def test_history_tells_how_likely_training_and_held_out_rows_are(experts: str, given: bool) -> None:
    X, y, _ = mixed(n=3500)
    readout = MixtureOfExpertsReadout(n_experts=3, experts=experts, max_iter=2, random_state=0)
    if given:
        out = np.arange(3500) >= 3200
        train, held_out = ArrayBlocks(X[~out], y[~out]), ArrayBlocks(X[out], y[out])
        readout.fit_blocks(train, np.arange(4), held_out=held_out)
    else:
        out = np.arange(3500) // 64 % 10 == 9  # a tenth, in stretches of 64 rows
        readout.fit(X, y)
    monitor, P = readout.monitor_, readout.predict_proba(X)
    assert len(monitor.held_out) == len(monitor.log_likelihood) == readout.n_iter_ + 1
    assert monitor.held_out[monitor.best] == pytest.approx(-loss(P[out], y[out]))
    Z = np.c_[(X - readout.whitening_mean_) @ readout.whitening_map_, np.ones(len(X))]
    joint = np.log(softmax(Z @ readout.gate_coef_.T, axis=1))
    outputs = np.einsum("nd,kvd->nkv", Z, readout.expert_coef_)
    if experts == "softmax":
        joint += log_softmax(outputs, axis=2)[np.arange(len(y)), :, y]
    else:
        squared = np.square(np.eye(4)[y][:, None] - outputs).sum(axis=2)
        joint -= squared / (2 * readout.variance) + 2 * np.log(2 * np.pi * readout.variance)
    expected = logsumexp(joint, axis=1)[~out].mean()
    assert monitor.log_likelihood[monitor.best] == pytest.approx(expected)


@pytest.mark.parametrize(("buffer_size", "once"), [(100, True), (99, False)])
def test_held_out_rows_are_read_once_where_they_fit(buffer_size: int, once: bool) -> None:
    X, y, _ = mixed(n=700)
    passes = 0

    class Counted(ArrayBlocks):
        def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            nonlocal passes
            passes += 1
            return super().__iter__()

    def fitted(held_out: ArrayBlocks) -> np.ndarray:
        readout = MixtureOfExpertsReadout(
            n_experts=2, max_iter=4, patience=9, tol=0, buffer_size=buffer_size, random_state=0
        )
        train = ArrayBlocks(X[:600], y[:600], block_size=128)
        return readout.fit_blocks(train, np.arange(4), held_out=held_out).predict_proba(X[600:])

    counted = fitted(Counted(X[600:], y[600:], block_size=16))
    assert passes == 1 if once else passes > 4
    np.testing.assert_array_equal(counted, fitted(ArrayBlocks(X[600:], y[600:], block_size=16)))


def test_held_out_rows_come_in_stretches() -> None:
    out = in_held_out(0, 6400, 10)
    assert out.mean() == pytest.approx(0.1)
    assert np.array_equal(
        np.concatenate([in_held_out(0, 700, 10), in_held_out(700, 5700, 10)]), out
    )
    assert not in_held_out(0, 1000, 0).any()


def test_whitened_states_are_of_unit_covariance_and_shares_are_their_variances_before() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4)) @ rng.normal(size=(4, 4)) + 3
    whitening = Whitening.from_moments(Moments(4, 1).add(X, np.zeros(2000, dtype=int)), np.float64)
    Z = whitening(X)
    np.testing.assert_allclose(np.cov(Z[:, :-1].T, bias=True), np.eye(4), atol=5e-3)
    np.testing.assert_allclose(Z.mean(axis=0), [0, 0, 0, 0, 1], atol=1e-9)
    directions = whitening.map / np.linalg.norm(whitening.map, axis=0)
    variances = np.var(X @ directions, axis=0)
    np.testing.assert_allclose(whitening.shares, variances / variances.mean(), rtol=5e-3)
    np.testing.assert_allclose(variances, np.linalg.eigvalsh(np.cov(X.T, bias=True)), rtol=1e-6)


def test_parameters_of_numpy_are_taken() -> None:
    X, y, _ = mixed(n=700)
    options: dict[str, Any] = {"max_iter": 2, "random_state": 0}
    plain = MixtureOfExpertsReadout(n_experts=90, early_stopping=True, **options).fit(X, y)
    options |= {"n_experts": np.uint8(90), "early_stopping": np.True_}
    made = MixtureOfExpertsReadout(**options).fit(X, y)
    np.testing.assert_allclose(made.predict_proba(X), plain.predict_proba(X))


def test_restarts_keep_the_best() -> None:
    X, y, _ = mixed(n=700)
    readout = MixtureOfExpertsReadout(n_experts=3, n_restarts=4, max_iter=6, random_state=0).fit(
        X, y
    )
    assert len(readout.monitors_) == 4
    assert readout.monitor_.score == max(monitor.score for monitor in readout.monitors_)


@both
def test_a_seed_fixes_the_fit(experts: str) -> None:
    X, y, _ = mixed(n=600)
    readout = MixtureOfExpertsReadout(n_experts=3, experts=experts, max_iter=5, random_state=3)
    first = readout.fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(readout.fit(X, y).predict_proba(X), first)
    other = readout.set_params(random_state=4).fit(X, y).predict_proba(X)
    assert np.abs(other - first).max() > 1e-6


@both
def test_rows_past_the_buffer_are_learned(experts: str) -> None:
    X, y, _ = mixed(n=6000)
    readout = MixtureOfExpertsReadout(n_experts=3, experts=experts, buffer_size=500, random_state=0)
    readout.partial_fit(X[:500], y[:500], classes=np.arange(4))
    before = loss(readout.predict_proba(X[5000:]), y[5000:])
    for start in range(500, 5000, 700):
        readout.partial_fit(X[start : start + 700], y[start : start + 700])
    assert loss(readout.predict_proba(X[5000:]), y[5000:]) < before


def test_monitor_warns_when_the_likelihood_falls() -> None:
    monitor = ConvergenceMonitor(tol=1e-3, max_iter=5, patience=2)
    monitor.report(-2.0, -2.0)
    with pytest.warns(ConvergenceWarning, match="fell by 0.5") as caught:
        monitor.report(-2.5, -2.5)
    assert caught[0].filename == __file__
    with pytest.raises(FloatingPointError, match="became nan"):
        monitor.report(float("nan"), 0.0)
    with pytest.raises(FloatingPointError, match="became nan"):
        ConvergenceMonitor(tol=1e-3, max_iter=5, patience=2).report(-2.0, -2.0, float("nan"))


def test_monitor_stops_by_patience() -> None:
    monitor = ConvergenceMonitor(tol=0.0, max_iter=50, patience=2)
    for step, held_out in enumerate([-3.0, -2.0, -2.5, -2.6]):
        monitor.report(float(step), float(step), held_out)
    assert (monitor.done, monitor.stopped_early, monitor.best) == (True, True, 1)
    assert monitor.score == -2.0


def test_monitor_keeps_the_last_of_equally_good_iterations() -> None:
    monitor = ConvergenceMonitor(tol=0.0, max_iter=50, patience=2)
    for step, held_out in enumerate([-2.0, -1.0, -1.0, -1.5]):
        monitor.report(float(step), float(step), held_out)
        assert monitor.is_best == (step < 3)
    assert (monitor.done, monitor.best) == (False, 2)


def test_verbose_logs_every_iteration(caplog: pytest.LogCaptureFixture) -> None:
    X, y, _ = mixed(n=100)
    readout = MixtureOfExpertsReadout(
        n_experts=2, max_iter=3, tol=0.0, verbose=True, random_state=0
    )
    log = logging.getLogger("esnlm")
    log.addHandler(caplog.handler)
    try:
        readout.fit(X, y)
    finally:
        log.removeHandler(caplog.handler)
    lines = {record.message for record in caplog.records if record.message.startswith("EM ")}
    assert len(lines) == readout.n_iter_ + 1


@pytest.mark.parametrize("configured", ["", "import logging; logging.basicConfig(level='INFO');"])
def test_verbose_is_seen_once_whether_logging_is_configured_or_not(configured: str) -> None:
    script = f"""{configured}
from esnlm.readouts.mixture.optimize import ConvergenceMonitor
monitor = ConvergenceMonitor(tol=0.0, max_iter=5, patience=2, verbose=True)
monitor.report(-3.0, -2.0)
monitor.report(-2.0, -1.0)
"""
    command = [sys.executable, "-c", script]
    errors = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert errors.count("EM ") == len(errors.splitlines()) == 2


def test_conjugate_gradient_solves_every_system() -> None:
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(2, 4, 8))
    curved = [root @ root.T + np.eye(4) for root in roots]
    gradient = rng.normal(size=(8, 1))

    def product(D: np.ndarray) -> np.ndarray:
        return np.concatenate([curved[0] @ D[:4], curved[1] @ D[4:]])

    found = conjugate_gradient(gradient, product, np.ones((8, 1)), np.repeat([0, 1], 4), 4)
    np.testing.assert_allclose(product(found), gradient, atol=1e-8)


def test_steps_of_em_are_remembered_with_the_fall_of_the_gradient() -> None:
    model, source, _, _, weights = problem()
    memory = QuasiNewtonMemory(10)
    before = model.e_step(source, weights)
    for _ in range(2):
        step_to = model.m_step(source, weights, before, memory)
        moved, after = model.e_step_uphill(source, weights, before, step_to, memory)
        fall = before.gradient - after.gradient
        step = memory.direction(fall, lambda gradient: 0.1 * gradient)
        np.testing.assert_allclose(step, moved - weights, atol=1e-8)
        weights, before = moved, after


def test_memory_of_two_steps_forgets_those_before() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 9))
    steps = rng.normal(size=(4, 5))
    found = []
    for kept in (steps, steps[2:]):
        memory = QuasiNewtonMemory(2)
        for step in kept:
            memory.update(step, root @ root.T @ step)
        found.append(memory.direction(np.arange(1.0, 6.0), lambda g: 0.1 * g))
    np.testing.assert_array_equal(*found)


def test_memory_satisfies_the_secant_equation() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 9))
    curved = root @ root.T
    memory = QuasiNewtonMemory(3)
    for _ in range(6):
        step = rng.normal(size=5)
        memory.update(step, curved @ step)
    np.testing.assert_allclose(memory.direction(curved @ step, lambda g: 0.1 * g), step, atol=1e-8)
    assert np.array_equal(QuasiNewtonMemory(3).direction(step, lambda g: 2 * g), 2 * step)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_experts": 0}, "n_experts must be an integer of at least 1, got 0"),
        ({"alpha": -1.0}, r"alpha must lie in \[0, 1e\+12\], got -1.0"),
        ({"experts": "tree"}, "experts must be one of .* got 'tree'"),
        ({"experts": np.ones(2)}, r"experts must be one of .* got array"),
        ({"validation_fraction": 0.9}, "validation_fraction must lie in"),
        ({"variance": 0.0}, "variance must be positive, got 0.0"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    X, y, _ = mixed(n=20)
    with pytest.raises(ValueError, match=message):
        MixtureOfExpertsReadout(**parameters).fit(X, y)


def test_labels_of_responsibilities_are_checked() -> None:
    X, y, _ = mixed(n=100)
    readout = MixtureOfExpertsReadout(n_experts=2, max_iter=2, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="one label a row"):
        readout.responsibilities(X, y[:-1])
    with pytest.raises(ValueError, match="not among the 4 classes"):
        readout.responsibilities(X, y + 7)


@pytest.mark.parametrize("experts", ["softmax", "linear"])
def test_states_that_single_precision_cannot_hold_are_refused(experts: str) -> None:
    """More rows of another size ended in a message of LAPACK, and such states predicted nan."""
    X = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
    y = X.argmax(axis=1)
    readout = MixtureOfExpertsReadout(experts=experts, n_experts=2, random_state=0).fit(X, y)
    far = readout.predict_proba(np.float32(1e20) * X)
    np.testing.assert_allclose(far.sum(axis=1), 1.0, rtol=1e-6)
    with pytest.raises(ValueError, match="states are too large"):
        readout.predict_proba(1e200 * X.astype(float))
    with pytest.raises(ValueError, match=r"X has states .e\+04 standard deviations"):
        readout.partial_fit(np.float32(1e4) * X, y).predict(X)
