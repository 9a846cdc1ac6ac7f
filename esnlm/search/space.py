"""Spaces of settings in TOML: fixed values, ranges, choices, and tables that hold for one value.

    units = 512
    spectral-radius = {low = 0.1, high = 1.5}
    input-scaling = {low = 0.01, high = 1, log = true}
    leak-rate = {choices = [1, "uniform:0:1"]}

    [readout.ridge]

    [readout.softmax]
    alpha = {low = 1e-2, high = 1e3, log = true}

Names are those of the options of ``esnlm train``. Tables within one, here of ``readout``, are named
by the values that it may have, and hold what goes with that value alone; ``[option]`` and
``[plan]`` hold parameters by name.
"""

import json
import math
import tomllib
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from esnlm.utils.validation import did_you_mean

#: Values by option of ``esnlm train``; of `PAIRS` values by parameter.
Settings: TypeAlias = dict[str, Any]

#: Options that are given once for each parameter, as NAME=VALUE.
PAIRS = ("option", "plan")
_RANGE = {"low", "high", "step", "log", "start"}
_SCALAR = str | bool | int | float


@dataclass(frozen=True)
class Entry:
    """A setting: a fixed value, or the distribution of a free one.

    ``place``: where it is in the file, as ``readout.softmax.alpha``. ``start``: value of a first
    trial. ``pair``: the option of `PAIRS` that it is a parameter of. ``condition``: the place and
    the value that it goes with alone.
    """

    place: str
    value: Any = None
    start: Any = None
    pair: str | None = None
    condition: tuple[str, str] | None = None

    @property
    def is_free(self) -> bool:
        """Whether trials choose the value."""
        return isinstance(self.value, BaseDistribution)

    @property
    def is_real(self) -> bool:
        """Whether the value is any number of a range."""
        return isinstance(self.value, FloatDistribution) and self.value.step is None

    @property
    def ends(self) -> tuple[Any, ...]:
        """Choices, or the lowest and the highest value."""
        free = self.value
        return free.choices if isinstance(free, CategoricalDistribution) else (free.low, free.high)

    def rounded(self, value: Any) -> Any:
        """Return a real number with four significant digits, still in the range."""
        if not self.is_real:
            return value
        return min(max(float(f"{value:.4g}"), self.value.low), self.value.high)


@dataclass(frozen=True)
class Space:
    """Settings of which some are free, in the order of the file.

    >>> free = Entry("leak-rate", CategoricalDistribution((1, 0.5)))
    >>> space = Space((Entry("units", 9), free))
    >>> space.settings(lambda entry: entry.ends[0]), list(space.free()), space.size()
    ({'units': 9, 'leak-rate': 1}, ['leak-rate'], 2)
    """

    entries: tuple[Entry, ...]

    def settings(self, pick: Callable[[Entry], Any]) -> Settings:
        """Return settings whose free values are ``pick(entry)``; None leaves an option out."""
        settings: Settings = {}
        values: dict[str, Any] = {}
        for entry in self.entries:
            if entry.condition is not None and entry.condition not in values.items():
                continue
            value = values[entry.place] = pick(entry) if entry.is_free else entry.value
            name = entry.place.rpartition(".")[2]
            if value is None:
                continue
            if entry.pair is not None:
                settings.setdefault(entry.pair, {})[name] = value
            elif name in settings:
                by = entry.place.partition(".")[0]
                raise ValueError(f"{name} is given twice: by {by} and beside it")
            else:
                settings[name] = value
        return settings

    def suggested(self, trial: Any) -> Settings:
        """Return the settings that Optuna's sampler suggests for a trial."""

        def pick(entry: Entry) -> Any:
            free = entry.value
            if isinstance(free, CategoricalDistribution):
                return trial.suggest_categorical(entry.place, free.choices)
            suggest = trial.suggest_float
            if isinstance(free, IntDistribution):
                suggest = trial.suggest_int
            value = suggest(entry.place, free.low, free.high, step=free.step, log=free.log)
            return entry.rounded(value)

        return self.settings(pick)

    def fixed(self) -> Settings:
        """Return the settings that are not free, nor in tables of an option that is."""
        return self.settings(lambda entry: None)

    def free(self) -> dict[str, Entry]:
        """Return what is free, by place."""
        return {entry.place: entry for entry in self.entries if entry.is_free}

    def size(self, condition: tuple[str, Any] | None = None) -> float:
        """Count the settings under a condition; infinite where a range has no step."""
        total: float = 1
        for entry in self.free().values():
            free = entry.value
            if entry.condition != condition:
                continue
            if isinstance(free, CategoricalDistribution):
                total *= sum(self.size((entry.place, value)) for value in free.choices)
            else:
                total *= round((free.high - free.low) / free.step) + 1 if free.step else math.inf
        return total

    def examples(self) -> Iterator[Settings]:
        """Yield settings in which every choice and both ends of every range occur."""
        free = self.free()
        tables = dict.fromkeys(each.condition[0] for each in self.entries if each.condition)
        settings: list[Any] = [(place, value) for place in tables for value in free[place].ends]
        longest = max((len(each.ends) for each in free.values()), default=1)
        for place, value in settings or [(None, None)]:
            for number in range(longest):
                yield self.settings(partial(_example, place, value, number))


def _example(place: str | None, value: Any, number: int, entry: Entry) -> Any:
    return value if entry.place == place else entry.ends[number % len(entry.ends)]


