"""What a report is made of, sections of tables, plots and text, and the page they become."""

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from esnlm.utils.version import __version__

_HERE = Path(__file__).parent
#: Rows of a table that stand open; longer ones unfold.
_OPEN = 40
#: Rows of a table that a page shows; the others are in their file.
LONGEST = 400
_WIDEST = 90
# Characters that a page must not hold: controls but line ends and tabs, and what is no character.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


@dataclass(frozen=True)
class Cell:
    """A value as it is shown, and as the columns of a table are sorted by it."""

    shown: str
    value: str
    is_number: bool


def cell(value: Any, kind: str = "") -> Cell:
    """Return a value, or the text of one in a CSV; ``kind``: "%" a share, "text" a name.

    Numbers are shown with four digits, and keep all of theirs to be sorted by and found.

    >>> cell("4.293117"), cell(0.6171, "%").shown, cell("007", "text").is_number
    (Cell(shown='4.293', value='4.293117', is_number=True), '61.71 %', False)
    """
    text = "" if value is None or value != value else str(value)
    number = None if kind == "text" else _number(text)
    if number is None or text == "":
        return Cell(text, text, False)
    if kind == "%":
        shown = f"{100 * number:.2f} %"
    elif kind == "plain" or not any(mark in text for mark in ".en"):
        shown = f"{int(number):,}" if number == int(number) and abs(number) >= 1e4 else text
    else:
        shown = f"{number:,.0f}" if 1e4 <= abs(number) < 1e15 else f"{number:.4g}"
    return Cell(shown.replace("-", "\u2212", 1) if number < 0 else shown, text, True)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


@dataclass(frozen=True)
class Text:
    """A paragraph; ``items`` are a list below it."""

    template: ClassVar[str] = "text"
    text: str = ""
    items: Sequence[str] = ()


@dataclass(frozen=True)
class Facts:
    """Names and values, as a list of definitions."""

    template: ClassVar[str] = "facts"
    title: str
    facts: Sequence[tuple[str, Any]]


@dataclass(frozen=True)
class Samples:
    """Texts as they are, line by line, each with what it is."""

    template: ClassVar[str] = "samples"
    samples: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Plot:
    """A PNG in base64, its width in pixels of the page, and what it shows."""

    template: ClassVar[str] = "plot"
    png: str
    width: int
    caption: str


@dataclass(frozen=True)
class Table:
    """Rows below named columns, which sort; ``above`` has what all rows share."""

    template: ClassVar[str] = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    above: Sequence[tuple[str, Cell]] = ()
    note: str = ""
    unfolds: bool = False

    def is_number(self, column: int) -> bool:
        """Whether a column holds numbers alone."""
        return all(row[column].is_number or not row[column].value for row in self.rows)


Block: TypeAlias = Text | Facts | Samples | Plot | Table


@dataclass
class Section:
    """A heading with what stands below it; ``name`` is its place in the page's address."""

    name: str
    title: str
    blocks: list[Block] = field(default_factory=list)


def table(
    caption: str,
    rows: Iterable[Mapping[Any, Any]],
    columns: Mapping[str, str] | None = None,
    *,
    kinds: Mapping[str, str] | None = None,
    share: bool = True,
    unfolds: bool | None = None,
) -> Table:
    """Return a table of rows; ``columns`` maps those that are shown, in order, to their headings.

    ``kinds``: how values of a column are shown, see `cell`. With ``share``, columns with one value
    in all of several rows stand above the table instead. Empty columns are left out.
    """
    found = list(rows)
    names = dict.fromkeys(name for row in found for name in row) if columns is None else columns
    heads = {name: (columns or {}).get(name) or str(name) for name in names}
    how = kinds or {}
    cells = {name: [cell(row.get(name), how.get(name, "")) for row in found] for name in heads}
    cells = {name: row for name, row in cells.items() if any(each.value for each in row) or not row}
    above: list[tuple[str, Cell]] = []
    for name in list(cells) if share and len(found) > 1 else []:
        if len({each.value for each in cells[name]}) == 1:
            above.append((heads[name], cells.pop(name)[0]))
    shown = list(zip(*(each[:LONGEST] for each in cells.values()), strict=True))
    n_left = len(found) - LONGEST
    note = f"The first {LONGEST} of {len(found)} rows; the file has all." if n_left > 0 else ""
    if unfolds is None:
        unfolds = len(shown) > _OPEN
    return Table(caption, [heads[name] for name in cells], shown, above, note, unfolds)


def six_digits(value: Any) -> Any:
    """Return a computed number with as many digits as are the same in every run."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def rendered(title: str, summary: Sequence[Block], sections: Sequence[Section]) -> str:
    """Return the page, whole: style, script and pictures are inside, and all text is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    style, script = (Markup((_HERE / name).read_text()) for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    places = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    page = places.get_template("page.html").render(
        title=title,
        summary=summary,
        sections=[section for section in sections if section.blocks],
        style=style,
        script=script,
        digest=digest,
        version=__version__,
        widest=_WIDEST,
    )
    return _FORBIDDEN.sub("\ufffd", page)
