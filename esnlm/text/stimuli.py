"""Stimuli in a table: a text a row, or a word a row, with keys of one's own beside."""

import csv
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from esnlm.text.corpus import CorpusError, opened_text
from esnlm.text.files import SEPARATORS

#: Columns of a result that a column of the same name takes the place of.
PLACES = ("document", "sentence", "position")


@dataclass(frozen=True)
class Stimuli:
    """Texts of a table, with its other columns.

    ``texts`` (n_texts,). ``columns``: names of the other columns. ``keys``: of each text, their
    values in its row; with ``by_word`` those of each word.
    """

    texts: Sequence[str]
    columns: tuple[str, ...]
    keys: Sequence[Sequence[tuple[str, ...]]]
    by_word: bool

    def keys_of(self, document: int, word: int) -> dict[str, str]:
        """Return the columns of a document and a word of it, both counted from 0."""
        keys = self.keys[document]
        return dict(zip(self.columns, keys[min(word, len(keys) - 1)], strict=True))


def read_table(path: str | Path, encoding: str = "utf-8") -> pd.DataFrame:
    """Return a CSV or TSV as strings; CorpusError where it is none."""
    if not Path(path).exists():
        raise CorpusError(f"no such file: {path}")
    separator = SEPARATORS.get(Path(str(path).lower().removesuffix(".gz")).suffix, ",")
    with opened_text(Path(path), encoding) as (file, _):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                text = file.read()
                head = text.partition("\n")[0]
                check_separator(path, head, separator)
                _check_doubled(path, text, separator)
                # "item, text" puts a space before each field, and before its quotation marks.
                options: dict[str, Any] = {"skipinitialspace": f"{separator} " in head}
                options |= {"sep": separator, "dtype": str, "keep_default_na": False}
                read: Any = partial(pd.read_csv, **options)
                names = read(StringIO(text), header=None, nrows=1).iloc[0].str.strip()
                table = read(StringIO(text), index_col=False)
        except pd.errors.ParserWarning:
            raise CorpusError(
                f"{path} has more fields in its rows than in its header: quote texts that hold"
                f" {separator!r}, and leave out a column without a name (in R, row.names=FALSE)"
            ) from None
        except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
            reason = " ".join(str(error).split())
            raise CorpusError(f"{path} is no table of a header and rows: {reason}") from error
    # "item, text" names a column " text", which messages could not tell from "text".
    table.columns = table.columns.str.removeprefix("\ufeff").str.strip()
    if (twice := names.duplicated() & names.ne("")).any():
        raise CorpusError(f"{path} names the column {names[twice].iloc[0]!r} twice: rename one")
    filled = table.ne("").any(axis=1).to_numpy()
    if not filled.any():
        raise CorpusError(f"{path} has no row below its header")
    # A spreadsheet leaves rows of commas alone.
    table = table[: len(filled) - int(filled[::-1].argmax())]
    if separator == "\t" and (holds_tabs := table.apply(_hold_tabs).any(axis=1)).any():
        raise CorpusError(
            f"{path}, row {int(holds_tabs.argmax()) + 1}: a field between quotation marks holds a"
            " tab: double marks that stand alone"
        )
    return table


def check_separator(path: str | Path, head: str, separator: str = ",") -> None:
    """Raise CorpusError where the first line of a table has another separator in place of this."""
    other = next((mark for mark in ";\t" if mark in head), separator)
    if separator not in head and other != separator:
        raise CorpusError(
            f"{path} separates its columns by {other!r}, expected {separator!r}: save it with"
            f" {'commas, and with points in numbers' if separator == ',' else 'tabs'}"
        )


def _check_doubled(path: str | Path, text: str, separator: str) -> None:
    """Raise CorpusError where text follows the closing quotation mark of a field, or none does."""
    rows = csv.reader(StringIO(text), delimiter=separator, strict=True, skipinitialspace=True)
    try:
        for _ in rows:
            pass
    except csv.Error as error:
        raise CorpusError(
            f"{path} is no table, line {rows.line_num}: {error}: put a field with quotation marks"
            ' between such marks, and write each of its own twice (in R, qmethod="double")'
        ) from None


def _hold_tabs(fields: Any) -> Any:
    return fields.str.contains("\t", regex=False)


def column_of(table: pd.DataFrame, name: str, path: str | Path) -> Any:
    """Return a column; CorpusError, which lists the columns, where there is none of the name."""
    if name not in table:
        columns = " ".join(", ".join(table.columns).split())
        raise CorpusError(f"{path} has no column {name!r}: it has {columns}")
    return table[name]


def is_read_again(words: Sequence[str]) -> bool:
    """Return whether a text begins again, or repeats each word, as in times of several readers."""
    n_words = len(words)
    repeats = 3 * sum(a == b for a, b in pairwise(words)) > n_words
    return repeats or any(
        words[start : start + 50] == words[: min(50, n_words - start)]
        for start in range(2, n_words // 2 + 1)
    )


def read_texts(path: str | Path, column: str, encoding: str = "utf-8") -> Stimuli:
    """Return the texts in a column of a table."""
    table = read_table(path, encoding)
    texts = column_of(table, column, path).str.strip().tolist()
    if "" in texts:
        raise CorpusError(f"{path}, row {texts.index('') + 1}: column {column!r} is empty")
    others = table.drop(columns=column)
    keys = [[tuple(row)] for row in others.itertuples(index=False)]
    return Stimuli(texts, tuple(map(str, others)), keys, by_word=False)


def read_words(
    path: str | Path, column: str, group: Sequence[str], encoding: str = "utf-8"
) -> Stimuli:
    """Return the texts of the words in a column of a table; those of a group are one text.

    Words of a group follow each other in the order of the rows. Raises CorpusError where most
    groups hold their words more than once.
    """
    table = read_table(path, encoding)
    words = column_of(table, column, path).str.strip()
    for row, word in enumerate(words, start=1):
        if len(word.split()) != 1:
            raise CorpusError(
                f"{path}, row {row}: column {column!r} must hold one word a row, got {word!r};"
                " --column is for texts"
            )
    for name in group:
        if (empty := column_of(table, name, path).str.strip().eq("").to_numpy()).any():
            raise CorpusError(
                f"{path}, row {int(empty.argmax()) + 1}: column {name!r} of --group is empty: fill"
                " it in, as words of one sentence have one value there"
            )
    others = table.drop(columns=column)
    texts, keys = [], []
    groups: Any = table.groupby(list(group), sort=False) if group else [((), table)]
    for _, part in groups:
        texts.append(" ".join(words[part.index]))
        keys.append(list(others.loc[part.index].itertuples(index=False, name=None)))
    if 2 * sum(is_read_again(text.split()) for text in texts) > len(texts):
        raise CorpusError(
            f"{path}: most texts, such as {texts[0]!r:.60}, hold their words more than once: of"
            " several readers name their column in --group too, and sort rows as they are read"
        )
    return Stimuli(texts, tuple(map(str, others)), keys, by_word=True)
