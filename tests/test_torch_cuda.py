"""On a CUDA device networks score as on the CPU, and train to the same weights."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_torch_devices import NETWORKS  # noqa: E402
from test_torch_training import V, corpus, without_dropout  # noqa: E402

from esnlm.torch.networks.network import Network  # noqa: E402
from esnlm.torch.networks.registry import network_class  # noqa: E402
from esnlm.torch.scoring import log_probabilities  # noqa: E402
from esnlm.torch.training.plan import Plan  # noqa: E402
from esnlm.torch.training.trainer import NetworkTrainer  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
NO_DROPOUT = ("dropout", "hidden_dropout", "input_dropout", "word_dropout", "weight_drop")


def made(name: str, settings: dict[str, Any], device: str) -> Network:
    torch.manual_seed(0)
    network = without_dropout(network_class(name)(V, **settings))
    for part in NO_DROPOUT:
        if isinstance(getattr(network, part, None), float):
            setattr(network, part, 0.0)
    return network.to(device)


@pytest.mark.parametrize(("name", "settings"), NETWORKS)
def test_scores_are_those_of_the_cpu(name: str, settings: dict[str, Any]) -> None:
    stream = corpus(10)
    found, expected = (
        log_probabilities(made(name, settings, device), stream.tokens, stream.starts)
        for device in ("cuda", "cpu")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "settings"), NETWORKS)
@pytest.mark.parametrize("bf16", [False, True])
def test_training_learns_what_it_learns_on_the_cpu(
    name: str, settings: dict[str, Any], bf16: bool
) -> None:
    stream, losses = corpus(60), []
    windows = network_class(name).__name__ in ("CharacterReservoir", "Transformer")
    batching = {"batching": "windows", "length": 6} if windows else {"batching": "sentences"}
    for device in ("cuda", "cpu"):
        network = made(name, settings, device)
        plan = Plan(**batching, batch_size=8, n_passes=2, learning_rate=0.001, bf16=bf16)
        NetworkTrainer(network, stream, None, plan).run()
        scored = log_probabilities(network, stream.tokens, stream.starts)
        losses.append(-float(scored.sum()) / int((scored != 0).sum()))
    assert losses[0] == pytest.approx(losses[1], abs=0.05 if bf16 else 0.005)
