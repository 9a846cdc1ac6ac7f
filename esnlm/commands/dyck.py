"""``esnlm dyck``: fixed timescales against learned ones on nested brackets.

Section 3.2.3 of Mahto et al. (paper 002): an LSTM layer says after each bracket which closers may
come next. The baseline learns all its biases; the multi-timescale model has those of forget and
input gates fixed so that its units' timescales follow an inverse gamma distribution. A reservoir
whose leak rates follow the same law, read out by ridge regression, stands beside them.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from esnlm.commands.options.grid import check_least, interrupted, prepare_folder
from esnlm.experiments.common.grid import Row, run_grid
from esnlm.torch.optional import require_torch
from esnlm.utils.version import __version__

MODELS = ("baseline", "mts", "esn")
_KEY = ("model", "n_units", "seed")
_SHARED = (
    "alpha",
    "epochs",
    "batch_size",
    "learning_rate",
    "train_sequences",
    "validation_sequences",
    "test_sequences",
    "max_length",
    "version",
)
COLUMNS = (
    *_KEY,
    "right",
    "validation_right",
    "train_loss",
    "validation_loss",
    "epochs_run",
    "n_train_tokens",
    "n_test_tokens",
    "n_parameters",
    "ks_alpha",
    "closest_alpha",
    "ks_closest_alpha",
    "fit_seconds",
    "score_seconds",
    "device",
    "right_by_length",
    "right_by_distance",
    "timescale_quantiles",
    *_SHARED,
    "command",
    "commit",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``esnlm dyck``; the defaults are the paper's."""
    add = parser.add_argument
    add("--out", type=Path, default=Path("dyck"), metavar="DIR", help="folder of CSV and plot")
    add("--models", nargs="+", default=list(MODELS), metavar="NAME", help=", ".join(MODELS))
    add("--units", type=int, nargs="+", default=[256], metavar="N", help="sizes of the layer")
    add("--seeds", type=int, default=20, metavar="K", help="run seeds 0 .. K-1 on the same data")
    add("--alpha", type=float, default=1.5, metavar="A", help="shape of the inverse gamma law")
    add("--epochs", type=int, default=2000, metavar="N", help="at most so many")
    add("--batch-size", type=int, default=32, metavar="N", help="sequences a step")
    add("--learning-rate", type=float, default=1e-4, metavar="R", help="of Adam")
    add("--train", type=int, default=10_000, metavar="N", help="sequences to train on")
    add("--validation", type=int, default=2000, metavar="N", help="sequences that end training")
    add("--test", type=int, default=5000, metavar="N", help="sequences to judge on")
    add("--max-length", type=int, default=200, metavar="L", help="longest sequence, in brackets")
    add("--device", default="auto", metavar="NAME", help="of the LSTMs: auto, cpu, cuda, cuda:N")
    add("--no-plots", action="store_true", help="write the CSV alone")


def run(args: argparse.Namespace) -> int:
    """Run what ``dyck.csv`` does not hold yet, then plot: 0, or 130 when interrupted."""
    _check(args)
    from esnlm.experiments.common.provenance import code_version
    from esnlm.experiments.dyck.run import Setup, run_model

    setup = Setup(args.train, args.validation, args.test, args.max_length, args.alpha)
    prepare_folder(args.out)
    training = {
        "n_epochs": args.epochs,
        "batch_size": args.batch_size,
        "learning_rate": args.learning_rate,
    }
    made = {
        "command": "esnlm dyck " + " ".join(sys.argv[2:]),
        "commit": code_version(),
    }
    try:
        rows = run_grid(
            settings(args),
            partial(run_model, setup, training, args.device, made),
            args.out / "dyck.csv",
            key=_KEY,
            columns=COLUMNS,
            fixed=_shared(args),
            jobs=1,
        )
    except KeyboardInterrupt:
        return interrupted(args.out)
    for row in rows:
        print(f"{row['model']:10} {row['n_units']:5} units  seed {row['seed']}  {row['right']:.2%}")
    if not args.no_plots:
        from esnlm.experiments.dyck.plots import plot_dyck

        plot_dyck(rows, args.out / "dyck.png")
    return 0


def settings(args: argparse.Namespace) -> list[Row]:
    """Every run of the grid: all models of a seed before the next seed."""
    return [
        {"model": model, "n_units": n_units, "seed": seed}
        for n_units in dict.fromkeys(args.units)
        for seed in range(args.seeds)
        for model in dict.fromkeys(args.models)
    ]


def _shared(args: argparse.Namespace) -> Row:
    values = (
        args.alpha, args.epochs, args.batch_size, args.learning_rate, args.train,
        args.validation, args.test, args.max_length, __version__,
    )  # fmt: skip
    return dict(zip(_SHARED, values, strict=True))


def _check(args: argparse.Namespace) -> None:
    for name in args.models:
        if name not in MODELS:
            raise ValueError(f"--models takes {', '.join(MODELS)}, got {name!r}")
    for option, values, least in (
        ("--units", args.units, 1),
        ("--seeds", [args.seeds], 1),
        ("--epochs", [args.epochs], 1),
        ("--batch-size", [args.batch_size], 1),
        ("--train", [args.train], 1),
        ("--validation", [args.validation], 1),
        ("--test", [args.test], 1),
        ("--max-length", [args.max_length], 2),
    ):
        check_least(option, values, least)
    for option, value in (("--alpha", args.alpha), ("--learning-rate", args.learning_rate)):
        if not 0 < value < float("inf"):
            raise ValueError(f"{option} must be positive and finite, got {value}")
    if set(args.models) != {"esn"}:
        require_torch("esnlm dyck")
        from esnlm.torch.device import chosen_device

        chosen_device(args.device)
