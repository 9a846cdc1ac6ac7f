"""Many states advanced by one token each, beside one at a time."""

import numpy as np
import pytest

from esnlm import Reservoir


def reservoir(n_units: int = 67, **options) -> Reservoir:
    return Reservoir(n_units, degree=5, random_state=1, **options).fit(n_inputs=11)


def branches(n_units: int, dtype: str = "float32"):
    random = np.random.default_rng(0)
    states = random.standard_normal((23, n_units)).astype(dtype)
    return states, random.integers(0, 11, 53), random.integers(0, 23, 53)


@pytest.mark.parametrize("topology", ["offsets", "random"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_units": 7, "leak_rate": 0.3},
        {"n_units": 128, "activation": "relu", "bias_scaling": 0.5},
        {"leak_rate": ("uniform", 0.0, 1.0), "input_degree": 3, "activation": "identity"},
    ],
)
def test_branches_are_those_of_advance(topology: str, dtype: str, options: dict):
    made = reservoir(**options, topology=topology, dtype=dtype)
    states, tokens, sources = branches(made.n_units, dtype)
    expected = [
        made.advance(states[source], token) for source, token in zip(sources, tokens, strict=True)
    ]
    with made.branching(n_threads=2) as advance:
        np.testing.assert_allclose(advance(states, tokens, sources), expected, atol=2e-6)


@pytest.mark.parametrize("topology", ["offsets", "random"])
def test_threads_and_neighbours_change_nothing(topology: str):
    made = reservoir(topology=topology)
    states, tokens, sources = branches(67)
    many = made.advance_many(states[sources], tokens, n_threads=2)
    few = [
        made.advance_many(states[sources[k : k + 3]], tokens[k : k + 3], n_threads=1)
        for k in range(0, 53, 3)
    ]
    np.testing.assert_array_equal(many, np.concatenate(few))


def test_states_may_be_advanced_within_one_array():
    made = reservoir()
    rows = np.zeros((9, 67), dtype=np.float32)
    with made.branching() as advance:
        advance(rows, [1], [0], out=rows[1:2])
        advance(rows, [2, 3], [1, 1], out=rows[2:4])
    np.testing.assert_allclose(rows[1:3], made.transform([1, 2]), atol=1e-6)
    np.testing.assert_allclose(rows[3], made.transform([1, 3])[-1], atol=1e-6)
    assert not rows[4:].any()


def test_features_drive_branches():
    made = Reservoir(30, random_state=0).fit(n_inputs=2)
    features = np.random.default_rng(1).standard_normal((6, 2)).astype(np.float32)
    states = np.zeros((3, 30), dtype=np.float32)
    many = made.advance_many(states, [0, 5, 5], features=features)
    np.testing.assert_allclose(many[1], made.advance(states[1], 5, features=features), atol=1e-6)


def test_what_compiled_code_must_not_see_is_refused():
    made = reservoir()
    states = np.zeros((3, 67), dtype=np.float32)
    with made.branching() as advance:
        for message, arguments in {
            "rows of states": (states, [1, 2], [0, 3]),
            "a state a token": (states, [1, 2]),
            "below 11": (states, [1, 2, 11]),
            "states must have shape": (states[:, :5], [1, 2, 3]),
            "C-ordered array of float32": (states, [1, 2, 3], [0, 1, 2], np.zeros((3, 67))),
        }.items():
            with pytest.raises(ValueError, match=message):
                advance(*arguments)


def test_diverging_branches_are_named():
    made = reservoir(activation="relu", spectral_radius=5.0)
    with pytest.raises(ValueError, match="diverge"):
        made.advance_many(np.full((1, 67), 1e8), [0])
