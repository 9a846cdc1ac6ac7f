"""The nonlinear readout of frozen states, against the core's states, counts and brute force."""

import tracemalloc
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmark_cases import BENCHMARKS

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from esnlm import Reservoir, SpectralWordFeatures  # noqa: E402
from esnlm.loading import load_model  # noqa: E402
from esnlm.readouts.base.last_tokens import last_tokens  # noqa: E402
from esnlm.storage.model_folder import ModelFormatError  # noqa: E402
from esnlm.text.corpus import TokenStream  # noqa: E402
from esnlm.torch.language_model import TorchLanguageModel  # noqa: E402
from esnlm.torch.networks.esn_mlp import EchoStateNetworkWithMLP  # noqa: E402
from esnlm.torch.networks.registry import n_trained  # noqa: E402
from esnlm.torch.networks.two_level_softmax import TwoLevelSoftmax, n_classes  # noqa: E402
from esnlm.torch.training.plan import Plan  # noqa: E402
from esnlm.torch.training.trainer import NetworkTrainer  # noqa: E402

pytestmark = pytest.mark.torch

V = 40
RESERVOIR = {"n_units": 30, "degree": 4, "random_state": 3}
UNCOUPLED = {"n_units": 30, "random_state": 3}
VARIANTS: list[dict[str, Any]] = [
    {}, {"n_direct": 0}, {"n_direct": 1}, {"n_pairs": 7}, {"n_pairs": 0, "n_blocks": 2},
    {"state": False}, {"two_level": False}, {"n_features": 0}, {"n_blocks": 0, "width": 6},
    {"attention": 4}, {"attention": 5, "n_heads": 1, "state": False}, {"gates": True},
    {"attention": 1, "n_heads": 2, "n_direct": 0}, {"attention": 0},
    {"trained_inputs": True, "reservoir": UNCOUPLED},
    {"trained_inputs": True, "reservoir": UNCOUPLED, "gates": True, "n_features": 0},
]  # fmt: skip


