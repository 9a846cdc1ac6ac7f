"""The CSV of a grid: whole lines, locked while the grid runs, typed when it is read."""

import codecs
import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from esnlm.runs.subprocess_run import interrupts_deferred
from esnlm.storage.atomic import is_plain, locked, naming, sync_folder, write_whole


class Table:
    """The CSV while a grid runs: locked, repaired, appended to line by line."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, list(columns)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Lock and repair; a file made here is removed if a ValueError leaves it without a row."""
        self._is_bare = not self.path.exists()
        with locked(self.path):
            if not is_plain(self.path):
                raise ValueError(f"{self.path} is a device or a pipe: use another folder")
            self.path.touch()
            self._drop_torn_line()
            if self.path.stat().st_size == 0:
                self._write(self.columns)
                if self._is_bare:
                    sync_folder(self.path.parent)
            try:
                yield
            except ValueError:
                if self._is_bare:
                    self.path.unlink()
                raise

    def _drop_torn_line(self) -> None:
        """Cut off the line after the last line end, which an interruption tore; of our files."""
        content, head = self.path.read_bytes(), ",".join(self.columns).encode()
        first, line_end, _ = content.partition(b"\n")
        first = first.removeprefix(codecs.BOM_UTF8).removesuffix(b"\r")  # of a spreadsheet
        if first == head if line_end else head.startswith(first):
            with self.path.open("ab") as file:
                file.truncate(content.rfind(b"\n") + 1)

    def keys(
        self, fixed: Mapping[str, Any], key: Sequence[str], settings: Sequence[Mapping[str, Any]]
    ) -> set[tuple[str, ...]]:
        """Return the keys of the rows.

        Fixed values, and keys of the settings, that a spreadsheet wrote otherwise, such as 1.0 for
        1 or TRUE for True, are written as they were. Raise ValueError unless the file has the
        columns, the fixed values, no run twice, and no text among measured numbers.
        """
        head, rows = read_table(self.path)
        if head != self.columns:
            more, less = (
                ",".join(name for name in one if name not in other)[:200] or "none"
                for one, other in ((head, self.columns), (self.columns, head))
            )
            raise ValueError(
                f"{self.path} has not the columns of this command and its options, in their order:"
                f" it lacks {less}, and has {more} besides; move it, or use another folder"
            )
        values = {name: [setting[name] for setting in settings] for name in key}
        values |= {name: [value] for name, value in fixed.items()}
        # Without empty rows, so that the numbers of lines in messages are right.
        if _respell(rows, values) or self.path.read_bytes().count(b"\n") > len(rows) + 1:
            self._rewrite(rows)
        for name, value in fixed.items():
            others = [row[name] for row in rows if row.get(name, text_of(value)) != text_of(value)]
            if others:
                raise ValueError(
                    f"{self.path} holds runs with {name} = {others[0]}, got "
                    f"{text_of(value)}: use another folder"
                )
        keys = set[tuple[str, ...]]()
        for number, row in enumerate(rows, start=2):
            if (run := _key(row, key)) in keys:
                raise ValueError(
                    f"line {number} of {self.path} repeats a run of a line above: remove it"
                )
            keys.add(run)
        for name in {*self.columns} - {*fixed, *key, "commit"}:
            self._check_numbers(name, [row[name] for row in rows])
        return keys

    def _check_numbers(self, name: str, texts: Sequence[str]) -> None:
        """Raise ValueError for text in a column that has numbers in other rows."""
        lines = [number for number, text in enumerate(texts, 2) if text and _number(text) is None]
        if lines and any(_number(text) is not None for text in texts):
            raise ValueError(
                f"line {lines[0]} of {self.path} has {name} = {texts[lines[0] - 2]}, expected a"
                " number: correct it, or remove the line, its run is then repeated"
            )

    def append(self, row: Mapping[str, Any]) -> None:
        missing = [name for name in self.columns if name not in row]
        if missing:
            raise ValueError(f"the run returned no {', '.join(missing)}, which are columns")
        self._write([text_of(row[name]) for name in self.columns])
        self._is_bare = False

    def order(self, key: Sequence[str], keys: Iterable[tuple[str, ...]]) -> list[dict[str, str]]:
        """Put the rows of these keys first, in their order, and return all rows."""
        _, rows = read_table(self.path)
        place = {name: position for position, name in enumerate(keys)}
        ordered = sorted(rows, key=lambda row: place.get(_key(row, key), len(place)))
        if ordered != rows:
            self._rewrite(ordered)
        return ordered

    def _rewrite(self, rows: Iterable[Mapping[str, str]]) -> None:
        write_whole(self.path, _lines([self.columns, *(row.values() for row in rows)]))

    def _write(self, values: Sequence[str]) -> None:
        """Append a line: the whole of it, or nothing where the disk is full."""
        content = _lines([values]).encode()
        with interrupts_deferred(), self.path.open("ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                while content:
                    content = content[file.write(content) :]
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(before)
                raise OSError(error.errno, error.strerror, str(self.path)) from None


def _lines(rows: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns and the rows of a CSV as text; of a spreadsheet, too."""
    try:
        with naming(path), path.open(newline="", encoding="utf-8-sig") as file:
            head, *lines = [*csv.reader(file)] or [[]]
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"{path} is no CSV: move it, or use another folder") from None
    if len(head) == 1:
        from esnlm.text.stimuli import check_separator  # imports pandas

        check_separator(path, head[0])
    for number, fields in enumerate(lines, start=2):
        if any(fields) and len(fields) != len(head):  # a spreadsheet leaves rows of commas alone
            raise ValueError(
                f"line {number} of {path} has {len(fields)} fields, expected "
                f"{len(head)}: remove it, its run is then repeated"
            )
    return head, [dict(zip(head, fields, strict=True)) for fields in lines if any(fields)]


def _key(row: Mapping[str, str], key: Sequence[str]) -> tuple[str, ...]:
    return tuple(row[name] for name in key)


def _respell(rows: Sequence[dict[str, str]], values: Mapping[str, Sequence[Any]]) -> bool:
    """Write numbers and flags of these columns as they are among the values; whether any changed.

    Values that are text, such as 007, stand for nothing but themselves. A spreadsheet keeps 15
    digits of a number.
    """
    is_changed = False
    for name, several in values.items():
        texts = {text_of(value) for value in several}
        spelled = {_rounded(text_of(v)): text_of(v) for v in several if not isinstance(v, str)}
        for row in rows:
            number = None if row.get(name, "") in texts else _rounded(row.get(name, ""))
            if number is not None and number in spelled:
                row[name], is_changed = spelled[number], True
    return is_changed


def _rounded(text: str) -> str | None:
    number = _number(text)
    return None if number is None else f"{number:.15g}"


def _number(text: str) -> float | None:
    """Return the number or flag that a text is, None for another one."""
    try:
        return float({"true": "1", "false": "0"}.get(text.lower(), text))
    except ValueError:
        return None


def typed_rows(texts: Iterable[Mapping[Any, str]]) -> list[dict[str, Any]]:
    """Return rows of text as int, float, text, or None for an empty field.

    A commit is text, although 340e29229 would read as a number.
    """
    return [{str(name): _value(name, text) for name, text in row.items()} for row in texts]


def text_of(value: Any) -> str:
    """Text that reads back as the same value; numpy's numbers as Python's."""
    item = value.item() if hasattr(value, "item") else value
    return "" if item is None else str(item)


def _value(name: Any, text: str) -> Any:
    for kind in (int, float) if name != "commit" else ():
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
