"""``esnlm natural``: reservoirs of many sizes, connectivities and leak rates on natural language.

The experiments of Ueda et al. (sizes; appendices A and B): each setting is trained on shards,
scored on held-out shards and on minimal pairs, a row of a CSV each.
"""

import argparse
import math
import os
import shutil
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from esnlm.commands.natural_grid import COLUMNS, KEY, planned
from esnlm.commands.options.grid import check_least, interrupted, prepared_folder
from esnlm.commands.options.model import add_readout, add_weights, features
from esnlm.commands.options.values import leak_rate
from esnlm.experiments.common import minimal_pairs
from esnlm.experiments.common.grid import Row, read_rows, run_grid

NAMES = ("size", "connectivity", "min_leak", "timescales")
_RUNNING = "running"
#: What a run holds while it is under way, in its folder.
_LOCK = "lock"
_RUN = "esnlm.experiments.natural.run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("train", metavar="SHARDS", help="training text: a folder that prepare wrote")
    add("--held-out", required=True, metavar="SHARDS", help="text that models are scored on")
    add("--blimp", type=Path, metavar="FOLDER", help="minimal pairs that models judge")
    add("--out", type=Path, required=True, metavar="DIR", help="folder of the CSV and the plot")
    add(
        "--name",
        choices=NAMES,
        default="size",
        help="what the grid is about, and what the CSV and the plot are called (default: size)",
    )
    add("--no-plots", action="store_true", help="write the CSV alone")
    add("--keep-models", type=Path, metavar="DIR", help="keep the model of each run in this folder")
    add(
        "--baseline",
        type=_baseline,
        action="append",
        default=[],
        metavar="NAME=NLL[:BLIMP]",
        help="another model to draw beside: nats a token, and percent of pairs",
    )
    _add_grid(parser)
    add_readout(parser)
    _add_training(parser)


