"""Minimal pairs from JSON lines: in a folder, in an archive, or one file."""

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from esnlm.text.corpus import CorpusError, unpacked

_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
#: Terms of the data files that belong to another of the twelve phenomena, as in the paper.
PHENOMENA = {"s-selection": "argument_structure"}
_FIELDS = {"syntax/semantics": "syntax_semantics"}
_UNNAMED = "unknown"
_LONGEST_LINE = 1 << 24  # what is longer is cut, and then not JSON


class PairsError(ValueError):
    """Minimal pairs that are missing, malformed or given twice."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An acceptable sentence and one that differs little and is not."""

    paradigm: str
    field: str
    phenomenon: str
    name: str
    good: str
    bad: str
    #: The data's authors mark the two sentences as made of the same lexical items.
    same_items: bool = False


def read_pairs(path: str | Path) -> list[Pair]:
    """Return the pairs of every ``.jsonl`` in a folder, in an archive, or of one such file.

    A folder without ``.jsonl`` files, at any depth, may hold one archive of them. Each line is an
    object with ``sentence_good`` and ``sentence_bad``, and as a rule ``UID`` (the paradigm; else
    the file's name), ``field``, ``linguistics_term`` (the phenomenon), ``lexically_identical`` and
    ``pairID`` (else the line). The two paradigms that the files call s-selection are counted with
    argument structure, as in the paper's twelve phenomena. Raises PairsError where there are no
    pairs, a line is not a pair (file and line are named), a pair occurs twice, or an archive is
    damaged.
    """
    found: dict[tuple[str, str], str] = {}
    pairs = []
    for name, stem, lines in _files(Path(path)):
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"{name}:{number}"
            pair = _pair(place, stem, number, line)
            earlier = found.setdefault((pair.paradigm, pair.name), place)
            if earlier != place:
                raise PairsError(
                    f"{place}: pair {pair.name} of {pair.paradigm} was already read from {earlier};"
                    " keep one of the two"
                )
            pairs.append(pair)
    if not pairs:
        raise PairsError(f"{path} holds no minimal pairs: its .jsonl files are empty")
    return pairs


def _files(path: Path) -> Iterator[tuple[str, str, Iterable[bytes]]]:
    """Name, paradigm by default, and lines of each file."""
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*.jsonl")) if not file.name.startswith(".")]
        files = files or [_only_archive(path)]
    elif path.is_file():
        files = [path]
    elif path.exists():
        raise PairsError(f"{path} is a pipe or a device, expected a file or a folder")
    else:
        raise PairsError(f"no such file or folder: {path}")
    for file in files:
        if file.name.endswith(_ARCHIVES):
            yield from _members(file)
        else:
            with file.open("rb") as lines:
                bounded = iter(lambda: lines.readline(_LONGEST_LINE), b"")
                yield str(file), file.name.removesuffix(".jsonl"), bounded


def _only_archive(folder: Path) -> Path:
    archives = [file for file in sorted(folder.iterdir()) if file.name.endswith(_ARCHIVES)]
    if len(archives) != 1:
        raise PairsError(
            f"{folder} holds no .jsonl files and {len(archives)} archives, expected .jsonl files or"
            " one archive: name the folder, file or archive of the pairs"
        )
    return archives[0]


def _members(archive: Path) -> Iterator[tuple[str, str, Iterable[bytes]]]:
    """Yield name, default paradigm and lines of each ``.jsonl`` file in an archive."""
    count = 0
    files = unpacked(archive)
    try:
        for name, data in sorted(files) if archive.name.endswith(".zip") else files:
            base = PurePosixPath(name).name
            if base.endswith(".jsonl") and not base.startswith("."):
                count += 1
                yield f"{archive}/{name}", base.removesuffix(".jsonl"), io.BytesIO(data)
    except CorpusError as error:
        raise PairsError(f"{archive} is truncated or not an archive: {error}") from error
    if not count:
        raise PairsError(f"{archive} holds no .jsonl files")


def _pair(place: str, stem: str, number: int, line: bytes) -> Pair:
    """Return the minimal pair of a JSON line; raise PairsError where it is malformed."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:  # bad UTF-8 as well as bad JSON
        raise PairsError(f"{place}: this line is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise PairsError(f"{place}: expected a JSON object, got {type(record).__name__}")

    def text(key: str, default: Any = None) -> str:
        value = record.get(key, default)
        if not isinstance(value, str) or not value.strip():
            got = repr(value) if key in record else "none"
            raise PairsError(
                f"{place}: {key} must be a text that is not blank, got {got}; expected a line as"
                ' {"sentence_good": "...", "sentence_bad": "..."}'
            )
        return value

    good, bad = text("sentence_good"), text("sentence_bad")
    for key, sentence in (("sentence_good", good), ("sentence_bad", bad)):
        if len(sentence.splitlines()) > 1:
            raise PairsError(f"{place}: {key} must be one line, got {sentence!r}")
        if not sentence.isprintable() and any("\ud800" <= c <= "\udfff" for c in sentence):
            raise PairsError(f"{place}: {key} holds half a character, got {sentence!r}")
    field, term = text("field", _UNNAMED), text("linguistics_term", _UNNAMED)
    uid, name = text("UID", stem), str(record.get("pairID", number))
    field, term = _FIELDS.get(field, field), PHENOMENA.get(term, term)
    return Pair(uid, field, term, name, good, bad, record.get("lexically_identical") is True)
