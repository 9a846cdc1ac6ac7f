"""``esnlm evaluate``: score text with a model."""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.commands.options.common import add_device, add_documents, usual_split

if TYPE_CHECKING:
    from esnlm.evaluation.measures import Evaluation, Scored

_BIN_COLUMNS = ("model", "bin", "low", "high", "n_tokens", "perplexity", "lower", "upper")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="folder that train or ngram wrote")
    add(
        "text",
        nargs="+",
        metavar="TEXT",
        help="a file, a folder of files, or shards: rows of the result for each",
    )
    add("--csv", type=Path, metavar="FILE", help="also write the rows here")
    add(
        "--surprisal-csv",
        type=Path,
        metavar="FILE",
        help="write the surprisal (bits) of each sentence, word or token here",
    )
    add(
        "--unit",
        choices=("sentence", "word", "token"),
        help="of --surprisal-csv (default: word, the sum over its tokens; ends are rows apart)",
    )
    add(
        "--interpolate",
        type=Path,
        metavar="MODEL2",
        help="also score with this model, and with the mean of both probabilities",
    )
    add(
        "--weight",
        type=float,
        metavar="W",
        help="share of MODEL in the mean (default: the likeliest on --held-out, or 0.5)",
    )
    add(
        "--held-out",
        nargs="+",
        metavar="TEXT",
        help="text to choose the weight on, apart from TEXT and from what was trained on",
    )
    add(
        "--bins",
        nargs="+",
        metavar="TRAIN",
        help="perplexity by how often a token occurs in this training text, or shards; of two"
        " models also the difference",
    )
    add("--bins-csv", type=Path, metavar="FILE", help="also write the rows of --bins here")
    add_documents(parser)
    add_device(parser)


def run(args: argparse.Namespace) -> int:
    """Score and print; the exit status."""
    from esnlm.evaluation.measures import COLUMNS
    from esnlm.storage.atomic import check_results, write_rows

    _check(args)
    results = args.csv, args.surprisal_csv, args.bins_csv
    check_results(results, [*args.text, *(args.held_out or []), *(args.bins or [])])
    evaluation = _evaluation(args)
    with ExitStack() as stack:
        watchers = [
            watcher
            for watcher in (_surprisal(args, evaluation, stack), _Bins.wanted(args, evaluation))
            if watcher is not None
        ]

        def watch(path: str, part: "Scored") -> None:
            for watcher in watchers:
                watcher(path, part)

        rows = evaluation.rows(args.text, watch)
    for row in rows:
        _show(row, COLUMNS)
    if args.csv is not None:
        write_rows(args.csv, COLUMNS, rows)
    for watcher in watchers:
        if isinstance(watcher, _Bins):
            watcher.finish(args.bins_csv)
    return 0


def _check(args: argparse.Namespace) -> None:
    """Refuse options that do nothing without another."""
    for given, name, needs, needed in (
        (args.weight is not None, "--weight", args.interpolate, "--interpolate MODEL2"),
        (args.held_out, "--held-out", args.interpolate, "--interpolate MODEL2"),
        (args.unit, "--unit", args.surprisal_csv, "--surprisal-csv FILE"),
        (args.bins_csv, "--bins-csv", args.bins, "--bins TRAIN"),
    ):
        if given and not needs:
            raise ValueError(f"{name} needs {needed}")
    if args.weight is not None and args.held_out:
        raise ValueError("--weight is given, so --held-out has nothing to choose: leave one out")
    if args.weight is not None and not 0 <= args.weight <= 1:
        raise ValueError(f"--weight must lie in [0, 1], got {args.weight}")


def _evaluation(args: argparse.Namespace) -> "Evaluation":
    from esnlm.evaluation.interpolation import check_alike
    from esnlm.evaluation.measures import Evaluation
    from esnlm.loading import load_model

    paths = [args.model] if args.interpolate is None else [args.model, args.interpolate]
    models = [load_model(path, args.device) for path in paths]
    if models[0].tokenizer_ is None:
        raise ValueError("the model was trained on integers and has no tokenizer to read text with")
    split = args.documents or usual_split(models[0].tokenizer_, models[0].reset)
    names = [str(path) for path in paths]
    if len(models) == 1:
        return Evaluation(models, names, split, verbose=True)
    check_alike(*models)
    weight = 0.5 if args.weight is None else args.weight
    if args.held_out:
        weight = Evaluation(models, names, split, verbose=True).best_weight(args.held_out)
    return Evaluation(models, names, split, weight=weight, verbose=True)


def _surprisal(
    args: argparse.Namespace, evaluation: "Evaluation", stack: ExitStack
) -> Callable[[str, Any], None] | None:
    """What writes the surprisals of each part."""
    from esnlm.evaluation.measures import is_shards
    from esnlm.evaluation.surprisal import SURPRISAL_COLUMNS, SurprisalRows
    from esnlm.storage.atomic import csv_aside

    if args.surprisal_csv is None:
        return None
    for path in args.text:
        if is_shards(path):
            raise ValueError(f"{path} holds tokens, not text: give --surprisal-csv the text itself")
    model, unit = evaluation.models[0], args.unit or "word"
    writer = stack.enter_context(csv_aside(args.surprisal_csv, SURPRISAL_COLUMNS[unit]))
    writers: dict[int, SurprisalRows] = {}

    def write(path: str, part: "Scored") -> None:
        number = evaluation.n_texts
        if number not in writers:
            writers[number] = SurprisalRows(model.tokenizer_, model.reset, unit, path)
        writer.writerows(writers[number].rows(part))

    return write


class _Bins:
    """Perplexity of tokens by their frequency in training text, for each model."""

    def __init__(self, counts: Any, names: list[str]) -> None:
        from esnlm.evaluation.frequency_bins import FrequencyBins

        self.counts = counts
        self.bins = {name: FrequencyBins() for name in names}

    @classmethod
    def wanted(cls, args: argparse.Namespace, evaluation: "Evaluation") -> "_Bins | None":
        """Counts of the training text, where they are asked for."""
        if args.bins is None:
            return None
        return cls(evaluation.token_counts(args.bins), evaluation.names)

    def __call__(self, path: str, part: "Scored") -> None:
        counts = self.counts[part.stream.tokens[part.predicted]]
        for bins, scores in zip(self.bins.values(), part.scores, strict=True):
            bins.add(scores[part.predicted], counts)

    def finish(self, path: Path | None) -> None:
        """Print, and write, the rows of all texts together, and how two models differ."""
        from esnlm.storage.atomic import write_rows

        found = {model: bins.rows(random_state=0) for model, bins in self.bins.items()}
        if len(self.bins) > 1:
            first, second, *_ = self.bins
            differences = self.bins[first].differences(self.bins[second], random_state=0)
            found[f"{first} - {second}"] = differences
        rows = [
            {"model": model, "bin": row.name} | dict(list(row._asdict().items())[1:])
            for model, several in found.items()
            for row in several
        ]
        for row in rows:
            interval = f"[{row['lower']:.6g}, {row['upper']:.6g}]"
            print(
                f"{row['model']}  {row['bin']:>8}  {row['n_tokens']:>9} tokens  perplexity"
                f" {row['perplexity']:.6g}  {interval}"
            )
        if path is not None:
            write_rows(path, _BIN_COLUMNS, rows)


def _show(row: dict[str, Any], columns: tuple[str, ...]) -> None:
    for name in columns:
        value = row[name]
        if value != "":
            print(f"{name:20}  {value:.6g}" if isinstance(value, float) else f"{name:20}  {value}")
