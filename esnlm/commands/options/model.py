"""Options that name a model's parts, and the parts they make."""

import argparse
from typing import Any

from esnlm.commands.options.values import leak_rate, pair

_READOUTS = {
    "ridge": "RidgeReadout",
    "softmax": "SoftmaxReadout",
    "moe": "MixtureOfExpertsReadout",
    "factored": "ClassFactoredReadout",
    "lowrank": "LowRankReadout",
}
# Entries of a vocabulary from which words are told apart by what is known of their kind: the
# readout and the word features that are taken where no option says.
_LARGE_VOCABULARY = 5000
_FEATURES_OF_LARGE = ("spectral", 128)
_DIRECT_OF_LARGE, _PAIRS_OF_LARGE = 3, 1 << 17
_LEAK_RATE_OF_LARGE = ("uniform", 0.0, 1.0)
# Readouts name the same thing differently: option -> parameters, the first that there is.
_OPTION_NAMES = {
    "alpha": ("alpha",),
    "passes": ("n_passes", "max_iter"),
    "experts": ("n_experts",),
    "classes": ("n_classes",),
    "direct": ("n_direct",),
}
_FACTORS = ("ridge", "softmax", "moe")
# Options of the factored readout that are its factors': option -> kinds of factors.
_FACTOR_OPTIONS = {"alpha": _FACTORS, "passes": ("softmax", "moe"), "experts": ("moe",)}


