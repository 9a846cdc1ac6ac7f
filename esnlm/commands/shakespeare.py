"""``esnlm shakespeare``: Köster & Uchida's single-reservoir study on Shakespeare's characters.

Six parts by whole works, five to train on and one to test. Reservoirs of five sizes in the
published setting and in ours, Kneser-Ney n-grams, and what real text would score: a CSV, a plot.
"""

import argparse
import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from esnlm.commands.options.grid import check_least, interrupted, prepare_folder
from esnlm.experiments.common.grid import Row, run_grid
from esnlm.experiments.common.subprocess_run import run_apart

MODELS = ("real text", "kneser-ney", "windows, dense", "windows", "carried", "gated")
PARTS = 6
_KEY = ("model", "size", "settings")
COLUMNS = (
    *_KEY,
    "vocabulary",
    "n_parameters",
    "n_parameters_total",
    "n_train_characters",
    "n_test_characters",
    "cross_entropy",
    "window_cross_entropy",
    "carried_cross_entropy",
    "state_difference",
    "generated_characters",
    "overlap_7_train",
    "overlap_8_train",
    "overlap_7_test",
    "overlap_8_test",
    "fit_seconds",
    "seconds_per_character",
    "peak_rss_mib",
    "cores",
    "commit",
)
WORK_COLUMNS = ("title", "part", "characters", "characters_folio")
_SPARSE_DEGREE = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``esnlm shakespeare``."""
    add = parser.add_argument
    add("texts", nargs="+", metavar="TEXT", help="shakespeare.txt and shakespeare-first-folio.txt,"
        " plain or .gz, or the folder that holds both")  # fmt: skip
    add("--out", type=Path, default=Path("shakespeare"), metavar="DIR",
        help="folder of the CSVs and plots (default: shakespeare)")  # fmt: skip
    add("--models", nargs="+", choices=MODELS, metavar="NAME",
        default=["real text", "kneser-ney", "windows", "carried"],
        help=f"which of {', '.join(MODELS)} (default: all but dense and gated)")  # fmt: skip
    add("--parameters", type=int, nargs="+", metavar="P",
        default=[15_000, 25_000, 50_000, 100_000, 155_000],
        help="trained parameters, by which the units of the reservoirs are chosen")  # fmt: skip
    add("--units", type=int, nargs="+", metavar="N",
        help="units of the reservoirs, in the place of --parameters")  # fmt: skip
    add("--orders", type=int, nargs="+", default=[5, 7], metavar="N", help="longest n-grams")
    add("--passes", type=int, default=1, metavar="P", help="over the training text (default: 1)")
    add("--alpha", type=float, default=3.0, metavar="A", help="L2 penalty (default: 3)")
    add("--spectral-radius", type=float, default=0.7, metavar="R", help="of carried and gated")
    add("--input-scaling", type=float, default=2.0, metavar="S", help="of carried and gated")
    add("--degree", type=int, default=16, metavar="D", help="of carried and gated (default: 16)")
    add("--characters", type=int, default=10_000, metavar="N",
        help="to generate for the overlap (default: 10 000)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run what ``shakespeare.csv`` does not hold yet: 0 when all is done, 130 when interrupted."""
    from esnlm.experiments.common.provenance import code_version
    from esnlm.experiments.shakespeare.plots import plot_study
    from esnlm.experiments.shakespeare.works import equal_parts, joined_text, shakespeare_works
    from esnlm.storage.atomic import write_rows
    from esnlm.text.tokenizers import Tokenizer

    _check(args)
    parts = equal_parts(shakespeare_works(args.texts), PARTS)
    prepare_folder(args.out)
    (args.out / "samples").mkdir(exist_ok=True)
    write_rows(args.out / "works.csv", WORK_COLUMNS, _work_rows(parts))
    train = joined_text(work for part in parts[:-1] for work in part)
    vocabulary = len(Tokenizer.train_characters([train]))
    made = {"commit": code_version()}
    with tempfile.TemporaryDirectory() as folder:
        places = {"train": f"{folder}/train.txt", "test": f"{folder}/test.txt"}
        Path(places["train"]).write_text(train, encoding="utf-8")
        Path(places["test"]).write_text(joined_text(parts[-1]), encoding="utf-8")
        shared = places | {"characters": args.characters}
        measured = partial(_run, shared=shared, made=made, out=args.out, env=dict(os.environ))
        try:
            path = args.out / "shakespeare.csv"
            settings = study(args, vocabulary)
            rows = run_grid(settings, measured, path, key=_KEY, columns=COLUMNS, jobs=1)
        except KeyboardInterrupt:
            return interrupted(args.out)
    for row in rows:
        loss = "" if row["cross_entropy"] is None else f"{row['cross_entropy']:.4f} nats"
        print(f"{row['model']:15} {row['size']:6}  {loss:11}  7-grams {row['overlap_7_train']:.3f}")
    plot_study(path, args.out / "shakespeare.png")
    return 0


def study(args: argparse.Namespace, vocabulary: int) -> list[Row]:
    """The runs of the options, for a vocabulary of so many characters."""
    sizes = args.units or [round(count / vocabulary) - 1 for count in args.parameters]
    readout = {"alpha": args.alpha, "n_passes": args.passes}
    ours = {
        "topology": "offsets",
        "degree": args.degree,
        "spectral_radius": args.spectral_radius,
        "input_scaling": args.input_scaling,
    }
    reservoirs: dict[str, dict[str, Any]] = {
        "windows, dense": {},
        "windows": {"degree": _SPARSE_DEGREE},
        "carried": ours,
        "gated": ours,
    }
    made: list[Row] = []
    for model in args.models:
        if model == "real text":
            made.append({"model": model, "size": args.characters, "settings": "{}"})
        elif model == "kneser-ney":
            made += [{"model": model, "size": order, "settings": "{}"} for order in args.orders]
        else:
            text = json.dumps({"reservoir": reservoirs[model], "readout": readout})
            made += [{"model": model, "size": size, "settings": text} for size in sizes]
    return made


def _run(setting: Row, *, shared: Row, made: Row, out: Path, env: dict[str, str]) -> Row:
    name = f"{setting['model'].replace(', ', '-').replace(' ', '-')}-{setting['size']}"
    places = {
        "checkpoints": str(out / "running" / name),
        "sample": str(out / "samples" / f"{name}.txt"),
    }
    return made | run_apart("esnlm.experiments.shakespeare.run", setting | shared | places, env)


def _work_rows(parts: Any) -> list[Row]:
    return [
        {
            "title": work.title,
            "part": "test" if number == PARTS else number,
            "characters": len(work.modern),
            "characters_folio": len(work.folio) or None,
        }
        for number, part in enumerate(parts, start=1)
        for work in part
    ]


def _check(args: argparse.Namespace) -> None:
    check_least("--parameters", args.parameters, 1000)
    check_least("--units", args.units or [], 32)
    check_least("--orders", args.orders, 1)
    check_least("--passes", [args.passes], 1)
    check_least("--degree", [args.degree], 1)
    check_least("--characters", [args.characters], 100)
    for option in ("alpha", "spectral_radius", "input_scaling"):
        value = getattr(args, option)
        if not 0 < value < float("inf"):
            name = option.replace("_", "-")
            raise ValueError(f"--{name} must be positive and finite, got {value}")
