"""Values of options: how the text on the command line becomes a number, a setting or a law."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import CoercionError, Parameter

from esnlm.models.recipes import features, leak_rate


def read(parse: Callable[[str], Any], metavar: str) -> Parameter:
    """Return a value that a function reads from its text; its ValueError is the message."""

    def convert(_: Any, tokens: Any) -> Any:
        try:
            return parse(tokens[0].value)
        except ValueError as error:
            # For an element of a list, cyclopts shows no other error's message.
            raise CoercionError(msg=str(error), token=tokens[0]) from None

    return Parameter(converter=convert, metavar=metavar, n_tokens=1)


def number(
    metavar: str, condition: str, allows: Callable[[Any], bool], kind: type = float
) -> Parameter:
    """Return a number of a kind that a condition allows; ``condition`` says it in words."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            name = "an integer" if kind is int else "a number"
            raise ValueError(f"expected {name}, got {text!r}") from None
        if not allows(value):
            raise ValueError(f"must {condition}, got {value}")
        return value

    return read(parse, metavar)


def integer(metavar: str, least: float = -math.inf) -> Parameter:
    """Return an integer, of at least ``least``."""
    return number(metavar, f"be at least {least}", lambda v: v >= least, int)


def positive(metavar: str) -> Parameter:
    """Return a positive, finite number."""
    return number(metavar, "be positive and finite", lambda value: 0 < value < math.inf)


def not_negative(metavar: str) -> Parameter:
    """Return a finite number of at least 0."""
    return number(metavar, "be at least 0 and finite", lambda value: 0 <= value < math.inf)


def real(metavar: str) -> Parameter:
    """Any number: what it is given to decides what it may be."""
    return number(metavar, "be a number", lambda value: True)


def named(text: str) -> Path:
    """Return the path of a name, which is not empty: pathlib reads that as the current folder."""
    if not text:
        raise ValueError("expected the name of a file or folder, got an empty one")
    return Path(text)


def file_name(metavar: str) -> Parameter:
    """Return the path of a file or folder."""
    return read(named, metavar)


def pair(text: str) -> tuple[str, Any]:
    """``NAME=VALUE`` -> the name and the value, which is JSON, a law of leak rates, or a string.

    >>> pair("n_units=9"), pair("schedule=cosine"), pair("reservoir.leak_rate=uniform:0:1")
    (('n_units', 9), ('schedule', 'cosine'), ('reservoir.leak_rate', ('uniform', 0.0, 1.0)))
    """
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"expected NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, leak_rate(value) if name.endswith("leak_rate") else value


def nested(
    pairs: Iterable[tuple[str, Any]], option: str, within: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Values by name, beside those of ``within``; a dot in a name leads into a mapping.

    >>> nested([("rank", 64), ("reservoir.n_units", 9)], "--models esn")
    {'rank': 64, 'reservoir': {'n_units': 9}}
    """
    tree = dict(within or {})
    for name, value in pairs:
        *path, last = name.split(".")
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ValueError(f"{option} has both {part} and {name}, one inside the other")
        inner[last] = value
    return tree


def separate(text: str) -> list[str]:
    """Return settings between commas; those inside brackets do not count.

    >>> separate('rank=64,reservoir.leak_rate=["uniform",0,1],dropout=0')
    ['rank=64', 'reservoir.leak_rate=["uniform",0,1]', 'dropout=0']
    """
    pieces, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and not depth:
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces


def _cluster(text: str) -> str:
    from esnlm.runs.cluster import checked

    return checked(text)


def _seed(text: str) -> int:
    if not (text.isdecimal() and int(text) < 1 << 32):  # more than numpy's RandomState takes
        raise ValueError(f"expected an integer from 0 to 4294967295, got {text!r}")
    return int(text)


#: (kind, number), see `features`.
Features = Annotated[Any, read(features, "F|spectral:F")]
Cluster = Annotated[
    str | None,
    read(_cluster, "local:N|ADDRESS|FILE"),
    Parameter(
        help="Run as tasks of Dask (extra scale): on N processes of this machine, or those of a"
        " scheduler, by its address (tcp://HOST:PORT) or its file (default: no cluster)."
    ),
]
LeakRate = Annotated[Any, read(leak_rate, "A")]
Seed = Annotated[int, read(_seed, "SEED")]
Minutes = Annotated[float, not_negative("MINUTES")]
#: What a model reads before a sentence: a name, or a number of sentences.
ReadingContext = Annotated[
    Any, read(lambda text: int(text) if text.isdecimal() else text, "CONTEXT")
]
Weight = Annotated[float, number("W", "lie in [0, 1]", lambda value: 0 <= value <= 1)]
#: Given once for each.
Pairs = Annotated[
    tuple[Annotated[Any, read(pair, "NAME=VALUE")], ...],
    Parameter(consume_multiple=False, metavar="NAME=VALUE"),
]
