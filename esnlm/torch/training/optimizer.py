"""The optimiser of a run: AdamW or SGD, and SparseAdam for the vectors of tokens."""

from typing import Any

import torch
from torch import Tensor, nn

from esnlm.torch.networks.network import Network
from esnlm.torch.training.distributed import Processes
from esnlm.torch.training.plan import Plan

# Steps after which parameters of sparse gradients decay, for all of these steps at once.
_DECAY_EVERY = 8


class Optimizer:
    """AdamW or SGD, as the plan says, and SparseAdam in its place where gradients are sparse.

    SparseAdam moves the vectors that a step has read and no others, so that a step costs as much
    as what it read. A vector that is seldom read moves once for each reading, where AdamW's
    momentum would move it in the steps after as well: the rate of a group is multiplied by its
    ``times``. All vectors decay, read or not, once in eight steps. See
    `esnlm.torch.networks.network.Network.parameter_groups`.
    """

    def __init__(self, network: Network, plan: Plan) -> None:
        """Build SGD for all parameters, or AdamW for dense gradients and SparseAdam for others."""
        groups = network.parameter_groups(plan.weight_decay)
        dense = [group for group in groups if not group.get("sparse")]
        sparse = [group | {"weight_decay": 0.0} for group in groups if group.get("sparse")]
        self._decaying = [
            (parameter, group["weight_decay"])
            for group in groups
            if group.get("sparse") and group["weight_decay"]
            for parameter in group["params"]
        ]
        rate, self._parts = plan.learning_rate, list[torch.optim.Optimizer]()
        if plan.optimizer == "sgd":
            self._parts.append(torch.optim.SGD(dense + sparse, lr=rate))
        else:
            # One pass over weights and moments, where torch's default makes a dozen.
            fused = True if network.device.type in ("cpu", "cuda") else None
            self._parts.append(torch.optim.AdamW(dense, lr=rate, betas=plan.betas, fused=fused))
            if sparse:
                self._parts.append(torch.optim.SparseAdam(sparse, lr=rate, betas=plan.betas))
        self._owner = {
            parameter: part
            for part in self._parts
            for group in part.param_groups
            for parameter in group["params"]
        }

    def share(self, processes: Processes) -> None:
        """Replace gradients by their sums over all processes."""
        if processes.size == 1:
            return
        gradients = []
        for parameter in self._owner:
            given = parameter.grad
            gradients.append(torch.zeros_like(parameter) if given is None else given.to_dense())
        processes.sum(gradients)
        for (parameter, owner), gradient in zip(self._owner.items(), gradients, strict=True):
            sparse = isinstance(owner, torch.optim.SparseAdam)
            parameter.grad = gradient.to_sparse(1) if sparse else gradient

    def step(self, number: int, rate: float, clip: float | None = None) -> None:
        """Move every parameter at a learning rate, and forget the gradients.

        ``number`` is that of the step. With ``clip``, all gradients are scaled so that their
        common norm is at most that.
        """
        if clip is not None:
            self._clip(clip)
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = rate * group.get("times", 1.0)
            part.step()
            part.zero_grad(set_to_none=True)
        if (number + 1) % _DECAY_EVERY == 0:
            with torch.no_grad():
                for parameter, decay in self._decaying:
                    parameter.mul_((1.0 - rate * decay) ** _DECAY_EVERY)

    def moments(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """Return what is kept of a parameter: moments of its shape, and the number of its steps."""
        kept = self._owner[parameter].state.get(parameter, {})
        return {name: torch.as_tensor(value) for name, value in kept.items()}

    def restore(self, parameter: nn.Parameter, moments: dict[str, Tensor]) -> None:
        """Set what `moments` returned; ValueError where it does not fit."""
        owner = self._owner[parameter]
        rows_alone = isinstance(owner, torch.optim.SparseAdam)
        kept: dict[str, Any] = {}
        for name, moment in moments.items():
            counts = name == "step"
            shape, dtype = ((), moment.dtype) if counts else (parameter.shape, parameter.dtype)
            # The optimiser's compiled steps write to moments without a look at their shapes.
            if moment.shape != shape or moment.dtype != dtype:
                raise ValueError(f"{name} must be {dtype} of shape {tuple(shape)}")
            if counts and rows_alone:
                kept[name] = int(moment)
            else:
                # AdamW counts its steps on the CPU, unless one kernel does all.
                there = counts and not owner.defaults.get("fused")
                kept[name] = moment.to("cpu" if there else parameter.device)
        owner.state[parameter] = kept

    def _clip(self, most: float) -> None:
        """Scale all gradients so that their common norm is at most ``most``."""
        found = []
        for parameter in self._owner:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
                found.append(parameter.grad.values())
            elif parameter.grad is not None:
                found.append(parameter.grad)
        norm = nn.utils.get_total_norm(found)
        scale = (most / (norm + 1e-6)).clamp(max=1.0)
        for gradient in found:
            gradient.mul_(scale)
