"""Settings of ``esnlm train`` by name: presets of papers, files, and trials of a search."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from cyclopts import App

from esnlm.commands.options.parsing import app
from esnlm.commands.options.train import TrainOptions

T = TypeVar("T")

_FOLDER = Path(__file__).parents[1] / "presets"
#: The presets that come with the package.
PRESETS = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
# Options that are no settings of a model: what is written, read, resumed and scored.
_NO_SETTINGS = {
    "out", "overwrite", "held-out", "seed", "preset", "held-out-tokens", "resume",
    "checkpoint-every", "log", "score-every", "device", "cluster", "parts",
}  # fmt: skip


def with_preset(options: TrainOptions) -> TrainOptions:
    """The options, and those of the preset that they name where they say nothing."""
    if options.preset is None:
        return options
    from esnlm.experiments.search.settings_file import read_space
    from esnlm.experiments.search.space import Free, Tables

    path = _FOLDER / f"{options.preset}.toml"
    if options.preset not in PRESETS:
        path = Path(options.preset)
        if not path.is_file():
            raise ValueError(
                f"--preset must be {', '.join(PRESETS)} or a file, got {options.preset!r}"
            )
    chosen = {name: str(value) for name, value in _given(options).items()}

    def pick(name: str, free: Free) -> Any:
        if not isinstance(free, Tables):
            raise ValueError(f"{path} leaves {name} free: a preset has one value of each option")
        return chosen.get(name, free.ends[0])

    settings = read_space(path, setting_names()).settings(pick)
    return filled(options, train_options(settings))


def setting_names() -> frozenset[str]:
    """Options of ``esnlm train`` that files of settings may name, without their dashes."""
    arguments = _app().assemble_argument_collection()
    names = (name for argument in arguments for name in argument.names)
    return frozenset(n.removeprefix("--") for n in names if n.startswith("--")) - _NO_SETTINGS


def train_options(settings: Mapping[str, Any]) -> TrainOptions:
    """The options of ``esnlm train`` with these settings; its errors for those that are wrong."""
    return _parsed(tuple(words(settings)))


def words(settings: Mapping[str, Any]) -> list[str]:
    """Settings as they are given on the command line.

    >>> words({"units": 9, "lower": True, "option": {"rank": 2}})
    ['--units=9', '--lower', '--option=rank=2']
    """
    found = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found += [f"--{name}={key}={_json(inner)}" for key, inner in value.items()]
        elif isinstance(value, bool):
            found += [f"--{name}"] * value
        else:
            found.append(f"--{name}={value}")
    return found


def filled(options: T, others: T) -> T:
    """Options of a group, and those of ``others`` where they have no value."""
    values: dict[str, Any] = {}
    for field in fields(options):  # type: ignore[arg-type]
        own, other = getattr(options, field.name), getattr(others, field.name)
        if is_dataclass(own):
            values[field.name] = filled(own, other)
        elif isinstance(own, tuple) and field.name in ("option", "plan"):
            values[field.name] = (*other, *own)  # the last of one name counts
        elif own is None or own is False or own == ():
            values[field.name] = other
    return replace(options, **values)  # type: ignore[type-var]


@lru_cache(maxsize=256)
def _parsed(given: tuple[str, ...]) -> TrainOptions:
    parsed: TrainOptions = _app()(["--out=.", *given])
    return parsed


@cache
def _app() -> App:
    """The options of ``esnlm train``, parsed alone."""
    parser = app("esnlm train")

    @parser.default
    def parse(*, options: TrainOptions) -> TrainOptions:
        return options

    return parser


def _given(options: Any) -> dict[str, Any]:
    """Values of options and groups of them by the name on the command line."""
    found: dict[str, Any] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if is_dataclass(value):
            found |= _given(value)
        elif value not in (None, ()):
            found[field.name.replace("_", "-")] = value
    return found


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
