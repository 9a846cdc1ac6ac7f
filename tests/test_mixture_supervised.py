"""Supervised mixture: gate and experts equal scikit-learn's logistic regressions on known z."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from esnlm import MixtureOfExpertsReadout, SoftmaxReadout
from esnlm.readouts.base.readout import ArrayBlocks


def spiral(n=3000, seed=0):
    """Return states, labels and experts: the expert says which half of the states matters."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    z = (X[:, 0] + 0.3 * rng.normal(size=n) > 0).astype(int)
    side = np.where(z == 1, X[:, 1], -X[:, 1])
    y = (side + 0.3 * rng.normal(size=n) > 0).astype(int)
    return X, y, z


def readout(**options):
    options = {"n_experts": 2, "max_iter": 200, "tol": 1e-9, "random_state": 0} | options
    return MixtureOfExpertsReadout(**options)


def test_gate_and_experts_are_logistic_regressions():
    X, y, z = spiral()
    weak = {"alpha": 1e-6, "common_alpha": 1e-6, "gate_alpha": 1e-6}
    fitted = readout(**weak, early_stopping=False, n_conjugate=20).fit(X, y, assignment=z)
    gate = LogisticRegression(C=1e8).fit(X, z).predict_proba(X)
    np.testing.assert_allclose(fitted.gate_proba(X), gate, atol=1e-3)
    experts = [LogisticRegression(C=1e8).fit(X[z == k], y[z == k]) for k in (0, 1)]
    truth = sum(gate[:, k, None] * experts[k].predict_proba(X) for k in (0, 1))
    np.testing.assert_allclose(fitted.predict_proba(X), truth, atol=3e-3)


def test_known_experts_tell_what_one_softmax_cannot():
    X, y, z = spiral()
    fitted = readout().fit(X, y, assignment=z)
    assert fitted.score(X, y) > 0.8 > 0.6 > SoftmaxReadout().fit(X, y).score(X, y)
    assert (fitted.gate_proba(X).argmax(axis=1) == z).mean() > 0.85


@pytest.mark.parametrize("buffer_size", [1 << 20, 100])
def test_blocks_give_what_arrays_give(buffer_size):
    X, y, z = spiral()
    whole = readout(max_iter=8).fit(X, y, assignment=z).predict_proba(X)
    blocks = readout(max_iter=8, buffer_size=buffer_size)
    blocks.fit_blocks(ArrayBlocks(X, y, 321), [0, 1], assignment=z)
    np.testing.assert_allclose(blocks.predict_proba(X), whole, atol=1e-5)


def test_held_out_rows_stop_it_and_the_likelihood_rises():
    X, y, z = spiral()
    judges = ArrayBlocks(X[:500], y[:500])
    fitted = readout(tol=0.0, max_iter=30)
    fitted.fit_blocks(ArrayBlocks(X[500:], y[500:]), [0, 1], held_out=judges, assignment=z[500:])
    assert np.all(np.diff(fitted.monitor_.penalised) >= 0)
    best = fitted.predict_log_proba_of(X[:500], y[:500]).mean()
    assert max(fitted.monitor_.held_out) == pytest.approx(best, abs=1e-5)


def test_the_next_fit_estimates_its_experts():
    X, y, z = spiral()
    fitted = readout(max_iter=5).fit(X, y, assignment=z).fit(X, y)
    alone = readout(max_iter=5).fit(X, y)
    np.testing.assert_array_equal(fitted.predict_proba(X), alone.predict_proba(X))


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ([0, 1], "assignment has 2 experts and the rows are 3000: give one expert a row"),
        (np.full(3000, 2), "one integer from 0 to 1 a row, .* from 2 to 2"),
        (np.zeros(3000), "one integer from 0 to 1 a row, got an array of shape .* float64"),
    ],
)
def test_bad_assignments_are_refused(assignment, message):
    X, y, _ = spiral()
    with pytest.raises(ValueError, match=message):
        readout().fit(X, y, assignment=assignment)


def test_linear_experts_take_no_assignment():
    X, y, z = spiral()
    with pytest.raises(ValueError, match="assignment needs experts='softmax', got"):
        readout(experts="linear").fit(X, y, assignment=z)
