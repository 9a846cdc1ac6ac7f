"""README and the start page of the site: their code runs, their figures stand in their rows."""

import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from esnlm.models.recipes import RECIPES, read_recipe

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = {"README": README, "start": (ROOT / "docs" / "index.md").read_text()}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS: list[tuple[str, str]] = BLOCK.findall(README)
PROSE = BLOCK.sub("", README)
INSTALL = ["pip install . && esnlm elman\n", 'pip install -e ".[test]" && pytest -n 2\n']
FIGURE = re.compile(r"(?<![\w.])\d{1,3}(?: \d{3})+(?![\w.])|(?<![\w.])\d+(?:\.\d+)?(?![\w-])")


def rows_of(text: str, head: str) -> list[list[str]]:
    """Return the cells of the table whose first line begins with ``head``, without that line."""
    lines = (head + text.partition(head)[2].partition("\n\n")[0]).splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


RESULTS = rows_of(README, "| what | unit |")


def numbers_of(path: Path) -> list[float]:
    """Return all values of the numeric columns of a CSV."""
    table = pd.read_csv(path, low_memory=False).select_dtypes("number")
    return [float(number) for number in table.to_numpy().ravel()]


def is_among(figure: str, unit: str, numbers: list[float]) -> bool:
    """Return whether a number, in that unit, is the figure when rounded as it is printed.

    >>> is_among("245 000", "", [245039.0]), is_among("61.7", "%", [0.6164])
    (True, False)
    """
    printed = Decimal(figure.replace(" ", ""))
    exponent = 3 if figure.endswith(" 000") else printed.as_tuple().exponent
    half = 0.5 * 10 ** int(exponent) * (1 + 1e-9)
    scale = 100 if unit == "%" else 1
    return any(abs(number * scale - float(printed)) <= half for number in numbers)


def to_start_page(text: str) -> str:
    """Return the text with its links as they are from ``docs``."""

    def relink(match: re.Match[str]) -> str:
        target = match.group(1)
        return f"]({target.removeprefix('docs/')})" if target[:5] == "docs/" else f"](../{target})"

    return re.sub(r"\]\(([^)\s]+)\)", relink, text)


def test_the_code_runs_as_it_stands_and_is_right(tmp_path: Path) -> None:
    assert [code for language, code in BLOCKS if language == "sh"][:2] == INSTALL
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Of the same matrix kernels, which the command chooses and Python leaves to an old OpenBLAS.
    environment = os.environ | {"PATH": scripts, "OPENBLAS_CORETYPE": "Haswell"}
    printed = []
    for language, code in BLOCKS:
        if code in INSTALL:
            continue
        shell = ["bash", "-euo", "pipefail", "-c", code]
        run = {"sh": shell, "python": [sys.executable, "-c", code]}[language]
        done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{code}\n{done.stderr}"
        printed.append(done.stdout)
    shell, python = printed
    model, unigrams = (float(text) for text in re.findall(r"^perplexity +(\S+)$", shell, re.M))
    told = [float(figure) for figure in re.findall(r"ha(?:s|ve) about (\d+)", PROSE)]
    assert told == pytest.approx([model, unigrams], rel=0.2)
    assert python.startswith("words: a vocabulary of")
    assert float(python.splitlines()[1]) == pytest.approx(model, rel=1e-5)
    for name in ("config.json", "weights.safetensors", "tokenizer.json"):
        assert (tmp_path / "same" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


def test_the_start_page_says_the_same_in_the_same_words() -> None:
    assert PAGES["start"].partition("\n```{toctree}")[0] == to_start_page(README)


def test_a_minute_is_enough() -> None:
    assert len(README.splitlines()) <= 150
    assert len(re.findall(r"\S*\w\S*", PROSE)) <= 950
    sentences = re.split(r"(?<=[.:!?])\s+", re.sub(r"^(\||#|!).*$", "", PROSE, flags=re.M))
    words = [len(re.findall(r"\S*\w\S*", sentence)) for sentence in sentences]
    words = [n for n in words if n]
    assert sum(words) / len(words) <= 18


def test_a_cell_has_one_figure() -> None:
    cells = [
        cell for line in PROSE.splitlines() if line.startswith("|") for cell in line.split("|")
    ]
    assert cells
    for cell in cells:
        assert len(FIGURE.findall(cell)) <= 1, cell


def test_there_are_eight_results() -> None:
    assert len(RESULTS) == 8


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: row[0][:40])
def test_the_figures_of_a_result_stand_in_its_rows(row: list[str]) -> None:
    _, unit, *figures, link = row
    path = ROOT / link.partition("](")[2].rstrip(")")
    numbers = numbers_of(path)
    assert len(figures) == 2
    for figure in figures:
        assert FIGURE.fullmatch(figure), figure
        assert is_among(figure, unit, numbers), f"{figure} is not in {path.name}"


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", README)
    assert len(targets) > 15
    for target in targets:
        path, _, anchor = target.partition("#")
        assert (ROOT / path).exists(), target
        headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.M) if anchor else []
        names = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
        assert not anchor or anchor in names, target


def test_the_table_of_recipes_is_what_the_files_say() -> None:
    page = (ROOT / "docs" / "guide" / "recipes.md").read_text()
    names = re.findall(r"`(\w+)`", page.partition("| setting |")[2].partition("\n")[0])
    assert sorted(names) == sorted(RECIPES)
    told: dict[str, dict[str, str]] = {name: {} for name in names}
    for setting, *values in rows_of(page, "| setting |"):
        for name, value in zip(names, values, strict=True):
            if value:
                told[name][setting.strip("`")] = value
    for name in names:
        assert told[name] == {key: in_words(value) for key, value in options_of(name).items()}


def options_of(name: str) -> dict[str, Any]:
    """Return the settings of a recipe, with the parameters of ``option`` and ``plan`` named so."""
    options: dict[str, Any] = {}
    for key, value in read_recipe(name).items():
        inner = value if isinstance(value, dict) else {}
        options |= {f"{key}.{each}": inner[each] for each in inner} or {key: value}
    return options


def in_words(value: object) -> str:
    """Return a value as the table has it."""
    return {"True": "yes", "False": "no"}.get(str(value), str(value))
