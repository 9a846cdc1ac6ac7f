"""The networks that stand beside the readouts on Elman's sentences."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from esnlm import Reservoir  # noqa: E402
from esnlm.studies.elman.presets import Settings  # noqa: E402

pytestmark = pytest.mark.torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
KINDS = ("LSTM", "GRU", "transformer", "net on a reservoir")


@pytest.fixture
def elman_torch(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return pytest.importorskip("elman_torch")


def test_sentences_are_padded_and_none_is_lost(elman_torch):
    tokens = np.array([4, 2, 0, 3, 0, 1, 1, 1, 0])
    found = elman_torch.padded(tokens, end=0)
    assert found.tolist() == [[4, 2, 0, -1], [3, 0, -1, -1], [1, 1, 1, 0]]
    assert found[found >= 0].tolist() == tokens.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_depends_on_the_words_before_it_in_its_sentence_alone(elman_torch, kind):
    torch.manual_seed(0)
    network = elman_torch.Network(kind, n_tokens=6, longest=5, seed=0)
    sentences = torch.tensor([[4, 2, 5, 0, -1], [3, 1, 2, 4, 0]])
    whole = elman_torch.scored(network, sentences)
    torch.testing.assert_close(elman_torch.scored(network, sentences[1:]), whole[4:])
    sentences[1, 3] = 5
    changed = elman_torch.scored(network, sentences)
    torch.testing.assert_close(changed[:7], whole[:7])
    assert (changed[7:] != whole[7:]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_learns_and_its_rows_name_it(elman_torch, monkeypatch, kind):
    monkeypatch.setattr(elman_torch, "HALVINGS", 0)
    monkeypatch.setattr(elman_torch, "PATIENCE", 1)
    settings = Settings(train_sentences=300, test_sentences=100)
    scores, seconds, epochs = elman_torch.measure(kind, settings, seed=1)
    assert scores["peer"] == pytest.approx(4.6, abs=0.4)
    assert scores["peer"] < scores["ours"] < 12
    assert scores["setting"] == seconds["setting"] == epochs["setting"]
    assert scores["setting"].startswith(f"{kind}, {elman_torch.UNITS[kind]} units, ")
    assert seconds["ours"] > 0


def test_the_net_reads_the_states_of_a_reservoir(elman_torch):
    network = elman_torch.Network("net on a reservoir", n_tokens=6, longest=5, seed=3)
    tokens = np.array([0, 4, 2, 5])
    hidden, _ = network.body(network.embedding(torch.from_numpy(tokens)[None]))
    reservoir = Reservoir(400, spectral_radius=1.0, input_scaling=0.1, random_state=3)
    expected = reservoir.fit(n_inputs=6).transform(tokens)
    np.testing.assert_allclose(hidden[0], expected, atol=1e-5)
    assert len(list(network.output.parameters())) == sum(
        each.requires_grad for each in network.parameters()
    )
