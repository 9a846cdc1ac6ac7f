"""Our states against torch's own."""

import numpy as np
import pytest

from esnlm import Reservoir

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("activation", "nonlinearity"), [("tanh", "tanh"), ("relu", "relu")])
def test_states_equal_those_of_torch_rnn(activation: str, nonlinearity: str) -> None:
    n_units, n_words = 40, 11
    reservoir = Reservoir(
        n_units,
        spectral_radius=0.9,
        degree=8,
        activation=activation,
        bias_scaling=0.3,
        dtype="float64",
        random_state=0,
    ).fit(n_inputs=n_words)
    tokens = np.random.default_rng(1).integers(0, n_words, size=60)

    rnn = torch.nn.RNN(n_words, n_units, nonlinearity=nonlinearity, dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(torch.from_numpy(reservoir.W_.toarray()))
        rnn.weight_ih_l0.copy_(torch.from_numpy(np.asarray(reservoir.W_in_)))
        rnn.bias_ih_l0.copy_(torch.from_numpy(np.asarray(reservoir.bias_)))
        rnn.bias_hh_l0.zero_()
        expected, _ = rnn(torch.from_numpy(np.eye(n_words)[tokens]))

    np.testing.assert_allclose(reservoir.transform(tokens), expected.numpy(), rtol=1e-9, atol=1e-9)
