"""Results of commands: CSVs that new rows are added to, and pictures.

One rule for all: a row that fits is added, all else is refused unless it is to be overwritten.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from esnlm.storage.atomic import file_aside, is_plain, locked, naming
from esnlm.utils.messages import log


@contextmanager
def results(
    files: Iterable[tuple[Path | None, Sequence[str] | None]],
    inputs: Iterable[str | Path] = (),
    *,
    overwrite: bool,
) -> Iterator[None]:
    """Hold files of results while the block makes them.

    Each has its columns, or None where it is no CSV. Raises ValueError where one could not be
    written, is named twice, is in ``inputs`` or in a folder of it, holds something else and is not
    to be overwritten, or is being written by another process.
    """
    reserved = {Path(name).resolve() for name in inputs}
    folders = [place for place in reserved if place.is_dir()]
    longer: list[Path] = []
    with ExitStack() as stack:
        for path, columns in files:
            if path is None:
                continue
            try:
                plain = is_plain(path)
                if plain and not path.parent.is_dir():
                    raise FileNotFoundError(2, "No such folder")
                if plain:
                    stack.enter_context(locked(path))
            except OSError as error:
                raise ValueError(
                    f"cannot write {path}: {error.strerror}; name a file in a folder that can be"
                    " written"
                ) from error
            place = path.resolve()
            if plain and (place in reserved or any(map(place.is_relative_to, folders))):
                raise ValueError(
                    f"cannot write {path}: it is read, or in a folder that is, or named for another"
                    " result; name another file"
                )
            reserved.add(place)
            if not overwrite and not fits(path, columns):
                named = columns and f" and has not the columns {','.join(columns)} in UTF-8"
                raise FileExistsError(
                    f"{path} exists{named or ''}: choose another name, or pass overwrite=True"
                )
            if not overwrite and path.is_file() and path.stat().st_size:
                longer.append(path)
        yield
    for path in longer:  # after all that could be wrong
        log.info(f"{path} was there: rows were added to it")


def fits(path: Path, columns: Sequence[str] | None) -> bool:
    """Return whether rows of these columns can be added: to no file, an empty or a fitting one."""
    if not path.is_file() or not path.stat().st_size:
        return True
    try:
        with naming(path), open(path, newline="", encoding="utf-8-sig") as file:
            is_fitting = columns is not None and next(csv.reader(file), []) == list(columns)
            for _ in file if is_fitting else ():  # it is copied where new rows follow it
                pass
            return is_fitting
    except (UnicodeDecodeError, csv.Error):
        return False


@contextmanager
def csv_aside(path: Path, columns: Sequence[str], *, overwrite: bool = True) -> Iterator[Any]:
    """Yield a CSV writer of a file that takes its name when the block ends well.

    Existing rows stay, unless ``overwrite``.
    """
    # Names of files may be no text.
    options = {"newline": "", "encoding": "utf-8", "errors": "backslashreplace"}
    with file_aside(path, "w", **options) as file:
        writer = csv.writer(file, lineterminator="\n")
        if overwrite or not path.is_file() or not path.stat().st_size:
            writer.writerow(columns)
        else:
            with open(path, newline="", encoding="utf-8") as old:
                for line in old:
                    file.write(line if line.endswith("\n") else line + "\n")
        yield writer


def write_rows(
    path: Path | None,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    *,
    overwrite: bool = True,
) -> None:
    """Write rows as a CSV of these columns, if there is a path; see `csv_aside`.

    A missing value is an empty field.
    """
    if path is not None:
        with csv_aside(path, columns, overwrite=overwrite) as writer:
            writer.writerows([row.get(name, "") for name in columns] for row in rows)


def check_no_rows(path: Path, **values: Sequence[str]) -> None:
    """Raise FileExistsError if a CSV has a row with one of the values in each named column."""
    if not path.is_file():
        return
    with naming(path), open(path, newline="", encoding="utf-8-sig") as file:
        for row in csv.DictReader(file):
            if all(row[name] in refused for name, refused in values.items()):
                pairs = " and ".join(f"{name} {row[name]}" for name in values)
                raise FileExistsError(
                    f"{path} has rows of {pairs}: name another file, or pass overwrite=True"
                )


def markdown_table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> list[str]:
    """Return the lines of a table.

    >>> markdown_table(["a", "b"], [[1, "x"]])
    ['| a | b |', '|---|---|', '| 1 | x |']
    """
    head, *body = [f"| {' | '.join(map(str, row))} |" for row in (list(header), *rows)]
    return [head, "|---" * len(list(header)) + "|", *body]
