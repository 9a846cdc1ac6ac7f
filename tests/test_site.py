"""The site: every public name has its page, examples and pages are whole."""

import ast
import re
from pathlib import Path

import pytest

import esnlm

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("guide/*.md")])


def test_every_public_name_is_in_the_reference() -> None:
    listed = set(re.findall(r"~esnlm\.(\w+)$", (DOCS / "api.md").read_text(), flags=re.MULTILINE))
    assert listed == set(esnlm.__all__) - {"__version__"}


def test_the_gallery_is_large_enough() -> None:
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_compiles_and_says_what_it_shows(example: Path) -> None:
    tree = ast.parse(example.read_text(), filename=str(example))
    title, underline, *_ = (ast.get_docstring(tree) or "").splitlines()
    assert set(underline) == {"="}
    assert len(underline) == len(title)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_imports_names_that_exist(example: Path) -> None:
    for node in ast.walk(ast.parse(example.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "esnlm":
            for name in node.names:
                assert hasattr(esnlm, name.name), name.name


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_each_figure_of_an_example_has_a_title_which_is_its_alternative_text(example: Path) -> None:
    for block in example.read_text().split("# %%"):
        if "plt.subplots(" in block:
            assert re.search(r"suptitle\(|set_title\(|\btitle=\"P", block), block


@pytest.mark.parametrize("page", ["how_it_works.md", "glossary.md", "guide/reservoirpy.md"])
def test_papers_data_and_peers_are_linked(page: str) -> None:
    assert "](https://" in (DOCS / page).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_no_output_of_a_page_is_missing(page: Path) -> None:
    text = page.read_text()
    assert not re.search(r"```output\n\s*```", text)
    assert "Traceback" not in text
    assert "esnlm: error:" not in text
