"""The controls of a reservoir: what each leaves out, and what it is compared with."""

from collections.abc import Mapping
from typing import Any, NamedTuple

#: The control in which all is as it is given.
FULL = "full"


class Control(NamedTuple):
    """What differs from the full model: parameters of the reservoir, and of the readout.

    ``inputs`` names what the readout still reads. ``leak`` None is the full model's law.
    ``coupled``: the topology matters. ``direct``: it tells of direct connections. ``against`` are
    the controls that it is compared with.
    """

    says: str
    inputs: str
    weights: Mapping[str, Any]
    leak: str | None = None
    readout: Mapping[str, Any] = {}
    coupled: bool = False
    direct: bool = False
    against: tuple[str, ...] = (FULL,)


_UNCOUPLED = {"spectral_radius": 0.0}
#: Controls by name, in the order of tables.
CONTROLS = {
    FULL: Control(
        "as the options say", "reservoir and direct connections", {}, coupled=True, against=()
    ),
    "uncoupled": Control(
        "radius 0 with leak: traces of each input, no coupling",
        "traces of each input and direct connections",
        _UNCOUPLED,
    ),
    "last_token": Control(
        "radius 0, leak 1: the state of the last token",
        "the last token's state and direct connections",
        _UNCOUPLED,
        "1",
    ),
    "direct_alone": Control(
        "states of zero: the readout reads the last tokens alone",
        "direct connections alone",
        {"spectral_radius": 0.0, "input_scaling": 0.0, "bias_scaling": 0.0},
        "1",
        direct=True,
        against=(FULL, "no_direct"),
    ),
    "no_direct": Control(
        "no direct connections",
        "reservoir alone",
        {},
        readout={"direct": 0},
        coupled=True,
        direct=True,
    ),
    "no_direct_uncoupled": Control(
        "no direct connections, radius 0 with leak",
        "traces of each input alone",
        _UNCOUPLED,
        readout={"direct": 0},
        direct=True,
        against=("no_direct",),
    ),
}
