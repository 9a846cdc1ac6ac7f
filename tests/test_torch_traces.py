"""Traces of trained vectors, against a loop over time, autograd, and the frozen reservoir."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from esnlm.text.corpus import TokenStream  # noqa: E402
from esnlm.torch.networks.esn_mlp import EchoStateNetworkWithMLP  # noqa: E402
from esnlm.torch.networks.traces import Traces  # noqa: E402

pytestmark = pytest.mark.torch

LEAK = np.array([1.0, 0.5, 0.03])


def loop(vectors: Tensor, lengths: list[int]) -> Tensor:
    """The states of `Traces`, step by step."""
    leak, states = torch.from_numpy(LEAK), []
    for part in vectors.split(lengths):
        state = torch.zeros(3, dtype=torch.float64)
        for vector in part:
            state = (1 - leak) * state + (leak * (2 - leak)).sqrt() * vector
            states.append(state)
    return torch.stack(states)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_states_and_gradients_are_those_of_a_loop(lengths: list[int]) -> None:
    torch.manual_seed(0)
    vectors = torch.randn(sum(lengths), 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(sum(lengths), 3, dtype=torch.float64)
    found, expected = Traces(LEAK)(vectors, np.array(lengths)), loop(vectors, lengths)
    torch.testing.assert_close(found, expected)
    ours, theirs = (
        torch.autograd.grad((weights * states).sum(), vectors)[0] for states in (found, expected)
    )
    torch.testing.assert_close(ours, theirs)


def test_other_devices_have_the_same_states(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    vectors, lengths = torch.randn(58, 3, dtype=torch.float64), [1, 40, 17]
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    torch.testing.assert_close(Traces(LEAK)(vectors, np.array(lengths)), loop(vectors, lengths))


def test_units_of_independent_inputs_have_variance_one() -> None:
    torch.manual_seed(0)
    states = Traces(LEAK)(torch.randn(200_000, 3, dtype=torch.float64), np.array([200_000]))
    torch.testing.assert_close(states.var(dim=0), torch.ones(3).double(), rtol=0.05, atol=0)


def network(**reservoir: Any) -> EchoStateNetworkWithMLP:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"reservoir": {"n_units": 12, "random_state": 3, **reservoir}}
    return EchoStateNetworkWithMLP(40, n_features=8, width=24, trained_inputs=True, **settings)


def test_training_starts_from_the_frozen_states() -> None:
    made, tokens = network(), np.minimum(np.random.default_rng(0).geometric(0.1, 400), 39)
    text = TokenStream(tokens, np.array([0]), np.array([0, 400]))
    made.survey(text)
    ids = text.tokens[:60]
    vectors = made.trace_vectors.weight[torch.from_numpy(ids)]
    found = made.traces(vectors, np.array([60])).detach().numpy()
    states = made.reservoir.transform(ids, features=made.inputs.vectors.numpy())
    # Without its mean, which the frozen units approach from zero, and in units of deviations.
    words = np.bincount(text.tokens, minlength=40) / 400
    features = made.inputs.vectors.numpy().astype(float)
    inputs = np.tanh(features @ made.reservoir.W_in_.T + made.reservoir.bias_)
    mean = words @ inputs
    deviation = np.sqrt(words @ (inputs - mean) ** 2)
    leak = made.reservoir.leak_rate_
    reached = 1 - (1 - leak) ** np.arange(1, 61)[:, None]
    expected = np.sqrt((2 - leak) / leak) * (states - mean * reached) / deviation
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


def test_coupled_units_have_no_trained_inputs() -> None:
    with pytest.raises(ValueError, match="trained_inputs need units without coupling"):
        network(degree=4)
