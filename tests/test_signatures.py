"""Optional parameters of the public functions and classes are given by name."""

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import esnlm

# scikit-learn passes y and classes by place. A model's parts, the seed of a sample and the number k
# of next words may be.
BY_PLACE = {"y", "classes", "k"}
ALSO = {
    "LanguageModel": {"reservoir", "readout"},
    "NgramLanguageModel": {"order", "tokenizer"},
    "ElmanGrammar.sample": {"random_state"},
}


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


SNIPPET = """\
from sklearn.linear_model import LogisticRegression
from esnlm import LanguageModel, NgramLanguageModel, Reservoir, RidgeReadout, load_model
LanguageModel(Reservoir(10), RidgeReadout())
LanguageModel(Reservoir(10), "softmax", tokenizer="word")
LanguageModel(Reservoir(10), LogisticRegression())
frame = load_model("model").surprisal("the boy")
words: list[tuple[str | int, float]] = [*NgramLanguageModel(2).next_words("the", k=3)]
LanguageModel(1, RidgeReadout())
LanguageModel(Reservoir(10), 2)
LanguageModel(1, 2)
"""


@pytest.mark.slow
def test_a_type_checker_knows_what_a_model_is_made_of(tmp_path):
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    folder = Path(esnlm.__file__).parents[1]
    # mypy searches the folder of installed packages itself, and refuses to be told of it.
    search_path = {} if folder.name == "site-packages" else {"MYPYPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--follow-imports=silent",
         "--cache-dir", str(tmp_path / "cache"), str(snippet)],
        capture_output=True, text=True,
        env=os.environ | search_path,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if "error:" in line]
    places = [int(line.split(":")[1]) for line in lines]
    assert places == [8, 9, 10, 10], done.stdout + done.stderr
    assert all("[arg-type]" in line for line in lines)
