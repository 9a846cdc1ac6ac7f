"""What is released: one version everywhere, changelog, conda recipe, paper."""

import configparser
import re
from pathlib import Path

import pytest

import esnlm
from esnlm.__main__ import main

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = configparser.ConfigParser()
SETTINGS.read(ROOT / "setup.cfg", encoding="utf-8")


def test_the_version_is_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"esnlm {esnlm.__version__}"
    assert SETTINGS["metadata"]["version"] == "attr: esnlm.utils.__version__"
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {esnlm.__version__}\n" in citation
    recipe = (ROOT / "docs" / "conda" / "recipe.yaml").read_text("utf-8")
    assert f'\n  version: "{esnlm.__version__}"\n' in recipe


def test_the_changelog_has_the_version_and_is_short() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    assert f"## {esnlm.__version__}" in lines
    assert len(lines) <= 60


def test_the_conda_recipe_asks_for_what_the_package_does() -> None:
    asked = {line.replace(">=", " >=") for line in SETTINGS["options"]["install_requires"].split()}
    recipe = (ROOT / "docs" / "conda" / "recipe.yaml").read_text("utf-8")
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    found = {line.strip(" -") for line in run.splitlines()}
    found = {line.replace("matplotlib-base", "matplotlib") for line in found}
    assert found - {"python >=3.11"} == asked


def test_the_paper_has_figures_of_the_readme_and_every_source() -> None:
    paper = (ROOT / "docs" / "paper" / "paper.md").read_text("utf-8")
    assert len(paper.split()) <= 1000
    readme = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\|(?! what|---).*\|$", paper, re.M)
    assert len(rows) == 5
    for row in rows:  # whose figures stand in the rows of reports: see test_readme.py
        assert row in readme
    sources = re.findall(r"^@\w+\{(\w+),", (ROOT / "docs/paper/paper.bib").read_text("utf-8"), re.M)
    body = paper.partition("\n---\n")[2]
    assert sorted(sources) == sorted(set(re.findall(r"@(\w+)", body)))
