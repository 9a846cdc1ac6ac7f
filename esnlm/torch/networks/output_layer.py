"""The output layer of a reservoir, between torch and the readouts of the core."""

from typing import Any

import numpy as np
import torch
from torch import nn

from esnlm.readouts.softmax.reduced_rank import ReducedRankSoftmaxReadout
from esnlm.readouts.softmax.softmax import SoftmaxReadout


def output_layer(n_units: int, n_tokens: int, rank: int | None, dtype: torch.dtype) -> nn.Module:
    """States (..., n_units) to logits (..., n_tokens): ``A B h + b`` of a rank, or ``W h + b``.

    Drawn as torch draws linear layers, as Ueda et al. (2025, footnote 1) do.
    """
    if rank is None:
        return nn.Linear(n_units, n_tokens, dtype=dtype)
    if rank < 1:
        raise ValueError(f"rank must be at least 1, got {rank}")
    kept = min(rank, n_units, n_tokens)
    down = nn.Linear(n_units, kept, bias=False, dtype=dtype)
    return nn.Sequential(down, nn.Linear(kept, n_tokens, dtype=dtype))


def core_readout(output: nn.Module) -> Any:
    """The layer as a fitted readout of the core, whose token ids are the classes."""
    arrays = {name: value.detach().cpu().numpy() for name, value in output.named_parameters()}
    if isinstance(output, nn.Linear):
        weights = {"coef_": arrays["weight"], "intercept_": arrays["bias"]}
        return SoftmaxReadout.from_arrays({}, weights | _shape(arrays["weight"]))
    weights = {
        "down_": np.ascontiguousarray(arrays["0.weight"].T),
        "up_": np.ascontiguousarray(arrays["1.weight"].T),
        "intercept_": arrays["1.bias"],
    }
    sizes = len(arrays["1.weight"]), arrays["0.weight"].shape[1]
    parameters = {"rank": len(arrays["0.weight"])}
    return ReducedRankSoftmaxReadout.from_arrays(parameters, weights | _shape(np.empty(sizes)))


def _shape(weights: Any) -> dict[str, Any]:
    n_tokens, n_units = weights.shape
    return {
        "classes_": np.arange(n_tokens),
        "n_features_in_": np.asarray(n_units),
        "n_iter_": np.asarray(1),
    }


def set_output(output: nn.Module, readout: Any) -> None:
    """Copy a fitted readout of `core_readout`'s kinds into a layer of its shape."""
    if isinstance(output, nn.Linear):
        arrays = {"weight": readout.coef_, "bias": readout.intercept_}
    else:
        arrays = {
            "0.weight": readout.down_.T,
            "1.weight": readout.up_.T,
            "1.bias": readout.intercept_,
        }
    with torch.no_grad():
        for name, parameter in output.named_parameters():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(arrays[name])))
