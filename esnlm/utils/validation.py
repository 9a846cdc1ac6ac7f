"""Checks of what callers give, with messages that say what was got and what was expected."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, fields
from difflib import get_close_matches
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np


class Count(NamedTuple):
    """An integer of at least ``least`` and at most ``most``; None too where ``none``.

    >>> Count(0, none=True).check("random_state", -1)
    Traceback (most recent call last):
    ValueError: random_state must be None or an integer of at least 0, got -1
    """

    least: int = 1
    most: int | None = None
    none: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError unless ``value`` is one."""
        if self.none and value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < self.least:
            kind = "None or an integer" if self.none else "an integer"
            raise ValueError(f"{name} must be {kind} of at least {self.least}, got {value!r}")
        if self.most is not None and value > self.most:
            raise ValueError(f"{name} must be at most {self.most}, got {value}")


class DivergenceError(ValueError):
    """States or parameters left the range of useful numbers."""


class Number(NamedTuple):
    """A finite number in an interval, whose ends belong to it unless they are ``open``.

    >>> Number(0, 1, open="high").check("momentum", 1.0)
    Traceback (most recent call last):
    ValueError: momentum must lie in [0, 1), got 1.0
    """

    low: float = -math.inf
    high: float = math.inf
    open: Literal["", "low", "high", "both"] = ""
    none: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError unless ``value`` is one."""
        if self.none and value is None:
            return
        real = isinstance(value, Real) and not isinstance(value, bool)
        if not (real and np.isfinite(float(value))):
            raise ValueError(f"{name} must be a finite number, got {value!r}")
        left = "(" if self.open in ("low", "both") else "["
        right = ")" if self.open in ("high", "both") else "]"
        number = float(value)  # a bound may be more than half precision holds
        above = number > self.low if left == "(" else number >= self.low
        below = number < self.high if right == ")" else number <= self.high
        if above and below:
            return
        rule = f"lie in {left}{self.low:g}, {self.high:g}{right}"
        if (self.low, self.high) == (0, math.inf):
            rule = "be positive" if left == "(" else "not be negative"
        raise ValueError(f"{name} must {rule}, got {value}")


#: A weight penalty; far beyond its range products of float32 numbers overflow.
PENALTY = Number(0, 1e12)


def did_you_mean(name: Any, names: Iterable[Any], cutoff: float = 0.6) -> str:
    """Return a question for the known name that is nearest, or nothing where none is near.

    >>> did_you_mean("ofset", ["ring", "offsets"]), did_you_mean("knot", ["ring", "offsets"])
    (': did you mean offsets?', '')
    """
    near = get_close_matches(str(name), list(map(str, names)), 1, cutoff)
    return f": did you mean {near[0]}?" if near else ""


class OneOf(NamedTuple):
    """One of some values."""

    values: tuple[Any, ...]

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError unless ``value`` is one of them."""
        if getattr(value, "ndim", 0) or value not in self.values:  # an array equals none or many
            expected = f"{'one of ' * (len(self.values) > 1)}{', '.join(map(str, self.values))}"
            hint = did_you_mean(value, self.values)
            raise ValueError(f"{name} must be {expected}, got {value!r}{hint}")


class Flag(NamedTuple):
    """True or False, numpy's too: any text would count as true."""

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError unless ``value`` is one of them."""
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} must be true or false, got {value!r}")


def limited(default: Any, constraint: Any, **needs: Any) -> Any:
    """Return a field of a dataclass that `check_parameters` holds to a constraint.

    ``needs`` are constraints on other fields, without which this one has no effect.
    """
    return field(default=default, metadata={"constraint": constraint, "needs": needs})


def check_parameters(owner: Any) -> None:
    """Raise ValueError unless each `limited` field of a dataclass is what its constraint allows.

    A field that is not its default must have an effect, see `check_used`. Numbers of numpy become
    Python's of the same value: products of a narrow type overflow, and some have no sign.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Penalty:
    ...     alpha: float = limited(1.0, Number(0))
    >>> check_parameters(Penalty(-1.0))
    Traceback (most recent call last):
    ValueError: alpha must not be negative, got -1.0
    """
    for each in fields(owner):
        constraint = each.metadata.get("constraint")
        if constraint is not None:
            value = getattr(owner, each.name)
            constraint.check(each.name, value)
            if isinstance(value, np.number):
                plain = int(value) if isinstance(value, np.integer) else float(value)
                object.__setattr__(owner, each.name, plain)
    check_used(owner)


def at_fit(estimator: Any) -> dict[str, Any]:
    """Return the parameters that an estimator was fitted with, or has where it is not fitted.

    What is set after `fit` counts from the next `fit` on, as in scikit-learn. So all that reads a
    parameter of a fitted estimator, to predict or to save, reads it here.
    """
    fitted: dict[str, Any] | None = vars(estimator).get("_at_fit")
    return estimator.get_params(deep=False) if fitted is None else fitted


@contextmanager
def restored_after_error(estimator: Any) -> Iterator[None]:
    """Restore the attributes of an estimator where its fit in the ``with`` block does not end.

    Parts of two fits, such as a new tokenizer and an old readout, would predict nonsense.
    """
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def check_used(owner: Any, names: Iterable[str] = ()) -> None:
    """Raise ValueError for a field without effect that is ``names``, or is not its default."""
    for name, error in unused_parameters(owner, vars(owner), names).items():
        raise ValueError(f"{name}={getattr(owner, name)!r} has no effect, as {error}")


def unused_parameters(
    kind: Any, values: Mapping[str, Any], names: Iterable[str] = ()
) -> dict[str, str]:
    """Return the `limited` fields that ``values`` set without effect, and what each of them lacks.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Search:
    ...     method: str = "exact"
    ...     n_trials: int = limited(9, Count(), method=OneOf(("random",)))
    >>> unused_parameters(Search, {"method": "random", "n_trials": 5})
    {}
    >>> unused_parameters(Search, {"n_trials": 5})["n_trials"]
    "method must be random, got 'exact': leave out n_trials, or change method"
    """
    defaults: dict[str, Any] = {each.name: each.default for each in fields(kind)}
    settings, unused = defaults | dict(values), {}
    for each in fields(kind):
        name = each.name
        if name in names or not np.array_equal(settings[name], defaults[name]):
            for other, constraint in each.metadata.get("needs", {}).items():
                try:
                    constraint.check(other, settings[other])
                except ValueError as error:
                    unused[name] = f"{error}: leave out {name}, or change {other}"
    return unused


class Float(NamedTuple):
    """A dtype of single or double precision, in any form that numpy takes."""

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError unless ``value`` is one."""
        try:
            as_dtype = np.dtype(value)
            dtype: Any = as_dtype.name if as_dtype.isnative else as_dtype.str
        except TypeError:
            dtype = value
        OneOf(("float32", "float64")).check(name, dtype)
