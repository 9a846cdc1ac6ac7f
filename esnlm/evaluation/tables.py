"""CSV files that appear whole or not at all."""

import csv
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def check_csv(path: Path) -> None:
    """Refuse a file that rows could not be written to, before the work is done.

    Raises
    ------
    ValueError
        It is a folder, or the folder that would hold it is missing or cannot be written.
    """
    if path.is_dir():
        raise ValueError(f"cannot write the CSV {path}: it is a folder, name a file")
    try:
        handle, probe = tempfile.mkstemp(dir=path.parent)
        os.close(handle)
        os.unlink(probe)
    except OSError as error:
        raise ValueError(
            f"cannot write the CSV {path}: {error.strerror}; name a file in a folder that can be"
            " written"
        ) from error


@contextmanager
def csv_aside(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """A CSV writer, its header written, of a file that takes its name when the block ends well."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            yield writer
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_rows(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a CSV of these columns, a missing value as nothing."""
    with csv_aside(path, columns) as writer:
        writer.writerows([row.get(name, "") for name in columns] for row in rows)
