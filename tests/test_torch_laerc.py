"""Layered reservoirs against straightforward numpy, finite differences and their count."""

import numpy as np
import pytest
import scipy.special

torch = pytest.importorskip("torch")

from esnlm.torch.networks.laerc import LayeredReservoirs, size_of  # noqa: E402
from esnlm.torch.training.plan import Plan  # noqa: E402

pytestmark = pytest.mark.torch

TEXT = np.random.default_rng(0).integers(0, 11, size=(2, 9))


def small(**settings):
    torch.manual_seed(1)
    network = LayeredReservoirs(11, **({"n_dims": 4, "n_layers": 2} | settings))
    with torch.no_grad():  # what begins at zero must be tested, too
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return network


def layer_norm(x, w, name):
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return scaled * w.get(f"{name}.weight", 1.0) + w.get(f"{name}.bias", 0.0)


def linear(x, w, name):
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def gelu(x):
    return 0.5 * x * (1 + scipy.special.erf(x / np.sqrt(2)))


def perceptron(x, w, name):
    hidden = gelu(linear(layer_norm(x, w, f"{name}.0"), w, f"{name}.1"))
    return linear(hidden, w, f"{name}.3")


def block(x, w, name):
    """Equations 11 to 25 for one sequence x (T, D)."""
    s = np.zeros(4 * x.shape[1])
    states = []
    for u in layer_norm(x, w, f"{name}.input_norm"):
        s = np.tanh(
            w[f"{name}.reservoir.weight_hh_l0"] @ s + w[f"{name}.reservoir.weight_ih_l0"] @ u
        )
        states.append(s)
    r = np.exp(w[f"{name}.log_scale"]) * perceptron(np.array(states), w, f"{name}.readout")
    g = scipy.special.expit(perceptron(np.concatenate([x, r], -1), w, f"{name}.gate"))
    m = g * r + (1 - g) * x
    return m + w[f"{name}.alpha"] * perceptron(m, w, f"{name}.feed_forward")


@pytest.mark.parametrize("gradient", [False, True])
def test_the_forward_pass_against_numpy(gradient):
    network = small(reservoir_gradient=gradient).double()
    w = {name: tensor.detach().numpy() for name, tensor in network.named_parameters()}
    logits = network.head(network.encode(torch.from_numpy(TEXT))[0]).detach()
    for text, found in zip(TEXT, logits, strict=True):
        x = w["embedding.weight"][text]
        x = block(block(x, w, "blocks.0"), w, "blocks.1")
        expected = layer_norm(x, w, "norm") @ w["embedding.weight"].T
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_new_network_is_near_the_identity():
    network = LayeredReservoirs(11, n_dims=4, n_layers=2)
    for layer in network.blocks:
        assert layer.alpha.item() == layer.log_scale.item() == 0.0


