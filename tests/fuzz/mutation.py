"""Changes to a case that keep its form: of JSON, of lines, and of fields in lines."""

import json
import random
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

#: Values that readers are seldom given.
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 255, 65536, 2**31, 2**53, 2**63, -(2**63), 10**30, 0.5, -0.5,
    1e-30, 1e30, 1e308, float("nan"), float("inf"), "", "x", "é", "\ud800", "a b", "0", "float32",
    "<unk>", "softmax", [], {}, [[]], [None], [0, 1], {"x": 1}, {"class": "os", "params": {}},
    {"tuple": [1, 2]}, {"array": [1, 2], "dtype": "int64"}, {"dict": [[[], 1]]},
)  # fmt: skip
_TEXTS = (
    "", "0", "1", "-1", "1e400", "nan", "-inf", "2.5", "x", "é", "a\tb", '"', "'", "{", "[", "#",
    "=", "<s>", "</s>", "<unk>", "\\end\\", "\\2-grams:", "ngram 3=1", "99999999999999999999",
    "true", "null", "low", "high", "9" * 400, "\0", "\ufeff", "\u2028", "(" * 300,
)  # fmt: skip
_FIELDS = re.compile(r"([,;\t =:\[\]{}]+)")


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return a case with one to three changes."""
    for _ in range(rng.randint(1, 3)):
        data = _changed(data, rng)
    return data


def _changed(data: bytes, rng: random.Random) -> bytes:
    content = _parsed(data)
    if content is not None:
        return _json(changed_json(content, rng))
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    place = rng.randrange(len(lines))
    line = _parsed(lines[place].encode("utf-8", "surrogateescape"))
    if line is not None and rng.random() < 0.8:
        lines[place] = _json(changed_json(line, rng)).decode()
    else:
        _change_lines(lines, place, rng)
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _parsed(data: bytes) -> Any:
    """Return the object or list of a JSON text, or None."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict | list) and content else None


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


def _change_lines(lines: list[str], place: int, rng: random.Random) -> None:
    """Drop, repeat or swap lines, or change a field of one."""
    other = rng.randrange(len(lines))
    fields = _FIELDS.split(lines[place])
    at = rng.randrange(len(fields))
    changes: list[Callable[[], Any]] = [
        lambda: lines.pop(place) if len(lines) > 1 else None,
        lambda: lines.insert(other, lines[place]),
        lambda: lines.__setitem__(slice(place, place + 1), [lines[other]]),
        lambda: lines.__setitem__(place, lines[place][: rng.randrange(len(lines[place]) + 1)]),
    ]
    by_field: list[Callable[[], Any]] = [
        lambda: fields.pop(at),
        lambda: fields.insert(at, rng.choice(fields)),
        lambda: fields.__setitem__(at, rng.choice(_TEXTS)),
        lambda: fields.__setitem__(at, rng.choice(_TEXTS)),
    ]
    if rng.random() < 0.4:
        rng.choice(changes)()
    else:
        rng.choice(by_field)()
        lines[place] = "".join(fields)


def changed_json(content: Any, rng: random.Random) -> Any:
    """Return a JSON value with one node changed; nodes near the root as often as deep ones."""
    content = deepcopy(content)
    node = content
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        below = node[key]
        if isinstance(below, dict | list) and below and rng.random() < 0.75:
            node = below
            continue
        change = rng.random()
        if change < 0.25:
            del node[key]
        elif change < 0.35 and isinstance(node, dict):
            node[str(rng.choice(("x", "", "0", rng.choice(keys))))] = node.pop(key)
        elif change < 0.45 and isinstance(node, list):
            node.insert(key, deepcopy(below))
        elif change < 0.6:
            node[key] = deepcopy(node[rng.choice(keys)])
        else:
            node[key] = rng.choice(ODD)
        return content
