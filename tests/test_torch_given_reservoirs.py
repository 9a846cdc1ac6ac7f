"""A reservoir that was made elsewhere, under the nonlinear readout: kept in folders and runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from esnlm import Reservoir  # noqa: E402
from esnlm.loading import load_model  # noqa: E402
from esnlm.storage.checkpoints import CheckpointError, Checkpoints  # noqa: E402
from esnlm.storage.model_folder import WEIGHTS, ModelFormatError  # noqa: E402
from esnlm.storage.tensor_file import read_tensors  # noqa: E402
from esnlm.text.corpus import TokenStream  # noqa: E402
from esnlm.torch.language_model import TorchLanguageModel  # noqa: E402
from esnlm.torch.networks.esn_mlp import EchoStateNetworkWithMLP  # noqa: E402
from esnlm.torch.networks.registry import network_class  # noqa: E402
from esnlm.torch.training.plan import Plan  # noqa: E402
from esnlm.torch.training.trainer import NetworkTrainer  # noqa: E402
from esnlm.training.resumable_run import StoppedError  # noqa: E402
from esnlm.utils.state_dict import under_prefix  # noqa: E402

pytestmark = pytest.mark.torch

V = 40
RESERVOIR = {"n_units": 30, "degree": 4, "random_state": 3}


def stream(n: int = 900, seed: int = 0) -> TokenStream:
    tokens = np.minimum(np.random.default_rng(seed).geometric(0.1, n), V - 1)
    return TokenStream(tokens, np.arange(0, n, 12), np.array([0, n]))


def network(**options: Any) -> EchoStateNetworkWithMLP:
    torch.manual_seed(0)
    chosen = {"n_features": 8, "width": 24, "n_heads": 3, "n_hidden": 16, **options}
    made = EchoStateNetworkWithMLP(V, **chosen)
    made.survey(stream())
    return made.eval()


def given_reservoir(kind: str, n_inputs: int = 8) -> Reservoir:
    """A reservoir whose parameters do not draw its weights again."""
    if kind == "without a seed":
        return Reservoir(30, degree=4)
    other = Reservoir(30, degree=4, random_state=7, input_degree=5 if kind == "sparse" else None)
    other.fit(n_inputs=n_inputs)
    parameters = other.get_params() | {"random_state": 3, "leak_rate": 0.4, "bias_scaling": 1.0}
    made = Reservoir(**parameters)
    bias, leak = np.linspace(-1, 1, 30), np.linspace(0.1, 1, 30)
    return made.set_weights(other.W_, other.W_in_, bias, leak)


@pytest.mark.parametrize("kind", ["without a seed", "dense", "sparse"])
def test_a_reservoir_that_was_given_is_in_the_folder(kind: str, tmp_path: Path):
    n_features, docs = (0, 8)[kind != "sparse"], [stream(30, seed=4).tokens]
    reservoir = given_reservoir(kind, n_features or V)
    model = TorchLanguageModel(network(reservoir=reservoir, n_features=n_features))
    for name in ("model", "again"):
        model.save(tmp_path / name)
        loaded = load_model(tmp_path / name)
        np.testing.assert_array_equal(loaded.log_likelihood(docs)[0], model.log_likelihood(docs)[0])
        for key, array in reservoir.state_dict().items():
            np.testing.assert_array_equal(loaded.network.reservoir.state_dict()[key], array)
        model = loaded


@pytest.mark.parametrize("drawn", [RESERVOIR, {"n_units": 30}])
def test_a_reservoir_that_its_parameters_draw_is_not_in_the_folder(drawn: Any, tmp_path: Path):
    model, docs = TorchLanguageModel(network(reservoir=drawn)), [stream(30, seed=4).tokens]
    model.save(tmp_path / "model")  # as all versions before wrote it
    assert not under_prefix("reservoir", read_tensors(tmp_path / "model" / WEIGHTS))
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.log_likelihood(docs)[0], model.log_likelihood(docs)[0])


def test_a_reservoir_that_does_not_fit_the_network_is_refused(tmp_path: Path):
    model = TorchLanguageModel(network(reservoir=given_reservoir("dense")))
    model.network.reservoir = given_reservoir("dense", 9)
    model.save(tmp_path / "model")
    with pytest.raises(ModelFormatError, match="the reservoir has 9 inputs, expected n_features=8"):
        load_model(tmp_path / "model")


def test_a_run_on_a_given_reservoir_goes_on_with_that_one_alone(tmp_path: Path):
    def trainer(reservoir: Reservoir) -> NetworkTrainer:
        plan = Plan(batch_size=16, n_passes=2, learning_rate=0.01)
        return NetworkTrainer(network(reservoir=reservoir), stream(), None, plan)

    whole, part = trainer(given_reservoir("dense")), trainer(given_reservoir("dense"))
    whole.run()
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(StoppedError):
        part.run(checkpoints, stop=lambda: part.step == 3)
    changed = given_reservoir("dense")
    changed.set_weights(2 * changed.W_, changed.W_in_, changed.bias_, changed.leak_rate_)
    with pytest.raises(CheckpointError, match="the first weights are others than when"):
        trainer(changed).run(checkpoints, resume=True)
    again = trainer(given_reservoir("dense"))
    again.run(checkpoints, resume=True)
    for (name, ours), theirs in zip(
        whole.network.named_parameters(), again.network.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("kind", ["esn", "esn+i", "esn+mlp"])
def test_what_is_set_after_the_fit_says_nothing_of_a_given_reservoir(kind: str):
    options = {"n_features": 0} if kind == "esn+mlp" else {}
    tokens, found = stream(50).tokens, []
    for changes in ({}, {"n_units": 9, "activation": "relu"}):
        reservoir = Reservoir(30, degree=4, random_state=0).fit(n_inputs=V)
        states = reservoir.transform(tokens)
        torch.manual_seed(0)
        made = network_class(kind)(V, reservoir=reservoir.set_params(**changes), **options).eval()
        with torch.no_grad():
            found.append(made.encode(torch.from_numpy(tokens)[None])[0][0].numpy())
    np.testing.assert_array_equal(*found)
    if kind != "esn+mlp":
        np.testing.assert_allclose(found[0], states, atol=1e-5)
