"""``esnlm syntaxgym``: judge models with the test suites of SyntaxGym."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from cyclopts import Parameter

from esnlm.options.common import Device, File, Models, ResultOptions, finish, group
from esnlm.options.values import file_name
from esnlm.storage.results import results, write_rows

Row = Mapping[str, Any]
Names = Sequence[str]
Accuracies = Mapping[str, Mapping[str, float]]
_SUMMARIES: dict[str, Callable[[Sequence[float]], float]] = {
    "least": min, "median": median, "largest": max,
}  # fmt: skip


@group()
class SyntaxGymOptions(ResultOptions):
    """Options of ``esnlm syntaxgym``."""

    suites: Annotated[Path, file_name("FOLDER|FILE")]
    """The suites: a folder of .json files or of an archive of them, or one of these."""
    name: Annotated[tuple[str, ...], Parameter(metavar="NAME", consume_multiple=False)] = ()
    """What tables call each model, once a model (default: their paths)."""
    published: Annotated[tuple[File, ...], Parameter(metavar="CSV", consume_multiple=False)] = ()
    """Accuracies of other models: columns model, suite and accuracy, or an earlier --csv
    (default: a CSV of such columns in the folder of the suites)."""
    beside: Annotated[tuple[str, ...], Parameter(metavar="NAME", consume_multiple=False)] = ()
    """Published models that have a column (default: the least, median and largest)."""
    csv: File | None = None
    """Also write the table here."""
    regions_csv: File | None = None
    """Write the surprisal of each region here."""
    device: Device = None


def syntaxgym(model: Models, /, *, options: SyntaxGymOptions) -> int:
    """Score and print; the exit status."""
    from esnlm.evaluation.syntaxgym import scores
    from esnlm.evaluation.syntaxgym.suites import read_suites
    from esnlm.loading import load_model

    names = _names(model, options.name)
    of_table = (options.csv, scores.COLUMNS)
    of_regions = (options.regions_csv, scores.REGION_COLUMNS)
    suites = read_suites(options.suites)
    paths = options.published or _published_beside(options.suites)
    replace = options.overwrite
    read = [*model, *paths, *([] if options.suites.is_dir() else [options.suites])]
    with results((of_table, of_regions), read, overwrite=replace):
        others: dict[str, dict[str, float]] = {}
        for path in paths:
            others |= scores.read_published(path, suites)
        if absent := [name for name in options.beside if name not in others]:
            choices = ", ".join(others) or "none: name a --published CSV"
            raise ValueError(f"--beside {absent[0]}: the other models are {choices}")
        rows: list[dict[str, Any]] = []
        regions: list[dict[str, Any]] = []
        for name, path in zip(names, model, strict=True):
            judge = load_model(path, device=options.device)
            surprisals = scores.region_surprisals(judge, suites, verbose=True)
            rows += scores.tabulate(suites, surprisals, name)
            if options.regions_csv is not None:
                regions += scores.region_rows(suites, surprisals, name)
        write_rows(options.csv, scores.COLUMNS, rows, overwrite=replace)
        write_rows(options.regions_csv, scores.REGION_COLUMNS, regions, overwrite=replace)
        _show(rows, names, others, options.beside)  # last: what cannot be printed loses no file
        _rank(rows, others)
    finish(options.csv, options.regions_csv)
    return 0


def _names(models: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Return what the models are called, each of them once."""
    if names and len(names) != len(models):
        raise ValueError(f"--name: got {len(names)} names for {len(models)} models: name each")
    names = list(names or map(str, models))
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two models are called {twice[0]}: tell them apart by --name")
    return names


def _published_beside(suites: Path) -> list[Path]:
    """Return the CSVs of published accuracies in the folder of the suites."""
    from esnlm.evaluation.syntaxgym.scores import is_published

    folder = suites if suites.is_dir() else suites.parent
    return [path for path in sorted(folder.glob("*.csv")) if is_published(path)]


def _show(rows: Sequence[Row], names: Sequence[str], others: Accuracies, beside: Names) -> None:
    """Percentages of each suite: the models', then those of others."""
    accuracies = {(row["model"], row["suite"], row["prediction"]): row["accuracy"] for row in rows}
    columns = [*beside] if beside or not others else [*_SUMMARIES]
    print(f"{'':34}  items" + "".join(f"  {name[-16:]:>16}" for name in (*names, *columns)))
    for row in rows:
        if row["model"] == names[0]:
            suite, number = row["suite"], row["prediction"]
            label = suite if number == 1 else f"  prediction {number}"
            if row["level"] == "overall":
                label = f"mean over {row['n_suites']} suites"
            cells = [accuracies[name, suite, number] for name in names]
            if number == 1:
                cells += _of_others(suite, others, beside)
            print(f"{label:34}  {row['n_items']:5}" + "".join(map(_cell, cells)))


def _of_others(suite: str, others: Accuracies, beside: Names) -> list[float | None]:
    """Return accuracies of the models of others in one suite."""
    if beside:
        return [others[name].get(suite) for name in beside]
    values = [accuracies[suite] for accuracies in others.values() if suite in accuracies]
    return [summary(values) if values else None for summary in _SUMMARIES.values()] * bool(others)


def _cell(value: float | None) -> str:
    return f"  {'':16}" if value is None else f"  {100 * value:16.2f}"


def _rank(rows: Sequence[Row], others: Accuracies) -> None:
    """Print the models in order of their means over suites, ours with their intervals."""
    means = {name: values["overall"] for name, values in others.items() if "overall" in values}
    own = {row["model"]: row for row in rows if row["level"] == "overall"}
    if not means or not own:
        return
    print("\nmean over suites, models of others beside (95 % interval of ours, over items)")
    means |= {name: row["accuracy"] for name, row in own.items()}
    for name, mean in sorted(means.items(), key=lambda pair: -pair[1]):
        interval = ""
        if name in own:
            lower, upper = (100 * own[name][end] for end in ("lower", "upper"))
            interval = f"  [{lower:.2f}, {upper:.2f}]"
        print(f"{100 * mean:8.2f}  {name}{interval}")
