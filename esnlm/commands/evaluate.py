"""``esnlm evaluate``: score text with a model."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from esnlm.commands.options.common import (
    Device,
    Documents,
    File,
    Model,
    ResultOptions,
    group,
    usual_split,
)
from esnlm.commands.options.values import Weight

if TYPE_CHECKING:
    from esnlm.evaluation.measures import Evaluation, Scored

_BIN_COLUMNS = ("model", "bin", "low", "high", "n_tokens", "perplexity", "lower", "upper")


@group()
class EvaluateOptions(ResultOptions):
    """Options of ``esnlm evaluate``."""

    csv: File | None = None
    """Also write the rows here."""
    surprisal_csv: File | None = None
    """Write the surprisal (bits) of each sentence, word or token here."""
    unit: Literal["sentence", "word", "token"] | None = None
    """Of --surprisal-csv (default: word, the sum over its tokens; ends are rows apart)."""
    interpolate: Annotated[Path | None, Parameter(metavar="MODEL2")] = None
    """Also score with this model, and with the mean of both probabilities."""
    weight: Weight | None = None
    """Share of MODEL in the mean (default: the likeliest on --held-out, or 0.5)."""
    held_out: Annotated[tuple[str, ...], Parameter(metavar="TEXT")] = ()
    """Text to choose the weight on, apart from TEXT and from what was trained on."""
    bins: Annotated[tuple[str, ...], Parameter(metavar="TRAIN")] = ()
    """Perplexity by how often a token occurs in this training text, or shards; of two models also
    the difference."""
    bins_csv: File | None = None
    """Also write the rows of --bins here."""
    documents: Documents = None
    device: Device = None


_DEFAULTS = EvaluateOptions()
Scorable = Annotated[
    tuple[str, ...],
    Parameter("TEXT", help="A file, a folder of files, or shards: rows of the result for each."),
]


def evaluate(model: Model, text: Scorable, /, *, options: EvaluateOptions = _DEFAULTS) -> int:
    """Score and print; the exit status."""
    from esnlm.evaluation.measures import COLUMNS
    from esnlm.evaluation.surprisal import SURPRISAL_COLUMNS
    from esnlm.storage.results import results, write_rows

    _check(options)
    unit, replace = options.unit or "word", options.overwrite
    files = (
        (options.csv, COLUMNS),
        (options.surprisal_csv, SURPRISAL_COLUMNS[unit]),
        (options.bins_csv, _BIN_COLUMNS),
    )
    with results(files, [*text, *options.held_out, *options.bins], overwrite=replace):
        rows, bins = _scored(model, text, unit, options)
        if options.csv is not None:
            write_rows(options.csv, COLUMNS, rows, overwrite=replace)
        if options.bins_csv is not None:
            write_rows(options.bins_csv, _BIN_COLUMNS, bins, overwrite=replace)
    return 0


def _scored(
    model: Path, text: Sequence[str], unit: str, options: EvaluateOptions
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of texts and of bins, shown; surprisals are written on the way."""
    from esnlm.evaluation.measures import COLUMNS

    evaluation = _evaluation(model, options)
    watchers: list[Callable[[str, Any], None]] = []
    with ExitStack() as stack:
        if options.surprisal_csv is not None:
            watchers.append(_surprisal(text, unit, options, evaluation, stack))
        bins = _Bins(evaluation, options.bins) if options.bins else None
        if bins is not None:
            watchers.append(bins)

        def watch(path: str, part: "Scored") -> None:
            for watcher in watchers:
                watcher(path, part)

        rows = evaluation.rows(text, watch)
    for row in rows:
        for name in COLUMNS:
            value = row[name]
            if value != "":
                shown = f"{value:.6g}" if isinstance(value, float) else value
                print(f"{name:20}  {shown}")
    return rows, [] if bins is None else bins.shown()


def _check(options: EvaluateOptions) -> None:
    """Refuse options that do nothing without another."""
    for is_given, name, needs, needed in (
        (options.weight is not None, "--weight", options.interpolate, "--interpolate MODEL2"),
        (options.held_out, "--held-out", options.interpolate, "--interpolate MODEL2"),
        (options.unit, "--unit", options.surprisal_csv, "--surprisal-csv FILE"),
        (options.bins_csv, "--bins-csv", options.bins, "--bins TRAIN"),
    ):
        if is_given and not needs:
            raise ValueError(f"{name} needs {needed}")
    if options.weight is not None and options.held_out:
        raise ValueError("--weight is given, so --held-out has nothing to choose: leave one out")


def _evaluation(model: Path, options: EvaluateOptions) -> "Evaluation":
    from esnlm.evaluation.interpolation import check_alike
    from esnlm.evaluation.measures import Evaluation
    from esnlm.loading import load_model

    paths = [model] if options.interpolate is None else [model, options.interpolate]
    models = [load_model(path, options.device) for path in paths]
    if models[0].tokenizer_ is None:
        raise ValueError("the model was trained on integers and has no tokenizer to read text with")
    split = options.documents or usual_split(models[0].tokenizer_, models[0].reset)
    names = [str(path) for path in paths]
    if len(models) == 1:
        return Evaluation(models, names, split, verbose=True)
    check_alike(*models)
    weight = 0.5 if options.weight is None else options.weight
    if options.held_out:
        weight = Evaluation(models, names, split, verbose=True).best_weight(options.held_out)
    return Evaluation(models, names, split, weight=weight, verbose=True)


def _surprisal(
    text: Sequence[str],
    unit: str,
    options: EvaluateOptions,
    evaluation: "Evaluation",
    stack: ExitStack,
) -> Callable[[str, Any], None]:
    """A function that writes the surprisals of each part."""
    from esnlm.evaluation.measures import is_shards
    from esnlm.evaluation.surprisal import SURPRISAL_COLUMNS, SurprisalRows
    from esnlm.storage.results import csv_aside

    for each in text:
        if is_shards(each):
            raise ValueError(f"{each} holds tokens, not text: give --surprisal-csv the text itself")
    model = evaluation.models[0]
    assert options.surprisal_csv is not None
    file = csv_aside(options.surprisal_csv, SURPRISAL_COLUMNS[unit], overwrite=options.overwrite)
    writer = stack.enter_context(file)
    writers: dict[int, SurprisalRows] = {}

    def write(path: str, part: "Scored") -> None:
        number = evaluation.n_texts
        if number not in writers:
            writers[number] = SurprisalRows(model.tokenizer_, model.reset, unit, path)
        writer.writerows(writers[number].rows(part))

    return write


class _Bins:
    """Perplexity of tokens by their frequency in training text, for each model."""

    def __init__(self, evaluation: "Evaluation", train: Sequence[str]) -> None:
        from esnlm.evaluation.frequency_bins import FrequencyBins

        self.counts = evaluation.token_counts(train)
        self.bins = {name: FrequencyBins() for name in evaluation.names}

    def __call__(self, path: str, part: "Scored") -> None:
        counts = self.counts[part.stream.tokens[part.predicted]]
        for bins, scores in zip(self.bins.values(), part.scores, strict=True):
            bins.add(scores[part.predicted], counts)

    def shown(self) -> list[dict[str, Any]]:
        """The rows of all texts together, and how two models differ, printed."""
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
        return rows
