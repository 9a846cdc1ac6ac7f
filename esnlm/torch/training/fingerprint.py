"""All that the result of a run by gradient depends on, so that no other run is gone on with."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from esnlm.models.resumable_run import difference_message, stream_digest
from esnlm.storage.checkpoints import CheckpointError
from esnlm.text.corpus import TokenStream
from esnlm.torch.networks.network import Network
from esnlm.torch.networks.registry import name_of
from esnlm.torch.training.plan import Plan
from esnlm.utils.version import __version__


def run_settings(
    network: Network,
    plan: Plan,
    stream: TokenStream,
    held_out: TokenStream | None,
    n_processes: int,
) -> dict[str, Any]:
    """Network, first weights, corpus and plan, as JSON can hold them."""
    settings = {
        "esnlm": __version__,
        "model": name_of(network),
        "network": network.settings(),
        "first weights": weights_digest(network),
        "corpus": stream_digest(stream),
        "held-out text": None if held_out is None else stream_digest(held_out),
        "number of processes": n_processes,
        "device": network.device.type,
        **dataclasses.asdict(plan),
    }
    found: dict[str, Any] = json.loads(json.dumps(settings))
    return found


def check_same(saved: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise ``CheckpointError``, naming what differs, unless both are of one run."""
    for name, now in settings.items():
        then = saved.get(name)
        if isinstance(then, dict) and isinstance(now, dict):
            for key, value in now.items():
                if then.get(key) != value:
                    told = difference_message(f"{key} of the {name}", then.get(key), value)
                    raise CheckpointError(told)
        if then != now:
            raise CheckpointError(difference_message(name, then, now))


def weights_digest(network: Network) -> str:
    """SHA-256 of all parameters and buffers."""
    digest = hashlib.sha256()
    for tensors in (network.named_parameters(), network.named_buffers()):
        for name, tensor in tensors:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).data)
    return digest.hexdigest()
