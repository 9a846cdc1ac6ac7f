"""What every network promises: text in pieces, a folder that makes it again, a loss that falls."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from esnlm.text.corpus import TokenStream  # noqa: E402
from esnlm.torch.language_model import TorchLanguageModel  # noqa: E402
from esnlm.torch.networks.registry import NETWORKS, network_class  # noqa: E402
from esnlm.torch.scoring import log_probabilities  # noqa: E402
from esnlm.torch.training.plan import Plan  # noqa: E402
from esnlm.torch.training.trainer import NetworkTrainer  # noqa: E402

pytestmark = pytest.mark.torch

WINDOWED = {"context": 8}
REGULAR = dict.fromkeys(("dropout", "hidden_dropout", "input_dropout", "weight_drop"), 0.0)
SMALL: dict[str, dict[str, Any]] = {
    "esn": {"reservoir": {"n_units": 30}, "rank": 8},
    "esn+i": {"reservoir": {"n_units": 30}, "rank": 8},
    "esn+mlp": {},
    "lstm": {"n_units": 12, "n_layers": 2},
    "gpt": {"n_units": 16, "n_layers": 2, "n_heads": 4, "context": 32},
    "gpt2": {"n_units": 16, "n_layers": 2, "n_heads": 4, "context": 32},
    "mts-lstm": {"n_units": 24, "n_dims": 8} | REGULAR,
    "awd-lstm": {"n_units": 24, "n_dims": 8} | REGULAR,
    "char-esn": {"n_units": 20} | WINDOWED,
    "aerc": {"n_units": 20, "n_hidden": 3} | WINDOWED,
    "laerc": {"n_dims": 4, "n_layers": 2, "measure": "norm", "last_radius": 0.95},
    "transformer": {"n_hidden": 6, "n_heads": 2, "n_layers": 2, "n_dims": 8} | WINDOWED,
}
TOKENS = torch.from_numpy(np.random.default_rng(0).integers(0, 11, size=(2, 20)))


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Any:
    """Return a small network of every kind, whose weights that begin at zero are not."""
    if request.param == "gpt2":
        pytest.importorskip("transformers")
    torch.manual_seed(1)
    made = network_class(request.param)(11, **SMALL[request.param]).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return made


@torch.no_grad()
def test_text_may_be_read_in_pieces(network):
    whole, end = network.encode(TOKENS)
    for cut in (1, 5, 8, 13):
        first, state = network.encode(TOKENS[:, :cut])
        second, state = network.encode(TOKENS[:, cut : cut + 2], state)
        third, reached = network.encode(TOKENS[:, cut + 2 :], state)
        torch.testing.assert_close(torch.cat([first, second, third], dim=1), whole)
        torch.testing.assert_close(reached, end)
        again, _ = network.encode(TOKENS[:, cut + 2 :], state)  # the state was not changed
        torch.testing.assert_close(again, third)


def test_a_folder_makes_the_network_again(network, tmp_path):
    model = TorchLanguageModel(network, reset="never")
    model.save(tmp_path / "model")
    loaded = TorchLanguageModel.load(tmp_path / "model")
    text = TOKENS.flatten().numpy()
    (expected,), (found,) = (each.log_likelihood([text]) for each in (model, loaded))
    np.testing.assert_array_equal(found, expected)


def test_the_loss_falls(network):
    tokens, starts = np.arange(200, dtype=np.uint16) % 11, np.arange(0, 200, 10)
    before = log_probabilities(network, tokens, starts).sum()
    plan = Plan(batch_size=4, n_passes=12, learning_rate=0.02)
    NetworkTrainer(network, TokenStream(tokens, starts, np.array([0, 200])), None, plan).run()
    assert log_probabilities(network, tokens, starts).sum() > 0.5 * before
