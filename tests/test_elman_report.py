"""The rows of reports/elman reach what its README says of them."""

import re
from pathlib import Path

import pandas as pd
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "reports" / "elman"
ROWS = pd.read_csv(FOLDER / "elman.csv")
ROWS["ratio"] = ROWS["perplexity"] / ROWS["oracle_perplexity"]
LINE = re.compile(
    r"^\| (\w+), (\d+) units, (?:(\d+) word features|one-hot words)"
    r" \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|",
    re.MULTILINE,
)
LINES = LINE.findall((FOLDER / "README.md").read_text())


def ratios(readout: str, n_units: int, features: int) -> "pd.Series[float]":
    """Perplexity over the oracle's, seed by seed."""
    found = ROWS.query(
        f"readout == {readout!r} and n_units == {n_units} and features == {features}"
    )
    assert sorted(found["seed"]) == [0, 1, 2]
    return found["ratio"]


def test_lines_are_found() -> None:
    assert len(LINES) >= 6


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line[:3]))
def test_a_line_of_the_readme_is_that_of_its_rows(line: tuple[str, ...]) -> None:
    readout, n_units, features, *given = line
    found = ratios(readout, int(n_units), int(features or 0))
    assert [f"{value:.3f}" for value in (found.mean(), found.min(), found.max())] == given


@pytest.mark.parametrize(
    ("readout", "n_units", "most"),
    [("mlp", 200, 1.03), ("softmax", 200, 1.10), ("moe", 25, 1.10)],
)
def test_the_figures_to_reach_are_reached(readout: str, n_units: int, most: float) -> None:
    assert 1 < ratios(readout, n_units, 6).mean() <= most


def test_every_run_from_100_units_is_below_the_trigram() -> None:
    ngrams = pd.read_csv(FOLDER / "ngrams.csv").query("order == 3").set_index("seed")["perplexity"]
    large = ROWS[ROWS["n_units"] >= 100]
    assert (large["perplexity"] < large["seed"].map(ngrams)).all()
    assert set(large["readout"]) >= {"ridge", "softmax", "mlp"}
