"""The multi-timescale LSTM against the paper's equations and published figures."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from esnlm.reservoir.timescales import inverse_gamma_timescales  # noqa: E402
from esnlm.text.corpus import TokenStream  # noqa: E402
from esnlm.torch.language_model import TorchLanguageModel  # noqa: E402
from esnlm.torch.networks.lstm import LSTM  # noqa: E402
from esnlm.torch.networks.multi_timescale_lstm import (  # noqa: E402
    AWDLSTM,
    MultiTimescaleLSTM,
    forget_drives,
    measured_timescales,
)
from esnlm.torch.training.batches import batches_of  # noqa: E402
from esnlm.torch.training.plan import Plan  # noqa: E402
from esnlm.torch.training.trainer import NetworkTrainer  # noqa: E402

pytestmark = pytest.mark.torch

NETWORKS = [AWDLSTM, MultiTimescaleLSTM]
SMALL = {"n_units": 10, "n_dims": 6}
OFF = dict.fromkeys(
    ("dropout", "hidden_dropout", "input_dropout", "word_dropout", "weight_drop"), 0.0
)
TOKENS = torch.from_numpy(np.random.default_rng(0).integers(0, 11, size=(2, 30)))


def test_the_baseline_has_the_published_size():
    with torch.device("meta"):
        network = AWDLSTM(10_000)
    # "Model total parameters: 24221600" in the published training log, for Penn Treebank.
    assert sum(parameter.numel() for parameter in network.parameters()) == 24_221_600


def test_fixed_biases_are_all_that_differs():
    network = MultiTimescaleLSTM(10_000)
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    assert network.parameter_counts().total == trained + 2 * 1150 * 2
    assert trained == 24_221_600 - 2 * 1150 * 4


def test_layer_sizes_are_those_of_the_paper():
    with torch.device("meta"):
        network = MultiTimescaleLSTM(10_000)
    assert [layer.n_units for layer in network.layers] == [1150, 1150, 400]
    assert network.embedding.weight.shape == (10_000, 400)


def test_biases_are_those_of_equation_5():
    network = MultiTimescaleLSTM(11)
    for layer, times in (
        (0, np.repeat([3.0, 4.0], 575)),
        (1, inverse_gamma_timescales(0.56, 1150)),
    ):
        biases = network.eval().layers[layer].weights()[2:]
        first, second = (part.detach().double().numpy() for part in biases)
        i, f = np.split((first + second)[: 2 * 1150], 2)
        np.testing.assert_allclose(f, -np.log(np.expm1(1 / times)), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(i, -f)
        np.testing.assert_allclose(
            1 / np.logaddexp(0, -np.asarray(f, dtype=np.float64)), times, rtol=1e-4
        )
    assert network.layers[2].gate_bias is None


@torch.no_grad()
def free_input(network, n_steps, number=0):
    """Cell states of a layer left alone: no input, nothing through the hidden state."""
    layer = network.layers[number]
    for weight in (layer.weight_ih, layer.weight_hh, layer.bias_ih, layer.bias_hh):
        weight.zero_()
    state = (torch.zeros(1, layer.n_units), torch.ones(1, layer.n_units))
    inputs = torch.zeros(1, n_steps, layer.weight_ih.shape[1])
    return layer.eval()(inputs, state)[1][1][0]


def test_memory_decays_as_equation_1():
    c = free_input(MultiTimescaleLSTM(11, **SMALL), 12)
    expected = np.exp(-12 / np.repeat([3.0, 4.0], 5))
    np.testing.assert_allclose(c, expected, rtol=1e-5)


def test_long_timescales_outlive_bfloat16():
    network = MultiTimescaleLSTM(11, n_units=40, n_dims=6)
    assigned = network.assigned_timescales(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        c = free_input(network, 300, number=1).double().numpy()
    assert assigned[-2] > 300
    np.testing.assert_allclose(c, np.exp(-300 / assigned), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", [LSTM, *NETWORKS])
def test_forget_gates_are_those_of_the_states(kind):
    torch.manual_seed(0)
    settings = {"n_units": 5, "n_layers": 2} if kind is LSTM else SMALL
    network = kind(11, **settings).eval()
    drives, state = forget_drives(network, TOKENS)
    first, middle = forget_drives(network, TOKENS[:, :9])
    second, reached = forget_drives(network, TOKENS[:, 9:], middle)
    for whole, *parts in zip(drives, first, second, strict=True):
        torch.testing.assert_close(torch.cat(parts, dim=1), whole)
    torch.testing.assert_close(reached, state)
    torch.testing.assert_close(reached, network.encode(TOKENS)[1])


def test_measured_timescales_are_equation_3():
    network = MultiTimescaleLSTM(11, **SMALL)
    drives, _ = forget_drives(network, TOKENS)
    found = measured_timescales(network, TOKENS.numpy())
    for layer, times in zip(drives, found, strict=True):
        mean = layer.sigmoid().double().mean(dim=(0, 1)).numpy()
        np.testing.assert_allclose(times, -1 / np.log(mean), rtol=1e-4)
    with pytest.raises(ValueError, match="timescales need text, got none"):
        measured_timescales(network, [])


def test_measured_timescales_of_gates_that_are_0_or_1_in_single_precision():
    times = [0.008, 0.02, 3.0, 1e6, 1e9, 1e20]
    network = MultiTimescaleLSTM(11, **SMALL, layer_timescales=[None, None, times])
    with torch.no_grad():
        for weight in (network.layers[2].weight_ih, network.layers[2].weight_hh):
            weight.zero_()  # the biases are all that is left
    *_, found = measured_timescales(network, TOKENS.numpy())
    np.testing.assert_allclose(found, times, rtol=1e-5)


def test_measured_timescales_follow_the_assigned_ones():
    torch.manual_seed(0)
    network = MultiTimescaleLSTM(11, n_units=40, n_dims=6)
    found = measured_timescales(network, TOKENS.numpy())[1]
    assigned = network.assigned_timescales(1)
    assert np.corrcoef(np.log(found), np.log(assigned))[0, 1] > 0.99


@pytest.mark.parametrize("kind", NETWORKS)
def test_loss_falls_while_fixed_biases_stay(kind):
    torch.manual_seed(1)
    network = kind(11, **SMALL, dropout=0.1, weight_drop=0.1, input_dropout=0.1)
    before = {name: p.clone() for name, p in network.named_parameters() if not p.requires_grad}
    tokens = torch.arange(60).remainder(11).reshape(2, 30)
    optimiser = torch.optim.AdamW(network.parameter_groups(0.01), lr=1e-2)
    losses = []
    for _ in range(80):
        hidden, _ = network.encode(tokens[:, :-1])
        loss = network.loss(hidden.flatten(0, 1), tokens[:, 1:].flatten()).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert min(losses[-5:]) < 0.7 * losses[0]
    after = dict(network.named_parameters())
    assert all(torch.equal(after[name], values) for name, values in before.items())


def test_dropout_is_one_mask_for_a_piece_of_text():
    network = AWDLSTM(11, **SMALL, word_dropout=0.5).train()
    ones = torch.ones(3, 8, 6)
    masked = network._locked(ones, 0.4)
    assert torch.equal(masked, masked[:, :1].expand_as(masked))
    embedded = network._embedded(TOKENS)
    gone = (embedded == 0).all(dim=-1)
    for word in TOKENS.unique():
        assert gone[word == TOKENS].unique().numel() == 1


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_gradient_is_that_of_the_loss_and_the_penalties(accumulate):
    torch.manual_seed(0)
    network = AWDLSTM(11, **SMALL, **OFF, activation_penalty=0.7, slowness_penalty=1.3)
    tokens = np.random.default_rng(1).integers(0, 11, 41)
    plan = Plan(batching="streams", batch_size=2, length=20 // accumulate, accumulate=accumulate,
                optimizer="sgd", learning_rate=1.0, weight_decay=0.0)  # fmt: skip
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    losses, state = [], None
    for batch in batches_of(TokenStream(tokens, None, np.array([0, 41])), plan).of_pass(0):
        hidden, reached = network.eval().encode(torch.from_numpy(batch.tokens), state)
        state = [tuple(part.detach() for part in parts) for parts in reached]
        following = torch.from_numpy(batch.following).flatten()
        loss = network.loss(hidden.flatten(0, 1), following).mean()
        loss = loss + 0.7 * (hidden**2).mean()
        losses.append(loss + 1.3 * ((hidden[:, 1:] - hidden[:, :-1]) ** 2).mean())
    names = list(before)
    parameters = [network.get_parameter(name) for name in names]
    expected = torch.autograd.grad(sum(losses) / len(losses), parameters)
    assert len(losses) == accumulate
    NetworkTrainer(network, TokenStream(tokens, None, np.array([0, 41])), None, plan).run()
    for name, gradient in zip(names, expected, strict=True):
        moved = before[name] - network.get_parameter(name).detach()
        torch.testing.assert_close(moved, gradient, atol=1e-6, rtol=1e-4)


def test_padding_of_sentences_is_in_no_penalty():
    torch.manual_seed(0)
    network = AWDLSTM(11, **SMALL, **OFF, activation_penalty=0.7, slowness_penalty=1.3)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    tokens = np.random.default_rng(1).integers(0, 11, 12)
    sentences = [torch.from_numpy(part) for part in np.split(tokens, [7, 10])]
    losses, squares, steps = [], [], []
    for ids in sentences:  # each read alone
        hidden = network.eval().encode(ids[None, :-1])[0][0]
        losses.append(network.loss(hidden, ids[1:]))
        squares.append(hidden.square())
        steps.append(hidden.diff(dim=0).square())
    means = [torch.cat(parts).mean() for parts in (losses, squares, steps)]
    parameters = [network.get_parameter(name) for name in before]
    expected = torch.autograd.grad(means[0] + 0.7 * means[1] + 1.3 * means[2], parameters)
    plan = Plan(batch_size=3, optimizer="sgd", learning_rate=1.0, weight_decay=0.0)
    stream = TokenStream(tokens, np.array([0, 7, 10]), np.array([0, 12]))
    NetworkTrainer(network, stream, None, plan).run()
    for (name, was), gradient in zip(before.items(), expected, strict=True):
        moved = was - network.get_parameter(name).detach()
        torch.testing.assert_close(moved, gradient, atol=1e-6, rtol=1e-4)


def test_the_penalty_of_places_without_a_next_one_is_finite():
    network = AWDLSTM(11, **SMALL).train()
    network.encode(TOKENS)  # one process's rows, which those of another outlast
    assert np.isfinite(network.penalty(np.arange(30) < np.ones((2, 1))).item())


def test_penalties_are_of_training_alone():
    network = AWDLSTM(11, **SMALL)
    network.train().encode(TOKENS)
    assert network.penalty().item() > 0
    assert network.penalty() is None
    network.eval().encode(TOKENS)
    assert network.penalty() is None
    without = AWDLSTM(11, **SMALL, activation_penalty=0.0, slowness_penalty=0.0).train()
    without.encode(TOKENS)
    assert without.penalty() is None


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_model_lives_in_a_folder(kind, tmp_path):
    model = TorchLanguageModel(kind(11, **SMALL), reset="never")
    model.save(tmp_path / "model")
    text = TOKENS.flatten().numpy()
    again = TorchLanguageModel.load(tmp_path / "model")
    assert type(again.network) is kind
    assert again.perplexity([text]) == pytest.approx(model.perplexity([text]), rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_layers": 1}, "n_layers must be an integer of at least 2, got 1"),
        ({"weight_drop": 1.5}, r"weight_drop must lie in \[0, 1\), got 1.5"),
        ({"alpha": 0}, "alpha must be positive, got 0"),
        ({"slowness_penalty": -1}, "slowness_penalty must not be negative, got -1"),
    ],
)
def test_settings_that_make_no_network(settings, message):
    with pytest.raises(ValueError, match=message):
        MultiTimescaleLSTM(11, **settings)


def test_timescales_of_layers_are_a_parameter():
    laws = [[2, 3, 5], None, ["inverse_gamma", 1.2]]
    network = MultiTimescaleLSTM(11, n_units=6, n_dims=4, layer_timescales=laws)
    np.testing.assert_array_equal(network.assigned_timescales(0), [2, 2, 3, 3, 5, 5])
    assert network.assigned_timescales(1) is None
    np.testing.assert_allclose(network.assigned_timescales(2), inverse_gamma_timescales(1.2, 4))
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    assert MultiTimescaleLSTM.count(**network.settings()) == trained
    with pytest.raises(ValueError, match="must be a list of n_layers=3 entries, got 5"):
        MultiTimescaleLSTM(11, n_units=6, n_dims=4, layer_timescales=5)
    with pytest.raises(ValueError, match="layer_timescales must be positive"):
        MultiTimescaleLSTM(11, n_units=6, n_dims=4, layer_timescales=[[0], None, None])
