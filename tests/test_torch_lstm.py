"""The LSTM against torch's own and its published size."""

import pytest

torch = pytest.importorskip("torch")

from esnlm.torch.networks.lstm import LSTM, GatedLayer  # noqa: E402

pytestmark = pytest.mark.torch


def layer_of(n_inputs, n_units, **options):
    torch.manual_seed(0)
    return GatedLayer(n_inputs, n_units, **options).double()


def own_of_torch(layer, n_inputs):
    own = torch.nn.LSTM(n_inputs, layer.n_units, batch_first=True, dtype=torch.float64)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    with torch.no_grad():
        for name, weight in zip(names, layer.weights(), strict=True):
            getattr(own, name).copy_(weight)
    return own


@pytest.mark.parametrize("timescales", [None, [0.5, 2.0, 3.0, 40.0, 900.0]])
def test_a_layer_is_that_of_torch(timescales):
    layer = layer_of(3, 5, timescales=timescales)
    inputs = torch.randn(2, 7, 3, dtype=torch.float64)
    state = tuple(torch.randn(2, 5, dtype=torch.float64) for _ in range(2))
    outputs, (h, c) = layer(inputs, state)
    expected, (h_torch, c_torch) = own_of_torch(layer, 3)(inputs, tuple(s[None] for s in state))
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close((h, c), (h_torch[0], c_torch[0]))


@pytest.mark.parametrize("timescales", [None, [0.5, 2.0, 3.0, 40.0, 900.0]])
def test_the_gate_formulas_give_the_states_of_torch(timescales):
    layer = layer_of(3, 5, timescales=timescales)
    inputs = torch.randn(2, 7, 3, dtype=torch.float64)
    h, c = (torch.randn(2, 5, dtype=torch.float64) for _ in range(2))
    own = own_of_torch(layer, 3)
    expected, (_, last) = own(inputs, (h[None], c[None]))
    drives = layer.drives(inputs, expected, (h, c))
    i, f, g, o = (part.tanh() if n == 2 else part.sigmoid() for n, part in enumerate(drives))
    for t in range(7):
        c = f[:, t] * c + i[:, t] * g[:, t]
        torch.testing.assert_close(o[:, t] * c.tanh(), expected[:, t])
    torch.testing.assert_close(c, last[0])


def test_a_layer_in_half_precision_has_states_and_gradients_of_one_in_full():
    layer = layer_of(6, 9).float()
    inputs = torch.randn(5, 11, 6, requires_grad=True)
    state = tuple(torch.randn(5, 9, requires_grad=True) for _ in range(2))
    leaves = [inputs, *state, *layer.parameters()]
    above = torch.randn(5, 11, 9)
    found = []
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            outputs, (h, c) = layer(inputs, state)
        total = (above * outputs).sum() + h.sum() + (c * c).sum()
        gradients = torch.autograd.grad(total, leaves)
        found.append([*(each.detach() for each in (outputs, h, c)), *gradients])
    for full, other in zip(*found, strict=True):
        assert other.dtype == torch.float32
        assert float((full - other).norm()) < 0.02 * float(full.norm())


def test_weight_drop_leaves_out_recurrent_weights_in_training_alone():
    layer = layer_of(3, 50, weight_drop=0.5)
    dropped = layer.weights()[1]
    assert float((dropped == 0).double().mean()) == pytest.approx(0.5, abs=0.03)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * layer.weight_hh[kept])
    assert torch.equal(layer.eval().weights()[1], layer.weight_hh)


def test_size_is_that_of_papers_000_and_001():
    with torch.device("meta"):
        network = LSTM(50257)
    count = sum(parameter.numel() for parameter in network.parameters())
    assert count == 53_614_673  # 54 million in table 3 of 000, 53 in table 1 of 001
    own = torch.nn.LSTM(512, 512, device="meta")
    assert count == 2 * 50257 * 512 + 50257 + sum(p.numel() for p in own.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_units": 0}, "n_units must be an integer of at least 1, got 0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1"),
    ],
)
def test_settings_that_make_no_network(settings, message):
    with pytest.raises(ValueError, match=message):
        LSTM(9, **settings)
