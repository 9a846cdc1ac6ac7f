"""Networks by name, and the settings of each for a number of trained parameters."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from importlib import import_module
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Any

from esnlm.utils.validation import OneOf, did_you_mean

if TYPE_CHECKING:
    from esnlm.torch.networks.network import Network

#: Name -> (module of `esnlm.torch.networks`, class); each is imported when used.
NETWORKS: dict[str, tuple[str, str]] = {
    "esn": ("esn", "EchoStateNetwork"),
    "esn+i": ("esn", "EchoStateNetworkWithEmbedding"),
    "esn+mlp": ("esn_mlp", "EchoStateNetworkWithMLP"),
    "lstm": ("lstm", "LSTM"),
    "gpt": ("gpt", "GPT"),
    "gpt2": ("gpt2", "GPT2"),
    "mts-lstm": ("multi_timescale_lstm", "MultiTimescaleLSTM"),
    "awd-lstm": ("multi_timescale_lstm", "AWDLSTM"),
    "char-esn": ("windowed", "CharacterReservoir"),
    "aerc": ("windowed", "AttentionReservoir"),
    "laerc": ("laerc", "LayeredReservoirs"),
    "transformer": ("windowed", "CharacterTransformer"),
}


def network_class(name: str) -> "type[Network]":
    """Return the class of that name."""
    OneOf(tuple(NETWORKS)).check("model", name)
    module, class_name = NETWORKS[name]
    return getattr(import_module(f"esnlm.torch.networks.{module}"), class_name)


def name_of(network: "Network") -> str:
    """Return the name of the network's class; ValueError if it is not in `NETWORKS`."""
    kind = type(network)
    for name, place in NETWORKS.items():
        if place == (kind.__module__.removeprefix("esnlm.torch.networks."), kind.__qualname__):
            return name
    raise ValueError(f"{kind.__qualname__} has no name in esnlm.torch.networks.registry.NETWORKS")


def check_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Raise ValueError for arguments that a network cannot have, or for a missing library."""
    kind = network_class(name)
    kind.require()
    check_names(settings, [each for each in kind.arguments() if each != "n_tokens"], name)
    for each in fields(kind):
        if each.name in settings and (constraint := each.metadata.get("constraint")):
            constraint.check(each.name, settings[each.name])


def check_names(settings: Collection[str], names: Collection[str], what: str) -> None:
    """Raise ValueError for a setting that ``what`` does not have."""
    for name in settings:
        if name not in names:
            hint = did_you_mean(name, names)
            raise ValueError(f"{name} is no setting of {what}, which has {', '.join(names)}{hint}")


def n_trained(name: str, settings: Mapping[str, Any], n_tokens: int) -> int:
    """Return number of trained parameters of a network, without making it.

    >>> n_trained("lstm", {"n_units": 8}, n_tokens=100)
    2276
    """
    kind = network_class(name)
    return kind.count(**(kind.arguments() | dict(settings) | {"n_tokens": n_tokens}))


def settings_of_size(
    name: str, n_parameters: int, n_tokens: int, changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return constructor arguments with the nearest number of trained parameters.

    A published size within 5 % is preferred. ``changes`` stay; others are the defaults. The
    candidates are compared one by one, as width and depth may grow together. ValueError if none
    is within a quarter of ``n_parameters``.
    """
    kind = network_class(name)

    def distance(settings: Mapping[str, Any]) -> int:
        return abs(n_trained(name, settings, n_tokens) - n_parameters)

    for settings in kind.PUBLISHED:
        candidate = merged(settings, changes or {})
        if distance(candidate) <= 0.05 * n_parameters:
            return candidate
    candidates = (merged(settings, changes or {}) for settings in kind.family())
    smallest = next(candidates)
    smaller = takewhile(lambda settings: distance(settings) < 3 * n_parameters, candidates)
    best = min(chain([smallest], smaller), key=distance)
    if distance(best) > 0.25 * n_parameters:
        raise ValueError(
            f"no {name} with {n_tokens} tokens has about {n_parameters} trained parameters: the"
            f" nearest has {n_trained(name, best, n_tokens)}"
        )
    return best


def is_sized(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether the given settings determine the network's size.

    >>> is_sized("aerc", {"n_units": 9, "n_hidden": 2}), is_sized("esn", {"rank": 8})
    (True, False)
    """
    first, second = islice(network_class(name).family(), 2)
    return merged(first, settings) == merged(second, settings)


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the given ones over them, mappings entry by entry.

    >>> merged({"reservoir": {"n_units": 9}, "rank": 2}, {"reservoir": {"degree": 4}})
    {'reservoir': {'n_units': 9, 'degree': 4}, 'rank': 2}
    """
    both = {**settings, **changes}
    for name, value in settings.items():
        if isinstance(value, Mapping) and isinstance(both[name], Mapping):
            both[name] = {**value, **both[name]}
    return both
