"""Training and scoring on a device that is not the CPU: nothing is left there, none waits for it.

The device is torch's ``meta``, whose tensors have shapes and no values: reading one fails, and so
does here whatever mixes one with a tensor on the CPU.
"""

import contextlib
import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_torch_training import PLANS, V, corpus  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from esnlm.storage.checkpoints import Checkpoints  # noqa: E402
from esnlm.torch.device import on_device, share_of_memory  # noqa: E402
from esnlm.torch.language_model import TorchLanguageModel  # noqa: E402
from esnlm.torch.networks.network import Network  # noqa: E402
from esnlm.torch.networks.registry import network_class  # noqa: E402
from esnlm.torch.scoring import log_probabilities  # noqa: E402
from esnlm.torch.training.trainer import NetworkTrainer  # noqa: E402
from esnlm.training.resumable_run import StoppedError  # noqa: E402

pytestmark = pytest.mark.torch

ELSEWHERE = torch.device("meta")
RESERVOIR: dict[str, Any] = {"n_units": 24, "degree": 4, "random_state": 0}
BIASED = {"bias_scaling": 0.1, "input_degree": None}
HF = [pytest.mark.hf, pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="needs the hf extra")]  # fmt: skip
NETWORKS = [
    pytest.param("esn", {"reservoir": RESERVOIR, "rank": 6, "dropout": 0.1}, id="esn"),
    pytest.param("esn", {"reservoir": RESERVOIR | BIASED}, id="esn-biased"),
    pytest.param("esn+i", {"reservoir": RESERVOIR}, id="esn+i"),
    pytest.param("esn+i", {"reservoir": RESERVOIR | {"degree": 12}, "truncate": 3}, id="dense"),
    pytest.param("esn+mlp", {"reservoir": RESERVOIR, "width": 12}, id="esn+mlp"),
    pytest.param(
        "esn+mlp", {"reservoir": RESERVOIR, "n_features": 0, "n_pairs": 5}, id="esn+mlp-tokens"
    ),
    pytest.param("lstm", {"n_units": 8}, id="lstm"),
    pytest.param("awd-lstm", {"n_units": 8, "n_dims": 6}, id="awd-lstm"),
    pytest.param("mts-lstm", {"n_units": 8, "n_dims": 6}, id="mts-lstm"),
    pytest.param("char-esn", {"n_units": 10, "context": 6}, id="char-esn"),
    pytest.param("aerc", {"n_units": 10, "n_hidden": 3, "context": 6}, id="aerc"),
    pytest.param("transformer", {"n_hidden": 8, "n_layers": 2, "context": 6}, id="transformer"),
    pytest.param("laerc", {"n_dims": 8, "n_layers": 2}, id="laerc"),
    pytest.param(
        "laerc", {"n_dims": 8, "n_layers": 2, "reservoir_gradient": True}, id="laerc-gradient"
    ),
    pytest.param("gpt", {"n_units": 8, "n_layers": 1, "n_heads": 2}, id="gpt"),
    pytest.param("gpt2", {"n_units": 8, "n_layers": 1, "n_heads": 2}, id="gpt2", marks=HF),
]
#: What makes a pass over eight sequences two or three steps.
SHORT: dict[str, dict[str, Any]] = {
    "accumulated": {"batch_size": 2, "accumulate": 2},
    "streams": {"batch_size": 2, "length": 10},
    "windows": {"batch_size": 8},
}
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class OneDevice(TorchDispatchMode):
    """Fails on an operation that mixes devices; numbers may be on the CPU, and copies may mix."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [a for a in tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
        kinds = {a.device.type for a in given if a.dim() or a.device == ELSEWHERE}
        assert len(kinds) < 2 or func in COPIES, f"{func} of tensors on {sorted(kinds)}"
        return func(*args, **(kwargs or {}))


def autocast(kind: str, **_: Any) -> Any:
    assert kind == ELSEWHERE.type, f"autocast for {kind}, where the network is not"
    return contextlib.nullcontext()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch, "autocast", autocast)
    monkeypatch.setattr("esnlm.torch.training.trainer.weights_digest", lambda network: "")
    with OneDevice():
        yield


def made(name: str, settings: dict[str, Any]) -> Network:
    torch.manual_seed(0)
    network = network_class(name)(V, **settings).to(ELSEWHERE)
    assert {t.device for t in (*network.parameters(), *network.buffers())} == {ELSEWHERE}
    return network


@pytest.mark.parametrize(("name", "settings"), NETWORKS)
@pytest.mark.parametrize("plan", SHORT)
def test_no_step_of_training_mixes_devices_or_waits(
    name: str, settings: dict[str, Any], plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[int] = []
    monkeypatch.setattr(NetworkTrainer, "_check", lambda self: shown.append(self.step))
    monkeypatch.setattr(NetworkTrainer, "_score", lambda self, number: None)
    stream = corpus(8, starts=plan == "accumulated")
    chosen = replace(PLANS[plan], n_passes=1, score_every=0, **SHORT[plan])
    network = made(name, settings)
    if plan == "streams" and network.longest is not None:
        with pytest.raises(ValueError, match="batching must be sentences or windows"):
            NetworkTrainer(network, stream, None, chosen)
        return
    trainer = NetworkTrainer(network, stream, None, chosen)
    trainer.run()
    assert trainer.n_steps > 1
    assert shown == [trainer.n_steps]  # where values are read, and nowhere else


def test_a_resumed_run_is_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "cpu", lambda t: torch.zeros(t.shape, dtype=t.dtype))
    plan = replace(PLANS["streams"], score_every=0)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for stop in (2, 3):
        network = made("lstm", {"n_units": 8})
        trainer = NetworkTrainer(network, corpus(24, starts=False), None, plan)
        with pytest.raises(StoppedError):
            trainer.run(checkpoints, resume=True, stop=lambda t=trainer, n=stop: t.step == n)
        optimizer = trainer.optimizer._parts[0]
        kept = optimizer.state[network.output.weight]
        assert kept["exp_avg"].device == trainer._nll.device == ELSEWHERE
        assert trainer._state[0][0].device == ELSEWHERE
    assert kept["step"].device.type == "cpu"
    optimizer.defaults["fused"] = True  # as on a CUDA device, which then counts the steps
    found = checkpoints.latest()
    assert found is not None
    trainer.optimizer.load(found.arrays)
    assert optimizer.state[network.output.weight]["step"].device == ELSEWHERE


@pytest.mark.parametrize(("name", "settings"), NETWORKS)
@pytest.mark.parametrize("longest", [3, 4096])
def test_scores_come_from_one_device(
    name: str, settings: dict[str, Any], longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esnlm.torch.scoring._LONGEST", longest)
    network, stream = made(name, settings), corpus(10)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda t: torch.zeros(t.shape, dtype=t.dtype))
    assert log_probabilities(network, stream.tokens, stream.starts).shape == stream.tokens.shape
    model = TorchLanguageModel(network, reset="never")
    assert model.predict_proba(np.array([1, 2, 3])).shape == (V,)


def test_what_is_sent_to_a_cuda_device_is_pinned_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pinned, sent = [], []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda t: pinned.append(t) or t)
    monkeypatch.setattr(torch.Tensor, "to", lambda t, *args, **options: sent.append(options) or t)
    for kind in ("cpu", "cuda"):
        assert on_device(np.arange(3), torch.device(kind)).tolist() == [0, 1, 2]
    assert len(pinned) == 1
    assert sent[1] == {"non_blocking": True}


def test_larger_cuda_devices_take_more_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(total_memory=1 << 20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert share_of_memory(torch.device("cuda"), 64, otherwise=5) == 1 << 14
    assert share_of_memory(ELSEWHERE, 64, otherwise=5) == 5
