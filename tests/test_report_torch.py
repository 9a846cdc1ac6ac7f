"""Reports of networks that were trained by gradient: of their folders, logs and comparisons."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import html5lib
import pytest

from esnlm.__main__ import main

pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch

SENTENCES = ["the boy sees the dog", "the dog sees the boy", "the boy walks", "the dogs walk"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The report of three networks, one of them of characters and a window, and a comparison."""
    home = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("networks"))
    Path("text").write_text("\n".join(SENTENCES * 6) + "\n")
    Path("held").write_text("\n".join(SENTENCES * 2) + "\n")
    shared = "text --held-out held --device cpu --passes 1"
    for argv in (
        f"train {shared} --tokenizer word --model lstm --option n_units=8 --out run/lstm"
        " --log run/log.csv",
        f"train {shared} --tokenizer word --model esn --units 12 --rank 4 --out run/esn",
        f"train {shared} --tokenizer char --model aerc --option n_units=8 --option n_hidden=3"
        " --out run/aerc",
        "compare text --held-out held --tokenizer word --models lstm:n_units=8 --default-size"
        " --plan n_passes=1 --device cpu --seeds 1 --out run",
        "report run --held-out held --train text --resamples 20 --out page.html",
    ):
        assert main(argv.split()) == 0, argv
    yield Path("page.html").read_text()
    os.chdir(home)


def test_the_page_is_valid_and_has_every_section_that_applies(page: str):
    made = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    sections = {each.get("id") for each in made.iter("section")}
    assert sections == {
        "runs", "models", "data", "texts", "training", "groups", "calibration", "contributions",
        "reservoir", "samples", "compare", "missing",
    }  # fmt: skip
    headings = {"".join(each.itertext()) for each in made.iter("h3")}
    assert {"lstm", "esn", "aerc"} <= headings


def test_nothing_is_missing_from_it(page: str):
    text = re.sub(r"<(style|script).*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
    for told in ("Kneser-Ney 5-gram", "network", "training text of lstm", "drawn at temperature"):
        assert told in text
    assert not re.search(r"\bnan\b|\bNone\b|Traceback", text)
