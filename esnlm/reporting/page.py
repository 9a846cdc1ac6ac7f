"""What a report is made of, sections of tables, plots and text, and the page they become."""

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from esnlm.utils import __version__

_HERE = Path(__file__).parent
#: Rows of a table that stand open; longer ones unfold.
_OPEN = 40
#: Rows of a table that a page shows; the others are in their file.
LONGEST = 400
_WIDEST = 90
#: Column -> its heading, where that is not its name.
HEADS = {
    "n": "of", "n_units": "units", "n_tokens": "tokens", "n_words": "words", "n_pairs": "pairs",
    "n_characters": "characters", "n_paradigms": "paradigms", "nats": "nats a token",
    "nll_per_token": "nats a token", "held_out_nll": "nats a token",
    "nll_per_word": "nats a word", "bits_per_character": "bits a character",
    "held_out_perplexity": "perplexity",
    "cpu_seconds": "processor seconds", "peak_rss_mib": "peak memory until its end, MiB",
    "unknown_share": "unknown", "share": "share of the run", "lower": "95 % from", "upper": "to",
}  # fmt: skip
# Columns that hold no numbers, although their values may look like one.
_KINDS = dict.fromkeys(
    (
        "settings", "options", "plan", "seed", "leak", "model", "readout", "tokenizer", "text",
        "group", "bin", "sha256", "file", "name", "phenomenon", "paradigm", "subset", "mean_over",
    ),
    "text",
)  # fmt: skip
# Characters that a page must not hold: controls but line ends and tabs, and what is no character.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


class Cell(NamedTuple):
    """A value as it is shown, and as the columns of a table are sorted by it."""

    text: str
    value: str
    is_number: bool


def cell(value: Any, kind: str = "") -> Cell:
    """Return a value, or the text of one in a CSV; ``kind``: "%" a share, "text" a name.

    Numbers are shown with four digits, and keep all of theirs to be sorted by and found.

    >>> cell("4.293117"), cell(0.6171, "%").text, cell("007", "text").is_number
    (Cell(text='4.293', value='4.293117', is_number=True), '61.71 %', False)
    """
    text = "" if value is None or value != value else str(value)
    number = None if kind == "text" else _number(text)
    if number is None or text == "":
        return Cell(text, text, False)
    if kind == "%":
        text_shown = f"{100 * number:.2f} %"
    elif not any(mark in text for mark in ".en"):
        text_shown = f"{int(number):,}" if number == int(number) and abs(number) >= 1e4 else text
    else:
        text_shown = f"{number:,.0f}" if 1e4 <= abs(number) < 1e15 else f"{number:.4g}"
    return Cell(text_shown.replace("-", "\u2212", 1) if number < 0 else text_shown, text, True)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


class Text(NamedTuple):
    """A paragraph; ``items`` are a list below it."""

    text: str
    items: Sequence[str] = ()


class Facts(NamedTuple):
    """Names and values, as a list of definitions."""

    title: str
    facts: Sequence[tuple[str, Any]]


class Samples(NamedTuple):
    """Texts as they are, line by line, each with what it is."""

    samples: Sequence[tuple[str, str]]


class Plot(NamedTuple):
    """A PNG in base64, its width in pixels of the page, and what it shows."""

    png: str
    width: int
    caption: str


class Table(NamedTuple):
    """Rows below named columns, which sort; ``above`` has what all rows share."""

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

    def add(self, caption: str, rows: Iterable[Mapping[Any, Any]], *names: str, **how: Any) -> None:
        """Add a `table`, unless it has no rows."""
        if records := list(rows):
            self.blocks.append(table(caption, records, names, **how))


def table(
    caption: str,
    rows: Iterable[Mapping[Any, Any]],
    columns: Iterable[str] | Mapping[str, str] = (),
    *,
    kinds: Mapping[str, str] = {},
    share: bool = False,
    unfolds: bool | None = None,
) -> Table:
    """Return a table of rows, with these columns in order (default: all, by their own names).

    Columns have the headings of `HEADS`, or those of a mapping. ``kinds``: how the values of a
    column are shown, see `cell`. With ``share``, columns with one value in all of several rows
    stand above the table instead. Empty columns are left out.
    """
    records = list(rows)
    if isinstance(columns, Mapping):
        heads = dict(columns)
    elif columns:
        heads = {name: HEADS.get(name, name.replace("_", " ")) for name in columns}
    else:
        heads = {name: str(name) for row in records for name in row}
    how = _KINDS | dict(kinds)
    cells = {name: [cell(row.get(name), how.get(name, "")) for row in records] for name in heads}
    cells = {name: row for name, row in cells.items() if any(each.value for each in row) or not row}
    above: list[tuple[str, Cell]] = []
    for name in list(cells) if share and len(records) > 1 else []:
        if len({each.value for each in cells[name]}) == 1:
            above.append((heads[name], cells.pop(name)[0]))
    body = list(zip(*(each[:LONGEST] for each in cells.values()), strict=True))
    n_left = len(records) - LONGEST
    note = f"The first {LONGEST} of {len(records)} rows; the file has all." if n_left > 0 else ""
    if unfolds is None:
        unfolds = len(body) > _OPEN
    return Table(caption, [heads[name] for name in cells], body, above, note, unfolds)


def six_digits(value: Any) -> Any:
    """Return a computed number with as many digits as are the same in every run."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def rendered(title: str, summary: Sequence[Block], sections: Sequence[Section]) -> str:
    """Return the page, whole: style, script and pictures are inside, and all text is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    style, script = (Markup((_HERE / name).read_text("utf-8")) for name in ("page.css", "page.js"))
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
