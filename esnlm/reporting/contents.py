"""What lies in the folders of a report: models, shards, records of runs, and CSVs by kind."""

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from esnlm.runs.run_record import RECORD, read_record, record_beside
from esnlm.runs.table import typed_rows
from esnlm.storage.atomic import naming, owner_of
from esnlm.storage.model_folder import (
    CONFIG,
    MISFITS,
    MODEL,
    WEIGHTS,
    read_config,
    unchecked_config,
)
from esnlm.text.shards import MANIFEST, Shards
from esnlm.text.stimuli import check_separator
from esnlm.utils.messages import as_text

#: Kind of a CSV -> columns by which it is known; the first kind that fits is taken.
KINDS = {
    "training": ("pass", "tokens", "share", "held_out_nll", "held_out_perplexity", "seconds"),
    "bins": ("model", "bin", "low", "high", "n_tokens", "perplexity", "lower", "upper"),
    "evaluation": ("model", "text", "n_tokens", "n_words", "nll_per_token", "unknown_share"),
    "minimal pairs": ("model", "level", "paradigm", "phenomenon", "n_pairs", "accuracy", "ties"),
    "scores of pairs": ("model", "paradigm", "pair", "good", "bad", "credit"),
    "surprisals": ("text", "document", "sentence", "surprisal_bits"),
    "differences of controls": ("control", "against", "measure", "by", "group", "difference"),
    "values of controls": ("control", "measure", "by", "group", "value", "lower", "upper"),
    "controls": ("control", "n_units", "nll_per_token", "perplexity"),
    "natural": ("n_units", "connectivity", "leak", "min_leak", "nll_per_token", "blimp"),
    "elman": ("readout", "features", "n_units", "seed", "perplexity", "oracle_perplexity"),
    "elman n-grams": ("order", "seed", "perplexity", "cosine", "oracle_perplexity"),
    "compare": ("model", "plan", "n_steps", "held_out_nll", "machine"),
    "shakespeare": ("model", "size", "cross_entropy", "window_cross_entropy"),
    "dyck": (
        "model",
        "readout",
        "leak",
        "n_units",
        "seed",
        "right",
        "validation_right",
        "right_by_distance",
        "timescale_quantiles",
    ),
    "trials": ("trial", "state", "nats", "share", "seconds"),
    "importance": ("parameter", "importance", "among", "trials"),
    "benchmark": ("benchmark", "setting", "ours", "peer", "ratio", "unit"),
    "table": (),
}
#: CSVs too long to be shown: a report names them only.
NOT_SHOWN = ("scores of pairs", "surprisals")
#: Files that a report reads at most: more is a folder named by mistake.
MOST_FILES = 1000
_LARGEST_CSV = 1 << 26
_DEEPEST = 5


class ReportError(ValueError):
    """A folder that a report cannot be made of."""


class Rows(NamedTuple):
    """A CSV: its kind of `KINDS`, where it lies, how the page calls it, and its fields as text."""

    kind: str
    path: Path
    name: str
    table: pd.DataFrame

    def numbers(self, *columns: str) -> pd.DataFrame:
        """Return the rows with some columns as numbers, empty fields as NaN."""
        texts = {name: self.table[name].replace("", None) for name in columns}
        return self.table.assign(
            **{name: pd.to_numeric(each, errors="coerce") for name, each in texts.items()}
        )

    def records(self) -> list[dict[Any, Any]]:
        """Return a mapping for each row."""
        return self.table.to_dict("records")

    def typed(self) -> list[dict[str, Any]]:
        """Return the rows with numbers as such, and None for an empty field."""
        return typed_rows(self.records())


@dataclass
class Contents:
    """All that lies in some folders.

    ``models`` are folders by the name that the page calls them; ``shards`` folders; ``records``
    what `esnlm train` wrote beside a model, by the same names.
    """

    models: dict[str, Path] = field(default_factory=dict)
    shards: list[Path] = field(default_factory=list)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: list[Rows] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.models) + len(self.shards) + len(self.rows) + len(self.records)

    def of(self, *kinds: str) -> list[Rows]:
        """Return the CSVs of some kinds."""
        return [each for each in self.rows if each.kind in kinds]

    def name_of(self, path: str) -> str:
        """How the page calls a model that a file calls by its path."""
        names = [name for name, folder in self.models.items() if folder.name == Path(path).name]
        return names[0] if len(names) == 1 else path

    def config(self, name: str) -> dict[str, Any]:
        """Return the configuration of a model."""
        path = self.models[name]
        is_foreign = unchecked_config(path).get("model_type") == "gpt2"
        return {"kind": "torch", "model": "gpt2"} if is_foreign else read_config(path)

    def add(self, path: Path, name: str) -> None:
        """Add shards, a model with its record, a record without model or a CSV."""
        if path.is_dir() and (path / MANIFEST).is_file():
            Shards(path, verify=False)
            if path not in self.shards:
                self.shards.append(path)
        elif path.is_dir():
            if path in self.models.values():
                return
            while name in self.models:
                name += "'"
            self.models[name] = path
            self.config(name)
            if record := record_beside(path):
                self.records[name] = record
        elif path.name.endswith(RECORD):
            if not path.with_name(path.name.removesuffix(RECORD)).is_dir():
                self.records[name.removesuffix(RECORD)] = read_record(path)
        elif all(path != each.path for each in self.rows):
            table = read_csv(path)
            columns = set(table.columns)
            kind = next(kind for kind, names in KINDS.items() if columns.issuperset(names))
            self.rows.append(Rows(kind, path, name, table))


