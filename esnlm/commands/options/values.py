"""Settings by name, as options of the command line give them: ``NAME=VALUE``."""

import argparse
import json
from typing import Any

# Laws of leak rates, and how many numbers each takes.
_LEAK_RATE_LAWS = {"uniform": 2, "inverse_gamma": 1}


def pair(text: str) -> tuple[str, Any]:
    """``NAME=VALUE`` -> the name and the value, which is JSON, a law of leak rates, or a string.

    >>> pair("n_units=9"), pair("schedule=cosine"), pair("reservoir.leak_rate=uniform:0:1")
    (('n_units', 9), ('schedule', 'cosine'), ('reservoir.leak_rate', ('uniform', 0.0, 1.0)))
    """
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, leak_rate(value) if name.endswith("leak_rate") else value


def separate(text: str) -> list[str]:
    """Settings that commas stand between, those inside brackets apart.

    >>> separate('rank=64,reservoir.leak_rate=["uniform",0,1],dropout=0')
    ['rank=64', 'reservoir.leak_rate=["uniform",0,1]', 'dropout=0']
    """
    found, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return found


def leak_rate(text: str) -> Any:
    """``A``, ``uniform:LOW:HIGH`` or ``inverse_gamma:ALPHA`` -> what a reservoir takes."""
    name, *values = text.split(":")
    try:
        if _LEAK_RATE_LAWS.get(name) == len(values):
            return (name, *map(float, values))
        return float(text)
    except ValueError:
        expected = "a number, uniform:LOW:HIGH or inverse_gamma:ALPHA"
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}") from None
