"""The optimiser of a run and the mean of its weights, and the state of both as arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from esnlm.kernels.vectors import adam_rows
from esnlm.torch.device import Processes
from esnlm.torch.networks.network import Network
from esnlm.torch.training.plan import Plan
from esnlm.utils.arrays import Array, Arrays
from esnlm.utils.state_dict import under_prefix, with_prefix

Group = dict[str, Any]

# Steps after which parameters of sparse gradients decay, for all of these steps at once.
_DECAY_EVERY = 8


class Optimizer:
    """AdamW, Muon or SGD, as the plan says, and SparseAdam where gradients are sparse.

    Muon (Jordan et al. 2024) moves the matrices between embeddings and output, with steps of the
    size of AdamW's (Liu et al. 2025), and AdamW the rest.

    SparseAdam moves the vectors that a step has read and no others, so that a step costs as much
    as what it read. A vector that is seldom read moves once for each reading, where AdamW's
    momentum would move it in the steps after as well: the rate of a group is multiplied by its
    ``times``. All vectors decay, read or not, once in eight steps. See
    `esnlm.torch.networks.network.Network.parameter_groups`.
    """

    def __init__(self, network: Network, plan: Plan) -> None:
        """Build the optimisers of all parameters; ValueError where torch lacks Muon."""
        self._network = network
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
            if plan.optimizer == "muon":
                dense, hidden = _hidden_apart(network, dense)
                self._parts.append(_muon(hidden, rate))
            # One pass over weights and moments, where torch's default makes a dozen.
            fused = True if network.device.type in ("cpu", "cuda") else None
            self._parts.append(torch.optim.AdamW(dense, lr=rate, betas=plan.betas, fused=fused))
            if sparse:
                rows = RowAdam if network.device.type == "cpu" else torch.optim.SparseAdam
                self._parts.append(rows(sparse, lr=rate, betas=plan.betas))
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
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
            for parameter in self._owner
        ]
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
        """Return the state of a parameter: moments of its shape, and the number of its steps."""
        state = self._owner[parameter].state.get(parameter, {})
        return {name: torch.as_tensor(value) for name, value in state.items()}

    def restore(self, parameter: nn.Parameter, moments: dict[str, Tensor]) -> None:
        """Set what `moments` returned; ValueError where it does not fit."""
        owner = self._owner[parameter]
        # AdamW counts its steps on the CPU, unless one kernel does all.
        counts_there = parameter.device if owner.defaults.get("fused") else "cpu"
        state: dict[str, Any] = {}
        for name, moment in moments.items():
            counts = name == "step"
            shape, dtype = ((), moment.dtype) if counts else (parameter.shape, parameter.dtype)
            # The optimiser's compiled steps write to moments without a look at their shapes.
            if moment.shape != shape or moment.dtype != dtype:
                raise ValueError(f"{name} must be {dtype} of shape {tuple(shape)}")
            state[name] = moment.to(counts_there if counts else parameter.device)
            if counts and isinstance(owner, torch.optim.SparseAdam):
                state[name] = int(moment)
        owner.state[parameter] = state

    def arrays(self) -> Arrays:
        """Return the trained parameters, and the state of each."""
        arrays = with_prefix("network", parameter_arrays(self._network))
        for name, parameter in self._network.trained_parameters().items():
            for key, moment in self.moments(parameter).items():
                arrays[f"optimizer.{name}.{key}"] = array_of(moment)
        return arrays

    def load(self, arrays: Arrays) -> None:
        """Set what `arrays` returned, on the parameters' devices."""
        set_parameters(self._network, under_prefix("network", arrays))
        for name, parameter in self._network.trained_parameters().items():
            moments = under_prefix(f"optimizer.{name}", arrays)
            # Names with a point are those of a parameter whose name begins with this one's.
            own = {key: torch.from_numpy(array) for key, array in moments.items() if "." not in key}
            try:
                self.restore(parameter, own)
            except ValueError as error:
                raise ValueError(f"the optimiser's state of {name}: {error}") from None

    def _clip(self, most: float) -> None:
        """Scale all gradients so that their common norm is at most ``most``."""
        values = []
        for parameter in self._owner:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
                values.append(parameter.grad.values())
            elif parameter.grad is not None:
                values.append(parameter.grad)
        scale = (most / (nn.utils.get_total_norm(values) + 1e-6)).clamp(max=1.0)
        for gradient in values:
            gradient.mul_(scale)


def _hidden_apart(network: Network, groups: list[Group]) -> tuple[list[Group], list[Group]]:
    """Return groups without the matrices between embeddings and output, and groups of these."""
    ends = [part for part in network.modules() if isinstance(part, nn.Embedding)]
    ends += [part for name, part in network.named_modules() if name == "output"]
    at_ends = {parameter for part in ends for parameter in part.parameters()}

    def is_hidden(parameter: nn.Parameter) -> bool:
        return parameter.dim() == 2 and parameter not in at_ends

    def part(hidden: bool) -> list[Group]:
        parts = [g | {"params": [p for p in g["params"] if is_hidden(p) == hidden]} for g in groups]
        return [each for each in parts if each["params"]]

    return part(False), part(True)


