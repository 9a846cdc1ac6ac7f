"""ARCHITECTURE.md tells the truth: its subpackages and files exist, and its recipes work."""

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from toy_readout import GaussianReadout

import esnlm
from esnlm import LanguageModel, Reservoir
from esnlm.__main__ import main
from esnlm.models import saving
from esnlm.reservoir import weights

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(esnlm.__file__).parent
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
DOCS = ["the boy sees the dog", "the dog sees the boy", "a boy walks"] * 20


def file_of(name: str) -> Path:
    """Return the path of a file that the page names; the package may be installed elsewhere."""
    return (PACKAGE.parent if name.startswith("esnlm/") else ROOT) / name


def test_every_file_and_subpackage_that_the_page_names_is_there() -> None:
    named = set(
        re.findall(r"`((?:esnlm|tests|reports)/[\w/]+(?:\.py)?|[a-z_]+/[a-z_/]+\.py)`", PAGE)
    )
    assert len(named) > 15
    for name in named - {"esnlm/commands/NAME.py", "esnlm/studies/NAME", "reports/NAME"}:
        assert file_of(name).exists() or (PACKAGE / name).exists(), name
    table = PAGE.partition("| layer |")[2].partition("\n\n")[0]
    subpackages = {
        subpackage for line in table.splitlines()[2:] for subpackage in re.findall("`(\\w+)`", line)
    }
    folders = {path.stem for path in PACKAGE.glob("[a-z_]*") if path.suffix in ("", ".py")}
    assert {path for path in folders if not path.startswith("__")} <= subpackages


def test_every_name_that_a_recipe_tells_stands_in_its_file() -> None:
    recipes = PAGE.partition("## Recipes")[2]
    found = re.findall(r"`(\w+)` (?:of|in) `(esnlm/[\w/]+\.py|tests/[\w/]+\.py)`", recipes)
    assert len(found) >= 4
    for name, file in found:
        assert name in file_of(file).read_text(), f"{file} has no {name}"


def test_a_readout_of_the_recipe_is_saved_and_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # What its line in the table of readouts would say.
    monkeypatch.setitem(saving.CLASSES, "GaussianReadout", "toy_readout")
    reservoir = Reservoir(30, random_state=0)
    model = LanguageModel(reservoir, GaussianReadout(), tokenizer="word").fit(DOCS)
    model.save(tmp_path / "model")
    loaded = esnlm.LanguageModel.load(tmp_path / "model")
    for got, expected in zip(loaded.log_likelihood(DOCS), model.log_likelihood(DOCS), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_topology_of_the_recipe_is_rescaled(monkeypatch: pytest.MonkeyPatch) -> None:
    def star(n_units: int, degree: int, rng: np.random.Generator) -> sparse.csr_matrix:
        matrix = np.zeros((n_units, n_units))
        matrix[0], matrix[:, 0] = rng.normal(size=n_units), rng.normal(size=n_units)
        return sparse.csr_matrix(matrix)

    monkeypatch.setitem(weights._TOPOLOGIES, "star", star)
    made = weights.recurrent_weights(
        "star", 40, 4, 0.9, np.dtype("float64"), np.random.default_rng(0)
    )
    assert made.shape == (40, 40)
    assert weights.radius_of("star", made) == pytest.approx(0.9, abs=1e-6)


def test_every_command_of_the_guide_and_the_readme_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs" / "guide").glob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    commands = set(re.findall(r"^(?:\$ )?esnlm (\w+)", text, re.MULTILINE))
    assert len(commands) > 8
    with contextlib.suppress(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert all(command in listed for command in commands)
