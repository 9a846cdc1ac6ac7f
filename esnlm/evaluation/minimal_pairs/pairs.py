"""Minimal pairs from files: JSON lines, tables, number agreement, and archives of them."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from esnlm.evaluation.minimal_pairs.agreement import agreement_pairs, is_agreement
from esnlm.evaluation.minimal_pairs.records import Pair, PairsError, Record, RecordReader
from esnlm.storage.atomic import naming
from esnlm.text.archives import ARCHIVES, unpacked
from esnlm.text.corpus import CorpusError
from esnlm.text.files import SEPARATORS, files_within, is_hidden
from esnlm.text.layout import other_format
from esnlm.text.stimuli import check_separator

_LINES, _TABLES = (".jsonl",), tuple(SEPARATORS)
#: The file of CLiMP that has no header and no labels: good and bad sentences by turns.
_BY_TURNS = "ba_construction_1000.csv"
_LONGEST_LINE = 1 << 24  # what is longer is cut, and then not JSON


def read_pairs(path: str | Path, fields: Mapping[str, str] | None = None) -> list[Pair]:
    """Return the pairs of one file, of an archive, or of every file in a folder.

    Files are JSON lines (``.jsonl``), tables with a header (``.csv``; ``.tsv`` and ``.tab``), or
    the sentences and forms of `agreement_pairs`; plain or ``.gz``. A folder or an archive with
    JSON lines has nothing else read, and a folder without them may hold one archive.

    A record has an acceptable sentence and one that is not, or one sentence and a label, with the
    other sentence in the next record. The names of the fields are `records.KNOWN`, or ``fields``:
    of ``good``, ``bad``, ``phenomenon``, ``paradigm`` (else the file's name), ``field``, ``pair``
    (else the line), ``prefix`` (of both sentences), ``sentence`` and ``label``. The two paradigms
    that the files of BLiMP call s-selection are counted with argument structure, as in the paper's
    twelve phenomena.

    Raises PairsError where there are no pairs, a record is not a pair (file and line are named), a
    pair that has a name occurs twice, or an archive is damaged.
    """
    places: dict[tuple[str, str], str] = {}
    pairs = []
    for place, pair in _places(Path(path), fields or {}):
        if not pair.name:
            pair = replace(pair, name=place.rpartition(":")[2])
        elif place != (earlier := places.setdefault((pair.paradigm, pair.name), place)):
            raise PairsError(
                f"{place}: pair {pair.name} of {pair.paradigm} was already read from {earlier};"
                " keep one of the two"
            )
        pairs.append(pair)
    if not pairs:
        raise PairsError(
            f"{path} holds no minimal pairs: expected JSON lines (.jsonl), an object each, or a"
            " table (.csv, .tsv) with rows below its header"
        )
    return pairs


def pair_files(path: Path) -> list[Path]:
    """Return the files that `read_pairs` opens."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        what = "is a pipe or a device, expected a file or a folder"
        raise PairsError(f"{path} {what}" if path.exists() else f"no such file or folder: {path}")
    files = sorted(files_within(path))
    lines = [file for file in files if _plain(file.name).lower().endswith(_LINES)]
    archives = [file for file in files if file.parent == path and file.name.endswith(ARCHIVES)]
    tables = [f for f in files if _plain(f.name).lower().endswith(_TABLES) or is_agreement(f)]
    files = lines or (archives if len(archives) == 1 else tables)
    if not files:
        raise PairsError(
            f"{path} holds no .jsonl files, no tables (.csv, .tsv) and {len(archives)} archives,"
            " expected files of pairs or one archive: name the folder, file or archive of the pairs"
        )
    return files


def _places(path: Path, fields: Mapping[str, str]) -> Iterator[tuple[str, Pair]]:
    """Yield each pair, with the name and line of its file before it."""
    for file in pair_files(path):
        if is_agreement(file):
            yield from ((f"{file}:{number}", pair) for number, pair in agreement_pairs(file))
            continue
        for name, data in _opened(file):
            reader = RecordReader(fields, name, PurePosixPath(_plain(name)).stem)
            for number, pair in reader.pairs(_records(name, data)):
                yield f"{name}:{number}", pair


def _opened(file: Path) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the name and bytes of a file, or of those in an archive."""
    if file.name.endswith(ARCHIVES):
        for suffixes in (_LINES, _TABLES):
            members = list(_members(file, suffixes))
            yield from ((name, io.BytesIO(data)) for name, data in members)
            if members:
                return
        raise PairsError(f"{file} holds no .jsonl files and no tables (.csv, .tsv)")
    is_packed = file.name != _plain(file.name)
    with cast(BinaryIO, gzip.open(file) if is_packed else file.open("rb")) as opened:
        yield str(file), opened


def _members(archive: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of each file of a kind in an archive."""
    files = unpacked(archive)
    try:
        for name, data in sorted(files) if archive.name.endswith(".zip") else files:
            inside = PurePosixPath(name)
            if inside.name.lower().endswith(suffixes) and not is_hidden(inside):
                yield f"{archive}/{name}", data
    except CorpusError as error:
        raise PairsError(str(error)) from error


def _plain(name: str) -> str:
    return name[:-3] if name.lower().endswith(".gz") else name


def _records(name: str, data: BinaryIO) -> Iterator[tuple[int, Record]]:
    """Yield the records of a file, each with the number of its line."""
    with naming(Path(name)), _readable(name):
        if what := other_format(data.read(512)):
            raise PairsError(f"{name} {what}")
        data.seek(0)
        if _plain(name).lower().endswith(_LINES):
            yield from _json_lines(name, data)
        else:
            with io.TextIOWrapper(data, encoding="utf-8-sig", newline="") as text:
                yield from _rows(name, text)


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Raise PairsError, with the name of the file, where it is damaged or not text."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise PairsError(f"{name} is not a whole gzip file: {error}") from error
    except UnicodeDecodeError as error:
        raise PairsError(f"{name} is not UTF-8 text ({error}): convert it") from error
    except CorpusError as error:
        raise PairsError(str(error)) from error


def _json_lines(name: str, data: BinaryIO) -> Iterator[tuple[int, Record]]:
    lines = iter(lambda: data.readline(_LONGEST_LINE), b"")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:  # bad UTF-8 as well as bad JSON
            raise PairsError(f"{place}: this line is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise PairsError(f"{place}: expected a JSON object, got {type(record).__name__}")
        match record:  # BabyLM's nominalizations of made-up adjectives
            case {"sentences": str(both)} if both.count("\t") == 1:
                record = dict(zip(("good", "bad"), both.split("\t"), strict=True))
        yield number, record


def _rows(name: str, text: io.TextIOWrapper) -> Iterator[tuple[int, Record]]:
    """Yield the rows of a table as records; the first line tells tabs from commas."""
    head = text.readline(_LONGEST_LINE)
    text.seek(0)
    if head.lstrip()[:1] in ("{", "["):
        raise PairsError(f"{name} is JSON: expected an object a line, in a file called .jsonl")
    mark = "\t" if "\t" in head else ","
    # "good, bad" in the head has a space before each field below, too.
    rows = csv.reader(text, delimiter=mark, strict=True, skipinitialspace=f"{mark} " in head)
    try:
        if PurePosixPath(name).name == _BY_TURNS:
            for place, row in enumerate(filter(any, rows)):
                yield rows.line_num, {"sentence": row[0], "label": 1 - place % 2}
        header = next(rows, [])
        if len(header) == 1:
            check_separator(name, header[0])
        if twice := [field for field in header if field and header.count(field) > 1]:
            raise PairsError(f"{name}:1: two fields are called {twice[0]!r}: rename one")
        for row in filter(any, rows):
            if [row[0].removeprefix("\ufeff"), *row[1:]] == header:  # of files put end to end
                continue
            if len(row) != len(header):
                raise PairsError(
                    f"{name}:{rows.line_num}: expected {len(header)} fields as in the first line,"
                    f" got {len(row)}"
                )
            if "\t" in head and any("\t" in field for field in row):
                raise PairsError(
                    f"{name}:{rows.line_num}: a field between quotation marks holds a tab: double"
                    " marks that stand alone"
                )
            yield rows.line_num, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise PairsError(f"{name}:{rows.line_num}: not a row of a table: {error}") from error
