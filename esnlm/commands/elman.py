"""``esnlm elman``: reservoir sizes x readouts x word features x seeds on Elman's grammar.

The setting of Rachez & Hagiwara, section 4: two corpora of 5 500 sentences, each read as one
long sequence, spectral radius 0.97, input scaling 1, no leak, the state never reset.
"""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from esnlm.commands.options.grid import (
    add_grid,
    check_grid,
    check_least,
    interrupted,
    prepare_folder,
)
from esnlm.experiments.common.grid import Row, run_grid
from esnlm.experiments.elman import READOUTS

if TYPE_CHECKING:
    from esnlm.experiments.elman.run import Settings

SIZES = (10, 25, 50, 100, 200)
FEATURES = (0, 2, 5)
NGRAM_ORDERS = (1, 2, 3, 4, 5)

_KEY = ("readout", "features", "n_units", "seed")
_SHARED = (
    "train_sentences",
    "test_sentences",
    "experts",
    "spectral_radius",
    "input_scaling",
    "degree",
    "grammar",
    "version",
)
_CORPORA = ("train_sentences", "test_sentences", "grammar", "version")
COLUMNS = (
    *_KEY,
    "perplexity",
    "cosine",
    "oracle_perplexity",
    "n_train_tokens",
    "n_test_tokens",
    "n_parameters",
    "fit_seconds",
    "score_seconds",
    "drive_seconds",
    "alpha",
    "train_perplexity",
    "train_cosine",
    "train_oracle_perplexity",
    *_SHARED,
)
NGRAM_COLUMNS = (
    "order",
    "seed",
    "perplexity",
    "cosine",
    "oracle_perplexity",
    "n_train_tokens",
    "n_test_tokens",
    "n_parameters",
    *_CORPORA,
)
# Slowest readout first: only the order of starting depends on it.
_PACE = ("moe", "factored", "softmax", "ridge")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``esnlm elman``."""
    add_grid(parser, folder="elman", sizes=SIZES, degree=32)
    add = parser.add_argument
    add("--readouts", nargs="+", default=list(READOUTS), metavar="NAME", help=", ".join(READOUTS))
    add(
        "--features",
        type=int,
        nargs="+",
        default=list(FEATURES),
        metavar="F",
        help="dimensions of the word features; 0 drives the reservoir with one-hot words",
    )
    add("--seeds", type=int, default=3, metavar="K", help="run seeds 0 .. K-1")
    add("--experts", type=int, default=10, metavar="K", help="experts of the mixture")
    add("--jobs", type=int, metavar="N", help="processes; default: the available cores")
    add("--train-sentences", type=int, default=5500, metavar="N")
    add("--test-sentences", type=int, default=5500, metavar="N")
    add("--no-plots", action="store_true", help="write the CSVs alone")
    grammar = parser.add_argument_group("grammar")
    grammar.add_argument(
        "--lengths",
        nargs="+",
        metavar="L:W",
        help="sentence lengths and their weights, such as 3:150 4:350; "
        "'free' keeps the lengths of the grammar (default: those of the paper)",
    )
    grammar.add_argument("--min-length", type=int, metavar="L", help="shortest sentence, in words")
    grammar.add_argument("--max-length", type=int, metavar="L", help="longest sentence, in words")
    grammar.add_argument("--plural", type=float, metavar="P", help="probability of a plural noun")
    grammar.add_argument(
        "--object", type=float, metavar="P", help="probability of an object where it is optional"
    )
    grammar.add_argument(
        "--noun-phrase",
        type=float,
        nargs=3,
        metavar=("PROPER", "NOUN", "RELATIVE"),
        help="probabilities of a name, a noun, and a noun with a relative clause",
    )
    grammar.add_argument(
        "--no-gaps",
        action="store_true",
        help="verbs of object relatives have objects of their own, as their kinds demand",
    )


def run(args: argparse.Namespace) -> int:
    """Run the grid, then plot: 0 when all is done, 130 when interrupted (rows are kept).

    Raises
    ------
    ValueError : options that make no grid, a folder that cannot be written, a CSV of another grid.
    """
    _check(args)
    from esnlm.experiments.elman.run import Settings, make_grammar

    settings = Settings(
        args.train_sentences,
        args.test_sentences,
        args.experts,
        args.spectral_radius,
        args.input_scaling,
        args.degree,
        _grammar(args),
    )
    make_grammar(settings.grammar)
    prepare_folder(args.out)
    try:
        rows, ngrams = run_experiment(settings, args)
    except KeyboardInterrupt:
        return interrupted(args.out)
    if not args.no_plots:
        _report(settings, rows, ngrams, args)
    print(f"{len(rows)} runs in {args.out / 'elman.csv'}")
    return 0


def run_experiment(settings: "Settings", args: argparse.Namespace) -> tuple[list[Row], list[Row]]:
    """Rows of ``elman.csv`` and of ``ngrams.csv`` for the grid of ``args``."""
    from esnlm.experiments.elman.run import run_ngram, run_readout

    shared = settings.columns()
    seeds = range(args.seeds)
    ngrams = run_grid(
        [{"order": order, "seed": seed} for seed in seeds for order in NGRAM_ORDERS],
        partial(run_ngram, settings),
        args.out / "ngrams.csv",
        key=("order", "seed"),
        columns=NGRAM_COLUMNS,
        fixed={name: shared[name] for name in _CORPORA},
        jobs=1,
    )
    rows = run_grid(
        [
            {"readout": readout, "features": features, "n_units": size, "seed": seed}
            for readout in _distinct(args.readouts)
            for features in _distinct(args.features)
            for size in _distinct(args.sizes)
            for seed in seeds
        ],
        partial(run_readout, settings),
        args.out / "elman.csv",
        key=_KEY,
        columns=COLUMNS,
        fixed=shared,
        cost=_cost,
        jobs=args.jobs,
    )
    return rows, ngrams


def _report(
    settings: "Settings", rows: list[Row], ngrams: list[Row], args: argparse.Namespace
) -> None:
    """Plots, the table of experts and the summary."""
    from esnlm.experiments.elman.experts import write_experts
    from esnlm.experiments.elman.plots import plot_cosine, plot_perplexity, plot_states
    from esnlm.experiments.elman.tables import write_summary

    n_units = min(args.sizes, key=lambda size: abs(size - 100))
    # The fewest features, where there are any: the paper has two.
    features = min(filter(None, args.features), default=0)
    plot_perplexity(rows, ngrams, args.out / "elman.png")
    plot_cosine(rows, ngrams, args.out / "elman_cosine.png")
    plot_states(settings, n_units, features or 2, args.out / "elman_states.png")
    if "moe" in args.readouts:
        write_experts(settings, n_units, features, args.out)
    write_summary(rows, ngrams, args.out / "summary.md")


def _cost(setting: Row) -> tuple[Any, ...]:
    """Large reservoirs first, and readouts on the same states one after the other."""
    same_states = setting["n_units"], setting["features"], setting["seed"]
    return (*same_states, -_PACE.index(setting["readout"]))


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _check(args: argparse.Namespace) -> None:
    for name in args.readouts:
        if name not in READOUTS:
            raise ValueError(f"--readouts takes {', '.join(READOUTS)}, got {name!r}")
    check_grid(args)
    for option, values, least in (
        ("--features", args.features, 0),
        ("--seeds", [args.seeds], 1),
        ("--experts", [args.experts], 1),
        ("--jobs", [1 if args.jobs is None else args.jobs], 1),
        # Fewer leave none to choose penalties on.
        ("--train-sentences", [args.train_sentences], 10),
        ("--test-sentences", [args.test_sentences], 1),
    ):
        check_least(option, values, least)


def _grammar(args: argparse.Namespace) -> str:
    """Options of the grammar that were given, as JSON keyword arguments of `ElmanGrammar`."""
    options: dict[str, Any] = {
        "min_length": args.min_length,
        "max_length": args.max_length,
        "plural_probability": args.plural,
        "object_probability": args.object,
        "gaps": False if args.no_gaps else None,
    }
    if args.noun_phrase is not None:
        options["noun_phrase"] = dict(
            zip(("proper", "noun", "relative"), args.noun_phrase, strict=True)
        )
    given = {name: value for name, value in options.items() if value is not None}
    if args.lengths is not None:
        given["length_quotas"] = _quotas(args.lengths)
    return json.dumps(given, sort_keys=True)


def _quotas(lengths: Sequence[str]) -> dict[str, float] | None:
    if list(lengths) == ["free"]:
        return None
    quotas = {}
    for item in lengths:
        length, _, weight = item.partition(":")
        try:
            quotas[str(int(length))] = float(weight)
        except ValueError:
            raise ValueError(
                f"--lengths takes LENGTH:WEIGHT, such as 3:150, or 'free'; got {item!r}"
            ) from None
    return quotas
