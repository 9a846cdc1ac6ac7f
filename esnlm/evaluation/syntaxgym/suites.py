"""Test suites in the JSON of SyntaxGym."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from esnlm.evaluation.syntaxgym.formulas import Formula, FormulaError
from esnlm.storage.json_files import parsed_json, read_bytes
from esnlm.text.archives import ARCHIVES, unpacked
from esnlm.text.backends import checked_text
from esnlm.text.corpus import CorpusError
from esnlm.text.files import files_within, is_hidden


class SuiteError(ValueError):
    """A test suite that is missing or malformed."""


@dataclass(frozen=True)
class Item:
    """Sentences of one item: condition -> number of a region -> its text, which may be empty."""

    number: int
    conditions: Mapping[str, Mapping[int, str]]


@dataclass(frozen=True)
class Suite:
    """Items of one construction, and predictions of the surprisals of their regions."""

    name: str
    formulas: tuple[Formula, ...]
    items: tuple[Item, ...]


def read_suites(path: str | Path) -> list[Suite]:
    """Return the suites of a ``.json`` file, an archive, or a folder of either, by name.

    Raises SuiteError where there are none, two have one name, or a file is no suite.
    """
    suites: dict[str, Suite] = {}
    for name, data in _files(Path(path)):
        try:
            suite = _suite(parsed_json(data))
        except SuiteError as error:
            raise SuiteError(f"{name}: {error}") from error
        except FormulaError as error:
            raise SuiteError(f"{name}: a prediction is no formula: {error}") from error
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise SuiteError(
                f"{name} is no suite of SyntaxGym: expected JSON with meta, predictions and items"
                f" of conditions of regions ({type(error).__name__}: {error})"
            ) from error
        if suite.name in suites:
            raise SuiteError(f"{name}: a suite {suite.name} was already read; keep one of the two")
        suites[suite.name] = suite
    if not suites:
        raise SuiteError(f"{path} holds no suites: expected .json files, or an archive of them")
    return [suites[name] for name in sorted(suites)]


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes of each file of a suite."""
    if path.is_dir():
        inside = sorted(files_within(path))
        files = [file for file in inside if file.name.endswith(".json")] or [
            file for file in inside if file.parent == path and file.name.endswith(ARCHIVES)
        ]
    elif path.exists():
        files = [path]
    else:
        raise SuiteError(f"no such file or folder: {path}")
    for file in files:
        if not file.name.endswith(ARCHIVES):
            yield str(file), read_bytes(file)
            continue
        try:
            for name, data in unpacked(file):
                if name.endswith(".json") and not is_hidden(PurePosixPath(name)):
                    yield f"{file}/{name}", data
        except CorpusError as error:
            raise SuiteError(str(error)) from error


def _suite(content: Any) -> Suite:
    """Return the suite of a JSON object; raise what looking for its parts raises."""
    name, metric = content["meta"]["name"], content["meta"]["metric"]
    if metric != "sum":
        raise SuiteError(f"the metric of suite {name} is {metric!r}, expected 'sum'")
    formulas = tuple(Formula(str(each["formula"])) for each in content["predictions"])
    items = tuple(
        Item(
            int(item["item_number"]),
            _by_name(
                (
                    str(condition["condition_name"]),
                    _by_name(
                        (int(region["region_number"]), checked_text(region["content"].strip()))
                        for region in condition["regions"]
                    ),
                )
                for condition in item["conditions"]
            ),
        )
        for item in content["items"]
    )
    if not formulas or not items:
        raise SuiteError(f"suite {name} has no {'items' if formulas else 'predictions'}")
    for number, condition in set().union(*(formula.regions for formula in formulas)):
        for item in items:
            regions = item.conditions.get(condition)
            if regions is None or (number and number not in regions):
                raise SuiteError(
                    f"item {item.number} of suite {name} has no region {number or '*'} of condition"
                    f" {condition}, which a prediction names"
                )
    return Suite(str(name), formulas, items)


def _by_name(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the pairs as a dict; raise SuiteError for two of one name."""
    values: dict[Any, Any] = {}
    for name, value in pairs:
        if name in values:
            raise SuiteError(f"two conditions or regions of an item are called {name!r}")
        values[name] = value
    return values
