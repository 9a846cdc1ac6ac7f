"""Files of settings in TOML: read as a space of settings, written as settings.

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
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from esnlm.search.space import PAIRS, Choices, Range, Space, Tables
from esnlm.utils.validation import did_you_mean

_RANGE = {"low", "high", "step", "log", "start"}
_SCALAR = str | bool | int | float


def read_space(path: Path, options: Collection[str]) -> Space:
    """Return the settings in a file, whose names must be among ``options`` (without their dashes).

    For all else ValueError, which names the file and the setting.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(
            f"{path} is no TOML file ({error}): the first argument is the search space: esnlm"
            " search space.toml text.txt"
        ) from None
    if not table:
        raise ValueError(f"{path} is empty: it must name options of esnlm train")
    try:
        space = _space(table, options, "")
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


def _space(table: Mapping[str, Any], options: Collection[str] | None, prefix: str) -> Space:
    """Return a table; ``options`` are None within `PAIRS`, where names are those of parameters."""
    entries: dict[str, Any] = {}
    for name, value in table.items():
        place = f"{prefix}{name}"
        if options is not None and name not in options:
            hint = did_you_mean(name, options, cutoff=0.5)
            raise ValueError(f"{place} is no option of esnlm train that can be set here{hint}")
        is_table = isinstance(value, dict)
        if options is not None and name in PAIRS:
            if not is_table:
                raise ValueError(f"{place} must be a table of parameters, got {value!r}")
            entries[name] = _space(value, None, f"{place}.")
        elif is_table and value and all(isinstance(inner, dict) for inner in value.values()):
            entries[name] = Tables(
                {key: _space(inner, options, f"{place}.{key}.") for key, inner in value.items()}
            )
        else:
            entries[name] = _entry(value, place)
    return Space(entries, prefix)


def _entry(value: Any, place: str) -> Any:
    """Return a value, a range or choices."""
    if isinstance(value, _SCALAR):
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{place} must be finite, got {value}")
        return value
    if not isinstance(value, dict):
        wanted = "a value, {low = A, high = B} or {choices = [...]}"
        raise ValueError(f"{place} must be {wanted}, got {value!r}")
    if set(value) in ({"choices"}, {"choices", "start"}):
        return _choices(place, **value)
    for key in value:
        if key not in _RANGE:
            raise ValueError(
                f"{place} has low, high, step, log and start, or choices and start, got {key}"
            )
    for key in ("low", "high"):
        if key not in value:
            raise ValueError(f"{place} must have low and high, or choices: {key} is missing")
    return _range(place, **value)


def _choices(place: str, choices: Any, start: Any = None) -> Choices:
    """Return two or more distinct scalars as choices; raise ValueError for anything else."""
    values = choices
    scalars = isinstance(values, list) and all(isinstance(each, _SCALAR) for each in values)
    if not scalars or len(values) < 2:
        raise ValueError(f"{place} must have two choices or more, got {values!r}")
    for number, value in enumerate(values):
        if value in values[:number]:
            raise ValueError(f"{place} has the choice {value!r} twice")
    if start is not None and start not in values:
        raise ValueError(f"start of {place} must be one of its choices, got {start!r}")
    return Choices(tuple(values), start)


def _range(
    place: str, low: Any, high: Any, step: Any = None, log: Any = False, start: Any = None
) -> Range:
    """Return a range whose ``high`` lies on its last step; raise ValueError for wrong numbers."""
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
    if all(isinstance(number, int) for number in (low, high, step or 1)):
        step = step or 1
        high = low + (high - low) // step * step
    else:
        low, high, step = float(low), float(high), None if step is None else float(step)
        if step is not None:
            high = low + math.floor((high - low) / step + 1e-9) * step
    if start is not None:
        on_step = step is None or abs((start - low) / step - round((start - low) / step)) < 1e-9
        if not low <= start <= high or not on_step:
            raise ValueError(f"start of {place} must be one of its values, got {start}")
        start = type(low)(start)
    return Range(low, high, step, log, start)
