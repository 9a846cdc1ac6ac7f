"""``esnlm reading``: what the surprisal of models says of reading times."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from esnlm.options.common import Folder, ResultOptions, finish, group, results_folder
from esnlm.options.needs import check_needs
from esnlm.options.values import ReadingContext, file_name, integer
from esnlm.storage.results import results
from esnlm.utils.messages import as_text, log

_STORIES = "natural-stories"

Models = Annotated[
    tuple[Path, ...],
    Parameter(
        "MODEL",
        help="Folders that train or ngram wrote; or a .csv with surprisal_bits and the keys of the"
        " corpus, of some other program.",
    ),
]


@group()
class ReadingOptions(ResultOptions):
    """Options of ``esnlm reading``."""

    corpus: Annotated[str, Parameter(metavar="CORPUS")]
    """Reading times of words: natural-stories (downloaded once), the folder that holds its two
    files, or a .csv with a row a word, which has its item, the word and its mean time."""
    out: Folder
    """Folder for reading.csv, words.csv and reading.png."""
    counts: Annotated[Path | None, file_name("TEXT")] = None
    """Text to count the frequencies of words in (default: the training text of the first model
    whose tokens are words)."""
    lags: Annotated[int, integer("N", 0)] = 3
    """Words before whose surprisal counts, too."""
    baseline_lags: Annotated[int | None, integer("N", 0)] = None
    """Words before whose length and frequency count (default: those of --lags)."""
    quadratic: Annotated[bool, Parameter(negative=())] = False
    """Let the baseline have squares of length and log frequency, and their product, too."""
    context: ReadingContext = None
    """What models read before a sentence: sentence (nothing), document, or a number of sentences
    (default: as each was trained)."""
    item_column: str = "item"
    """Column of a .csv that says which text a word is of."""
    word_column: str = "word"
    """Its column of words."""
    time_column: str = "reading_time"
    """Its column of mean reading times."""


def reading(models: Models, /, *, options: ReadingOptions) -> int:
    """Score the corpus, fit the regressions, and write tables and a plot; the exit status."""
    from esnlm.evaluation.reading import GAIN_COLUMNS, reading_times
    from esnlm.loading import load_model
    from esnlm.studies.reading.plots import plot_gains
    from esnlm.text.files import is_table

    if not models:
        raise ValueError("esnlm reading needs a MODEL")
    if len(set(models)) < len(models):
        raise ValueError("a MODEL is given twice: name each once")
    has_folders = not all(map(is_table, models))
    check_needs(
        options,
        ("context", has_folders, "a MODEL that reads: a .csv has its surprisals"),
        ("time_column", is_table(options.corpus), "a .csv as --corpus"),
    )
    gains, words, plot = (
        options.out / name for name in ("reading.csv", "words.csv", "reading.png")
    )
    corpus = _corpus(options)
    with (
        results_folder(options.out),
        results([(gains, None), (words, None)], models, overwrite=options.overwrite),
    ):
        scorers = {
            as_text(path): _surprisals(path, options) if is_table(path) else load_model(path)
            for path in models
        }
        times = reading_times(
            scorers,
            corpus,
            counts=options.counts,
            lags=options.lags,
            baseline_lags=options.baseline_lags,
            quadratic=options.quadratic,
            context=options.context,
        )
        times.gains.astype({"controls": int}).to_csv(gains, index=False)
        times.words.to_csv(words, index=False)
        plot_gains(times.gains, plot)
    print(f"{'model':24}  {'measure':28}  controls  {'gain':>8}  {'error':>7}")
    for row in times.gains[list(GAIN_COLUMNS)].to_dict("records"):
        controls = "yes" if row["controls"] else "no"
        print(
            f"{row['model'][-24:]:24}  {row['measure']:28}  {controls:8}  {row['gain']:8.4f}"
            f"  {row['standard_error']:7.4f}"
        )
    finish(gains, words, plot)
    return 0


def _corpus(options: ReadingOptions) -> Any:
    """Return the words of the corpus and their reading times."""
    from esnlm.datasets import NATURAL_STORIES_LICENCE, load_natural_stories
    from esnlm.text.files import is_table
    from esnlm.text.stimuli import column_of, read_table

    if is_table(options.corpus):
        columns = (options.item_column, options.word_column, options.time_column)
        table = read_table(options.corpus)
        for name in columns:
            column_of(table, name, options.corpus)
        names = dict(zip(columns, ("item", "word", "reading_time"), strict=True))
        return _renamed(table, names, options.corpus)
    if options.corpus != _STORIES and not Path(options.corpus).is_dir():
        raise ValueError(
            f"--corpus {options.corpus}: expected {_STORIES}, the folder that holds its files, or"
            " a .csv"
        )
    log.info(NATURAL_STORIES_LICENCE)
    return load_natural_stories(None if options.corpus == _STORIES else options.corpus)


def _surprisals(path: Path, options: ReadingOptions) -> Any:
    """Return a table of surprisals, keyed as the corpus."""
    from esnlm.text.stimuli import read_table

    table = read_table(path)
    words = {} if "word" in table else {options.word_column: "word"}
    return _renamed(table, {options.item_column: "item", **words}, path)


def _renamed(table: Any, names: dict[str, str], path: Any) -> Any:
    """Return a table with columns of other names; ValueError where two have one name."""
    table = table.rename(columns=names)
    if twice := table.columns[table.columns.duplicated()].tolist():
        raise ValueError(
            f"{path} has a column {twice[0]!r} beside the one that stands for it: rename it in the"
            " file"
        )
    return table
