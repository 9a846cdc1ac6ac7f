"""``esnlm evaluate``: score text with a model."""

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from esnlm.options.common import (
    Device,
    Documents,
    File,
    Model,
    ResultOptions,
    check_second,
    finish,
    group,
)
from esnlm.options.corpus import LayoutOptions, split_of
from esnlm.options.needs import check_needs
from esnlm.options.values import ReadingContext, Weight, file_name, integer
from esnlm.storage.results import check_no_rows, csv_aside, results, write_rows
from esnlm.utils.messages import log

if TYPE_CHECKING:
    from esnlm.evaluation.measures import Evaluation
    from esnlm.evaluation.surprisal_csv import SurprisalTable
    from esnlm.models.surprisal import ScoredText
    from esnlm.text.stimuli import Stimuli

_BIN_COLUMNS = ("model", "bin", "low", "high", "n_tokens", "perplexity", "lower", "upper")


@group()
class EvaluateOptions(ResultOptions, LayoutOptions):
    """Options of ``esnlm evaluate``."""

    csv: File | None = None
    """Also write the rows here."""
    surprisal_csv: File | None = None
    """Write the surprisal (bits) of each sentence, word or token here, of several models in turn
    if need be: a column names the model."""
    unit: Literal["sentence", "word", "token"] | None = None
    """Rows of --surprisal-csv (default: word; the end of a sentence is a row of its own)."""
    uncorrected: Annotated[bool, Parameter(negative=())] = False
    """A word's surprisal is the sum over its tokens: whether the word ends is left to the next."""
    counts: Annotated[Path | None, file_name("TEXT")] = None
    """Text to count the frequencies of words in (default: the training text, where tokens are
    words)."""
    lags: Annotated[int, integer("N", 0)] = 0
    """Also write the values of the 1 to 3 words before."""
    context: ReadingContext = None
    """What the model reads before a sentence: sentence (nothing), document, or a number of
    sentences (default: as it was trained)."""
    name: str | None = None
    """Name of MODEL in all rows (default: its folder)."""
    column: str | None = None
    """TEXT is a .csv or .tsv with a text in each row of this column; --surprisal-csv has its other
    columns."""
    word_column: str | None = None
    """TEXT is a .csv or .tsv with a word in each row of this column."""
    group: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    """Columns whose values say which words of --word-column are one sentence."""
    interpolate: Annotated[Path | None, file_name("MODEL2")] = None
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


Scorable = Annotated[
    tuple[str, ...],
    Parameter("TEXT", help="A text to score: a file, a folder or shards. Each has its rows."),
]


def evaluate(
    model: Model, text: Scorable, /, *, options: EvaluateOptions = EvaluateOptions()
) -> int:
    """Score and print; the exit status."""
    from esnlm.evaluation.measures import COLUMNS
    from esnlm.evaluation.surprisal_csv import SurprisalTable

    _check(text, options)
    check_second(model, options.interpolate)
    stimuli = _stimuli(text, options)
    table = SurprisalTable(options.unit or "word", options.lags, stimuli)
    csvs = (options.csv, options.surprisal_csv, options.bins_csv)
    models = filter(None, (model, options.interpolate, options.counts))
    inputs: list[str | Path] = [*models, *text, *options.held_out, *options.bins]
    replace = options.overwrite
    files = zip(csvs, (COLUMNS, table.columns, _BIN_COLUMNS), strict=True)
    with results(list(files), inputs, overwrite=replace):
        evaluation = _evaluation(model, options, stimuli)
        watchers: list[Callable[[str, Any], None]] = []
        with ExitStack() as stack:
            if options.surprisal_csv is not None:
                if not replace:
                    named = evaluation.names[-1:]
                    check_no_rows(options.surprisal_csv, model=named, text=text)
                file = csv_aside(options.surprisal_csv, table.columns, overwrite=replace)
                writer = stack.enter_context(file)
                watchers.append(_surprisal(text, options, evaluation, table, writer))
            bins = _Bins(evaluation, options.bins) if options.bins else None
            if bins is not None:
                watchers.append(bins.add)
            rows = evaluation.rows(text, *watchers)
        of_bins = [] if bins is None else bins.rows()
        write_rows(options.csv, COLUMNS, rows, overwrite=replace)  # printing may fail
        write_rows(options.bins_csv, _BIN_COLUMNS, of_bins, overwrite=replace)
        for name, value in ((name, row[name]) for row in rows for name in COLUMNS):
            if value != "":
                digits = f"{value:.6g}" if isinstance(value, float) else value
                print(f"{name:20}  {digits}")
        _warn_of_unknown(rows)
        _print_bins(of_bins, evaluation.names)
    finish(*csvs)
    return 0


