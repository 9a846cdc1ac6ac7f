"""Spaces of settings: fixed values, ranges, choices, and tables that hold for one value alone."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

#: Values by option of ``esnlm train``; of `PAIRS` values by parameter.
Settings: TypeAlias = dict[str, Any]

#: Options that are given once for each parameter, as NAME=VALUE.
PAIRS = ("option", "plan")
_DIGITS = 4


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both among them; integers have a ``step``.

    A first trial has the value ``start``, where there is one.

    >>> Range(1, 9, step=4).size, Range(0.1, 1.0, log=True).rounded(0.123456)
    (3, 0.1235)
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False
    start: float | None = None

    @property
    def ends(self) -> tuple[Any, ...]:
        """Return the lowest and the highest value."""
        return self.low, self.high

    @property
    def size(self) -> float:
        """How many values there are."""
        return math.inf if self.step is None else round((self.high - self.low) / self.step) + 1

    def rounded(self, value: float) -> float:
        """Return a value with four significant digits, still in the range."""
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Choices:
    """One of some values; a first trial has the value ``start``, where there is one."""

    ends: tuple[Any, ...]
    start: Any = None

    @property
    def size(self) -> float:
        """Return the number of choices."""
        return len(self.ends)


@dataclass(frozen=True)
class Tables:
    """One of some values, each with settings that it alone has."""

    spaces: Mapping[str, "Space"]

    @property
    def ends(self) -> tuple[Any, ...]:
        """Return the values that have a table each."""
        return tuple(self.spaces)

    @property
    def size(self) -> float:
        """Return the number of settings of all tables; infinite where a range has no step."""
        return sum(space.size for space in self.spaces.values())


Free: TypeAlias = Range | Choices | Tables


@dataclass(frozen=True)
class Space:
    """Settings of which some are free.

    ``entries`` maps names to a value, a `Range`, `Choices` or `Tables`, those of `PAIRS` to a
    space. Parameters are named by their place in the file: ``readout.softmax.alpha``; ``prefix``
    is what goes before the names of this space.

    >>> space = Space({"units": 9, "leak-rate": Choices((1, 0.5))})
    >>> space.settings(lambda name, free: free.ends[0]), list(space.free()), space.size
    ({'units': 9, 'leak-rate': 1}, ['leak-rate'], 2)
    """

    entries: Mapping[str, Any]
    prefix: str = ""

    def settings(self, pick: Callable[[str, Free], Any]) -> Settings:
        """Return settings whose free values are ``pick(parameter, free)``.

        None leaves an option out.
        """
        found: Settings = {}
        for name, entry in self.entries.items():
            place = f"{self.prefix}{name}"
            if isinstance(entry, Space):
                inner: Settings = {name: entry.settings(pick)}
            elif isinstance(entry, Tables):
                alone = len(entry.spaces) == 1
                value = entry.ends[0] if alone else pick(place, entry)
                known = value in entry.spaces
                inner = {name: value} | (entry.spaces[value].settings(pick) if known else {})
            elif isinstance(entry, Range | Choices):
                inner = {name: pick(place, entry)}
            else:
                inner = {name: entry}
            _add(found, inner, place)
        return found

    def suggested(self, trial: Any) -> Settings:
        """Return the settings that Optuna's sampler suggests for a trial."""

        def pick(name: str, free: Free) -> Any:
            if not isinstance(free, Range):
                return trial.suggest_categorical(name, free.ends)
            options: dict[str, Any] = {"step": free.step, "log": free.log}
            if isinstance(free.low, int):
                return trial.suggest_int(name, *free.ends, **options)
            value = trial.suggest_float(name, *free.ends, **options)
            return value if free.step else free.rounded(value)

        return self.settings(pick)

    def fixed(self) -> Settings:
        """Return the settings that are not free, nor in tables of an option that is."""
        return self.settings(lambda name, free: None)

    def free(self) -> dict[str, Free]:
        """Return what is free, by parameter."""
        found: dict[str, Free] = {}
        for name, entry in self.entries.items():
            if isinstance(entry, Space):
                found |= entry.free()
            elif isinstance(entry, Tables):
                if len(entry.spaces) > 1:
                    found[f"{self.prefix}{name}"] = entry
                for inner in entry.spaces.values():
                    found |= inner.free()
            elif isinstance(entry, Range | Choices):
                found[f"{self.prefix}{name}"] = entry
        return found

    def start(self) -> dict[str, Any]:
        """Return the values of a first trial by parameter, where they are said."""
        found = {n: each.start for n, each in self.free().items() if not isinstance(each, Tables)}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def size(self) -> float:
        """How many settings there are; infinite where a range has no step."""
        sizes = [
            each.size
            for each in self.entries.values()
            if isinstance(each, Space | Range | Choices | Tables)
        ]
        return math.prod(sizes)

    def examples(self) -> Iterator[Settings]:
        """Yield settings in which every choice and both ends of every range occur."""
        free = self.free()
        tables = {name: each for name, each in free.items() if isinstance(each, Tables)}
        chosen = [{name: value} for name, each in tables.items() for value in each.ends]
        longest = max((len(each.ends) for each in free.values()), default=1)
        for given in chosen or [{}]:
            for number in range(longest):
                yield self.settings(
                    lambda name, each, given=given, number=number: given.get(  # type: ignore[misc]
                        name, each.ends[number % len(each.ends)]
                    )
                )


def _add(found: Settings, more: Settings, place: str) -> None:
    for name, value in more.items():
        if value is None or value == {}:
            continue
        if name in PAIRS:
            found[name] = found.get(name, {}) | value
        elif name in found:
            raise ValueError(f"{name} is given twice: by {place} and beside it")
        else:
            found[name] = value