@contextmanager
def showing(rows: Rows) -> Iterator[None]:
    """Let errors of the block, which shows rows, name the file and a column that is missing."""
    try:
        yield
    except (*MISFITS, ValueError, ArithmeticError) as error:
        key = error.args[0] if isinstance(error, KeyError) else None
        if isinstance(key, str) and key not in rows.table:
            wrong = f"has no column {key!r}"
        else:
            wrong = f"cannot be shown: {' '.join(str(error).split())}"
        raise ReportError(
            f"{rows.path} {wrong}, and by its other columns it is of the kind {rows.kind}: make it"
            " again, or leave it out"
        ) from error


def find(paths: Sequence[Path]) -> Contents:
    """Read what lies in folders, their subfolders, and in single files.

    Raises ReportError where a path does not exist or holds nothing that a report shows, and
    where a CSV is empty or cut; ModelFormatError, ShardsError where a folder is not whole.
    """
    contents = Contents()
    for path in paths:
        if not path.exists():
            raise ReportError(f"no such file or folder: {path}")
        home = path.parent if path.is_file() or _is_model(path) else path
        parts = list(_parts(path))
        for each in parts:
            name = each.relative_to(home).as_posix() if each != home else each.resolve().name
            name = f"{path.name}/{name}" if len(paths) > 1 and home == path else name
            contents.add(each, as_text(name))
        if not (parts and contents):
            raise ReportError(
                f"{path} holds nothing that a report shows: expected a folder that train or ngram"
                " wrote, one of a study with its CSVs, or a folder of these"
            )
    return contents


def _parts(path: Path, depth: int = 0) -> Iterator[Path]:
    """Models, shards, records and CSVs of a folder, in the order of their names."""
    if path.is_file() or _is_model(path) or (path / MANIFEST).is_file():
        yield path
        return
    if depth > _DEEPEST:
        return
    for number, each in enumerate(sorted(path.iterdir())):
        if number >= MOST_FILES:
            raise ReportError(
                f"{path} holds more than {MOST_FILES} files: name the folder of a model, a run or"
                " a grid"
            )
        if each.name.startswith(".") or owner_of(each.name) is not None:
            continue
        if each.is_dir() or each.suffix == ".csv" or each.name.endswith(RECORD):
            yield from _parts(each, depth + 1)


def _is_model(path: Path) -> bool:
    if not (path / CONFIG).is_file():
        return False
    config = unchecked_config(path)
    ours = config.get("format") == MODEL.name or config.get("model_type") == "gpt2"
    # A truncated configuration is reported as such, not as an empty folder.
    return ours or (not config and (path / WEIGHTS).is_file())


def read_csv(path: Path) -> pd.DataFrame:
    """Return the rows of a CSV, every field as it is written.

    Raises ReportError where the file is empty or no CSV, ends inside a line, has a line of more or
    fewer fields than columns.
    """
    if (size := path.stat().st_size) > _LARGEST_CSV:
        raise ReportError(f"{path} has {size} bytes, expected at most {_LARGEST_CSV}")
    try:
        with naming(path), open(path, newline="", encoding="utf-8-sig") as file:
            text = path.read_bytes().decode()
            head, *lines = csv.reader(file)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ReportError(f"{path} is no CSV: {error}") from error
    except ValueError as error:
        raise ReportError(f"{path} is empty: expected a CSV with its columns") from error
    if not text.endswith("\n"):
        raise ReportError(f"{path} ends inside a line: it was cut, or is still being written")
    check_separator(path, ",".join(head))
    if len(set(head)) < len(head):
        raise ReportError(f"{path} names a column twice: {' '.join(','.join(head)[:200].split())}")
    for number, line in enumerate(lines, start=2):
        if any(line) and len(line) != len(head):  # editors leave blank lines, and commas alone
            raise ReportError(
                f"row {number} of {path} has {len(line)} fields, expected {len(head)}: it was cut,"
                " or is no CSV of esnlm; name a folder of a model or of results, or a CSV"
            )
    return pd.DataFrame(filter(any, lines), columns=head, dtype=str)