def _warn_of_unknown(rows: Sequence[dict[str, Any]]) -> None:
    """Say so where unknown tokens, which are easy to predict, make up much of a text."""
    from esnlm.models.checks import MANY_UNKNOWN

    for row in rows:
        if row["unknown_share"] > MANY_UNKNOWN and row["model"] == rows[0]["model"]:
            log.warning(
                f"{row['unknown_share']:.1%} of the tokens of {row['text']} are not in the"
                " vocabulary, and read as the unknown token, which is easy to predict: its"
                " surprisals say nothing of the words, and perplexities do not compare"
            )


def _check(text: Sequence[str], options: EvaluateOptions) -> None:
    """Refuse options that do nothing without another, or to shards."""
    from esnlm.text.source import check_twice, holds_shards

    check_needs(
        options,
        ("weight held_out", options.interpolate, "--interpolate MODEL2"),
        ("unit uncorrected counts lags", options.surprisal_csv, "--surprisal-csv FILE"),
        ("group", options.word_column, "--word-column NAME"),
        ("bins_csv", options.bins, "--bins TRAIN"),
    )
    for name in ("lags", "counts", "uncorrected"):
        if getattr(options, name) and options.unit in ("sentence", "token"):
            raise ValueError(f"--{name} is of words, got --unit {options.unit}")
    for names in (text, options.held_out, options.bins):
        check_twice(map(Path, names))
    if options.weight is not None and options.held_out:
        raise ValueError("--weight is given, so --held-out has nothing to choose: leave one out")
    if {Path(name).resolve() for name in text} & {
        Path(name).resolve() for name in options.held_out
    }:
        log.warning("--held-out is scored too: a weight chosen on a text flatters the mean there")
    others_are_shards = all(map(holds_shards, [*options.held_out, *options.bins]))
    all_are_shards = others_are_shards and all(map(holds_shards, text))
    of_lines = options.documents or options.strip_gutenberg or options.unwrap
    if of_lines and others_are_shards and (options.column or options.word_column):
        raise ValueError(
            "--strip-gutenberg, --unwrap and --documents are of text: a row of a table is a"
            " document"
        )
    if (of_lines or options.layout().changed()) and all_are_shards:
        raise ValueError(
            "--encoding, --strip-gutenberg, --unwrap and --documents are of text: shards were cut"
            " in tokens by prepare"
        )


def _stimuli(text: Sequence[str], options: EvaluateOptions) -> dict[str, "Stimuli"]:
    """Return the tables among the texts; refuse tables of which no column is named."""
    from esnlm.text.files import is_table
    from esnlm.text.stimuli import read_texts, read_words

    column, words = options.column, options.word_column
    if column is not None and words is not None:
        raise ValueError("--column is of texts and --word-column of words: give one of them")
    if column is None and words is None:
        for name in text:
            is_lines = name.lower().removesuffix(".gz").endswith((".jsonl", ".ndjson"))
            if is_table(name) or is_lines:
                raise ValueError(
                    f"{name} is a table, not text: name its column of texts by --column NAME, or"
                    " of words by --word-column NAME; of .jsonl make a .csv first"
                )
        return {}
    encoding = options.layout().encoding
    if words is not None:
        if options.unit not in (None, "word"):
            raise ValueError(f"--word-column has rows of words, got --unit {options.unit}")
        return {name: read_words(name, words, options.group, encoding) for name in text}
    return {name: read_texts(name, str(column), encoding) for name in text}


