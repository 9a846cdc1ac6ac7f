"""Losses of an LSTM some of whose units are silenced."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from esnlm.utils.arrays import Floats, Ints64, Tokens

_TOKENS_AT_ONCE = 512


def network_losses(network: Any, layer: int, texts: Sequence[Tokens], units: Ints64) -> Floats:
    """Losses (n,) in nats where these units of a layer say zero to the next.

    They are of all tokens but the first of each of the texts (T,), which is read from the start
    state.
    """

    def silence(module: Any, inputs: Any, results: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
        outputs = results[0].clone()
        outputs[..., units] = 0
        return outputs, results[1]

    hook = network.layers[layer].register_forward_hook(silence)
    try:
        return _losses(network, texts)
    finally:
        hook.remove()


@torch.inference_mode()
def _losses(network: Any, texts: Sequence[Tokens]) -> Floats:
    """Losses (n,) in nats of all tokens but the first of each text, without dropout."""
    network.eval()
    losses = []
    for text in texts:
        ids, state = torch.from_numpy(np.asarray(text).astype(np.int64)).to(network.device), None
        for start in range(0, len(ids) - 1, _TOKENS_AT_ONCE):
            part = ids[start : start + _TOKENS_AT_ONCE + 1]
            hidden, state = network.encode(part[None, :-1], state)
            logs = network.head(hidden[0]).log_softmax(dim=-1)
            losses.append(-logs.gather(1, part[1:, None])[:, 0].double().cpu().numpy())
    return np.concatenate(losses)
