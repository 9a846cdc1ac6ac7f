"""The networks by the names that ``esnlm train --model`` knows; each is imported when used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from esnlm.torch.networks.network import Network

#: Name -> (module, class).
NETWORKS: dict[str, tuple[str, str]] = {
    "esn": ("esnlm.torch.networks.esn", "EchoStateNetwork"),
    "esn+i": ("esnlm.torch.networks.esn", "EchoStateNetworkWithEmbedding"),
    "lstm": ("esnlm.torch.networks.lstm", "LSTM"),
    "gpt2": ("esnlm.torch.networks.gpt2", "GPT2"),
    "mts-lstm": ("esnlm.torch.networks.multi_timescale_lstm", "MultiTimescaleLSTM"),
    "awd-lstm": ("esnlm.torch.networks.multi_timescale_lstm", "AWDLSTM"),
    "char-esn": ("esnlm.torch.networks.character_reservoir", "CharacterReservoir"),
    "aerc": ("esnlm.torch.networks.attention_readout", "AttentionReservoir"),
    "laerc": ("esnlm.torch.networks.laerc", "LayeredReservoirs"),
    "transformer": ("esnlm.torch.networks.transformer", "CharacterTransformer"),
}


def network_class(name: str) -> "type[Network]":
    """The class of that name.

    Raises
    ------
    ValueError
        There is no network of that name.

    Examples
    --------
    >>> network_class("esm")
    Traceback (most recent call last):
    ...
    ValueError: model must be one of esn, ..., got 'esm'
    """
    if name not in NETWORKS:
        raise ValueError(f"model must be one of {', '.join(NETWORKS)}, got {name!r}")
    home, class_name = NETWORKS[name]
    found: type[Network] = getattr(import_module(home), class_name)
    return found


def name_of(network: "Network") -> str:
    """The name under which the network's class is known.

    Raises
    ------
    ValueError
        Its class is not in `NETWORKS`.
    """
    kind = type(network)
    for name, home in NETWORKS.items():
        if home == (kind.__module__, kind.__qualname__):
            return name
    raise ValueError(f"{kind.__qualname__} has no name in esnlm.torch.networks.registry.NETWORKS")
