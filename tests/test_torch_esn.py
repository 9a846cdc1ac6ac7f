"""Echo state networks trained by gradient, against the core's states and finite differences."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from esnlm import LanguageModel, Reservoir  # noqa: E402
from esnlm.loading import load_model  # noqa: E402
from esnlm.text.boundaries import framed  # noqa: E402
from esnlm.text.corpus import join_sequences  # noqa: E402
from esnlm.text.tokenizers import Tokenizer  # noqa: E402
from esnlm.torch.language_model import TorchLanguageModel  # noqa: E402
from esnlm.torch.networks.esn import (  # noqa: E402
    EchoStateNetwork,
    EchoStateNetworkWithEmbedding,
    output_layer,
)
from esnlm.torch.networks.recurrence import Recurrence  # noqa: E402
from esnlm.torch.networks.registry import n_trained  # noqa: E402
from esnlm.torch.training.plan import Plan  # noqa: E402
from esnlm.torch.training.trainer import NetworkTrainer  # noqa: E402

pytestmark = pytest.mark.torch

TEXT = ["the boy sees the dog", "the dog sees the boy", "the boy walks"]
RESERVOIRS: dict[str, dict[str, Any]] = {
    "paper": {},
    "exactly d": {"topology": "random"},
    "offsets": {"topology": "offsets", "input_degree": None, "leak_rate": 1.0},
    "small world": {"topology": "small_world", "degree": 6, "bias_scaling": 0.3},
    "ring": {"topology": "ring"},
    "relu": {"activation": "relu", "leak_rate": 0.8, "spectral_radius": 0.9},
    "identity": {"activation": "identity", "leak_rate": 0.5, "degree": 30},
    "half full": {"degree": 30},
    "traces": {"topology": "diagonal", "spectral_radius": 0.0, "bias_scaling": 0.3},
}


def tokens(n_sequences: int = 3, length: int = 12, n_tokens: int = 9) -> Any:
    return torch.from_numpy(np.random.default_rng(1).integers(n_tokens, size=(n_sequences, length)))


def network(kind: type = EchoStateNetwork, dtype: str = "float32", **options: Any) -> Any:
    torch.manual_seed(0)
    parameters = {"n_units": 60, "random_state": 3, "dtype": dtype}
    reservoir = parameters | options.pop("reservoir", {})
    return kind(9, reservoir=reservoir, dropout=0.0, **options)


@pytest.mark.parametrize("name", RESERVOIRS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [EchoStateNetwork, EchoStateNetworkWithEmbedding])
def test_states_are_those_of_the_core(name: str, dtype: str, kind: type) -> None:
    made = network(kind, dtype, reservoir=RESERVOIRS[name])
    hidden, state = made.encode(tokens())
    for row, ids in enumerate(tokens().numpy()):
        expected = made.reservoir.transform(ids)
        found = hidden[row].detach().numpy()
        np.testing.assert_allclose(found, expected, atol=1e-5)
        np.testing.assert_allclose(state[row].detach().numpy(), expected[-1], atol=1e-5)


def test_a_matrix_is_gathered_or_multiplied_by_its_share_of_zeros() -> None:
    for degree, is_dense in ((5, False), (30, True)):
        made = network(reservoir={"degree": degree})
        assert made.recurrence.forwards.is_dense is is_dense
        assert made.recurrence.backwards.is_dense is is_dense


@pytest.mark.parametrize("name", ["paper", "offsets", "small world", "half full", "traces"])
@pytest.mark.parametrize("steps", [1, 64])
def test_sequences_of_all_lengths_are_harvested_at_once(
    name: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esnlm.torch.networks.recurrence._STEPS", steps)
    made = network(reservoir=RESERVOIRS[name])
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 30, size=40)
    starts = np.cumsum(lengths) - lengths
    ids = rng.integers(9, size=int(lengths.sum()))
    hidden = made.harvest(ids, starts).numpy()
    assert hidden.shape == (len(ids), 60)
    for first, length in zip(starts, lengths, strict=True):
        part = slice(first, first + length)
        np.testing.assert_allclose(hidden[part], made.reservoir.transform(ids[part]), atol=1e-5)


@pytest.mark.parametrize("two_level", [False, True])
def test_double_precision_is_kept_from_the_empty_text_on(two_level: bool) -> None:
    made = network(EchoStateNetworkWithEmbedding, "float64", two_level=two_level).eval()
    model = TorchLanguageModel(made, reset="never")
    text = tokens()[0].numpy()
    scores = np.exp(model.log_likelihood([text])[0])
    assert scores[-1] == pytest.approx(model.predict_proba(text[:-1])[text[-1]], abs=1e-12)
    expected = made.head(torch.zeros(60, dtype=torch.float64)).softmax(dim=-1)
    np.testing.assert_allclose(model.predict_proba(), expected.detach().numpy(), atol=1e-12)


@pytest.mark.parametrize("activation", ["tanh", "relu", "identity"])
def test_a_network_can_be_pickled(activation: str) -> None:
    made = network(reservoir={"activation": activation}).eval()
    again = pickle.loads(pickle.dumps(made))
    torch.testing.assert_close(again.encode(tokens())[0], made.encode(tokens())[0], rtol=0, atol=0)


def test_frozen_states_carry_no_gradient() -> None:
    hidden, _ = network().encode(tokens())
    assert not hidden.requires_grad


@pytest.mark.parametrize("name", ["paper", "offsets", "relu", "identity", "half full"])
def test_gradients_of_the_recurrence_are_finite_differences(name: str) -> None:
    options = {"n_units": 8, "degree": 3, "dtype": "float64", "random_state": 0}
    given = EchoStateNetwork.RESERVOIR | {"input_degree": None} | RESERVOIRS[name] | options
    reservoir = Reservoir(**given).fit(n_inputs=4)
    cell = Recurrence(reservoir.W_, reservoir.leak_rate_, reservoir.activation)
    drives = torch.randn(5, 8, 2, dtype=torch.float64, requires_grad=True)
    state = torch.randn(8, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(cell, (drives, state))


def test_gradients_of_a_trained_embedding_are_finite_differences() -> None:
    made = network(EchoStateNetworkWithEmbedding, "float64", reservoir={"n_units": 6})
    start = made.embedding.weight.detach().clone()

    def loss(weight: Any) -> Any:
        hidden, _ = torch.func.functional_call(
            _Encoder(made), {"network.embedding.weight": weight}, tokens()
        )
        return made.loss(hidden[:, :-1].reshape(-1, 6), tokens()[:, 1:].reshape(-1)).mean()

    assert torch.autograd.gradcheck(loss, (start.requires_grad_(),))


class _Encoder(torch.nn.Module):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: Any) -> Any:
        return self.network.encode(ids)


def test_truncation_is_reading_in_pieces_without_their_past() -> None:
    grads = []
    for truncate in (None, 4):
        made = network(EchoStateNetworkWithEmbedding, truncate=truncate)
        if truncate:
            hidden, _ = made.encode(tokens())
        else:
            parts, state = [], None
            for first in range(0, 12, 4):
                part, state = made.encode(tokens()[:, first : first + 4], state)
                parts.append(part)
                state = state.detach()
            hidden = torch.cat(parts, dim=1)
        hidden.square().sum().backward()
        grads.append(made.embedding.weight.grad)
    torch.testing.assert_close(*grads)
    whole = network(EchoStateNetworkWithEmbedding)
    whole.encode(tokens())[0].square().sum().backward()
    assert not torch.allclose(whole.embedding.weight.grad, grads[0])


@pytest.mark.parametrize("kind", [EchoStateNetwork, EchoStateNetworkWithEmbedding])
@pytest.mark.parametrize("rank", [None, 5, 512])
def test_the_folder_is_the_cores_and_scores_alike(kind: type, rank: Any, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train_words(TEXT)
    torch.manual_seed(0)
    made = kind(len(tokenizer), reservoir={"n_units": 40, "random_state": 0}, rank=rank)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter))
    model = TorchLanguageModel(made, tokenizer)
    model.save(tmp_path / "model")
    core = load_model(tmp_path / "model")
    assert isinstance(core, LanguageModel)
    assert core.readout_.n_parameters_ == sum(p.numel() for p in made.output.parameters())
    for ours, theirs in zip(model.log_likelihood(TEXT), core.log_likelihood(TEXT), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    again = TorchLanguageModel.load(tmp_path / "model")
    np.testing.assert_allclose(again.score(TEXT), model.score(TEXT), atol=1e-6)


#: Ueda et al. (2025), table 3: units, trainable and all parameters in millions.
TABLE_3 = ((10, 26, 28), (11, 27, 29), (12, 28, 30), (13, 30, 32), (14, 34, 36), (15, 43, 45),
           (16, 59, 63))  # fmt: skip
#: Ueda et al. (2025b), table 1: units, ESN's trainable and all, ESN+i's trainable and all.
TABLE_1 = ((64, 3, 6, 6, 6), (128, 6, 12, 12, 12), (256, 12, 25, 25, 25), (512, 25, 51, 51, 51),
           (1024, 51, 104, 102, 104), (2048, 102, 210, 205, 210))  # fmt: skip


@pytest.mark.parametrize(("power", "trainable", "everything"), TABLE_3)
def test_counts_are_those_of_table_3(power: int, trainable: int, everything: int) -> None:
    n, n_tokens, degree, rank = 2**power, 50257, 32, 512
    with torch.device("meta"):
        output = output_layer(n, n_tokens, rank, torch.float32)
    trained = sum(parameter.numel() for parameter in output.parameters())
    frozen = degree * n + degree * n_tokens + n  # W, W_in, a
    assert round(trained / 1e6) == trainable
    assert round((trained + frozen) / 1e6) == everything


def test_counts_of_a_network_follow_that_formula() -> None:
    reservoir = {"n_units": 128, "topology": "random", "random_state": 0}
    made = EchoStateNetwork(300, reservoir=reservoir, rank=16)
    counts = made.parameter_counts()
    assert counts.trainable == 128 * 16 + 16 * 300 + 300
    assert counts.nonzero - counts.trainable == 32 * 128 + 32 * 300 + 128
    assert counts.total - counts.trainable == 128 * 128 + 128 * 300 + 128


@pytest.mark.parametrize("row", TABLE_1)
def test_counts_of_table_1(row: tuple[int, ...]) -> None:
    n, n_tokens = row[0], 50257
    with torch.device("meta"):
        output = output_layer(n, n_tokens, None, torch.float32)
    trained = sum(parameter.numel() for parameter in output.parameters())
    embedding, recurrent = n * n_tokens, n * n
    found = (trained, trained + embedding + recurrent, trained + embedding,
             trained + embedding + recurrent)  # fmt: skip
    sizes = ({"reservoir": {"n_units": n}, "train_embedding": trains} for trains in (False, True))
    assert [n_trained("esn+i", settings, n_tokens) for settings in sizes] == [found[0], found[2]]
    assert tuple(value // 10**6 for value in found) == row[1:]


def test_counts_of_a_trained_embedding() -> None:
    reservoir = {"n_units": 64, "topology": "random", "random_state": 0}
    made = EchoStateNetworkWithEmbedding(300, reservoir=reservoir)
    counts = made.parameter_counts()
    assert counts.trainable == 64 * 300 + 64 * 300 + 300
    assert counts.total - counts.trainable == 64 * 64 + 64
    assert counts.nonzero - counts.trainable == 64 * 32 + 64
    frozen = EchoStateNetworkWithEmbedding(300, reservoir=reservoir, train_embedding=False)
    others = frozen.parameter_counts()
    assert others.trainable == 64 * 300 + 300
    assert (others.total, others.nonzero) == (counts.total, counts.nonzero)


def test_a_frozen_embedding_stays_and_loses_entries_in_training(tmp_path: Path) -> None:
    """Dropout after the embedding, and before the output, as section 4.1 of Ueda et al. 2025b."""
    tokenizer = Tokenizer.train_words(TEXT)
    torch.manual_seed(0)
    reservoir = {"n_units": 40, "random_state": 0}
    made = EchoStateNetworkWithEmbedding(len(tokenizer), reservoir=reservoir, train_embedding=False)
    start = made.embedding.weight.clone()
    drives = []
    made.recurrence.register_forward_pre_hook(lambda _, inputs: drives.append(inputs[0]))
    stream = framed_stream(tokenizer)
    NetworkTrainer(made, stream, None, Plan(n_passes=20, learning_rate=0.1)).run()
    torch.testing.assert_close(made.embedding.weight, start, rtol=0, atol=0)
    lost = (torch.cat([each.flatten() for each in drives]) == 0).double().mean()
    assert lost == pytest.approx(0.1, abs=0.02)
    model = TorchLanguageModel(made.eval(), tokenizer)
    model.save(tmp_path / "model")
    core = load_model(tmp_path / "model")
    for ours, theirs in zip(model.log_likelihood(TEXT), core.log_likelihood(TEXT), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def framed_stream(tokenizer: Tokenizer) -> Any:
    sequences = framed(TEXT, tokenizer, "sentence")
    return join_sequences(sequences, n_tokens=len(tokenizer), reset=True)


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match="rank must be None or an integer of at least 1, got 0"):
        network(rank=0)
    with pytest.raises(ValueError, match="truncate must be None or an integer of at least 1"):
        network(EchoStateNetworkWithEmbedding, truncate=0)
    reservoir = Reservoir(10, random_state=0).fit(n_inputs=4)
    with pytest.raises(ValueError, match="has 4 inputs, expected n_tokens=9"):
        EchoStateNetwork(9, reservoir=reservoir)