def _evaluation(
    model: Path, options: EvaluateOptions, stimuli: dict[str, "Stimuli"]
) -> "Evaluation":
    """Load the models and return their evaluation; choose the weight of an interpolation."""
    from esnlm.evaluation.measures import Evaluation
    from esnlm.loading import load_model
    from esnlm.models.interpolated import check_alike

    paths = [model] if options.interpolate is None else [model, options.interpolate]
    models = [load_model(path, device=options.device) for path in paths]
    split = split_of(models[0], options.documents)
    names, layout = [str(path) for path in paths], options.layout()
    names[0] = options.name or names[0]
    of = partial(
        Evaluation, models, names, split, layout=layout, verbose=True, context=options.context,
        words=options.surprisal_csv is not None and options.unit in (None, "word"),
        correct_boundaries=not options.uncorrected,
        tables={name: table.texts for name, table in stimuli.items()},
    )  # fmt: skip
    if len(models) == 1:
        return of()
    check_alike(*models)
    if options.held_out:
        return of(weight=of().best_weight(options.held_out))
    if options.weight is None:
        log.info("the mean has equal weights, 0.5 each: --held-out TEXT chooses the likeliest")
    return of(weight=0.5 if options.weight is None else options.weight)


def _surprisal(
    text: Sequence[str],
    options: EvaluateOptions,
    evaluation: "Evaluation",
    table: "SurprisalTable",
    writer: Any,
) -> Callable[[str, Any], None]:
    """Return a function that writes the surprisals of each part."""
    from esnlm.models.surprisal import word_counts
    from esnlm.text.corpus import TextCorpus
    from esnlm.text.source import holds_shards, spaced

    for each in text:
        if holds_shards(each):
            raise ValueError(f"{each} holds tokens, not text: give --surprisal-csv the text itself")
    model, name = evaluation.models[0], evaluation.names[-1]
    if not table.stimuli:
        for warning in spaced(TextCorpus(text, layout=evaluation.layout), model.tokenizer_):
            log.warning(warning)
    counts = word_counts(model, options.counts)
    return lambda path, part: writer.writerows(table.rows(path, part, model, name, counts))


class _Bins:
    """Perplexity of tokens by their frequency in training text, for each model."""

    def __init__(self, evaluation: "Evaluation", train: Sequence[str]) -> None:
        from esnlm.evaluation.token_groups import FrequencyBins

        self.counts = evaluation.token_counts(train)
        self.bins = {name: FrequencyBins() for name in evaluation.names}

    def add(self, path: str, part: "ScoredText") -> None:
        counts = self.counts[part.stream.tokens[part.predicted]]
        for bins, scores in zip(self.bins.values(), part.scores, strict=True):
            bins.add(scores[part.predicted], counts)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all texts together, and how two models differ."""
        rows_by_model = {model: bins.rows(random_state=0) for model, bins in self.bins.items()}
        if len(self.bins) > 1:
            first, second, *_ = self.bins
            differences = self.bins[first].differences(self.bins[second], random_state=0)
            rows_by_model[f"{first} - {second}"] = differences
        rows: list[dict[str, Any]] = [
            dict(zip(_BIN_COLUMNS, (model, *row), strict=True))
            for model, several in rows_by_model.items()
            for row in several
            if row.n_tokens  # nothing is known of a bin in which no token falls
        ]
        for row in rows:
            if math.isnan(row["lower"]):
                row["lower"] = row["upper"] = ""
        return rows


def _print_bins(rows: Sequence[dict[str, Any]], models: Collection[str]) -> None:
    for row in rows:
        what = "perplexity" if row["model"] in models else "difference of perplexities"
        interval = "(too few for an interval)"
        if row["lower"] != "":
            interval = f"[{row['lower']:.6g}, {row['upper']:.6g}]"
        print(
            f"{row['model']}  {row['bin']:>8}  {row['n_tokens']:>9} tokens  {what}"
            f" {row['perplexity']:.6g}  {interval}"
        )
