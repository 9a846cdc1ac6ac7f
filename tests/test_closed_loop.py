"""Free runs of a reservoir: beside the series that they continue, and beside reservoirpy's."""

from typing import Any

import numpy as np
import pytest
import reservoirpy.nodes
from reservoirpy.datasets import mackey_glass
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

from esnlm import Reservoir, RidgeReadout, RidgeRegressor, SoftmaxReadout

WASHOUT, LENGTH, AHEAD = 100, 2000, 200


def reservoir(n_units: int = 300, **settings: Any) -> Reservoir:
    options = {"leak_rate": 0.3, "spectral_radius": 1.1, "bias_scaling": 0.2, "degree": 20}
    return Reservoir(n_units, dtype="float64", random_state=0, **options | settings)


def test_a_free_run_follows_mackey_glass_as_that_of_reservoirpy() -> None:
    series = mackey_glass(LENGTH + AHEAD, tau=17) - 1
    past, future = series[:LENGTH], series[LENGTH:]
    ours = reservoir()
    states = ours.transform(past)
    readout = RidgeRegressor(alpha=1e-8).fit(states[WASHOUT:-1], past[WASHOUT + 1 :])
    run = ours.run_closed_loop(readout, states[-1], AHEAD)
    assert run.shape == (AHEAD, 1)

    node, theirs = ours.to_reservoirpy(), reservoirpy.nodes.Ridge(ridge=1e-8)
    theirs.fit(node.run(past[:-1]), past[1:], warmup=WASHOUT)
    value, expected = theirs.run(node.run(past[-1:]))[-1], []
    for _ in range(AHEAD):
        expected.append(value)
        value = theirs.run(node.run(value[None]))[-1]
    error, their_error = (np.sqrt(np.mean((r - future) ** 2)) for r in (run, np.array(expected)))
    assert error < 0.05 * future.std()
    assert error < 2 * their_error
    np.testing.assert_allclose(run[:20], expected[:20], atol=1e-4)


def test_a_free_run_of_two_sines_is_steps_of_transform_and_predict() -> None:
    t = np.arange(600) / 5
    series = np.column_stack([np.sin(t), np.cos(0.7 * t)])
    ours = reservoir(200, spectral_radius=0.9, input_scaling=0.3)
    states = ours.transform(series[:500])
    for readout in (RidgeRegressor(alpha=1e-8), Ridge(1e-8)):
        readout.fit(states[50:-1], series[51:500])
        run = ours.run_closed_loop(readout, states[-1], 100)
        np.testing.assert_allclose(run, series[500:], atol=0.01)
        again = readout.predict(ours.transform(np.vstack([series[:500], run])))
        np.testing.assert_allclose(run, again[499:-1], atol=1e-6)


@pytest.mark.parametrize("readout", [RidgeReadout(), SoftmaxReadout()], ids=repr)
def test_tokens_go_on_in_their_period(readout: Any) -> None:
    tokens = np.tile([0, 1, 2, 1, 3], 100)
    ours = reservoir(60).fit(n_inputs=4)
    states = ours.transform(tokens)
    run = ours.run_closed_loop(readout.fit(states[:-1], tokens[1:]), states[-1], 12)
    assert run.tolist() == [0, 1, 2, 1, 3, 0, 1, 2, 1, 3, 0, 1]
    assert run.dtype.kind == "i"
    assert ours.run_closed_loop(readout, states[-1], 0).shape == (0,)


def test_what_does_not_fit_is_refused() -> None:
    series = np.random.default_rng(0).normal(size=(50, 2))
    ours = reservoir(30)
    states = ours.transform(series)
    fitted = RidgeRegressor().fit(states, series)
    with pytest.raises(ValueError, match=r"shape \(30,\), got \(29,\)"):
        ours.run_closed_loop(fitted, states[-1, 1:], 3)
    with pytest.raises(ValueError, match="reads 29 columns, and the states have 30"):
        ours.run_closed_loop(RidgeRegressor().fit(states[:, 1:], series), states[-1], 3)
    with pytest.raises(ValueError, match="predicts 1 numbers a step, and the reservoir reads 2"):
        ours.run_closed_loop(RidgeRegressor().fit(states, series[:, 0]), states[-1], 3)
    with pytest.raises(ValueError, match="tokens must be at least 0 and below 2"):
        ours.run_closed_loop(RidgeReadout().fit(states, np.arange(50) % 3), states[-1], 3)
    with pytest.raises(ValueError, match="encode text"):
        ours.run_closed_loop(RidgeReadout().fit(states, ["a", "b"] * 25), states[-1], 3)
    with pytest.raises(ValueError, match="n must be an integer of at least 0, got -1"):
        ours.run_closed_loop(fitted, states[-1], -1)
    with pytest.raises(NotFittedError):
        ours.run_closed_loop(RidgeRegressor(), states[-1], 3)
    with pytest.raises(NotFittedError):
        reservoir(30).run_closed_loop(fitted, states[-1], 3)
