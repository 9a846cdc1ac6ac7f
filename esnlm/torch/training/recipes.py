"""How a network is trained: its paper's recipe, with what the user says over it."""

import inspect
from collections.abc import Mapping
from typing import Any

from esnlm.torch.networks.registry import network_class
from esnlm.torch.training.plan import Plan

_STREAM_LENGTH = 128


def plan_settings(
    model: str,
    settings: Mapping[str, Any],
    given: Mapping[str, Any],
    *,
    one_text: bool = False,
) -> dict[str, Any]:
    """Settings of the training plan of a network with constructor arguments ``settings``.

    ``given`` goes before the recipe. ``one_text``: nothing in the corpus tells sentences apart;
    where they would be batched, streams or windows of the text are.

    Raises
    ------
    ValueError
        A setting is unknown or out of range.

    Examples
    --------
    >>> plan_settings("lstm", {}, {"epochs": 2})
    {'epochs': 2}
    >>> plan_settings("lstm", {}, {"epochs": 2}, one_text=True)
    {'length': 128, 'epochs': 2, 'batching': 'streams'}
    """
    plan = {**network_class(model).RECIPE, **given}
    if one_text and plan.get("batching", "sentences") == "sentences":
        if "batching" in given:
            raise ValueError("--batching sentences needs sentences or documents: not --reset never")
        parameter = parameters_of(model).get("context")
        context = settings.get("context", None if parameter is None else parameter.default)
        usual = {"length": context or _STREAM_LENGTH}
        plan = {**usual, **plan, "batching": "windows" if context else "streams"}
    known = Plan.__dataclass_fields__
    for name in plan:
        if name not in known:
            raise ValueError(f"--plan knows no {name}: it has {', '.join(known)}")
    try:
        Plan(**plan)
    except TypeError as error:
        raise ValueError(f"--plan: {error}") from None
    return plan


def check_settings(model: str, given: Mapping[str, Any]) -> None:
    """Refuse constructor arguments that the network does not have, and what cannot be made here."""
    network_class(model).require()
    known = [name for name in parameters_of(model) if name != "n_tokens"]
    for name in given:
        if name not in known:
            raise ValueError(f"{name} is no setting of {model}, which has {', '.join(known)}")


def parameters_of(model: str) -> Mapping[str, inspect.Parameter]:
    """The constructor's parameters of a network."""
    return inspect.signature(network_class(model)).parameters