def _add_grid(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("grid")
    add = group.add_argument
    add("--sizes", type=int, nargs="+", default=[1024], metavar="N", help="units (default: 1024)")
    connections = group.add_mutually_exclusive_group()
    connections.add_argument(
        "--degrees", type=int, nargs="+", metavar="D", help="connections into a unit (default: 32)"
    )
    connections.add_argument(
        "--connectivities",
        type=_connectivity,
        nargs="+",
        metavar="G",
        help="the same as shares of the units, such as 0.01 or 2^-7",
    )
    add(
        "--leaks",
        type=_leak,
        nargs="+",
        default=["uniform:0:1"],
        metavar="A",
        help="leak rates: a number in (0, 1], uniform:LOW:HIGH or inverse_gamma:ALPHA"
        " (default: uniform:0:1)",
    )
    add(
        "--features",
        type=features,
        nargs="+",
        metavar="[spectral:]F",
        help="dimensions of word features, 0 for one-hot tokens (default: as in train)",
    )
    add("--seeds", type=int, default=1, metavar="K", help="run seeds 0 .. K-1 (default: 1)")
    add_weights(group, spectral_radius=0.99)
    add(
        "--input-degree",
        type=_input_degree,
        metavar="K|degree|all",
        help="units that an input drives (default: degree, as many as connections into a unit, or"
        " all where word features are the inputs)",
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("training").add_argument
    add(
        "--checkpoint-every",
        type=float,
        default=10.0,
        metavar="MINUTES",
        help="time between checkpoints; 0: after every chunk (default: 10)",
    )
    add(
        "--held-out-tokens",
        type=int,
        metavar="T",
        help="held-out tokens that readouts choose by, taken evenly (default: 32768)",
    )
    add("--chunk-tokens", type=int, metavar="T", help="tokens of a chunk (default: 65536)")


def run(args: argparse.Namespace) -> int:
    """Run what the CSV does not hold yet: 0 when all is done, 130 when interrupted."""
    _check(args)
    settings, runs = planned(args)
    path = args.out / f"{args.name}.csv"
    with prepared_folder(args.out):
        try:
            rows = run_grid(
                settings,
                partial(_run, runs=runs, args=args, path=path, env=dict(os.environ)),
                path,
                key=KEY,
                columns=COLUMNS,
                jobs=1,
            )
        except KeyboardInterrupt:
            return interrupted(args.out)
    _forget(path)
    for row in rows:
        judged = "" if row["blimp"] is None else f", BLiMP {100 * row['blimp']:.2f} %"
        name = " ".join(f"{name}={row[name]}" for name in ("n_units", "degree", "leak", "seed"))
        print(f"{name}: {row['nll_per_token']:.4f} nats a token{judged}")
    if not args.no_plots:
        _plot(args, path)
    return 0


def _run(
    setting: Row, *, runs: Mapping[str, Row], args: argparse.Namespace, path: Path, env: Any
) -> Row:
    from esnlm.experiments.common.provenance import code_version
    from esnlm.experiments.common.subprocess_run import run_apart

    _forget(path)
    folder = _folder(path, setting["version"])
    given = {
        "train": args.train,
        "held_out": args.held_out,
        "blimp": None if args.blimp is None else str(args.blimp),
        "folder": str(folder),
        "save_every": 60 * args.checkpoint_every,
    }
    try:
        measured = run_apart(_RUN, runs[setting["version"]] | given, env)
    except ValueError:
        _forget_unbegun(folder)
        raise
    if args.keep_models is not None:
        _keep(folder / "model", args.keep_models / f"{setting['n_units']}-{setting['version']}")
    return dict.fromkeys(minimal_pairs.COLUMNS) | measured | {"commit": code_version()}


def _keep(model: Path, place: Path) -> None:
    """Copy a run's model, which goes with its row, to where it stays; whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    aside = place.with_name(f"{place.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(model, aside)
    shutil.rmtree(place, ignore_errors=True)
    aside.replace(place)


def _forget(path: Path) -> None:
    """Remove what runs whose rows are written kept to go on from."""
    for row in read_rows(path):
        shutil.rmtree(_folder(path, row["version"]), ignore_errors=True)
    _remove_empty(path.parent / _RUNNING)


def _forget_unbegun(folder: Path) -> None:
    """Remove the folder of a run that was refused before its first checkpoint."""
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= {_LOCK}:
        shutil.rmtree(folder)
        _remove_empty(folder.parent)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _folder(path: Path, version: str) -> Path:
    return path.parent / _RUNNING / f"{path.stem}-{version}"


def _plot(args: argparse.Namespace, path: Path) -> None:
    from esnlm.experiments.common.figures import save
    from esnlm.experiments.natural.plots import sweep_figure

    save(sweep_figure(args.name, read_rows(path), dict(args.baseline)), path.with_suffix(".png"))


def _connectivity(text: str) -> float:
    """``0.01`` or ``2^-7``."""
    base, power, exponent = text.partition("^")
    try:
        value = float(base) ** float(exponent) if power else float(base)
    except (ValueError, ArithmeticError):
        value = math.nan
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(
            f"expected a share in (0, 1], such as 0.01 or 2^-7, got {text!r}"
        )
    return value


def _leak(text: str) -> str:
    """A law of leak rates as one text, however its numbers are spelt."""
    law = leak_rate(text)
    return (
        f"{law:g}" if isinstance(law, float) else ":".join((law[0], *map("{:g}".format, law[1:])))
    )


def _input_degree(text: str) -> Any:
    if text in ("degree", "all"):
        return text
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected degree, all or a count, got {text!r}")
    return int(text)


def _baseline(text: str) -> tuple[str, tuple[float, float | None]]:
    name, equals, values = text.rpartition("=")
    loss, colon, judged = values.partition(":")
    try:
        found = float(loss), float(judged) if colon else None
    except ValueError:
        found = math.nan, None
    if not (equals and name) or math.isnan(found[0]):
        raise argparse.ArgumentTypeError(
            f"expected NAME=NLL or NAME=NLL:BLIMP, such as 5-gram=4.37:53.7, got {text!r}"
        )
    return name, found


def _check(args: argparse.Namespace) -> None:
    check_least("--sizes", args.sizes, 1)
    check_least("--degrees", args.degrees or [], 1)
    check_least("--seeds", [args.seeds], 1)
    if not (math.isfinite(args.checkpoint_every) and args.checkpoint_every >= 0):
        raise ValueError(f"--checkpoint-every must be at least 0, got {args.checkpoint_every}")
    for size, degree in product(args.sizes, args.degrees or []):
        if degree > size:
            raise ValueError(f"--degrees {degree} is more than the {size} units of a reservoir")
