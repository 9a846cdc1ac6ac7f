"""Non-monotonically triggered averaging of weights (NT-ASGD; Merity et al. 2018, algorithm 1)."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from esnlm.torch.networks.network import Network
from esnlm.torch.training.state import parameter_arrays, set_parameters
from esnlm.utils.state_dict import Arrays, under_prefix, with_prefix


class Averaging:
    """The mean of a network's weights over steps, once held-out losses stop falling.

    Averaging begins after a loss that is above the least of those more than ``patience`` losses
    ago; None: never.
    """

    def __init__(self, network: Network, patience: int | None) -> None:
        self._network = network
        self._patience = patience
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
