"""Every figure measured that README's table gives stands in the CSV that its line names."""

import re
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
TABLE = (ROOT / "README.md").read_text().partition("| what | measured |")[2].partition("\n\n")[0]
LINES = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE.splitlines()[2:]]

FIGURE = re.compile(
    r"(?<![\w.])(\d{1,3}(?: \d{3})+|\d+(?:\.\d+)?(?:e-?\d+)?)(?!-gram)( %| minutes| GiB)?"
)
#: What a figure in that unit is of the one in the CSV, beside the same number.
UNITS = {" %": 100, " minutes": 1 / 60, " GiB": 1 / 1024}
#: Columns that say how rows were made, not what was measured.
ABOUT = ["command", "commit", "machine", "date", "version", "target", "met"]


def figures_of(text: str) -> list[tuple[str, str]]:
    """Figures as printed, each with its unit."""
    return FIGURE.findall(text)


def numbers_of(path: Path) -> list[float]:
    """All numbers of a CSV, those within text among them."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False).drop(columns=ABOUT, errors="ignore")
    found = re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", " ".join(table.to_numpy().ravel()))
    return [float(number) for number in found]


def stands_in(figure: str, unit: str, numbers: list[float]) -> bool:
    """Whether a number, in that unit, is the figure when rounded as it is printed.

    >>> stands_in("245 000", "", [245039.0]), stands_in("61.7", " %", [0.6164])
    (True, False)
    """
    printed = Decimal(figure.replace(" ", ""))
    exponent = printed.as_tuple().exponent
    assert isinstance(exponent, int)
    if figure.endswith(" 000"):
        exponent = 3
    half = 0.5 * 10**exponent * (1 + 1e-9)
    return any(
        abs(number * scale - float(printed)) <= half
        for number in numbers
        for scale in (1, UNITS.get(unit, 1))
    )


def test_the_table_is_found() -> None:
    assert len(LINES) > 15
    assert all(len(line) == 4 for line in LINES)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0][:40])
def test_every_figure_stands_in_the_csv_of_its_line(line: list[str]) -> None:
    _, measured, _, rows = line
    names = re.findall(r"`([\w/]+\.csv)`", rows)
    assert names, "the line names no CSV"
    paths = [name if "/" in name else f"benchmarks/{name}" for name in names]
    numbers = [number for path in paths for number in numbers_of(ROOT / "reports" / path)]
    missing = [
        figure + unit
        for figure, unit in figures_of(measured)
        if not stands_in(figure, unit, numbers)
    ]
    assert not missing, f"not in {', '.join(names)}: {', '.join(missing)}"
