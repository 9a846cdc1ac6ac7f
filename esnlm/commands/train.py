"""``esnlm train``: fit a model to text."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.commands.arguments import add_documents, seed, usual_split

if TYPE_CHECKING:
    from esnlm.tokenizers import Tokenizer

_READOUTS = {
    "ridge": "RidgeReadout",
    "softmax": "SoftmaxReadout",
    "moe": "MixtureOfExpertsReadout",
    "factored": "ClassFactoredReadout",
}
# Readouts name the same thing differently: option -> parameters, the first that there is.
_OPTION_NAMES = {
    "alpha": ("alpha",),
    "passes": ("n_passes", "max_iter"),
    "experts": ("n_experts",),
    "classes": ("n_classes",),
}
# Laws of leak rates, and how many numbers each takes.
_LEAK_RATE_LAWS = {"uniform": 2, "inverse_gamma": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("text", nargs="+", metavar="TEXT", help="UTF-8 files, plain or .gz, or folders of them")
    add("--out", type=Path, required=True, metavar="MODEL", help="folder to write")
    add("--overwrite", action="store_true", help="replace a model that is there")
    add("--held-out", nargs="+", metavar="TEXT", help="text to choose penalties and stops by")
    add(
        "--tokenizer",
        default="word",
        metavar="word|char|FILE",
        help="words, characters, or a tokenizer.json (default: word)",
    )
    add("--vocab-size", type=int, metavar="V", help="keep the most frequent tokens (default: all)")
    add("--lower", action="store_true", help="lower-case the text")
    add_documents(parser)
    add(
        "--reset",
        choices=("sentence", "document", "never"),
        help="where the state returns to zero (default: never for characters, else sentence)",
    )
    add(
        "--features",
        type=int,
        default=0,
        metavar="F",
        help="dimensions of learned word features; 0 (default): one-hot tokens",
    )
    add("--seed", type=seed, default=0, help="the same seed, the same model (default: 0)")
    _add_reservoir(parser.add_argument_group("reservoir").add_argument)
    _add_readout(parser.add_argument_group("readout").add_argument)


def run(args: argparse.Namespace) -> int:
    """Fit and save; the exit status."""
    from esnlm import LanguageModel, Reservoir, WordFeatures
    from esnlm.corpus import TextCorpus
    from esnlm.persistence import check_target

    check_target(args.out, overwrite=args.overwrite)
    reset = args.reset or ("never" if args.tokenizer == "char" else "sentence")
    readout = _readout(args)
    reservoir = Reservoir(
        args.units,
        degree=args.degree,
        topology=args.topology,
        spectral_radius=args.spectral_radius,
        input_scaling=args.input_scaling,
        bias_scaling=args.bias_scaling,
        activation=args.activation,
        leak_rate=args.leak_rate,
        random_state=args.seed,
    )
    if args.features < 0:
        raise ValueError(f"--features must be at least 0, got {args.features}")
    features = WordFeatures(args.features, random_state=args.seed) if args.features else None
    tokenizer = _tokenizer(args, reset)
    split = args.documents or usual_split(tokenizer, reset)
    docs = TextCorpus(args.text, split)
    held_out = TextCorpus(args.held_out, split) if args.held_out else None
    model = LanguageModel(
        reservoir, readout, tokenizer, features, reset, random_state=args.seed, verbose=True
    )
    model.fit(docs, held_out=held_out)
    model.save(args.out)
    print(f"{args.out}: {model.n_tokens_} tokens, {model.n_parameters_} trained parameters")
    return 0


def _add_reservoir(add: Any) -> None:
    add("--units", type=int, default=1000, metavar="N", help="size (default: 1000)")
    add("--degree", type=int, default=32, metavar="D", help="connections into a unit (default: 32)")
    add(
        "--topology",
        default="offsets",
        metavar="NAME",
        help="offsets (default), random, ring, small_world, orthogonal or delay_line",
    )
    add(
        "--spectral-radius",
        type=float,
        default=0.97,
        metavar="R",
        help="of the recurrent weights (default: 0.97)",
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
    add(
        "--leak-rate",
        type=_leak_rate,
        default=1.0,
        metavar="A",
        help="a number in (0, 1], uniform:LOW:HIGH or inverse_gamma:ALPHA (default: 1)",
    )


def _add_readout(add: Any) -> None:
    add(
        "--readout",
        choices=tuple(_READOUTS),
        default="ridge",
        help="least squares (default), softmax, mixture of experts, or words by classes",
    )
    add("--alpha", type=float, metavar="A", help="weight penalty (default: the readout's)")
    add("--passes", type=int, metavar="P", help="passes over the text, of incremental readouts")
    add("--experts", type=int, metavar="K", help="experts of the mixture")
    add("--classes", type=int, metavar="K", help="classes of words of the factored readout")
    add(
        "--option",
        type=_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other parameter of the readout's class",
    )


def _tokenizer(args: argparse.Namespace, reset: str) -> "Tokenizer":
    from esnlm.corpus import TextCorpus
    from esnlm.tokenizers import Tokenizer

    options = {"lower": args.lower, "boundaries": reset != "never"}
    if args.tokenizer == "word":
        options["boundaries"] = True
        return Tokenizer.train_words(TextCorpus(args.text, "line"), args.vocab_size, **options)
    if args.tokenizer == "char":
        text = TextCorpus(args.text, "file")
        return Tokenizer.train_characters(text, args.vocab_size, **options)
    if args.lower or args.vocab_size is not None:
        raise ValueError("--lower and --vocab-size need --tokenizer word or char, not a file")
    return Tokenizer.from_file(args.tokenizer)


def _readout(args: argparse.Namespace) -> Any:
    import esnlm

    home = getattr(esnlm, _READOUTS[args.readout])
    known = sorted(home._get_param_names())
    wanted = dict(args.option)
    for option, names in _OPTION_NAMES.items():
        value = getattr(args, option)
        if value is None:
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


def _leak_rate(text: str) -> Any:
    name, *values = text.split(":")
    try:
        if _LEAK_RATE_LAWS.get(name) == len(values):
            return (name, *map(float, values))
        return float(text)
    except ValueError:
        expected = "a number, uniform:LOW:HIGH or inverse_gamma:ALPHA"
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}") from None


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
