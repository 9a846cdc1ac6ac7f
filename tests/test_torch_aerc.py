"""The character reservoir and its attention readout, against the core and the paper's formulas."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from esnlm import Reservoir  # noqa: E402
from esnlm.torch.networks.windowed import (  # noqa: E402
    AttentionReadout,
    AttentionReservoir,
    CharacterReservoir,
)
from esnlm.torch.training.plan import Plan  # noqa: E402

pytestmark = pytest.mark.torch

TEXT = np.random.default_rng(0).integers(0, 11, size=70)


def small(kind=CharacterReservoir, **settings):
    torch.manual_seed(1)
    return kind(11, n_units=20, context=8, **settings)


def core_reservoir(network):
    """The same reservoir in the core; its inputs are the rows of the embedding."""
    n = network.n_units
    kind = str(network.recurrent.dtype).removeprefix("torch.")
    made = Reservoir(n, spectral_radius=1 / 0.9, degree=n, dtype=kind)
    recurrent, inputs = network.recurrent.numpy(), network.inputs.numpy()
    return made.set_weights(recurrent, inputs, np.zeros(n), np.ones(n))


def normalised(states):
    centred = states - states.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)


def test_every_position_has_the_core_reservoirs_state_of_its_own_window():
    network = small().double()
    hidden, _ = network.encode(torch.from_numpy(TEXT)[None])
    core = core_reservoir(network)
    features = network.embedding.numpy()
    for position in range(len(TEXT)):
        window = TEXT[max(0, position - 7) : position + 1]
        state = core.transform(window, features=features)[-1]
        np.testing.assert_allclose(hidden[0, position], normalised(state), atol=1e-9)


def test_last_is_the_last_of_encode():
    network = small()
    windows = torch.from_numpy(TEXT[:64].reshape(8, 8))
    torch.testing.assert_close(network.last(windows), network.encode(windows)[0][:, -1])


def test_weights_are_those_of_the_published_code():
    torch.manual_seed(0)
    network = CharacterReservoir(200, n_units=400)
    assert network.recurrent.std().item() == pytest.approx(1 / 0.9 / 20, rel=0.01)
    assert network.inputs.std().item() == pytest.approx(1 / 0.9 / 4, rel=0.03)
    assert network.embedding.std().item() == pytest.approx(1, rel=0.03)
    assert core_reservoir(network).spectral_radius_ == pytest.approx(1 / 0.9, rel=0.1)


def test_the_attention_readout_is_equations_3_to_5():
    torch.manual_seed(0)
    readout = AttentionReadout(7, 4, 9).double()
    states = torch.randn(5, 7, dtype=torch.float64)
    w = {name: tensor.detach().numpy() for name, tensor in readout.named_parameters()}
    for state, logits in zip(states.numpy(), readout(states).detach().numpy(), strict=True):
        units = np.maximum(w["hidden.weight"] @ state + w["hidden.bias"], 0)
        attention = (w["attention.weight"] @ units + w["attention.bias"]).reshape(4, 7)
        expected = w["output.weight"] @ (attention @ state) + w["output.bias"]
        np.testing.assert_allclose(logits, expected, atol=1e-12)


def test_gradients_of_the_readout_against_finite_differences():
    torch.manual_seed(0)
    readout = AttentionReadout(5, 3, 4).double()
    states = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *_: readout(states), (states, *readout.parameters()))


@pytest.mark.parametrize("kind", [CharacterReservoir, AttentionReservoir])
def test_only_the_readout_is_trained(kind):
    network = small(kind)
    assert all(name.startswith("readout.") for name, _ in network.named_parameters())
    hidden, _ = network.encode(torch.from_numpy(TEXT)[None])
    assert not hidden.requires_grad
    network.loss(hidden[0, :-1], torch.from_numpy(TEXT[1:])).mean().backward()
    assert all(p.grad.abs().sum() > 0 for p in network.parameters())


def test_parameter_counts():
    published = (15_000, 25_000, 50_000, 100_000, 155_000)
    for settings, about in zip(AttentionReservoir.PUBLISHED, published, strict=True):
        network = AttentionReservoir(59, **settings)
        count = sum(p.numel() for p in network.parameters())
        n, h, v = network.n_units, network.n_hidden, 59
        assert count == n * h + h + h * h * n + h * n + h * v + v
        assert count == pytest.approx(about, rel=0.25)
    plain = CharacterReservoir(59, n_units=750)
    assert sum(p.numel() for p in plain.parameters()) == 59 * 751
    frozen = 750 * 750 + 750 * 16 + 59 * 16
    assert plain.parameter_counts() == (59 * 751, 59 * 751 + frozen, 59 * 751 + frozen)


@pytest.mark.parametrize("name", ["n_units", "n_hidden", "n_dims", "context"])
def test_sizes_are_checked(name):
    with pytest.raises(ValueError, match=name):
        AttentionReservoir(5, **{name: 0})


def test_the_recipe_is_a_plan():
    plan = Plan(**CharacterReservoir.RECIPE)
    assert (plan.batching, plan.length, plan.batch_size) == ("windows", 32, 1024)
    assert plan.last_only
    assert plan.stride == 1
