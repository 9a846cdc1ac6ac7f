"""``esnlm text``: reservoirs beside Kneser-Ney n-grams on Penn Treebank and tiny Shakespeare.

Words are read sentence by sentence, each from a zero state; characters as one sequence. N-grams
are fitted and scored on the same tokens.
"""

import argparse
import json
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from esnlm.commands.options.grid import add_grid, check_grid, interrupted, prepared_folder
from esnlm.experiments.common.grid import Row, run_grid
from esnlm.experiments.common.subprocess_run import run_apart

DATASETS = ("ptb", "tiny_shakespeare")
TOKENIZERS = ("word", "char")
READOUTS = {
    "ridge": "RidgeReadout",
    "softmax": "SoftmaxReadout",
    "moe": "MixtureOfExpertsReadout",
    "factored": "ClassFactoredReadout",
}
#: Longest n-gram of the baseline.
_ORDERS = {"word": 5, "char": 8}
#: With thousands of words a softmax over all of them is what costs: it is left out by default.
_DEFAULT_READOUTS = {"word": ("ridge", "factored"), "char": ("ridge", "softmax")}
_KEY = ("dataset", "tokenizer", "model", "size", "settings")
COLUMNS = (
    *_KEY,
    "vocabulary",
    "n_train_tokens",
    "n_test_tokens",
    "nll_per_token",
    "perplexity",
    "bits_per_character",
    "unknown_share",
    "fit_seconds",
    "score_seconds",
    "n_parameters",
    "peak_rss_mib",
    "command",
    "commit",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``esnlm text``."""
    add_grid(parser, folder="text", sizes=[1000], degree=16)
    add = parser.add_argument
    add("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS), metavar="NAME")
    add("--tokenizers", nargs="+", choices=TOKENIZERS, default=list(TOKENIZERS), metavar="NAME")
    add("--readouts", nargs="+", choices=tuple(READOUTS), metavar="NAME")
    add("--ptb", metavar="FOLDER", help="where Penn Treebank lies (default: it is downloaded)")
    add("--tiny-shakespeare", metavar="FILE", help="where it lies (default: it is downloaded)")


def run(args: argparse.Namespace) -> int:
    """Run what ``text.csv`` does not hold yet: 0 when all is done, 130 when interrupted."""
    from esnlm.experiments.common.provenance import code_version
    from esnlm.experiments.text.run import read_texts

    check_grid(args)
    places = {"ptb": args.ptb, "tiny_shakespeare": args.tiny_shakespeare}
    for dataset in args.datasets:  # a wrong file is told now, not after the runs on another
        read_texts(dataset, places[dataset])
    made = {
        "command": "esnlm text " + " ".join(_options(args)),
        "commit": code_version(),
    }
    with prepared_folder(args.out):
        try:
            rows = run_grid(
                settings(args),
                partial(_run, places=places, made=made, env=dict(os.environ)),
                args.out / "text.csv",
                key=_KEY,
                columns=COLUMNS,
                jobs=1,
            )
        except KeyboardInterrupt:
            return interrupted(args.out)
    for row in rows:
        name = f"{row['dataset']} {row['tokenizer']} {row['model']} {row['size']}"
        print(f"{name:55} perplexity {row['perplexity']:<10.6g} nats {row['nll_per_token']:.4f}")
    return 0


def settings(args: argparse.Namespace) -> list[Row]:
    """Every run of the grid: n-grams first, then readouts by size."""
    reservoir = {
        "topology": "offsets",
        "degree": args.degree,
        "spectral_radius": args.spectral_radius,
        "input_scaling": args.input_scaling,
    }
    made: list[Row] = []
    for dataset in args.datasets:
        for tokenizer in args.tokenizers:
            shared = {"dataset": dataset, "tokenizer": tokenizer}
            for order in range(1, _ORDERS[tokenizer] + 1):
                made.append(shared | {"model": "kneser-ney", "size": order, "settings": "{}"})
            readouts: Sequence[str] = args.readouts or _DEFAULT_READOUTS[tokenizer]
            for readout in readouts:
                text = json.dumps({"reservoir": reservoir, "readout": _READOUT_OPTIONS[readout]})
                made += [
                    shared | {"model": READOUTS[readout], "size": size, "settings": text}
                    for size in args.sizes
                ]
    return made


_READOUT_OPTIONS: dict[str, dict[str, Any]] = {
    "ridge": {},
    "softmax": {"solver": "incremental", "n_passes": 4},
    "moe": {"random_state": 0},
    "factored": {"random_state": 0},
}


def _run(setting: Row, *, places: Any, made: Row, env: dict[str, str]) -> Row:
    placed = setting | {"place": places[setting["dataset"]]}
    return made | run_apart("esnlm.experiments.text.run", placed, env)


def _options(args: argparse.Namespace) -> list[str]:
    """The options that decide on the results, as they were given; places of files left out."""
    names = ("datasets", "tokenizers", "readouts", "sizes")
    words = []
    for name in names:
        values = getattr(args, name)
        words += [f"--{name}", *map(str, values)] if values else []
    numbers = ("spectral_radius", "input_scaling", "degree")
    return words + [f"--{n.replace('_', '-')} {getattr(args, n):g}" for n in numbers]