def loss_of(network, tokens):
    hidden, _ = network.encode(tokens)
    return network.loss(hidden[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).mean()


def test_gradients_through_the_reservoirs_against_finite_differences():
    network = small(n_dims=2, reservoir_gradient=True).double()
    tokens = torch.from_numpy(TEXT[:, :4])
    trained = tuple(p for p in network.parameters() if p.requires_grad)
    assert torch.autograd.gradcheck(lambda *_: loss_of(network, tokens), trained)


def test_gradients_pass_the_reservoirs_only_where_asked():
    tokens = torch.from_numpy(TEXT)
    for gradient in (False, True):
        network = small(n_layers=1, reservoir_gradient=gradient)
        with torch.no_grad():  # all that reaches the output comes through the reservoir
            network.blocks[0].gate[3].weight.zero_()
            network.blocks[0].gate[3].bias.fill_(100.0)
        hidden, _ = network.encode(tokens)
        hidden[..., 0].sum().backward()
        reached = network.embedding.weight.grad
        assert (reached is not None and reached.abs().sum().item() > 1e-6) is gradient


@pytest.mark.parametrize("gradient", [False, True])
def test_no_gradient_reaches_what_is_frozen_and_all_else_has_one(gradient):
    network = small(reservoir_gradient=gradient)
    loss_of(network, torch.from_numpy(TEXT)).backward()
    for name, parameter in network.named_parameters():
        assert ("reservoir" in name) is not parameter.requires_grad
        assert (parameter.grad is not None) is parameter.requires_grad, name


def test_parameter_counts_follow_the_formula():
    for d, n_layers, v in ((8, 3, 20), (64, 8, 500)):
        for gradient in (False, True):
            network = LayeredReservoirs(v, n_dims=d, n_layers=n_layers, reservoir_gradient=gradient)
            trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
            own = 16 * d * d + (25 if gradient else 23) * d + 2
            assert trained == n_layers * own + 2 * d + v * d
            frozen = n_layers * (16 * d * d + 4 * d * d)
            assert network.parameter_counts().total == trained + frozen


@pytest.mark.parametrize("measure", ["norm", "eigenvalue"])
@pytest.mark.parametrize("n_dims", [5, 70])
def test_radii_rise_with_depth(measure, n_dims):
    network = LayeredReservoirs(
        5, n_dims=n_dims, n_layers=3, radius=0.8, last_radius=1.0, measure=measure
    )
    for layer, expected in zip(network.blocks, (0.8, 0.9, 1.0), strict=True):
        matrix = layer.reservoir.weight_hh_l0.double().numpy()
        values = (
            np.linalg.svd(matrix, compute_uv=False)
            if measure == "norm"
            else np.abs(np.linalg.eigvals(matrix))
        )
        assert values.max() == pytest.approx(expected, abs=1e-6)
        assert size_of(matrix, measure) == pytest.approx(values.max(), abs=1e-6)


def test_the_spectral_radius_rises_linearly_to_the_last_block():
    """Equations 13 and 14; `radius` is that of the authors' code."""
    network = LayeredReservoirs(5, n_dims=5, n_layers=4)
    radii = [
        np.abs(np.linalg.eigvals(layer.reservoir.weight_hh_l0.double().numpy())).max()
        for layer in network.blocks
    ]
    assert radii == pytest.approx([0.9, 0.93, 0.96, 0.99], abs=1e-6)


def test_linear_weights_alone_decay():
    network = small()
    decaying, kept = network.parameter_groups(0.1)
    assert (decaying["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    assert len(decaying["params"]) == 2 * 6
    assert all(p.ndim == 2 for p in decaying["params"])
    assert any(p is network.embedding.weight for p in kept["params"])
    together = {id(p) for p in (*decaying["params"], *kept["params"])}
    assert together == {id(p) for p in network.parameters() if p.requires_grad}


@pytest.mark.parametrize("gradient", [False, True])
def test_the_loss_falls(gradient):
    torch.manual_seed(0)
    network = LayeredReservoirs(11, n_dims=16, n_layers=2, reservoir_gradient=gradient)
    tokens = torch.from_numpy(np.random.default_rng(1).permutation(11)[np.arange(200) % 11])
    tokens = tokens.reshape(5, 40)
    optimizer = torch.optim.AdamW(network.parameter_groups(0.1), lr=0.01)
    losses = []
    for _ in range(60):
        loss = loss_of(network, tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_settings_are_checked():
    with pytest.raises(ValueError, match="measure must be one of"):
        small(measure="trace")
    with pytest.raises(ValueError, match="reservoir_gradient must be true or false, got 'yes'"):
        LayeredReservoirs(20, reservoir_gradient="yes")
    with pytest.raises(ValueError, match="last_radius must be positive"):
        small(last_radius=0.0)


def test_the_recipe_is_a_plan():
    plan = Plan(**LayeredReservoirs.RECIPE)
    rates = [plan.rate(step, 1000) for step in (0, 9, 100, 999)]
    assert rates == pytest.approx([4e-5, 4e-4, 4e-4, 4e-5], rel=1e-4)
    assert plan.batch_size * plan.accumulate * plan.length == 65_536
