"""Minimal pairs from records (lines of JSON, rows of a table), whatever their fields are called."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Part of a pair -> its fields in BLiMP and its supplement, SLING, ZhoBLiMP, JBLiMP, QFrBLiMP,
#: RuBLiMP, BLiMP-NL, CLiMP (whose columns are numbers) and LM_syneval, in lower case. The first
#: that a record has counts.
KNOWN: dict[str, tuple[str, ...]] = {
    "good": ("sentence_good", "good_sentence", "grammatical", "source_sentence", "good"),
    "bad": ("sentence_bad", "bad_sentence", "ungrammatical", "target_sentence", "bad"),
    "phenomenon": ("linguistics_term", "linguistic_phenomenon", "phenomenon", "category", "0"),
    "paradigm": ("uid", "paradigm", "pid", "1"),
    "field": ("field", "level"),
    "pair": ("pairid",),
    "prefix": (),
    "sentence": ("sentence", "2"),
    "label": ("grammaticality", "label", "3"),
}
#: Field of the nouns of another number between subject and verb.
ATTRACTORS = "n_attr"
#: Gulordava's tables: two rows a pair, of a prefix with the right form and with the wrong one.
_AGREEMENT = {
    "sentence": "form", "label": "class", "prefix": "prefix", "phenomenon": "type",
    "paradigm": ATTRACTORS,
}  # fmt: skip
_LABELS = {
    name: is_good
    for is_good, names in (
        (True, ("1", "true", "correct", "grammatical", "acceptable", "good")),
        (False, ("0", "false", "wrong", "ungrammatical", "unacceptable", "bad")),
    )
    for name in names
}
#: Terms of the data files that belong to another of the twelve phenomena, as in the paper.
PHENOMENA = {"s-selection": "argument_structure"}
_FIELDS = {"syntax/semantics": "syntax_semantics"}
_UNNAMED = "unknown"
_TWO_ROWS = "expected an acceptable and an unacceptable sentence in neighbouring rows"

Record = Mapping[str, Any]


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


def read_fields(text: str) -> dict[str, str]:
    """Return the names of fields by part of a pair.

    >>> read_fields("good=right,bad=wrong")
    {'good': 'right', 'bad': 'wrong'}
    """
    fields = {}
    for entry in text.split(","):
        part, is_named, name = (word.strip() for word in entry.partition("="))
        if part not in KNOWN or not is_named or not name or part in fields:
            raise ValueError(
                f"expected PART=NAME,... with each part once, of {', '.join(KNOWN)}, got {entry!r}"
            )
        fields[part] = name
    return fields


class RecordReader:
    """Reader of the records of one file.

    ``fields``: names of fields by part of a pair, beside those of `KNOWN`. ``file`` is named in
    messages, ``stem`` is the paradigm where no field has it.
    """

    def __init__(self, fields: Mapping[str, str], file: str, stem: str) -> None:
        """Store the names."""
        self.fields = fields
        self.file = file
        self.stem = stem
        self._names: dict[tuple[str, ...], dict[str, str]] = {}

    def pairs(self, records: Iterable[tuple[int, Record]]) -> Iterator[tuple[int, Pair]]:
        """Yield the pairs of numbered records, each with the number of its (first) record.

        Without a field ``pair`` the names of pairs are empty.

        A record is a pair, or a sentence with a label, and two of these in succession are a pair.
        Raises PairsError, with file and number, where it is neither.
        """
        first: tuple[int, Record] | None = None
        for number, record in records:
            names = self._parts(number, record)
            if "good" in names:
                yield number, self._pair(number, record, names)
            elif first is None:
                first = number, record
            else:
                both = self._join(first, (number, record))
                yield first[0], self._pair(first[0], both, self._parts(*first))
                first = None
        if first is not None:
            raise PairsError(f"{self.file}:{first[0]}: a sentence without a second: {_TWO_ROWS}")

    def _parts(self, number: int, record: Record) -> dict[str, str]:
        """Return the field of each part of a pair that a record has."""
        header = tuple(record)
        if header not in self._names:
            try:
                self._names[header] = _parts(header, self.fields)
            except PairsError as error:
                raise PairsError(f"{self.file}:{number}: {error}") from error
        return self._names[header]

    def _join(self, first: tuple[int, Record], second: tuple[int, Record]) -> Record:
        """Return two labelled sentences as one record of a pair."""
        sentences = {}
        for number, record in (first, second):
            names = self._parts(number, record)
            label = str(record[names["label"]]).strip().lower()
            if label not in _LABELS:
                raise PairsError(
                    f"{self.file}:{first[0]}: {names['label']} must be one of"
                    f" {', '.join(_LABELS)}, got {label!r}"
                )
            sentences["good" if _LABELS[label] else "bad"] = record[names["sentence"]]
        if len(sentences) < 2:
            raise PairsError(f"{self.file}:{first[0]}: two sentences of label {label}: {_TWO_ROWS}")
        return {**first[1], **sentences}

    def _pair(self, number: int, record: Record, names: Mapping[str, str]) -> Pair:
        good, bad = (self._sentence(number, record, names.get(p, p)) for p in ("good", "bad"))
        if "prefix" in names:
            prefix = self._sentence(number, record, names["prefix"])
            good, bad = f"{prefix} {good}", f"{prefix} {bad}"

        def term(part: str, default: str) -> str:
            value = record.get(names[part]) if part in names else None
            if not isinstance(value, str | int | float | None):
                raise PairsError(
                    f"{self.file}:{number}: {names[part]} must be a text, got {value!r}"
                )
            return default if value is None or not str(value).strip() else str(value)

        paradigm = term("paradigm", self.stem)
        if names.get("paradigm") == ATTRACTORS:
            paradigm += " attractors"
        field, phenomenon = term("field", _UNNAMED), term("phenomenon", _UNNAMED)
        field, phenomenon = _FIELDS.get(field, field), PHENOMENA.get(phenomenon, phenomenon)
        same_items = str(record.get("lexically_identical")).lower() == "true"
        return Pair(paradigm, field, phenomenon, term("pair", ""), good, bad, same_items)

    def _sentence(self, number: int, record: Record, name: str) -> str:
        text = record[name]
        if not isinstance(text, str) or not text.strip():
            raise PairsError(
                f"{self.file}:{number}: {name} must be a text that is not blank, got {text!r};"
                f" {_names_of(record)}"
            )
        if not text.isprintable() and any("\ud800" <= c <= "\udfff" for c in text):
            raise PairsError(f"{self.file}:{number}: {name} holds half a character, got {text!r}")
        return text


def _parts(header: Sequence[str], fields: Mapping[str, str]) -> dict[str, str]:
    """Return the field of each part of a pair; raise PairsError where sentences have none."""
    by_name = {name.strip().lower(): name for name in reversed(header)}
    parts = {}
    for part, choices in KNOWN.items():
        name = next((by_name[name] for name in choices if name in by_name), None)
        if name is not None:
            parts[part] = name
    if by_name.keys() >= set(_AGREEMENT.values()):
        parts = {part: by_name[name] for part, name in _AGREEMENT.items()}
    parts |= fields
    absent = [name for name in fields.values() if name not in header]
    if absent:
        raise PairsError(f"no field {', '.join(absent)}; {_names_of(header)}")
    if {"sentence", "label"} <= parts.keys() and not {"good", "bad"} & parts.keys():
        return parts
    if absent := [part for part in ("good", "bad") if part not in parts]:
        what = " and the ".join(absent)
        raise PairsError(f"no field of the {what} sentence; {_names_of(header)}")
    return parts


def _names_of(record: Iterable[str]) -> str:
    """Return which fields there are, and how to name them."""
    names = " ".join(", ".join(record).split())
    return f"the fields are {names or 'none'}; name them by --fields good=NAME,bad=NAME"
