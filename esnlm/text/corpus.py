"""Text files as documents, and documents as one array of tokens."""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from esnlm.storage.atomic import naming
from esnlm.storage.model_folder import WEIGHTS
from esnlm.text.files import files_within, is_table
from esnlm.text.layout import (
    AS_WRITTEN,
    TextLayout,
    first_wrong_byte,
    fitting_encoding,
    other_format,
)
from esnlm.utils.arrays import Array, Bools, Ints64

SPLITS = ("blank_line", "line", "file")
_LONGEST_LINE = 1 << 22
# Up to a space, or to the end, and as far as 2 ** 16 characters go.
_PART = re.compile(r"(?s).{1,65535}(?: |\Z)|.+?(?: |\Z)")


class CorpusError(ValueError):
    """Text that cannot be read, or that holds nothing to learn from."""


class TextCorpus:
    """Documents of text files, read anew at each iteration and never held as a whole.

    ``paths`` are UTF-8 text files, plain or ``.gz``, and folders, whose files are taken in the
    order of their names, hidden ones left out. ``split`` says what a document is: the lines
    between blank lines ("blank_line"), each line ("line"), or the whole file ("file"). A line of
    2 ** 22 characters or more, such as text8's, counts as several of 2 ** 16, cut at spaces.
    ``layout`` says what else their encoding is, and what is undone before all that.

    Raises CorpusError where a path does not exist (at once), or, when read: a file is not text in
    the encoding, a ``.gz`` is damaged, or the files together hold no text.
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        split: str = "blank_line",
        layout: TextLayout = AS_WRITTEN,
    ) -> None:
        """Check that ``split`` is known and every path is a file or a folder."""
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        names = [paths] if isinstance(paths, str | Path) else list(paths)
        if not names:
            raise CorpusError("the corpus has no files: name at least one text file or folder")
        if not all(map(str, names)):
            raise CorpusError("the name of a text file is empty")
        self.paths = [Path(path) for path in names]
        self.split = split
        self.layout = layout
        for name, path in zip(map(str, names), self.paths, strict=True):
            if not path.exists():
                advice = "; text at a URL is not read, download it" if "://" in name else ""
                raise CorpusError(f"no such file or folder: {name}{advice}")
            if not path.is_file() and not path.is_dir():
                raise CorpusError(
                    f"{path} is a pipe or a device, and text is read more than once: write it to a"
                    " file first"
                )

    def __iter__(self) -> Iterator[str]:
        empty = True
        for path, _ in self.files():
            for document in read_documents(path, self.split, self.layout):
                empty = False
                yield document
        if empty:
            names = ", ".join(map(str, self.paths))
            raise CorpusError(f"the corpus is empty: no text in {names}")

    def files(self) -> list[tuple[Path, str]]:
        """Return the files in reading order, each with its name within what was given."""
        files: list[tuple[Path, str]] = []
        for path in self.paths:
            if path.is_dir():
                inside = sorted(files_within(path))
                if odd := [file for file in inside if not file.is_file()]:
                    raise CorpusError(
                        f"{odd[0]} is a broken link, a pipe or a device, expected a file"
                    )
                if shards := [file.parent for file in inside if file.name == "bounds.bin"]:
                    names = "text" if path in shards else f"{', '.join(map(str, shards))} itself"
                    raise CorpusError(f"{path} holds shards, not text: name {names}")
                if models := [file.parent for file in inside if file.name == WEIGHTS]:
                    raise CorpusError(
                        f"{models[0]} is a model folder, not text: name text files, or a folder of"
                        " them alone"
                    )
                files += [(file, file.relative_to(path).as_posix()) for file in inside]
            else:
                files.append((path, path.name))
        for path, _ in files:
            name = path.name.lower().removesuffix(".gz")
            if is_table(path) or name.endswith((".jsonl", ".ndjson")):
                raise CorpusError(
                    f"{path} is a table, not text: name text files, or a folder of them alone; of"
                    " a column of texts make a .txt with a line each"
                )
        return files


def read_documents(path: Path, split: str, layout: TextLayout = AS_WRITTEN) -> Iterator[str]:
    """Documents of one text file, as a stream; see `TextCorpus`."""
    with opened_text(path, layout.encoding) as (file, _):
        if split == "file":
            text = "".join(line for _, line in _laid_out(file, path, layout))
            if text.strip():
                yield text
            return
        lines = (line for _, line in numbered_lines(file, path, layout=layout))
        if split == "line":
            yield from filter(None, lines)
            return
        for full, paragraph in groupby(lines, bool):
            if full:
                yield "\n".join(paragraph)


@contextmanager
def opened_text(path: Path, encoding: str = "utf-8") -> Iterator[tuple[TextIO, BinaryIO]]:
    """Open a text file, plain or ``.gz``, and the file of bytes below, which has a position.

    Raises CorpusError, in the block too, where it is not text in the encoding, or a ``.gz`` is
    damaged. An OSError of a drive that fails names the file.
    """
    if path.is_dir():
        raise CorpusError(f"{path} is a folder, expected a text file")
    try:
        try:
            with (
                naming(path),
                open(path, "rb") as raw,
                TextIOWrapper(_plain(path, raw), encoding=encoding) as text,
            ):
                yield text, raw
        except UnicodeError as error:  # a damaged .gz is read to its checksum to say where
            raise CorpusError(_not_in(encoding, path, error)) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorpusError(
            f"{path} is not a whole gzip file: {error}; copy it again, or take .gz off the name of"
            " a file that is not packed"
        ) from error


def _plain(path: Path, raw: BinaryIO) -> Any:
    """Return the bytes of a file, unpacked where it is a ``.gz``."""
    return gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw


def _not_in(encoding: str, path: Path, error: UnicodeError) -> str:
    """Return a message on a file that is not text in the encoding: where, and a likely one."""
    name = encoding.upper() if encoding.startswith("utf") else encoding
    with open(path, "rb") as raw:
        if what := other_format(_plain(path, raw).read(512)):
            return f"{path} {what}"
    with open(path, "rb") as raw:
        place = first_wrong_byte(_plain(path, raw), encoding)
    if place is None or not isinstance(error, UnicodeDecodeError):  # such as UTF-16 without a mark
        return f"{path} is not {name} text ({error}): convert it, or leave it out"
    with open(path, "rb") as raw:
        data = _plain(path, raw)
        head = data.read(4)
        data.seek(max(0, place - (1 << 15)) & ~1)
        hint = fitting_encoding(head + data.read(1 << 16)) if encoding == "utf-8" else None
    advice = "" if hint is None else f"encoding='{hint}' reads it if that is its encoding, or "
    wrong = error.object[error.start]
    return (
        f"{path} is not {name} text (byte {wrong:#04x}) at byte {place}: {advice}convert it, or"
        " leave it out"
    )


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, which end as those of a file do.

    `str.splitlines` also cuts at form feeds, U+0085, U+2028 and others, where files do not.

    >>> lines_of("a\\r\\nb\\u2028c\\n")
    ['a', 'b\\u2028c', '']
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def numbered_lines(
    file: TextIO, path: Path, *, skip: int = 0, layout: TextLayout = AS_WRITTEN
) -> Iterator[tuple[int, str]]:
    """Lines after the first ``skip``, without white space at their ends, numbered from 1.

    A line that the layout joined has the number of the last of them. CorpusError and longer lines:
    see `_bounded_lines`.
    """
    for number, line in _laid_out(file, path, layout):
        if number > skip:
            yield number, line.strip()


def _laid_out(file: TextIO, path: Path, layout: TextLayout) -> Iterator[tuple[int, str]]:
    return layout.lines(enumerate(_bounded_lines(file, path), start=1))


def _bounded_lines(file: TextIO, path: Path) -> Iterator[str]:
    """Lines as they are, those of 2 ** 22 characters or more in parts that end with a space.

    A part has 2 ** 16 characters at most, unless a word has more; byte order marks are left out.
    Raises CorpusError for NUL bytes, and for 2 ** 22 characters without a space.
    """
    number, rest = 1, ""  # what is left of a long line
    while read := file.readline(_LONGEST_LINE):
        if "\0" in read:
            with open(path, "rb") as raw:
                head = _plain(path, raw).read(1 << 16)
            if what := other_format(head):
                raise CorpusError(f"{path} {what}")
            hint = fitting_encoding(head) or ""
            advice = f", or encoding='{hint}' reads it" if hint.startswith("utf") else ""
            raise CorpusError(
                f"{path} holds NUL bytes: it is a binary file, expected UTF-8 text{advice}"
            )
        ends = len(read) < _LONGEST_LINE or read.endswith("\n")
        if not rest:  # files that were put end to end have several marks
            read = read.removeprefix("\ufeff")
        if not ends and " " not in read:
            raise CorpusError(
                f"line {number} of {path} has {_LONGEST_LINE} characters or more without a space:"
                " is it text? Break it in lines, as fold -w 100000 does"
            )
        if ends and not rest:
            yield read
        else:
            parts = _PART.findall(rest + read)
            rest = "" if ends else parts.pop()
            yield from parts
        number += ends
    if rest:
        yield rest


@dataclass(frozen=True)
class TokenStream:
    """Tokens of many documents, end to end.

    ``tokens`` (T,) integers. ``starts`` (n_sequences,) int64: where the state returns to zero, 0
    among them; None where it never does. ``bounds`` (n_documents + 1,) int64: document d is
    ``tokens[bounds[d]:bounds[d + 1]]``. Every token is predicted except those at a start (with
    None: except the first).
    """

    tokens: Array
    starts: Ints64 | None
    bounds: Ints64

    def checked(self) -> "TokenStream":
        """Return the stream; ValueError unless starts and bounds rise from 0 within its tokens."""
        n = len(self.tokens)
        for name, places, least in (("starts", self.starts, 1), ("bounds", self.bounds, 0)):
            if places is None:
                continue
            steps = np.diff(np.append(places, n))
            if steps.dtype.kind != "i" or (steps < least).any() or np.any(places[:1]):
                raise ValueError(
                    f"{name} of the stream must be integers that rise from 0 within its {n} tokens,"
                    f" got {places!r:.80}"
                )
        return self

    @property
    def lengths(self) -> Ints64:
        """Tokens (n_sequences,) of each sequence."""
        starts = [0] if self.starts is None else self.starts
        return np.diff(np.append(starts, len(self.tokens)))

    @property
    def n_predicted(self) -> int:
        """Number of predicted tokens."""
        return int(self.predicted().sum())

    def predicted(self) -> Bools:
        """Return marks (T,) of the predicted tokens."""
        marks = np.ones(len(self.tokens), dtype=bool)
        marks[slice(1) if self.starts is None else self.starts] = False
        return marks

    def by_document(self, values: Array) -> list[Array]:
        """Return values (T,) of tokens as those of the predicted tokens, one array a document."""
        marks = self.predicted()
        limits = np.concatenate(([0], np.cumsum(marks)))[self.bounds]
        return np.split(values[marks], limits[1:-1])

    def shuffled(self, rng: np.random.Generator) -> "TokenStream":
        """Return the same sequences in random order, as one document; as it is without starts."""
        if self.starts is None or len(self.starts) < 2:
            return self
        order = rng.permutation(len(self.starts))
        return self.gathered(self.starts[order], self.lengths[order])

    def gathered(self, first: Ints64, lengths: Ints64) -> "TokenStream":
        """Return runs of ``lengths`` (n,) tokens from ``first`` (n,) on, as one document."""
        starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        places = np.repeat(first - starts, lengths)
        places += np.arange(len(places))
        return TokenStream(np.asarray(self.tokens[places]), starts, np.array([0, len(places)]))


def join_sequences(
    documents: Iterable[Sequence[Array]], *, n_tokens: int | None, reset: bool
) -> TokenStream:
    """Documents, each a list of token arrays, -> one stream.

    Empty arrays are left out. With a vocabulary of ``n_tokens`` up to 65 536 a token takes two
    bytes. With ``reset`` each array is a sequence of its own, otherwise all are one. Raises
    ValueError for a token that is negative, or not in the vocabulary.
    """
    limit = np.iinfo(np.int32).max if n_tokens is None else n_tokens
    dtype = np.uint16 if limit <= 1 << 16 else np.int32
    parts = [np.zeros(0, dtype=dtype)]
    starts: list[int] = []
    bounds = [0]
    length = 0
    for document in documents:
        for sequence in filter(len, document):
            low, high = int(sequence.min()), int(sequence.max())
            if low < 0 or high >= limit:
                raise ValueError(
                    f"tokens must lie in [0, {limit}), the vocabulary, got"
                    f" {low if low < 0 else high}"
                )
            starts.append(length)
            parts.append(sequence.astype(dtype))
            length += len(sequence)
        bounds.append(length)
    where = np.array(starts, dtype=np.int64) if reset else None
    return TokenStream(np.concatenate(parts), where, np.array(bounds, dtype=np.int64))