def read_space(path: Path, options: Collection[str]) -> Space:
    """Return the settings in a file, whose names must be among ``options`` (without their dashes).

    For all else ValueError, which names the file and the setting.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(
            f"{path} is no TOML file ({error}): the first argument is the search space: esnlm"
            " search space.toml text.txt"
        ) from None
    if not table:
        raise ValueError(f"{path} is empty: it must name options of esnlm train")
    try:
        space = Space(tuple(_entries(table, options, Entry(""))))
        list(space.examples())  # an option that is given twice shows
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return space


def written(settings: Mapping[str, Any]) -> str:
    """Return settings as the text of a file that `read_space` reads.

    >>> print(written({"units": 9, "leak-rate": "uniform:0:1", "option": {"rank": 2}}))
    units = 9
    leak-rate = "uniform:0:1"
    <BLANKLINE>
    [option]
    rank = 2
    """
    plain = {name: value for name, value in settings.items() if name not in PAIRS}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in plain.items()]
    for name in PAIRS:
        if name in settings:
            lines += ["", f"[{name}]"]
            lines += [f"{key} = {json.dumps(value)}" for key, value in settings[name].items()]
    return "\n".join(lines)


def _entries(table: Mapping[str, Any], options: Collection[str], above: Entry) -> Iterator[Entry]:
    """Yield the settings of a table, which has the place, pair and condition of ``above``."""
    for name, value in table.items():
        entry = replace(above, place=f"{above.place}.{name}".lstrip("."))
        place, is_option, is_table = entry.place, entry.pair is None, isinstance(value, dict)
        if is_option and name not in options:
            at = place + did_you_mean(name, options, cutoff=0.5)
            raise ValueError(f"settings must be options of esnlm train that make a model, got {at}")
        if is_option and name in PAIRS:
            if not is_table:
                raise ValueError(f"{place} must be a table of parameters, got {value!r}")
            yield from _entries(value, options, replace(entry, pair=name))
        elif is_table and value and all(isinstance(inner, dict) for inner in value.values()):
            is_free, names = len(value) > 1, tuple(value)
            yield replace(entry, value=CategoricalDistribution(names) if is_free else names[0])
            for key, inner in value.items():
                condition = (place, key) if is_free else entry.condition
                below = replace(entry, place=f"{place}.{key}", condition=condition)
                yield from _entries(inner, options, below)
        else:
            yield _with_value(entry, value)


def _with_value(entry: Entry, value: Any) -> Entry:
    """Return the entry with a scalar, a range or choices."""
    place = entry.place
    if isinstance(value, _SCALAR):
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{place} must be finite, got {value}")
        return replace(entry, value=value)
    if not isinstance(value, dict):
        forms = "a value, {low = A, high = B} or {choices = [...]}"
        raise ValueError(f"{place} must be {forms}, got {value!r}")
    if set(value) in ({"choices"}, {"choices", "start"}):
        return _with_choices(entry, **value)
    for key in value:
        if key not in _RANGE:
            raise ValueError(
                f"{place} has low, high, step, log and start, or choices and start, got {key}"
            )
    for key in ("low", "high"):
        if key not in value:
            raise ValueError(f"{place} must have low and high, or choices: {key} is missing")
    return _with_range(entry, **value)


def _with_choices(entry: Entry, choices: Any, start: Any = None) -> Entry:
    """Return the entry with two or more distinct scalars; raise ValueError for anything else."""
    place = entry.place
    scalars = isinstance(choices, list) and all(isinstance(each, _SCALAR) for each in choices)
    if not scalars or len(choices) < 2:
        raise ValueError(f"{place} must have two choices or more, got {choices!r}")
    for number, value in enumerate(choices):
        if value in choices[:number]:
            raise ValueError(f"{place} has the choice {value!r} twice")
    if start is not None and start not in choices:
        raise ValueError(f"start of {place} must be one of its choices, got {start!r}")
    return replace(entry, value=CategoricalDistribution(choices), start=start)


def _with_range(
    entry: Entry, low: Any, high: Any, step: Any = None, log: Any = False, start: Any = None
) -> Entry:
    """Return the entry with a range, which ends on its last step; ValueError for wrong numbers."""
    place = entry.place
    for name, value in (("low", low), ("high", high), ("step", step), ("start", start)):
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise ValueError(f"{name} of {place} must be a finite number, got {value!r}")
    if not isinstance(log, bool):
        raise ValueError(f"log of {place} must be true or false, got {log!r}")
    if low >= high:
        raise ValueError(f"{place} must have low < high, got low = {low} and high = {high}")
    if log and low <= 0:
        raise ValueError(f"{place} with log must have low above 0, got low = {low}")
    if log and step is not None:
        raise ValueError(f"{place} must have a step or log, got both")
    if step is not None and not 0 < step <= high - low:
        raise ValueError(f"step of {place} must lie in (0, high - low], got {step}")
    free: Any
    with warnings.catch_warnings(action="ignore"):  # where the last step is below ``high``
        if all(isinstance(number, int) for number in (low, high, step or 1)):
            free = IntDistribution(low, high, log, step or 1)
        else:
            free = FloatDistribution(low, high, log, step)
    if start is not None:
        steps = (start - low) / free.step if free.step else 0.0
        if not low <= start <= free.high or abs(steps - round(steps)) >= 1e-9:
            raise ValueError(f"start of {place} must be one of its values, got {start}")
        start = type(free.low)(start)
    return replace(entry, value=free, start=start)
