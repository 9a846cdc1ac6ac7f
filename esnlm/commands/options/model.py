"""Options that name a model's parts, and the parts they make."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from esnlm.commands.options.common import given, group
from esnlm.commands.options.values import LeakRate, Pairs, integer, real
from esnlm.readouts.registry import BY_OPTION

# Entries of a vocabulary from which a low-rank readout with direct connections is the default, with
# spectral features and leaky units without coupling; and from which other readouts have these as
# well.
_WORDS, _MANY_WORDS = 100, 5000
_FEATURES, _DIRECT, _PAIRS = 128, 3, 1 << 17
_LEAK_RATES = ("uniform", 0.0, 1.0)
# On words leak rates remember all that a coupled reservoir does (reports/controls).
_NO_COUPLING: dict[str, Any] = {"topology": "diagonal", "spectral_radius": 0.0}
# Of few words, found on an artificial grammar (reports/elman), with vectors of so many dimensions.
_FEW_WORDS: dict[str, Any] = {
    "spectral_radius": 1.28, "input_scaling": 0.2, "leak_rate": ("uniform", 0.2, 1.0),
}  # fmt: skip
_FEW_FEATURES = 6
# Readouts name the same thing differently: option -> parameters, the first that there is.
_OPTION_NAMES = {
    "alpha": ("alpha",), "passes": ("n_passes", "max_iter"), "experts": ("n_experts",),
    "classes": ("n_classes",), "direct": ("n_direct",),
}  # fmt: skip
# Options of the factored readout that are its factors': option -> kinds of factors.
_FACTOR_OPTIONS = {
    "alpha": ("ridge", "softmax", "moe"), "passes": ("softmax", "moe"), "experts": ("moe",),
}  # fmt: skip


@group("Reservoir")
class WeightOptions:
    """Parameters of `esnlm.Reservoir` that say how weights are drawn and used."""

    topology: Annotated[str | None, Parameter(metavar="NAME")] = None
    """offsets (default), random, ring, small_world, orthogonal, diagonal (no coupling between
    units) or delay_line."""
    spectral_radius: Annotated[float | None, real("R")] = None
    """Of the recurrent weights (default: 0.97)."""
    input_scaling: Annotated[float | None, real("S")] = None
    """Deviation of the input weights (default: 1)."""
    bias_scaling: Annotated[float | None, real("S")] = None
    """Deviation of the biases (default: 0)."""
    activation: Annotated[str | None, Parameter(metavar="NAME")] = None
    """tanh (default), relu or identity."""


@group("Reservoir")
class ReservoirOptions(WeightOptions):
    """Parameters of `esnlm.Reservoir`; those that are not given have no value."""

    topology: Annotated[str | None, Parameter(metavar="NAME")] = None
    """offsets, random, ring, small_world, orthogonal, diagonal (no coupling between units) or
    delay_line (default: offsets; diagonal with radius 0, so that leaks alone remember, where leak
    rates are uniform:0:1 by default and no topology, radius or degree is given)."""
    spectral_radius: Annotated[float | None, real("R")] = None
    """Of the recurrent weights (default: 0.97, or 0 as above; for fewer than 100 words 1.28, with
    leak rates uniform:0.2:1, an input scaling of 0.2 and six spectral features, where states are
    reset and neither one of these, nor the topology, nor the degree is given)."""
    n_units: Annotated[int | None, Parameter("--units"), integer("N")] = None
    """Size (default: 1000)."""
    degree: Annotated[int | None, integer("D")] = None
    """Connections into a unit (default: 32)."""
    leak_rate: LeakRate = None
    """A number in (0, 1], uniform:LOW:HIGH or inverse_gamma:ALPHA (default: 1; of lowrank and
    gated, and from 5000 words on of all, uniform:0:1)."""
    input_degree: Annotated[int | None, integer("K")] = None
    """Units that an input drives (default: all of them)."""


@group("Readout")
class ReadoutOptions:
    """A readout and its parameters; those that are not given have no value."""

    readout: Annotated[str | None, Parameter(choices=tuple(BY_OPTION))] = None
    """Least squares, softmax, mixture of experts, words by classes, classes and words on the
    directions that tell most, or a softmax for each last token with its n-grams (default: lowrank;
    for fewer than 100 characters gated, for fewer than 100 of other tokens ridge). From 5000 words
    on ridge is by classes too: factored with --factors ridge."""
    factors: Literal["ridge", "softmax", "moe"] | None = None
    """Of the factored readout: classes and words by least squares or softmax, or a mixture of
    experts for classes and softmax for words (default: softmax)."""
    direct: Annotated[int | None, integer("K")] = None
    """Last tokens that a lowrank or gated readout also reads directly, past the reservoir (default:
    3, of gated 8; 0 for lowrank with fewer than 100 tokens)."""
    alpha: Annotated[float | None, real("A")] = None
    """Weight penalty (default: the readout's; of gated 100)."""
    passes: Annotated[int | None, integer("P")] = None
    """Passes over the text, of incremental readouts."""
    experts: Annotated[int | None, integer("K")] = None
    """Experts of the mixture."""
    classes: Annotated[int | None, integer("K")] = None
    """Classes of words of the factored readout."""
    option: Pairs = ()
    """Any other parameter of the readout's class."""


def make_reservoir(options: ReservoirOptions, seed: int) -> Any:
    """The reservoir that the options describe, without weights."""
    from esnlm import Reservoir

    defaults: dict[str, Any] = {"n_units": 1000, "topology": "offsets"}
    return Reservoir(**defaults | given(options), random_state=seed)


def settled(
    reservoir: ReservoirOptions,
    readout: ReadoutOptions,
    features: Any,
    n_tokens: int,
    *,
    characters: bool = False,
    reset: str = "sentence",
) -> tuple[ReservoirOptions, ReadoutOptions, Any]:
    """Readout, features, leak rates and coupling by the size of the vocabulary; what gated has.

    ``characters``: whether tokens are characters; of few gated is the default. ``reset``: where
    states return to zero; radii above one are for states that do. Where an option gives a radius,
    a topology, a degree or leak rates, units are coupled.
    """
    if characters and n_tokens < _WORDS and readout.readout is None:
        readout = replace(readout, readout="gated")
    if readout.readout == "gated":
        readout = _gated(readout, n_tokens)
        if readout.direct and reservoir.leak_rate is None:
            reservoir = replace(reservoir, leak_rate=_LEAK_RATES)
    low_rank = readout.readout == "lowrank" or (readout.readout is None and n_tokens >= _WORDS)
    readout = replace(readout, readout=readout.readout or ("lowrank" if low_rank else "ridge"))
    coupling = reservoir.topology, reservoir.spectral_radius, reservoir.degree
    free = coupling == (None, None, None)
    if n_tokens < _WORDS and not characters and readout.readout != "gated":
        if free and reservoir.leak_rate is reservoir.input_scaling is None and reset != "never":
            found = "spectral", min(_FEW_FEATURES, n_tokens)
            features = found if features is None else features
            reservoir = replace(reservoir, **_FEW_WORDS)
        return reservoir, readout, features
    if n_tokens < (_WORDS if low_rank else _MANY_WORDS):
        return reservoir, readout, features
    if reservoir.leak_rate is None:
        uncoupled = _NO_COUPLING if free else {}
        reservoir = replace(reservoir, leak_rate=_LEAK_RATES, **uncoupled)
    if readout.readout == "ridge":
        readout = replace(readout, readout="factored", factors="ridge")
    elif low_rank and readout.direct is None:
        direct = dict(readout.option).get("n_direct", _DIRECT)
        more = (("n_pairs", _PAIRS),) if direct > 1 else ()
        readout = replace(readout, direct=direct, option=(*more, *readout.option))
    spectral = "spectral", min(_FEATURES, n_tokens)
    return reservoir, readout, spectral if features is None else features


def _gated(readout: ReadoutOptions, n_tokens: int) -> ReadoutOptions:
    """A gated readout reads n-grams, and has the penalty that suits them, unless told otherwise."""
    from esnlm.readouts.token_gated.ngram_tables import longest_window

    settings = dict(BY_OPTION["gated"].settings)
    settings["n_direct"] = min(settings["n_direct"], longest_window(n_tokens, n_tokens))
    more = {**settings, **dict(readout.option)}
    if readout.direct is None:
        readout = replace(readout, direct=more["n_direct"])
    if readout.direct and readout.alpha is None:
        readout = replace(readout, alpha=more["alpha"])
    return readout


def check_once(options: ReadoutOptions) -> None:
    """Refuse a parameter that an option of its own and --option both give."""
    for option, parameters in _OPTION_NAMES.items():
        for parameter in parameters:
            if getattr(options, option) is not None and parameter in dict(options.option):
                raise ValueError(f"{parameter} is given twice: by --{option} and by --option")


def make_readout(options: ReadoutOptions, seed: int) -> Any:
    """The readout that the options describe."""
    name = options.readout or "ridge"
    home = BY_OPTION[name].load()
    known = sorted(home._get_param_names())
    wanted = dict(options.option)
    chosen = given(options)
    if name == "factored":
        wanted = _factors(options) | wanted
        chosen = {option: v for option, v in chosen.items() if option not in _FACTOR_OPTIONS}
    elif options.factors is not None:
        raise ValueError(f"--factors is no option of the readout {name}, but of factored")
    for option, parameters in _OPTION_NAMES.items():
        if option not in chosen:
            continue
        parameter = next((each for each in parameters if each in known), None)
        if parameter is None:
            raise ValueError(
                f"--{option} is no option of the readout {name}, which has {', '.join(known)}"
                " (--option NAME=VALUE)"
            )
        wanted[parameter] = chosen[option]
    if "random_state" in known:
        wanted.setdefault("random_state", seed)
    for parameter in wanted:
        if parameter not in known:
            raise ValueError(f"--option {parameter}: the readout {name} has {', '.join(known)}")
    return home(**wanted)


def _factors(options: ReadoutOptions) -> dict[str, Any]:
    """Readouts for the classes and for the words in them."""
    from esnlm import MixtureOfExpertsReadout, RidgeReadout
    from esnlm.readouts.factored.factored import joint_softmax

    kind = options.factors or "softmax"
    for option, kinds in _FACTOR_OPTIONS.items():
        if getattr(options, option) is not None and kind not in kinds:
            raise ValueError(
                f"--{option} is no option of --factors {kind}, but of {' and '.join(kinds)}"
            )
    words: Any = kind if kind != "moe" else "softmax"
    if kind == "ridge" and options.alpha is not None:
        words = RidgeReadout(options.alpha)
    elif options.alpha is not None or options.passes is not None:
        words = joint_softmax(options.alpha, options.passes)
    classes = words
    if kind == "moe":
        classes = "moe" if options.experts is None else MixtureOfExpertsReadout(options.experts)
    return {"class_readout": classes, "word_readout": words}


def make_features(options: Any, seed: int) -> Any:
    """The word features that (kind, number) describe, or None."""
    from esnlm import SpectralWordFeatures, WordFeatures
    from esnlm.models.learned_features import LearnedWordFeatures

    kind, number = options or ("", 0)
    if number < (1 if kind else 0):
        least = f"{kind}:F of at least 1" if kind else "at least 0"
        raise ValueError(f"--features must be {least}, got {number}")
    if kind == "spectral":
        return SpectralWordFeatures(number, random_state=seed)
    if kind == "learned":
        return LearnedWordFeatures(number, random_state=seed)
    return WordFeatures(number, random_state=seed) if number else None
