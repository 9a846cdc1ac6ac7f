"""Recipes: the settings that models have by default, for Python and the command line alike.

A recipe is a TOML file of options of ``esnlm train`` without their dashes. Tables such as
``[readout.ridge]`` hold what goes with that value alone; the first one is the default.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from esnlm.readouts.registry import BY_OPTION

_FOLDER = Path(__file__).parent / "recipes"
#: Names of the recipes that come with the package.
RECIPES = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
_MANY_TOKENS = 100
_SWITCHES = ("topology", "readout", "model")
_PAIRS = ("option", "plan")
_RESERVOIR = (
    "n_units", "topology", "spectral_radius", "input_scaling", "bias_scaling", "activation",
    "degree", "leak_rate", "input_degree",
)  # fmt: skip
# Readouts name the same thing differently: setting -> parameters, the first that there is.
_READOUT = {
    "alpha": ("alpha",), "passes": ("n_passes", "max_iter"), "experts": ("n_experts",),
    "classes": ("n_classes",), "direct": ("n_direct",),
}  # fmt: skip
# Settings of the factored readout that are its factors': setting -> kinds of factors.
_FACTORS = {
    "alpha": ("ridge", "softmax", "moe"), "passes": ("softmax", "moe"), "experts": ("moe",),
}  # fmt: skip
_OF_MODEL = {
    *_RESERVOIR, *_READOUT, "readout", "factors", "option", "features", "tokenizer", "reset",
}  # fmt: skip
_LAWS = {"uniform": 2, "inverse_gamma": 1}


def choose_recipe(n_tokens: int, *, characters: bool = False) -> tuple[str, str]:
    """Return the recipe for a vocabulary of ``n_tokens``, and the reason.

    >>> choose_recipe(8000), choose_recipe(65, characters=True)
    (('words', 'a vocabulary of 8 000'), ('characters', '65 characters'))
    """
    if n_tokens >= _MANY_TOKENS:
        return "words", f"a vocabulary of {n_tokens:,}".replace(",", " ")
    if characters:
        return "characters", f"{n_tokens} characters"
    return "grammar", f"a vocabulary of {n_tokens}, fewer than {_MANY_TOKENS}"


def default_settings(
    settings: Mapping[str, Any], n_tokens: int, *, characters: bool = False
) -> dict[str, Any]:
    """Return ``settings``, and what they leave open from the recipe for this vocabulary."""
    name, _ = choose_recipe(n_tokens, characters=characters)
    recipe = to_settings(read_recipe(name, settings))
    kind, number = recipe.get("features", ("", 0))
    recipe["features"] = kind, min(number, n_tokens)
    option = settings.get("option", {})
    for key, parameters in _READOUT.items():
        if any(parameter in option for parameter in parameters):
            recipe.pop(key, None)
    merged = recipe | dict(settings)
    merged["option"] = {**recipe.get("option", {}), **option}
    return merged


def read_recipe(name: str, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the options of a recipe by their names, those of its tables included.

    ``name`` is one of `RECIPES` or the path of a file; ``settings`` are those that are given beside
    it, and choose among its tables. Raises ValueError, which names the file.
    """
    path = _FOLDER / f"{name}.toml"
    if name not in RECIPES:
        path = Path(name)
        if not path.is_file():
            raise ValueError(f"recipe must be {', '.join(RECIPES)} or a file, got {name!r}")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    if not table:
        raise ValueError(f"{path} is empty: it must name options of esnlm train")
    options = _flat(table, settings or {}, path)
    try:
        to_settings(options)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return options


