"""Non-monotonically triggered averaging of weights (NT-ASGD; Merity et al. 2018, algorithm 1)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from esnlm.utils.state_dict import Arrays, under_prefix, with_prefix


class Averaging:
    """The mean of some parameters over steps, from where held-out losses stop falling.

    Parameters
    ----------
    parameters : mapping of name to Tensor
        Changed in place by the steps.
    patience : int or None
        Averaging begins after a loss that is above the least of those more than ``patience``
        losses ago; None: never.

    Attributes
    ----------
    n_steps : int
        Steps in the mean; 0 before it begins.

    Examples
    --------
    >>> weight = torch.zeros(1)
    >>> averaging = Averaging({"weight": weight}, patience=1)
    >>> [averaging.heard(loss) for loss in (3.0, 2.0, 2.5, 2.5)]
    [False, False, False, True]
    >>> averaging.begin()
    >>> for value in (1.0, 3.0):
    ...     _ = weight.fill_(value)
    ...     averaging.step()
    >>> with averaging.applied():
    ...     print(weight.item())
    2.0
    >>> weight.item()
    3.0
    """

    def __init__(self, parameters: Mapping[str, Tensor], patience: int | None) -> None:
        self._parameters = dict(parameters)
        self._patience = patience
        self._losses: list[float] = []
        self._begun = False
        self._means: dict[str, Tensor] = {}
        self.n_steps = 0

    def heard(self, loss: float) -> bool:
        """Note a held-out loss; whether the mean begins with the next step."""
        if self._patience is None or self._begun:
            return False
        before = self._losses[: -self._patience]
        self._losses.append(loss)
        return bool(before) and loss > min(before)

    def begin(self) -> None:
        """Average from the next step on."""
        self._begun = True

    @torch.no_grad()
    def step(self) -> None:
        """Take the parameters of now into the mean, if it has begun."""
        if not self._begun:
            return
        self.n_steps += 1
        for name, parameter in self._parameters.items():
            if self.n_steps == 1:
                self._means[name] = parameter.detach().clone()
            else:
                self._means[name].lerp_(parameter, 1 / self.n_steps)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The mean in the place of the parameters, if it has begun, within the ``with`` block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def finish(self) -> None:
        """The mean in the place of the parameters, if it has begun, to stay."""
        self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, mean in self._means.items():
            kept = self._parameters[name].clone()
            self._parameters[name].copy_(mean)
            mean.copy_(kept)

    def facts(self) -> dict[str, Any]:
        """What is saved beside `arrays`, as JSON holds it."""
        return {"losses": self._losses, "begun": self._begun, "n_steps": self.n_steps}

    def arrays(self) -> Arrays:
        """The means."""
        return with_prefix("average", {n: m.cpu().numpy().copy() for n, m in self._means.items()})

    def restore(self, facts: Mapping[str, Any], arrays: Arrays) -> None:
        """Take over what `facts` and `arrays` gave."""
        self._losses, self._begun = list(facts["losses"]), facts["begun"]
        self.n_steps = facts["n_steps"]
        self._means = {
            name: torch.from_numpy(mean).to(self._parameters[name].device)
            for name, mean in under_prefix("average", arrays).items()
        }
