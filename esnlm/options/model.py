"""Options that name a model's parts."""

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from esnlm.options.common import group, set_options
from esnlm.options.values import LeakRate, Pairs, integer, real
from esnlm.readouts.registry import BY_OPTION


@group("Reservoir")
class WeightOptions:
    """Parameters of `esnlm.Reservoir` that say how weights are drawn and used."""

    topology: Annotated[str | None, Parameter(metavar="NAME")] = None
    """random, offsets, ring, small_world, orthogonal, delay_line or diagonal (units are not
    coupled)."""
    spectral_radius: Annotated[float | None, real("R")] = None
    """Spectral radius of the recurrent weights."""
    input_scaling: Annotated[float | None, real("S")] = None
    """Standard deviation of the input weights."""
    bias_scaling: Annotated[float | None, real("S")] = None
    """Standard deviation of the biases."""
    activation: Annotated[str | None, Parameter(metavar="NAME")] = None
    """tanh, relu or identity."""


@group(
    "Reservoir",
    "Defaults of reservoir, readout and features come from the recipe, or are those of"
    " `esnlm.Reservoir` and the readout's class where it says nothing.",
)
class ReservoirOptions(WeightOptions):
    """Parameters of `esnlm.Reservoir`; those that are not set have no value."""

    n_units: Annotated[int | None, Parameter("--units"), integer("N")] = None
    """Number of units."""
    degree: Annotated[int | None, integer("D")] = None
    """Connections into a unit."""
    leak_rate: LeakRate = None
    """A number in (0, 1], uniform:LOW:HIGH or inverse_gamma:ALPHA."""
    input_degree: Annotated[int | None, integer("K")] = None
    """Units that an input drives (default: all)."""


@group("Readout")
class ReadoutOptions:
    """A readout and its parameters; those that are not set have no value."""

    readout: Annotated[str | None, Parameter(choices=tuple(BY_OPTION))] = None
    """Readout of the states."""
    factors: Literal["ridge", "softmax", "moe"] | None = None
    """Readouts of the classes and of their words, in the factored readout (default: softmax)."""
    direct: Annotated[int | None, integer("K")] = None
    """Last tokens that a lowrank or gated readout reads directly, past the reservoir; 0: none."""
    alpha: Annotated[float | None, real("A")] = None
    """Weight penalty."""
    passes: Annotated[int | None, integer("P")] = None
    """Passes over the text (networks: 1), or iterations of the solver."""
    experts: Annotated[int | None, integer("K")] = None
    """Experts of the mixture (moe)."""
    classes: Annotated[int | None, integer("K")] = None
    """Classes of words (factored)."""
    option: Pairs = ()
    """Any other parameter of the readout's class."""


def model_settings(
    reservoir: ReservoirOptions, readout: ReadoutOptions, features: Any
) -> dict[str, Any]:
    """Return the options that were set as settings of `esnlm.models.recipes`."""
    settings = set_options(reservoir) | set_options(readout)
    settings["option"] = dict(readout.option)
    return settings if features is None else settings | {"features": features}