def _flat(table: Mapping[str, Any], settings: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Replace the tables of values by the chosen one, or by nothing for a value without a table."""
    options: dict[str, Any] = {}
    for name, value in table.items():
        if name in _PAIRS and isinstance(value, dict):
            options[name] = {**options.get(name, {}), **value}
        elif name in _SWITCHES and isinstance(value, dict):
            choice = settings.get(name) or next(iter(value))
            options[name] = choice
            for key, inner in _flat(value.get(choice, {}), settings, path).items():
                pairs = key in _PAIRS
                options[key] = {**options.get(key, {}), **inner} if pairs else inner
        elif isinstance(value, dict | list):
            raise ValueError(f"{path}: {name} must have one value, got {value!r}")
        else:
            options[name] = value
    return options


def to_settings(options: Mapping[str, Any], *, of_model: bool = False) -> dict[str, Any]:
    """Return options of a file as settings: names of parameters, and their values.

    With ``of_model``, ValueError is raised for options that only ``esnlm train`` can follow.

    >>> to_settings({"units": 9, "leak-rate": "uniform:0:1", "features": "spectral:6"})
    {'n_units': 9, 'leak_rate': ('uniform', 0.0, 1.0), 'features': ('spectral', 6)}
    """
    settings = {name.replace("-", "_"): value for name, value in options.items()}
    if "units" in settings:
        settings = {"n_units": settings.pop("units")} | settings
    for name in settings if of_model else ():
        if name not in _OF_MODEL:
            raise ValueError(f"the recipe has {name}: train it with esnlm train --recipe")
    for name, parse in (("leak_rate", leak_rate), ("features", features)):
        if name in settings:
            settings[name] = parse(str(settings[name]))
    return settings


def is_penalty_open(settings: Mapping[str, Any]) -> bool:
    """Return whether no setting is a weight penalty."""
    return settings.get("alpha") is None and "alpha" not in settings.get("option", {})


def leak_rate(text: str) -> Any:
    """Parse ``A``, ``uniform:LOW:HIGH`` or ``inverse_gamma:ALPHA``: a parameter of `Reservoir`."""
    name, *values = text.split(":")
    try:
        if _LAWS.get(name) == len(values):
            return (name, *map(float, values))
        return float(text)
    except ValueError:
        expected = "a number, uniform:LOW:HIGH or inverse_gamma:ALPHA"
        raise ValueError(f"expected {expected}, got {text!r}") from None


def features(text: str) -> tuple[str, int]:
    """Parse ``F`` or ``spectral:F``: the kind of word features, and their number."""
    kind, colon, count = text.rpartition(":")
    try:
        value = int(count)
    except ValueError:
        kind = "none"
    if kind != ("spectral" if colon else ""):
        raise ValueError(f"expected F or spectral:F, got {text!r}")
    return kind, value


def make_reservoir(settings: Mapping[str, Any], seed: int | None) -> Any:
    """Return the `esnlm.Reservoir` of the settings, without weights."""
    from esnlm.reservoir.reservoir import Reservoir
    from esnlm.utils.validation import check_used

    parameters = {name: settings[name] for name in _RESERVOIR if name in settings}
    reservoir = Reservoir(**parameters, random_state=seed)
    check_used(reservoir, parameters)
    return reservoir


def make_features(kind_and_number: tuple[str, int] | None, seed: int | None) -> Any:
    """Return the word features of a kind and number, or None."""
    from esnlm.features.online import WordFeatures
    from esnlm.features.spectral import SpectralWordFeatures

    kind, number = kind_and_number or ("", 0)
    if number < (1 if kind else 0):
        least = f"{kind}:F of at least 1" if kind else "at least 0"
        raise ValueError(f"features must be {least}, got {number}")
    words: Any = SpectralWordFeatures if kind else WordFeatures
    return words(n_features=number, random_state=seed) if number else None


def make_readout(settings: Mapping[str, Any], seed: int | None) -> Any:
    """Return the readout of the settings.

    Raises ValueError for a setting that the readout does not have, or that is given twice.
    """
    from esnlm.utils.validation import check_used

    name = settings["readout"]
    if name not in BY_OPTION:
        raise ValueError(f"readout must be one of {', '.join(BY_OPTION)}, got {name!r}")
    home = BY_OPTION[name].load()
    names = sorted(home._get_param_names())
    parameters = dict(settings.get("option", {}))
    values = {key: settings[key] for key in _READOUT if settings.get(key) is not None}
    for key in values:
        if twice := [parameter for parameter in _READOUT[key] if parameter in parameters]:
            raise ValueError(f"{twice[0]} is given twice: as {key} and as option")
    if name == "factored":
        parameters = _factors(settings) | parameters
        values = {key: value for key, value in values.items() if key not in _FACTORS}
    elif settings.get("factors") is not None:
        raise ValueError(f"factors is only valid with the readout factored, got {name}")
    for key, value in values.items():
        parameter = next((each for each in _READOUT[key] if each in names), None)
        if parameter is None:
            raise ValueError(
                f"{key} is not valid with the readout {name}, which has {', '.join(names)}"
            )
        parameters[parameter] = value
    if "passes" in settings and "solver" in names:  # otherwise few rows are not read in passes
        parameters.setdefault("solver", "joint" if name == "factored" else "incremental")
    if "random_state" in names:
        parameters.setdefault("random_state", seed)
    for parameter in parameters:
        if parameter not in names:
            raise ValueError(f"option {parameter}: the readout {name} has {', '.join(names)}")
    readout = home(**parameters)
    check_used(readout, parameters)
    return readout


def _factors(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return readouts for the classes and for the words in them."""
    from esnlm.readouts.class_based.factors import joint_softmax
    from esnlm.readouts.linear.ridge import RidgeReadout
    from esnlm.readouts.mixture.mixture import MixtureOfExpertsReadout

    kind = settings.get("factors") or "softmax"
    alpha, passes, experts = (settings.get(key) for key in _FACTORS)
    for key, kinds in _FACTORS.items():
        if settings.get(key) is not None and kind not in kinds:
            raise ValueError(
                f"{key} is only valid with the factors {' and '.join(kinds)}, got {kind}"
            )
    words: Any = kind if kind != "moe" else "softmax"
    if kind == "ridge" and alpha is not None:
        words = RidgeReadout(alpha=alpha)
    elif alpha is not None or passes is not None:
        words = joint_softmax(alpha, passes)
    classes = words
    if kind == "moe":
        classes = "moe" if experts is None else MixtureOfExpertsReadout(n_experts=experts)
    return {"class_readout": classes, "word_readout": words}
