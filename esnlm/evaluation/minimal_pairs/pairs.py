"""Minimal pairs from JSON lines, and parts of them: known words, and no mere reordering."""

import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from esnlm.text.corpus import CorpusError, TextCorpus, unpacked
from esnlm.text.shards import Shards
from esnlm.utils.arrays import Bools

_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
#: Terms of the data files that belong to another of the twelve phenomena, as in the paper.
PHENOMENA = {"s-selection": "argument_structure"}
_FIELDS = {"syntax/semantics": "syntax_semantics"}
_UNNAMED = "unknown"
_LONGEST_LINE = 1 << 24  # what is longer is cut, and then not JSON
_PERMUTED_SHARE = 0.95
_WORD = re.compile(r"\w+(?:['-]\w+)*")
_SENTENCES_AT_ONCE = 1 << 14


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
    places: dict[tuple[str, str], str] = {}
    pairs = []
    for name, stem, lines in _files(Path(path)):
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"{name}:{number}"
            pair = _pair(place, stem, number, line)
            earlier = places.setdefault((pair.paradigm, pair.name), place)
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


@dataclass(frozen=True)
class TrainingWords:
    """The words of a training text: what stands between white space, punctuation and case kept.

    ``normal`` is applied to a sentence before its words are looked up.

    >>> TrainingWords(frozenset({"The", "dog", "walks"})).hold("The dog walks.")
    False
    """

    words: frozenset[str]
    normal: Callable[[str], str] = str

    def hold(self, sentence: str) -> bool:
        """Whether all words of a sentence occur in the text."""
        return self.words.issuperset(self.normal(sentence).split())


def words_of_text(paths: Sequence[str]) -> TrainingWords:
    """Return the words of text files, plain or ``.gz``, and of folders of them."""
    words: set[str] = set()
    for line in TextCorpus(paths, "line"):
        words.update(line.split())
    return TrainingWords(frozenset(words))


def words_of_shards(folder: str) -> TrainingWords:
    """Return the words of shards, decoded sentence by sentence.

    Where their tokenizer changes text before it cuts it, as one that lower-cases does, sentences
    are changed alike before their words are looked up.
    """
    shards = Shards(folder)
    stream, backend = shards.stream(), shards.tokenizer.backend
    assert stream.starts is not None
    ends = np.append(stream.starts, len(stream.tokens))
    words: set[str] = set()
    for first in range(0, len(stream.starts), _SENTENCES_AT_ONCE):
        places = ends[first : first + _SENTENCES_AT_ONCE + 1]
        tokens = np.asarray(stream.tokens[places[0] : places[-1]])
        sentences = [part.tolist() for part in np.split(tokens, places[1:-1] - places[0])]
        words.update(" ".join(backend.decode_batch(sentences)).split())
    normaliser = backend.normalizer
    return TrainingWords(frozenset(words), normaliser.normalize_str if normaliser else str)


def permuting_paradigms(pairs: Sequence[Pair]) -> list[str]:
    """Names of the paradigms that permute words: the two sentences of a pair have the same ones.

    Case and punctuation do not count, and it is enough that 95 % of a paradigm's pairs are so. A
    model that knows no order of words scores the sentences of such a pair nearly alike, and a
    unigram model of words in lower case exactly alike.

    >>> pair = Pair("p", "f", "q", "1", "Whose hat had Ann seen?", "Whose had Ann seen hat?")
    >>> permuting_paradigms([pair])
    ['p']
    """
    counts: dict[str, list[bool]] = defaultdict(list)
    for pair in pairs:
        good, bad = (sorted(_WORD.findall(each.lower())) for each in (pair.good, pair.bad))
        counts[pair.paradigm].append(good == bad)
    return sorted(name for name, same in counts.items() if np.mean(same) >= _PERMUTED_SHARE)


def subsets(pairs: Sequence[Pair], words: TrainingWords | None = None) -> dict[str, Bools]:
    """Name of a part -> which of the n pairs belong to it (n,).

    ``seen_words``: all words occur in the training text, where there are ``words``.
    ``not_permuted``: of paradigms that do not permute words, see `permuting_paradigms`.
    ``other_items``: these, but for pairs that the data's authors mark as of the same lexical items.
    The last two are left out where they have all pairs or none.
    """
    permuting = set(permuting_paradigms(pairs))
    ordered = np.array([pair.paradigm not in permuting for pair in pairs])
    same_items = np.array([pair.same_items for pair in pairs])
    parts = {"not_permuted": ordered, "other_items": ordered & ~same_items}
    parts = {name: part for name, part in parts.items() if part.any() and not part.all()}
    if words is not None:
        seen = [words.hold(pair.good) and words.hold(pair.bad) for pair in pairs]
        parts = {"seen_words": np.array(seen), **parts}
    return parts
