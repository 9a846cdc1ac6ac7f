"""Predictions of test suites: conditions on the surprisals of regions."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from esnlm.utils.arrays import Bools, Floats

#: A region by its number and condition; the number 0 stands for all, as ``*`` does in a formula.
Region: TypeAlias = tuple[int, str]
Node: TypeAlias = "Region | float | Operation"

_TOKEN = re.compile(
    r"\s*(?:\(\s*(?P<number>\d+|\*)\s*;\s*%(?P<condition>[^%]+)%\s*\)"
    r"|(?P<constant>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<mark>[-+<>=&|()\[\]]))"
)
# Regions, numbers and marks of a formula: longer ones would nest too deep.
_LONGEST = 500
_SIGNS = "+-"
#: Operators from those that bind least.
_LEVELS = ("|", "&", "<>=", _SIGNS)
_TRUTHS = ("|", "&", "<>=")
_CLOSING = {"(": ")", "[": "]"}
#: Bits by which surprisals must differ to be unequal: the models' own arithmetic has seven digits.
_TIE = 1e-4
#: What syntaxgym-core allows between equal surprisals.
_EQUAL = {"rtol": 1e-5, "atol": 1e-3}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "<": lambda left, right: right - left > _TIE,
    ">": lambda left, right: left - right > _TIE,
    "=": partial(np.isclose, **_EQUAL),
    "&": np.logical_and,
    "|": np.logical_or,
}


class FormulaError(ValueError):
    """A prediction that is no formula."""


@dataclass(frozen=True)
class Operation:
    """An operator between two parts of a formula."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Formula:
    """A prediction: numbers, regions as ``(3;%match%)``, and ``+ - < > = & |`` in brackets.

    ``&`` binds closer than ``|``. Raises FormulaError where the text is no condition.

    >>> formula = Formula("[(1;%a%) + (2;%a%)] < (1;%b%) & (2;%b%) > 0.5")
    >>> values = {(1, "a"): [1, 1], (2, "a"): [1, 3], (1, "b"): [3, 3], (2, "b"): [2, 2]}
    >>> formula.holds({region: np.array(bits) for region, bits in values.items()})
    array([ True, False])
    """

    text: str
    node: Node = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Parse the text."""
        parser = _Parser(self.text)
        try:
            node = parser.level(0)
        except RecursionError:
            beginning = f"{self.text[:20]!r}..."
            raise FormulaError(f"{beginning}: too many brackets stand in each other") from None
        parser.close("")
        if not _is_truth(node):
            raise FormulaError(f"{self.text!r} is a number, expected a condition with <, > or =")
        object.__setattr__(self, "node", node)

    @property
    def regions(self) -> set[Region]:
        """Regions that the formula reads."""
        return set(_regions(self.node))

    def holds(self, bits: Mapping[Region, Floats]) -> Bools:
        """Whether the prediction holds (n,) for surprisals (n,) of each region, in bits.

        Surprisals that differ by less than 1e-4 bits are neither larger nor smaller; ``=`` allows
        1e-3, as syntaxgym-core does.
        """
        return np.asarray(_value(self.node, bits))


class _Parser:
    """Parser of one formula, by levels of operators."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[Region | float | str] = []
        place, end = 0, len(text.rstrip())
        while place < end:
            match = _TOKEN.match(text, place)
            if match is None:
                raise FormulaError(
                    f"{text!r}: expected a region as (3;%name%), a number or one of"
                    f" + - < > = & | ( ) [ ], got {text[place:].strip()[:20]!r}"
                )
            place = match.end()
            self.tokens.append(_token(match))
        if len(self.tokens) > _LONGEST:
            raise FormulaError(
                f"{text[:20]!r}... has {len(self.tokens)} regions, numbers and marks, expected at"
                f" most {_LONGEST}"
            )
        self.tokens.append("")

    def level(self, place: int) -> Node:
        """Return the operation of the operators of a level, or of those that bind closer."""
        if place == len(_LEVELS):
            return self._atom()
        node = self.level(place + 1)
        operators = _LEVELS[place]
        takes_truths = operators in _TRUTHS[:2]
        while isinstance(mark := self.tokens[0], str) and mark and mark in operators:
            self.tokens.pop(0)
            right = self.level(place + 1)
            for side in (node, right):
                if _is_truth(side) is not takes_truths:
                    kind = "conditions" if takes_truths else "numbers"
                    raise FormulaError(f"{self.text!r}: {mark} stands between two {kind}")
            node = Operation(mark, node, right)
        return node

    def close(self, mark: str) -> None:
        """Take the mark that must come next."""
        if (got := self.tokens.pop(0)) != mark:
            expectation = repr(mark) if mark else "an operator or the end"
            raise FormulaError(f"{self.text!r}: expected {expectation}, got {_shown(got)}")

    def _atom(self) -> Node:
        token = self.tokens.pop(0)
        if not isinstance(token, str):
            return token
        if token and token in _SIGNS:
            number = self._atom()
            if _is_truth(number):
                raise FormulaError(f"{self.text!r}: {token} stands before a number")
            return Operation(token, 0.0, number)
        if token not in _CLOSING:
            raise FormulaError(
                f"{self.text!r}: expected a region, a number or a bracket, got {_shown(token)}"
            )
        node = self.level(0)
        self.close(_CLOSING[token])
        return node


def _token(match: re.Match[str]) -> Region | float | str:
    if condition := match["condition"]:
        return (0 if match["number"] == "*" else int(match["number"])), condition
    return float(match["constant"]) if match["constant"] else match["mark"]


def _shown(token: Region | float | str) -> str:
    return repr(token) if token else "the end"


def _is_truth(node: Node) -> bool:
    return isinstance(node, Operation) and any(node.operator in level for level in _TRUTHS)


def _regions(node: Node) -> Iterator[Region]:
    if isinstance(node, Operation):
        yield from _regions(node.left)
        yield from _regions(node.right)
    elif isinstance(node, tuple):
        yield node


def _value(node: Node, bits: Mapping[Region, Floats]) -> Any:
    """Return the numbers or truths (n,) of a part of a formula."""
    if isinstance(node, tuple):
        number, condition = node
        if number:
            return bits[node]
        return np.sum([each for (_, name), each in bits.items() if name == condition], axis=0)
    if not isinstance(node, Operation):
        return np.asarray(node)
    left, right = (_value(side, bits) for side in (node.left, node.right))
    return _OPERATORS[node.operator](left, right)
