"""Optional parameters of the public functions and classes are given by name."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import esnlm

# scikit-learn passes y and classes by place. A model's parts, and the seed of a sample, may be.
BY_PLACE = {"y", "classes"}
ALSO = {"LanguageModel": {"reservoir", "readout"}, "ElmanGrammar.sample": {"random_state"}}


def public() -> Iterator[tuple[str, Any]]:
    for name in sorted(set(dir(esnlm))):
        value = getattr(esnlm, name)
        if name.startswith("_") or inspect.ismodule(value) or not callable(value):
            continue
        yield name, value
        for method in dir(value) if inspect.isclass(value) else ():
            found = getattr(value, method)
            if not method.startswith("_") and "esnlm" in (getattr(found, "__module__", "") or ""):
                yield f"{name}.{method}", found


CALLED = {name: value for name, value in public() if callable(value)}


@pytest.mark.parametrize("name", CALLED)
def test_optional_parameters_are_given_by_name(name: str) -> None:
    """But for what a function or method is about: its first parameter, such as a prompt."""
    parameters = inspect.signature(CALLED[name]).parameters.values()
    found = [p for p in parameters if p.name != "self"]
    further = found if inspect.isclass(CALLED[name]) else found[1:]
    by_place = {
        p.name for p in further if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is not p.empty
    }
    assert by_place <= BY_PLACE | ALSO.get(name, set())