def stream(n: int = 900, seed: int = 0) -> TokenStream:
    """Sentences that repeat, most often, what was said four tokens before."""
    rng = np.random.default_rng(seed)
    tokens = np.minimum(rng.geometric(0.1, n), V - 1)
    for place in range(4, n):
        if rng.random() < 0.8:
            tokens[place] = tokens[place - 4]
    starts = np.unique(np.append(0, rng.integers(n, size=n // 12)))
    starts = starts[np.diff(starts, prepend=-9) > 1]
    return TokenStream(tokens, starts, np.array([0, n]))


def network(**options: Any) -> EchoStateNetworkWithMLP:
    torch.manual_seed(0)
    chosen = {"reservoir": RESERVOIR, "n_features": 8, "width": 24, "n_heads": 3, "n_hidden": 16}
    chosen |= {"dropout": 0.0, **options}
    made = EchoStateNetworkWithMLP(V, **chosen)
    made.survey(stream())
    return made.eval()


def softmax(n_inputs: int = 6, n_tokens: int = V) -> tuple[TwoLevelSoftmax, Any, Any]:
    torch.manual_seed(1)
    rng = np.random.default_rng(2)
    made = TwoLevelSoftmax(n_inputs, n_tokens).double()
    counts = rng.integers(0, 50, n_tokens)
    made.begin(counts, rng.standard_normal((n_tokens, 5)) * (counts > 0)[:, None], 0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    hidden = torch.randn(50, n_inputs, dtype=torch.float64, requires_grad=True)
    return made, hidden, torch.from_numpy(rng.integers(n_tokens, size=50))


@pytest.mark.parametrize("n_tokens", [1, 2, 5, V, 700])
def test_a_softmax_in_two_levels_is_a_distribution_and_its_losses_are_its_logs(n_tokens: int):
    made, hidden, targets = softmax(n_tokens=n_tokens)
    logs = made.log_probabilities(hidden)
    torch.testing.assert_close(logs.exp().sum(dim=-1), torch.ones(50).double(), rtol=0, atol=1e-12)
    expected = -logs.gather(1, targets[:, None])[:, 0]
    losses = made.losses(hidden, targets)
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=1e-8)


def test_classes_one_by_one_and_all_words_at_once_agree_in_losses_and_gradients():
    made, hidden, targets = softmax()
    classes, places = made.word_class[targets], made.position[targets]
    found = []
    for within in (made._by_class, made._masked):
        losses = within(hidden, classes, places)
        found.append([losses, *torch.autograd.grad(losses.sum(), [hidden, made.coef])])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_gradient_of_a_softmax_in_two_levels_is_that_of_finite_differences():
    made, hidden, targets = softmax()
    (gradient,) = torch.autograd.grad(made.losses(hidden, targets).sum(), hidden)
    for row, column in ((0, 0), (7, 3), (49, 5)):
        moved = [hidden.detach().clone() for _ in range(2)]
        moved[0][row, column] += 1e-4
        moved[1][row, column] -= 1e-4
        up, down = (made.losses(each, targets).sum().item() for each in moved)
        assert (up - down) / 2e-4 == pytest.approx(float(gradient[row, column]), abs=1e-6)


def test_the_first_distribution_is_that_of_the_counts():
    made = TwoLevelSoftmax(4, V)
    counts = np.random.default_rng(0).integers(0, 90, V)
    made.begin(counts, np.random.default_rng(1).standard_normal((V, 3)), 0)
    expected = (counts + 0.5) / (counts + 0.5).sum()
    found = made.log_probabilities(torch.zeros(1, 4)).exp()[0].detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert int(made.word_class.max()) < n_classes(V) <= V


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 30), st.integers(0, 5), st.randoms(use_true_random=False))
def test_last_tokens_are_those_of_the_sequence(n: int, k: int, random: Any):
    tokens = np.array([random.randrange(9) for _ in range(n)])
    starts = np.array(sorted({0, *(random.randrange(n) for _ in range(3))}))
    found = last_tokens(tokens, np.arange(n), starts, k)
    for place in range(n):
        begin = starts[starts <= place].max()
        before = tokens[begin : place + 1][::-1].tolist()
        assert found[place].tolist() == (before + [-1] * k)[:k]


@pytest.mark.parametrize(
    ("n_features", "reservoir"), [(0, RESERVOIR), (8, RESERVOIR), (8, UNCOUPLED)]
)
def test_states_are_those_of_the_core(n_features: int, reservoir: dict[str, Any]):
    made, text = network(n_features=n_features, reservoir=reservoir), stream(60, seed=5)
    features = None
    if n_features:
        words = SpectralWordFeatures(n_features=n_features, random_state=3)
        features = words.fit(stream().tokens, starts=stream().starts, n_tokens=V).embedding_
        features = features / features[np.unique(stream().tokens)].std()
        np.testing.assert_allclose(made.inputs.vectors.numpy(), features, rtol=1e-4, atol=1e-5)
    hidden = made.harvest(text.tokens, text.starts)
    for begin, end in zip(text.starts, np.append(text.starts[1:], 60), strict=True):
        ids = text.tokens[begin:end]
        expected = made.reservoir.transform(ids, features=features)
        np.testing.assert_allclose(hidden[begin:end, :30].numpy(), expected, atol=2e-5)
        assert hidden[begin, 30:].tolist() == [ids[0], V, V]
        encoded, _ = made.encode(torch.from_numpy(ids)[None])
        read = made.hidden_of(hidden, np.diff(np.append(text.starts, 60)))[begin:end]
        torch.testing.assert_close(encoded[0], read, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_text_read_in_pieces_is_text_read_at_once(options: dict[str, Any]):
    made, text = network(**options), torch.from_numpy(stream(24).tokens.reshape(2, 12))
    whole, last = made.encode(text)
    first, state = made.encode(text[:, :5])
    second, end = made.encode(text[:, 5:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    for ours, theirs in zip(end, last, strict=True):
        torch.testing.assert_close(ours, theirs)
    logits = made.head(whole[0])
    losses = made.loss(whole[0], text[0])
    expected = -torch.log_softmax(logits, dim=-1).gather(1, text[0][:, None])[:, 0]
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_parameters_are_counted_without_the_network(options: dict[str, Any]):
    made = network(**options)
    assert n_trained("esn+mlp", made.settings(), V) == made.n_trained
    assert not any(p.requires_grad for p in made.frozen_weights() if isinstance(p, torch.Tensor))


@pytest.mark.parametrize(
    ("given", "topology", "radius"),
    [({}, "diagonal", 0.0), ({"n_units": 9, "leak_rate": 0.5}, "diagonal", 0.0),
     ({"topology": "random"}, "random", 0.97), ({"degree": 4}, "offsets", 0.97),
     ({"spectral_radius": 0.5}, "offsets", 0.5)],
)  # fmt: skip
def test_units_are_coupled_where_parameters_say_how(
    given: dict[str, Any], topology: str, radius: float
):
    made = network(reservoir=given).reservoir
    alone = Reservoir(**made.get_params()).fit(n_inputs=made.n_inputs_)
    assert (made.W_ != alone.W_).nnz == 0
    assert made.W_.nnz == alone.W_.nnz  # the network left it as it was
    assert (made.topology, made.spectral_radius) == (topology, radius)
    assert bool(made.W_.data.any()) == (radius > 0)


def test_token_dropout_leaves_whole_vectors_out_and_keeps_the_mean():
    made = network(token_dropout=0.25)
    ids = torch.arange(V).repeat(400)
    whole = made._looked_up(made.tokens[0], ids)
    torch.testing.assert_close(whole, made.tokens[0].weight[ids])  # none when scored
    made.train()
    shares = made._looked_up(made.tokens[0], ids) / whole
    left_out = shares[:, 0] == 0
    expected = torch.where(left_out, 0.0, 4 / 3)[:, None].expand_as(shares)
    torch.testing.assert_close(shares, expected)
    assert left_out.double().mean().item() == pytest.approx(0.25, abs=0.02)


def test_pairs_with_vectors_are_the_most_frequent():
    text, made = stream(), network(n_pairs=7)
    counts: Counter[tuple[int, int]] = Counter()
    for begin, end in zip(text.starts, np.append(text.starts[1:], 900), strict=True):
        ids = text.tokens[begin:end].tolist()
        counts.update(pairwise(ids))
    found = [divmod(key, V) for key in made.pairs.tolist()]
    least = sorted(counts.values())[-7]
    assert len(set(found)) == 7
    assert all(counts[pair] >= least for pair in found)


def test_units_are_standardised_by_the_states_of_the_text():
    text, made = stream(), network()
    states = made.harvest(text.tokens, text.starts)[:, :30].double()
    torch.testing.assert_close(made.mean.double(), states.mean(dim=0), rtol=1e-4, atol=1e-5)
    deviation = states.std(dim=0, correction=0)
    torch.testing.assert_close(made.deviation.double(), deviation, rtol=1e-4, atol=1e-5)


def test_what_was_said_before_is_in_the_state_and_in_places_attended_to():
    losses = {}
    for state, attention in ((True, 0), (False, 6), (False, 0)):
        reservoir = RESERVOIR | {"n_units": 100}
        made = network(state=state, attention=attention, n_direct=2, n_pairs=0, reservoir=reservoir)
        plan = Plan(batch_size=8, n_passes=12, learning_rate=0.01, betas=(0.9, 0.98))
        trainer = NetworkTrainer(made, stream(4000), stream(600, seed=9), plan)
        trainer.run()
        losses[state, attention] = trainer.last_score
        one = np.zeros(1, dtype=np.int64)
        assert not made.harvest(one, one).requires_grad  # nothing goes back through time
    # What was said four tokens before is in neither of the last two.
    assert losses[True, 0] < losses[False, 0] - 0.15
    assert losses[False, 6] < losses[False, 0] - 0.15


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_a_folder_scores_as_the_network_did(options: dict[str, Any], tmp_path: Path):
    model = TorchLanguageModel(network(**options))
    docs = [stream(30, seed=4).tokens]
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.log_likelihood(docs)[0], model.log_likelihood(docs)[0])
    assert loaded.predict_proba(docs[0][:5]).sum() == pytest.approx(1)
    assert loaded.predict_proba([]).sum() == pytest.approx(1)


@pytest.mark.parametrize("options", [{}, {"n_features": 0}, {"gates": True}], ids=str)
def test_states_in_double_precision_are_read_as_others_are(options: Any, tmp_path: Path):
    docs, losses = [stream(40, seed=4).tokens], []
    for dtype in ("float32", "float64"):
        made = network(reservoir=RESERVOIR | {"dtype": dtype}, **options)
        plan = Plan(batch_size=16, learning_rate=0.01)
        NetworkTrainer(made, stream(), None, plan).run()
        model = TorchLanguageModel(made)
        model.save(tmp_path / dtype)
        losses.append(model.log_likelihood(docs)[0])
        np.testing.assert_array_equal(
            load_model(tmp_path / dtype).log_likelihood(docs)[0], losses[-1]
        )
        assert model.predict_proba(docs[0][:5]).sum() == pytest.approx(1)
    np.testing.assert_allclose(*losses, atol=0.02)


def test_memory_for_finding_pairs_does_not_grow_with_the_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("esnlm.torch.networks.esn_mlp.PIECE", 1 << 12)
    monkeypatch.setattr("esnlm.readouts.class_based.direct_connections._MOST_WAITING", 1 << 12)
    made, peaks = network(), []
    for n_pieces in (4, 40):
        tokens = np.random.default_rng(0).integers(0, V, n_pieces << 12).astype(np.uint16)
        tracemalloc.start()
        made._find_pairs(
            TokenStream(tokens, np.zeros(1, dtype=np.int64), np.array([0, len(tokens)]))
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_inputs_of_one_benchmark_row_are_not_those_of_the_next(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    inputs = pytest.importorskip("inputs")
    surveyed: list[EchoStateNetworkWithMLP] = []

    def untrained(make: Any, *_: Any) -> Any:
        torch.manual_seed(0)
        surveyed.append(make())
        surveyed[-1].survey(stream())
        return surveyed[-1]

    monkeypatch.setattr(inputs, "trained_network", untrained)
    args = SimpleNamespace(units=16, seed=0, input_scaling=0.0)
    vectors = inputs.unit(np.random.default_rng(0).standard_normal((V, 6)))
    for words in (None, vectors, None):
        inputs.mlp(inputs.SETTINGS["mlp"], words, stream(), V, args)
    one_hot, driven, again = surveyed
    assert one_hot.n_features == again.n_features == 0
    assert torch.equal(one_hot.deviation, again.deviation)
    assert not torch.equal(one_hot.deviation, driven.deviation)
    expected = vectors / vectors[np.unique(stream().tokens)].std()
    np.testing.assert_allclose(driven.inputs.vectors.numpy(), expected, rtol=1e-5)
    # Whatever drives the reservoir, classes are of spectral features.
    spectral = network(reservoir={"n_units": 16, "random_state": 0}, n_features=6)
    assert torch.equal(driven.output.word_class, spectral.output.word_class)


def test_vectors_of_a_network_of_the_last_tokens_are_principal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    inputs = pytest.importorskip("inputs")
    args = SimpleNamespace(units=16, seed=0, input_scaling=0.0)
    tables = inputs.of_last_tokens(stream(), V, args)
    assert [table.shape for table in tables] == [(V, 384)] * 3
    rows = inputs.principal(tables, 6, stream(), whiten=True)
    counts = np.bincount(stream().tokens, minlength=V)
    covariance = np.cov(rows, rowvar=False, fweights=counts, ddof=0)
    np.testing.assert_allclose(covariance, np.eye(6), atol=0.05)


@pytest.mark.parametrize(("value", "said"), [(999, "must lie in"), (5, "none of them empty")])
def test_classes_that_cannot_be_are_refused(value: int, said: str, tmp_path: Path):
    model = TorchLanguageModel(network())
    model.network.output.word_class[:] = 0
    model.network.output.word_class[0] = value
    model.save(tmp_path / "model")
    with pytest.raises(ModelFormatError, match=said):
        load_model(tmp_path / "model")


@pytest.mark.parametrize(("name", "value"), [("n_features", -1), ("width", 0), ("dropout", 1)])
def test_settings_out_of_range_are_named(name: str, value: Any):
    with pytest.raises(ValueError, match=f"^{name} must "):
        network(**{name: value})


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="n_direct must be at least 1, got 0"):
        network(state=False, n_direct=0)
    with pytest.raises(ValueError, match="gates need a state"):
        network(gates=True, n_direct=0)
    with pytest.raises(ValueError, match="width must be a multiple of n_heads=3, got 25"):
        network(width=25)