def _muon(groups: list[Group], rate: float) -> torch.optim.Optimizer:
    """Return Muon; ValueError where this torch lacks it, or there is no matrix for it."""
    kind: Any = getattr(torch.optim, "Muon", None)
    if kind is None:
        raise ValueError(
            f"optimizer must be adamw with torch {torch.__version__}: muon needs 2.9, got muon"
        )
    if not groups:
        raise ValueError("optimizer must be adamw: no matrix lies between embeddings and output")
    optimizer: torch.optim.Optimizer = kind(groups, lr=rate, adjust_lr_fn="match_rms_adamw")
    return optimizer


class RowAdam(torch.optim.SparseAdam):
    """torch's SparseAdam on a CPU, in one pass over the rows that have a gradient."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Move the rows of each parameter that its sparse gradient names."""
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state |= {"step": 0}
                    state |= {n: torch.zeros_like(parameter) for n in ("exp_avg", "exp_avg_sq")}
                state["step"] += 1
                corrections = 1 - first ** state["step"], 1 - second ** state["step"]
                ids = parameter.grad._indices()[0].numpy()
                arrays = (parameter, state["exp_avg"], state["exp_avg_sq"])
                table, *moments = (tensor.detach().numpy() for tensor in arrays)
                kind = table.dtype.type
                adam_rows(
                    table, *moments, ids, np.argsort(ids, kind="stable"),
                    parameter.grad._values().numpy(), np.array([first, second], kind),
                    kind(group["lr"] * corrections[1] ** 0.5 / corrections[0]), kind(group["eps"]),
                )  # fmt: skip


class Averaging:
    """The mean of a network's weights over steps, once held-out losses stop falling.

    NT-ASGD (Merity et al. 2018, algorithm 1): averaging begins after a loss that is above the
    least of those more than ``patience`` losses ago; None: never.
    """

    def __init__(self, network: Network, patience: int | None) -> None:
        self._network, self._patience = network, patience
        self._losses: list[float] = []
        self._mean: AveragedModel | None = None

    @property
    def n_steps(self) -> int:
        """Steps in the mean; 0 before it begins."""
        return 0 if self._mean is None else int(self._mean.n_averaged)

    @property
    def network(self) -> Network:
        """A network of the mean weights, or the one in training before the mean begins."""
        return self._mean.module if self._mean is not None and self.n_steps else self._network

    def add_loss(self, loss: float) -> bool:
        """Record a held-out loss; True if averaging is to begin with the next step."""
        if self._patience is None or self._mean is not None:
            return False
        before = self._losses[: -self._patience]
        self._losses.append(loss)
        return bool(before) and loss > min(before)

    def begin(self) -> None:
        """Average from the next step on."""
        self._mean = AveragedModel(self._network)

    def step(self) -> None:
        """Include the current weights in the mean, if it has begun."""
        if self._mean is not None:
            self._mean.update_parameters(self._network)

    @torch.no_grad()
    def finish(self) -> None:
        """Set the network's weights to the mean, if it has begun."""
        for name, mean in self.network.trained_parameters().items():
            self._network.get_parameter(name).copy_(mean)

    def facts(self) -> dict[str, Any]:
        """JSON-compatible part of the state; the means are in `arrays`."""
        return {"losses": self._losses, "begun": self._mean is not None, "n_steps": self.n_steps}

    def arrays(self) -> Arrays:
        """Return the means by name."""
        return with_prefix("average", parameter_arrays(self.network) if self.n_steps else {})

    def restore(self, facts: Mapping[str, Any], arrays: Arrays) -> None:
        """Set the state that `facts` and `arrays` returned."""
        self._losses = list(facts["losses"])
        if facts["begun"]:
            self._mean = AveragedModel(self._network)
            self._mean.n_averaged.fill_(facts["n_steps"])
            if facts["n_steps"]:
                set_parameters(self.network, under_prefix("average", arrays))


def parameter_arrays(network: Network) -> Arrays:
    """Trained parameters by name."""
    return {name: array_of(p) for name, p in network.trained_parameters().items()}


@torch.no_grad()
def set_parameters(network: Network, arrays: Arrays) -> None:
    """Set the arrays of `parameter_arrays`; KeyError or ValueError where they do not fit."""
    for name, parameter in network.trained_parameters().items():
        if arrays[name].shape != parameter.shape:
            raise ValueError(f"{name} must have shape {tuple(parameter.shape)}")
        parameter.copy_(torch.from_numpy(arrays[name]))


def array_of(tensor: Tensor) -> Array:
    """Return a copy of a tensor's values."""
    return np.array(tensor.detach().cpu().numpy(), order="C")
