"""``esnlm blimp``: judge minimal pairs with a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from esnlm.options.common import (
    Device,
    File,
    Model,
    Png,
    ResultOptions,
    check_second,
    finish,
    group,
    n_unknown,
)
from esnlm.options.needs import check_needs
from esnlm.options.values import Weight, file_name, read
from esnlm.storage.results import results, write_rows
from esnlm.utils.messages import as_text, log

if TYPE_CHECKING:
    from esnlm.evaluation.minimal_pairs.parts import TrainingWords


def _read_fields(text: str) -> dict[str, str]:
    from esnlm.evaluation.minimal_pairs.records import read_fields

    return read_fields(text)


Fields = Annotated[dict[str, str], read(_read_fields, "PART=NAME,...")]


@group()
class BlimpOptions(ResultOptions):
    """Options of ``esnlm blimp``."""

    data: Annotated[Path, file_name("FOLDER|FILE")]
    """The pairs: a file (.jsonl, .csv, .tsv, .gold; plain or .gz), a folder, or an archive."""
    fields: Fields | None = None
    """Names of the fields, as good=right,bad=wrong: of good, bad, phenomenon, paradigm, field,
    pair, prefix (of both sentences), or of sentence and label, with two rows a pair (default:
    those of BLiMP and of the sets that the guide lists)."""
    name: Annotated[str | None, Parameter(metavar="NAME")] = None
    """What tables and plots call it (default: its path)."""
    csv: File | None = None
    """Also write the table here."""
    pairs_csv: File | None = None
    """Write the sentences of each pair and their scores here."""
    plot: Png | None = None
    """Draw accuracy by phenomenon here."""
    words_of: Annotated[tuple[str, ...], Parameter(metavar="SHARDS|TEXT")] = ()
    """Training text: the pairs all of whose words, punctuation and case kept, occur in it are a
    part by themselves."""
    published: Annotated[tuple[File, ...], Parameter(metavar="CSV", consume_multiple=False)] = ()
    """Accuracies of other models to stand beside: a published table, or an earlier --csv."""
    interpolate: Annotated[Path | None, file_name("MODEL2")] = None
    """Judge with the mean of the probabilities of both models."""
    weight: Weight | None = None
    """Share of MODEL in that mean (default: 0.5)."""
    device: Device = None
    bos: Annotated[bool | None, Parameter(negative="--no-bos")] = None
    """Read BOS before each sentence (default: as the model was trained)."""
    eos: bool = False
    """Score the end of each sentence too, as KenLM does."""
    prefix_space: bool = False
    """Read " sentence" in place of "sentence", as some task files of lm-evaluation-harness do."""
    reduction: Literal["sum", "mean"] = "sum"
    """How to combine the log-probabilities of a sentence's tokens."""


