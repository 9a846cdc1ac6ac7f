"""Settings of ``esnlm train`` by name: recipes, and trials of a search."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache
from typing import Any, TypeVar

from cyclopts import App

from esnlm.models.recipes import read_recipe
from esnlm.options.parsing import app
from esnlm.options.train import TrainOptions

T = TypeVar("T")

# Options that are no settings of a model: what is written, read, resumed and scored.
_NO_SETTINGS = {
    "out", "overwrite", "held-out", "seed", "recipe", "held-out-tokens", "resume",
    "checkpoint-every", "log", "score-every", "device", "cluster", "parts",
}  # fmt: skip


def with_recipe(options: TrainOptions, *, of_text: bool = True) -> TrainOptions:
    """Return the options, with those of the recipe that they name where they say nothing.

    Shards were cut in tokens already: with ``of_text`` false the recipe's tokenizer is left out.
    """
    if options.recipe is None:
        return options
    from esnlm.utils.validation import did_you_mean

    recipe = read_recipe(options.recipe, _set_values(options))
    names = setting_names()
    for name in recipe:
        if name not in names:
            hint = did_you_mean(name, names, cutoff=0.5)
            raise ValueError(
                f"{options.recipe}: settings must be options of esnlm train that make a model, got"
                f" {name}{hint}"
            )
    complete = filled(options, train_options(recipe))
    return complete if of_text else replace(complete, corpus=options.corpus)


def setting_names() -> frozenset[str]:
    """Options of ``esnlm train`` that files of settings may name, without their dashes."""
    arguments = _app().assemble_argument_collection()
    names = (name for argument in arguments for name in argument.names)
    return frozenset(n.removeprefix("--") for n in names if n.startswith("--")) - _NO_SETTINGS


def train_options(settings: Mapping[str, Any]) -> TrainOptions:
    """Return the options of ``esnlm train`` with these settings.

    Its errors for those that are wrong.
    """
    return _parse(tuple(words(settings)))


def words(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as they are given on the command line.

    >>> words({"units": 9, "lower": True, "option": {"rank": 2}})
    ['--units=9', '--lower', '--option=rank=2']
    """
    arguments = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            arguments += [f"--{name}={key}={_json(inner)}" for key, inner in value.items()]
        elif isinstance(value, bool):
            arguments += [f"--{name}"] * value
        else:
            arguments.append(f"--{name}={value}")
    return arguments


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
def _parse(arguments: tuple[str, ...]) -> TrainOptions:
    options: TrainOptions = _app()(["--out=.", *arguments])
    return options


@cache
def _app() -> App:
    """Return the options of ``esnlm train``, parsed alone."""
    parser = app("esnlm train")

    @parser.default
    def parse(*, options: TrainOptions) -> TrainOptions:
        return options

    return parser


def _set_values(options: Any) -> dict[str, Any]:
    """Values of options and groups of them by the name on the command line."""
    values: dict[str, Any] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if is_dataclass(value):
            values |= _set_values(value)
        elif value not in (None, ()):
            values[field.name.replace("_", "-")] = value
    return values


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
