"""``esnlm blimp``: judge minimal pairs with a model."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esnlm.commands.console.messages import warn
from esnlm.commands.options.common import add_device

_NAME_WIDTH = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="folder that train wrote")
    add(
        "--data",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="the pairs: a folder of .jsonl files or of one archive, an archive, or one file",
    )
    add("--name", metavar="NAME", help="what tables and plots call it (default: its path)")
    add("--csv", type=Path, metavar="FILE", help="also write the table here")
    add("--pairs-csv", type=Path, metavar="FILE", help="write the two scores of each pair here")
    add("--plot", type=Path, metavar="FILE", help="draw accuracy by phenomenon into this PNG")
    add(
        "--published",
        type=Path,
        action="append",
        default=[],
        metavar="CSV",
        help="accuracies of other models to stand beside: a published table, or an earlier --csv",
    )
    add(
        "--interpolate",
        type=Path,
        metavar="MODEL2",
        help="judge with the mean of the probabilities of both models",
    )
    add("--weight", type=float, metavar="W", help="share of MODEL in that mean (default: 0.5)")
    add_device(parser)
    add(
        "--bos",
        action=argparse.BooleanOptionalAction,
        help="read BOS before each sentence (default: as the model was trained)",
    )
    add(
        "--reduction",
        choices=("sum", "mean"),
        default="sum",
        help="of the log-probabilities of a sentence's tokens (default: sum)",
    )


def run(args: argparse.Namespace) -> int:
    """Score and print; the exit status."""
    from esnlm.evaluation.minimal_pairs.pairs import read_pairs
    from esnlm.evaluation.minimal_pairs.scores import score_pairs
    from esnlm.evaluation.minimal_pairs.table import (
        COLUMNS,
        PAIR_COLUMNS,
        pair_rows,
        read_published,
        tabulate,
    )
    from esnlm.experiments.common.minimal_pairs import plot_accuracies
    from esnlm.storage.atomic import check_results, write_rows

    _check(args)
    check_results((args.csv, args.pairs_csv, args.plot), [args.data])
    others: dict[str, dict[str, float]] = {}
    for path in args.published:
        others |= read_published(path)
    pairs = read_pairs(args.data)
    model, path = _model(args)
    name = args.name or path
    _tell_unknown(model, [pair.good for pair in pairs])
    scores = score_pairs(model, pairs, bos=args.bos, reduction=args.reduction, verbose=True)
    rows = tabulate(pairs, scores, name)
    _show(rows, others)
    if args.csv is not None:
        write_rows(args.csv, COLUMNS, rows)
    if args.pairs_csv is not None:
        write_rows(args.pairs_csv, PAIR_COLUMNS, pair_rows(pairs, scores, name))
    if args.plot is not None:
        plot_accuracies(rows, others, args.plot)
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.weight is not None and args.interpolate is None:
        raise ValueError("--weight needs --interpolate MODEL2")
    if args.weight is not None and not 0 <= args.weight <= 1:
        raise ValueError(f"--weight must lie in [0, 1], got {args.weight}")


def _model(args: argparse.Namespace) -> tuple[Any, str]:
    """The model that judges, and its path or how it is mixed."""
    from esnlm.evaluation.interpolation import InterpolatedModel
    from esnlm.loading import load_model

    model = load_model(args.model, args.device)
    if args.interpolate is None:
        return model, str(args.model)
    weight = 0.5 if args.weight is None else args.weight
    both = InterpolatedModel(model, load_model(args.interpolate, args.device), weight)
    return both, f"{weight:g} {args.model} + {1 - weight:g} {args.interpolate}"


def _show(rows: Sequence[Mapping[str, Any]], others: Mapping[str, Mapping[str, float]]) -> None:
    """Accuracies in percent: each phenomenon, its paradigms under it, and overall."""
    head = "".join(f"  {name:>14.14}" for name in others)
    print(f"{'':{_NAME_WIDTH}}  accuracy    ties   pairs{head}")
    for row in rows:
        if row["level"] == "phenomenon":
            beside = "".join(_percent(known.get(row["phenomenon"])) for known in others.values())
            print(_line(row["phenomenon"], row) + beside)
            for part in rows:
                if (part["level"], part["phenomenon"]) == ("paradigm", row["phenomenon"]):
                    print(_line("  " + part["paradigm"], part))
        if row["level"] == "overall":
            beside = "".join(_percent(known.get("overall")) for known in others.values())
            print(_line("overall (mean over paradigms)", row) + beside)


def _line(name: str, row: Mapping[str, Any]) -> str:
    accuracy = f"{100 * row['accuracy']:8.2f}"
    return f"{name:{_NAME_WIDTH}}  {accuracy}  {row['ties']:6}  {row['n_pairs']:6}"


def _percent(accuracy: float | None) -> str:
    return f"  {'':14}" if accuracy is None else f"  {100 * accuracy:14.2f}"


def _tell_unknown(model: Any, sentences: Sequence[str]) -> None:
    import numpy as np

    tokenizer = getattr(model, "tokenizer_", None)
    if tokenizer is None or tokenizer.unk_id is None:
        return
    unknown = [ids == tokenizer.unk_id for ids in tokenizer.encode_batches(sentences)]
    share = float(np.mean(np.concatenate(unknown)))
    if share > 0:
        warn(
            f"the model reads {100 * share:.1f} % of the tokens as the unknown token, so some pairs"
            " look alike to it"
        )