def blimp(model: Model, /, *, options: BlimpOptions) -> int:
    """Score and print; the exit status."""
    from esnlm.evaluation.minimal_pairs import table
    from esnlm.evaluation.minimal_pairs.pairs import pair_files, read_pairs
    from esnlm.evaluation.minimal_pairs.parts import subsets
    from esnlm.evaluation.minimal_pairs.scores import score_pairs
    from esnlm.models.checks import MANY_UNKNOWN
    from esnlm.studies.minimal_pairs import plot_accuracies

    check_needs(options, ("weight", options.interpolate, "--interpolate MODEL2"))
    check_second(model, options.interpolate)
    of_table, of_pairs = (options.csv, table.COLUMNS), (options.pairs_csv, table.PAIR_COLUMNS)
    replace = options.overwrite
    files = (of_table, of_pairs, (options.plot, None))
    models = filter(None, (model, options.interpolate))
    read: list[str | Path] = [*models, *options.published, *options.words_of]
    files_of_pairs = pair_files(options.data)
    # A CSV beside JSON lines is not read; beside tables of pairs it would be.
    has_tables = any(file.suffix in (".csv", ".tsv", ".tab") for file in files_of_pairs)
    read += [options.data] if has_tables else files_of_pairs
    with results(files, read, overwrite=replace):
        others: dict[str, dict[str, float]] = {}
        for path in options.published:
            others |= table.read_published(path)
        pairs = read_pairs(options.data, options.fields)
        equal = [pair for pair in pairs if pair.good == pair.bad]
        if equal:
            log.warning(
                f"the two sentences are equal in {len(equal)} of the {len(pairs)} pairs, such as"
                f" pair {equal[0].name} of {equal[0].paradigm}: each counts as a tie (BLiMP"
                " itself has 7; correct those of your own)"
            )
        parts = subsets(pairs, _training_words(options.words_of))
        judge, place = _judge(model, options)
        name, sentences = as_text(options.name or place), [pair.good for pair in pairs]
        unknown, total = n_unknown(judge, sentences)
        # Some pieces of words are in no training text as a token, only in longer ones.
        of_words = unknown and judge.tokenizer_.unk_id is not None
        if of_words or unknown > MANY_UNKNOWN * total:
            log.warning(
                f"the model does not know {100 * unknown / total:.1f} % of the tokens, so some"
                " pairs look alike to it"
            )
        how = {name: getattr(options, name) for name in table.HOW}
        scores = score_pairs(judge, pairs, **how, verbose=True)
        if not all(member.any() for member in parts.values()):
            log.warning("no pair has all its words in --words-of: is it text of that language?")
        rows = table.tabulate(pairs, scores, name, parts)
        write_rows(options.csv, table.COLUMNS, rows, overwrite=replace)
        if options.pairs_csv is not None:
            rows_of_pairs = table.pair_rows(pairs, scores, name)
            write_rows(options.pairs_csv, table.PAIR_COLUMNS, rows_of_pairs, overwrite=replace)
        if options.plot is not None:
            plot_accuracies(rows, others, options.plot)
        _show(rows, others)  # last: a table that cannot be printed loses no file
    finish(options.csv, options.pairs_csv, options.plot)
    return 0


def _judge(folder: Path, options: BlimpOptions) -> tuple[Any, str]:
    """Return the model that judges, and its path or how it is mixed."""
    from esnlm.loading import load_model
    from esnlm.models.interpolated import InterpolatedModel

    model = load_model(folder, device=options.device)
    if options.interpolate is None:
        return model, str(folder)
    weight = 0.5 if options.weight is None else options.weight
    second = load_model(options.interpolate, device=options.device)
    name = f"{weight:g} {folder} + {1 - weight:g} {options.interpolate}"
    return InterpolatedModel([model, second], weights=[weight, 1 - weight]), name


def _training_words(names: Sequence[str]) -> "TrainingWords | None":
    """Return the words of training text or of shards, if there are any."""
    from esnlm.evaluation.minimal_pairs.parts import words_of_shards, words_of_text
    from esnlm.text.source import open_source

    if not names:
        return None
    return words_of_shards(names[0]) if open_source(names).is_shards else words_of_text(names)


def _show(rows: Sequence[Mapping[str, Any]], others: Mapping[str, Mapping[str, float]]) -> None:
    """Percentages: phenomena, each with its paradigms under it, parts of the pairs, and overall."""

    def show(name: str, row: Mapping[str, Any], key: str = "") -> None:
        values = {k: 100 * row[k] for k in ("accuracy", "strict", "correct")}
        interval = "few pairs"
        if row["lower"] is not None:
            interval = f"[{100 * row['lower']:6.2f}, {100 * row['upper']:6.2f}]"
        line = f"{name:50}  {values['accuracy']:8.2f}  {row['ties']:6}  {row['n_pairs']:6}"
        line += f"  {interval:16}  {values['strict']:6.2f}  {values['correct']:7.2f}"
        for shares in others.values() if key else ():
            line += f"  {100 * shares[key]:14.2f}" if key in shares else f"  {'':14}"
        print(line)

    head = "".join(f"  {name:>14.14}" for name in others)
    print(f"{'':50}  accuracy    ties   pairs   95 % interval   strict  correct{head}")
    for row in rows:
        if row["level"] == "phenomenon":
            show(row["phenomenon"], row, row["phenomenon"])
            for part in rows:
                if (part["level"], part["phenomenon"]) == ("paradigm", row["phenomenon"]):
                    show("  " + part["paradigm"], part)
    for row in rows:
        if (row["level"], row["paradigm"]) == ("subset", "overall"):
            over = f"{row['n_paradigms']} paradigms" if row["mean_over"] == "paradigms" else "pairs"
            show(f"overall, {row['subset']} (mean over {over})", row)
        if row["level"] == "overall":
            show("overall (mean over paradigms)", row, "overall")