def add_reservoir(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the reservoir."""
    group = parser.add_argument_group("reservoir")
    add = group.add_argument
    add("--units", type=int, default=1000, metavar="N", help="size (default: 1000)")
    add("--degree", type=int, default=32, metavar="D", help="connections into a unit (default: 32)")
    add(
        "--leak-rate",
        type=leak_rate,
        metavar="A",
        help="a number in (0, 1], uniform:LOW:HIGH or inverse_gamma:ALPHA (default: 1; from 5000"
        " words on uniform:0:1)",
    )
    add(
        "--input-degree",
        type=int,
        metavar="K",
        help="units that an input drives (default: all of them)",
    )
    add_weights(group)


def add_weights(group: Any, *, spectral_radius: float = 0.97) -> None:
    """Declare what all reservoirs of an experiment share: how weights are drawn and used."""
    add = group.add_argument
    add(
        "--topology",
        default="offsets",
        metavar="NAME",
        help="offsets (default), random, ring, small_world, orthogonal or delay_line",
    )
    add(
        "--spectral-radius",
        type=float,
        default=spectral_radius,
        metavar="R",
        help=f"of the recurrent weights (default: {spectral_radius})",
    )
    add(
        "--input-scaling",
        type=float,
        default=1.0,
        metavar="S",
        help="deviation of the input weights (default: 1)",
    )
    add(
        "--bias-scaling",
        type=float,
        default=0.0,
        metavar="S",
        help="deviation of the biases (default: 0)",
    )
    add("--activation", default="tanh", metavar="NAME", help="tanh (default), relu or identity")


def add_readout(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the readout."""
    add = parser.add_argument_group("readout").add_argument
    add(
        "--readout",
        choices=tuple(_READOUTS),
        help="least squares, softmax, mixture of experts, words by classes, or classes and words"
        " on the directions that tell most (default: ridge; from 5000 words on lowrank). From"
        " 5000 words on ridge is by classes too: factored with --factors ridge",
    )
    add(
        "--factors",
        choices=_FACTORS,
        help="of the factored readout: classes and words by least squares or softmax, or a mixture"
        " of experts for classes and softmax for words (default: softmax)",
    )
    add("--alpha", type=float, metavar="A", help="weight penalty (default: the readout's)")
    add("--passes", type=int, metavar="P", help="passes over the text, of incremental readouts")
    add(
        "--direct",
        type=int,
        metavar="K",
        help="last tokens that a lowrank readout also reads directly, past the reservoir"
        " (default: 0; from 5000 words on 3)",
    )
    add("--experts", type=int, metavar="K", help="experts of the mixture")
    add("--classes", type=int, metavar="K", help="classes of words of the factored readout")
    add(
        "--option",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other parameter of the readout's class",
    )


def make_reservoir(args: argparse.Namespace) -> Any:
    """The reservoir that the options describe, without weights."""
    from esnlm import Reservoir

    return Reservoir(
        args.units,
        degree=args.degree,
        topology=args.topology,
        spectral_radius=args.spectral_radius,
        input_scaling=args.input_scaling,
        input_degree=args.input_degree,
        bias_scaling=args.bias_scaling,
        activation=args.activation,
        leak_rate=1.0 if args.leak_rate is None else args.leak_rate,
        random_state=args.seed,
    )


def check_parts(args: argparse.Namespace) -> None:
    """Refuse options that make no parts, before any text is read."""
    make_reservoir(args)
    if args.readout is not None:
        make_readout(args)
    if args.features is not None:
        make_features(args)


def settle_defaults(args: argparse.Namespace, n_tokens: int) -> None:
    """Choose readout, features and leak rates by the size of the vocabulary where no option did."""
    large = n_tokens >= _LARGE_VOCABULARY
    args.readout = args.readout or ("lowrank" if large else "ridge")
    if large and args.readout == "ridge":
        args.readout, args.factors = "factored", "ridge"
    if args.features is None:
        args.features = _FEATURES_OF_LARGE if large else ("", 0)
    if args.leak_rate is None:
        args.leak_rate = _LEAK_RATE_OF_LARGE if large else 1.0
    if large and args.readout == "lowrank" and args.direct is None:
        args.direct = dict(args.option).get("n_direct", _DIRECT_OF_LARGE)
        if args.direct > 1:
            args.option = [("n_pairs", _PAIRS_OF_LARGE), *args.option]


def make_readout(args: argparse.Namespace) -> Any:
    """The readout that the options describe."""
    import esnlm

    home = getattr(esnlm, _READOUTS[args.readout])
    known = sorted(home._get_param_names())
    wanted = dict(args.option)
    is_factored = args.readout == "factored"
    if is_factored:
        wanted = _factors(args) | wanted
    elif args.factors is not None:
        raise ValueError(f"--factors is no option of the readout {args.readout}, but of factored")
    for option, names in _OPTION_NAMES.items():
        value = getattr(args, option)
        if value is None or (is_factored and option in _FACTOR_OPTIONS):
            continue
        name = next((name for name in names if name in known), None)
        if name is None:
            raise ValueError(
                f"--{option} is no option of the readout {args.readout}, which has"
                f" {', '.join(known)} (--option NAME=VALUE)"
            )
        wanted[name] = value
    if "random_state" in known:
        wanted.setdefault("random_state", args.seed)
    for name in wanted:
        if name not in known:
            raise ValueError(f"--option {name}: the readout {args.readout} has {', '.join(known)}")
    return home(**wanted)


def _factors(args: argparse.Namespace) -> dict[str, Any]:
    """Readouts for the classes and for the words in them."""
    from esnlm import MixtureOfExpertsReadout, RidgeReadout
    from esnlm.readouts.factored.factored import joint_softmax

    kind = args.factors or "softmax"
    for option, kinds in _FACTOR_OPTIONS.items():
        if getattr(args, option) is not None and kind not in kinds:
            raise ValueError(
                f"--{option} is no option of --factors {kind}, but of {' and '.join(kinds)}"
            )
    classes: Any
    words: Any
    classes = words = kind if kind != "moe" else "softmax"
    if kind == "ridge" and args.alpha is not None:
        classes = words = RidgeReadout(args.alpha, selection=None)
    elif args.alpha is not None or args.passes is not None:
        classes = words = joint_softmax(args.alpha, args.passes)
    if kind == "moe":
        classes = "moe" if args.experts is None else MixtureOfExpertsReadout(args.experts)
    return {"class_readout": classes, "word_readout": words}


def make_features(args: argparse.Namespace) -> Any:
    """The word features that the options describe, or None."""
    from esnlm import SpectralWordFeatures, WordFeatures

    kind, number = args.features
    least = 1 if kind else 0
    if number < least:
        named = f"{kind}:F of at least" if kind else "at least"
        raise ValueError(f"--features must be {named} {least}, got {number}")
    if kind == "spectral":
        return SpectralWordFeatures(number, random_state=args.seed)
    return WordFeatures(number, random_state=args.seed) if number else None


def features(text: str) -> tuple[str, int]:
    """``F`` or ``spectral:F`` -> how features are made, and how many."""
    kind, colon, number = text.rpartition(":")
    try:
        count = int(number)
    except ValueError:
        count = None
    if count is None or kind != ("spectral" if colon else ""):
        raise argparse.ArgumentTypeError(f"expected F or spectral:F, got {text!r}")
    return kind, count
