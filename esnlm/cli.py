"""The command line: parse, call, print."""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from esnlm import __version__
from esnlm.blas import use_widest_kernels

if TYPE_CHECKING:
    from esnlm.language_model import LanguageModel
    from esnlm.tokenizers import Tokenizer

_READOUTS = {
    "ridge": "RidgeReadout",
    "softmax": "SoftmaxReadout",
    "moe": "MixtureOfExpertsReadout",
    "factored": "ClassFactoredReadout",
}
_EXPERIMENTS = {
    "elman": "grammar experiments: sizes x readouts x features x seeds, to a CSV and plots",
    "text": "reservoirs beside n-grams on Penn Treebank and tiny Shakespeare, to a CSV",
}
# Laws of leak rates, and how many numbers each takes.
_LEAK_RATE_LAWS = {"uniform": 2, "inverse_gamma": 1}
_INTERRUPTED = 130
_BROKEN_PIPE = 141


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"esnlm: error: {_one_line(message)}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 0, 2 for bad input, 130 when interrupted.

    Bad options leave as argparse does, by ``SystemExit`` with status 2.
    """
    use_widest_kernels()
    warnings.showwarning = _show_warning
    arguments = sys.argv[1:] if argv is None else list(argv)
    args = _parser(arguments).parse_args(arguments)
    try:
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has left: nobody to tell, nothing to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        print("esnlm: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except OSError as error:
        return _fail(_of_system(error))
    except (ValueError, FloatingPointError, OverflowError) as error:
        return _fail(str(error))
    except MemoryError:
        return _fail("out of memory: lower --units, or the size of the vocabulary")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="esnlm", description="Language models on a fixed reservoir.")
    parser.add_argument("--version", action="version", version=f"esnlm {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_train(commands.add_parser("train", help="fit a model to text"))
    _add_evaluate(commands.add_parser("evaluate", help="score text with a model"))
    _add_generate(commands.add_parser("generate", help="continue a prompt"))
    for name, summary in _EXPERIMENTS.items():
        command = commands.add_parser(name, help=summary)
        if arguments[:1] == [name]:
            module = import_module(f"esnlm.experiments.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser


def _add_train(parser: argparse.ArgumentParser) -> None:
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
    _add_documents(parser)
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
    add("--seed", type=_seed, default=0, help="the same seed, the same model (default: 0)")
    _add_reservoir(parser.add_argument_group("reservoir").add_argument)
    _add_readout(parser.add_argument_group("readout").add_argument)
    parser.set_defaults(run=_train)


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


def _add_documents(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--documents",
        choices=("blank_line", "line", "file"),
        help="what a document is (default: file where line ends are tokens, else blank_line)",
    )


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder that train wrote")
    parser.add_argument("text", nargs="+", metavar="TEXT", help="one row of the result for each")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the rows here")
    _add_documents(parser)
    parser.set_defaults(run=_evaluate)


def _add_generate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="folder that train wrote")
    add("--prompt", default="", metavar="TEXT", help="text to continue (default: none)")
    add("--tokens", type=int, default=200, metavar="N", help="tokens to draw (default: 200)")
    add(
        "--temperature",
        type=float,
        default=1.0,
        metavar="T",
        help="divides log-probabilities; 0 takes the most probable token (default: 1)",
    )
    add("--top-k", type=int, metavar="K", help="draw among the K most probable tokens")
    add("--top-p", type=float, metavar="P", help="draw among the fewest tokens that add up to P")
    add("--seed", type=_seed, help="the same seed, the same text")
    parser.set_defaults(run=_generate)


def _train(args: argparse.Namespace) -> int:
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
    split = args.documents or _usual_split(tokenizer, reset)
    docs = TextCorpus(args.text, split)
    held_out = TextCorpus(args.held_out, split) if args.held_out else None
    model = LanguageModel(
        reservoir, readout, tokenizer, features, reset, random_state=args.seed, verbose=True
    )
    model.fit(docs, held_out=held_out)
    model.save(args.out)
    print(f"{args.out}: {model.n_tokens_} tokens, {model.n_parameters_} trained parameters")
    return 0


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


_OPTION_NAMES = {
    "alpha": ("alpha",),
    "passes": ("n_passes", "max_iter"),
    "experts": ("n_experts",),
    "classes": ("n_classes",),
}


def _evaluate(args: argparse.Namespace) -> int:
    from esnlm import LanguageModel
    from esnlm.evaluation import COLUMNS, check_csv, evaluate_texts, write_rows

    if args.csv is not None:
        check_csv(args.csv)
    model = LanguageModel.load(args.model)
    split = args.documents or _split_of(model)
    rows = evaluate_texts(model, args.text, split)
    for row in rows:
        row["model"] = str(args.model)
        for name in COLUMNS[1:]:
            value = row[name]
            print(f"{name:20}  {value:.6g}" if isinstance(value, float) else f"{name:20}  {value}")
    if args.csv is not None:
        write_rows(args.csv, rows)
    return 0


def _generate(args: argparse.Namespace) -> int:
    from esnlm import LanguageModel
    from esnlm.generation import Choice, TextPieces

    model = LanguageModel.load(args.model)
    choice = Choice(args.temperature, args.top_k, args.top_p, args.seed)
    if model.tokenizer_ is None:
        prompt: Any = [int(token) for token in args.prompt.split()]
        pieces: Any = (f" {token}" for token in model.generate(args.tokens, prompt, choice))
    else:
        tokens = model.generate(args.tokens, args.prompt, choice)
        pieces = TextPieces(model.tokenizer_, model.tokenizer_.encode(args.prompt), tokens)
        _tell_unknown(model.tokenizer_, args.prompt)
    print(_shown(model.tokenizer_, args.prompt), end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
    return 0


def _shown(tokenizer: "Tokenizer | None", prompt: str) -> str:
    """The prompt, less spaces at its end that the model does not read but writes."""
    bare = prompt.rstrip()
    if tokenizer is not None and len(tokenizer.encode(bare)) == len(tokenizer.encode(prompt)):
        return bare
    return prompt


def _tell_unknown(tokenizer: "Tokenizer", prompt: str) -> None:
    if tokenizer.unk_id is None:
        return
    ids = tokenizer.encode(prompt)
    n_unknown = int((ids == tokenizer.unk_id).sum())
    if n_unknown:
        _show_warning(
            f"the model knows {len(ids) - n_unknown} of the {len(ids)} tokens of the prompt: it"
            " reads the others as the unknown token"
        )


def _split_of(model: "LanguageModel") -> str:
    if model.tokenizer_ is None:
        raise ValueError("the model was trained on integers and has no tokenizer to read text with")
    return _usual_split(model.tokenizer_, model.reset)


def _usual_split(tokenizer: "Tokenizer", reset: str) -> str:
    return "file" if tokenizer.keeps_newlines and reset == "never" else "blank_line"


def _leak_rate(text: str) -> Any:
    name, *values = text.split(":")
    try:
        if _LEAK_RATE_LAWS.get(name) == len(values):
            return (name, *map(float, values))
        return float(text)
    except ValueError:
        expected = "a number, uniform:LOW:HIGH or inverse_gamma:ALPHA"
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}") from None


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected an integer of at least 0, got {text!r}")
    return int(text)


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    print(f"esnlm: warning: {_one_line(str(message))}", file=sys.stderr)


def _fail(message: str) -> int:
    print(f"esnlm: error: {_one_line(message)}", file=sys.stderr)
    return 2


def _of_system(error: OSError) -> str:
    """``name: what is wrong`` of an error that came from the operating system."""
    if error.strerror is None or error.filename is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


def _one_line(message: str) -> str:
    return " ".join(message.split())
