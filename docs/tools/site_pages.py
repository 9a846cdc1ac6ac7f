"""Write the pages that are made from other files: reports, and the picture of the pipeline.

``docs/reports`` holds, once the build has begun, a page for each folder of ``reports``: its
README, then each of its CSVs as a table.
"""

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from docutils import nodes
from pipeline import pipeline_svg
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
REPORTS = ROOT / "reports"
PAGES = DOCS / "reports"
#: Rows of a CSV that a page shows; the others are in the file.
LONGEST = 120
#: Characters of a cell.
WIDEST = 60
#: The gallery's order; an example that is not here stands last.
GALLERY = ["elman_oracle", "surprisal", "kneser_ney", "generation", "mackey_glass",
           "sequence_classification", "grid_search", "reservoirpy", "memory_capacity",
           "timescales", "word_features", "mixture_of_experts"]  # fmt: skip


def gallery_order(name: str) -> int:
    """Place of an example in the gallery."""
    stem = Path(name).stem.removeprefix("plot_")
    return GALLERY.index(stem) if stem in GALLERY else len(GALLERY)


def page_of(folder: Path) -> str:
    """Name of the page of a folder of reports."""
    return "index" if folder == REPORTS else folder.relative_to(REPORTS).parts[0]


def write_pages(app: Sphinx) -> None:
    """Write all pages, each only where it changed."""
    PAGES.mkdir(exist_ok=True)
    folders = sorted(path for path in REPORTS.iterdir() if path.is_dir())
    names = [page_of(folder) for folder in folders]
    toctree = ["```{toctree}", ":hidden:", "", *names, "```", ""]
    front = _linked((REPORTS / "README.md").read_text(), REPORTS)
    _write(PAGES / "index.md", "\n".join([front, *toctree, *_tables(REPORTS, recursive=False)]))
    for folder, name in zip(folders, names, strict=True):
        readme = folder / "README.md"
        text = readme.read_text() if readme.exists() else _about_benchmarks()
        _write(PAGES / f"{name}.md", "\n".join([_linked(text, folder), "", *_tables(folder)]))
    _write(DOCS / "_static" / "pipeline.svg", pipeline_svg())


def _about_benchmarks() -> str:
    """The text of the benchmarks, which lies beside their scripts."""
    return (ROOT / "benchmarks" / "README.md").read_text()


def _linked(text: str, folder: Path) -> str:
    """Text of a README whose links lead to pages of the site, or are plain where there is none."""

    def relink(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match.group()
        path = (folder / target.partition("#")[0]).resolve()
        if picture:
            return f"![{label}]({_from_pages(path)})"
        if path.is_relative_to(REPORTS) and path.exists():
            at = path if path.is_dir() else path.parent
            return f"[{label}]({page_of(at)}.md)"
        if path == ROOT / "benchmarks" / "README.md":
            return f"[{label}](benchmarks.md)"
        return label

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", relink, text)


def to_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links of a page to files of the repository lead to the pages that are made from them."""
    page = Path(app.srcdir) / f"{docname}.md"
    if not page.is_file() or page.parent == PAGES:
        return
    up = "../" * docname.count("/")

    def relink(match: re.Match[str]) -> str:
        target, _, anchor = match.group(1).partition("#")
        path = (page.parent / target).resolve()
        if path.name == "README.md" and path.is_relative_to(REPORTS):
            target = f"{up}reports/{page_of(path.parent)}.md"
        elif path == ROOT / "benchmarks" / "README.md":
            target = f"{up}reports/benchmarks.md"
        elif path.parent == ROOT / "examples":
            name = "index" if path.name == "README.rst" else path.stem
            target = f"{up}gallery/{name}.rst"
        return f"]({target}{'#' * bool(anchor)}{anchor})"

    source[0] = re.sub(r"(?<!!)\]\(([^)\s]+)\)", relink, source[0])


def _from_pages(path: Path) -> str:
    return "../../" + path.relative_to(ROOT).as_posix()


def _tables(folder: Path, recursive: bool = True) -> Iterator[str]:
    """Markdown of the CSVs of a folder: a heading, what all rows share, a table, the file."""
    found = sorted(folder.rglob("*.csv") if recursive else folder.glob("*.csv"))
    if found:
        yield "## Rows\n"
        yield (
            "Each file as it lies in the repository. Columns with one value in all rows stand above"
            " the table; numbers are rounded to four digits here, and whole in the file.\n"
        )
    for path in found:
        name = path.relative_to(folder).as_posix()
        frame = pd.read_csv(path, dtype=object, keep_default_na=False)
        yield f"### {name}\n"
        yield f"{len(frame)} rows: {{download}}`{name} <{_from_pages(path)}>`\n"
        yield "```{raw} html"
        yield f'<details class="rows"{" open" if len(frame) <= 12 else ""}>'
        yield "<summary>The table</summary>"
        yield from _html(frame)
        yield "</details>"
        yield "```\n"


def _html(frame: pd.DataFrame) -> Iterator[str]:
    same = [c for c in frame if len(frame) > 1 and frame[c].nunique() == 1]
    said = [f"<b>{c}</b> {_cell(frame[c].iloc[0])}" for c in same if frame[c].iloc[0] != ""]
    if said:
        yield f'<p class="same">In all rows: {"; ".join(said)}</p>'
    frame = frame.drop(columns=same)
    shown = frame.head(LONGEST).map(_cell)
    yield '<div class="table">'
    yield shown.to_html(index=False, border=0, escape=False, na_rep="").replace("\n\n", "\n")
    yield "</div>"
    if len(frame) > LONGEST:
        yield f"<p>The first {LONGEST} of {len(frame)} rows.</p>"


def _cell(value: Any) -> str:
    """A cell as HTML: numbers of four digits, long text cut."""
    text = str(value)
    if re.fullmatch(r"-?\d+\.\d+(e[+-]?\d+)?", text):
        number = float(text)
        return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.4g}"
    if len(text) <= WIDEST:
        return escape(text)
    return f'<span title="{escape(text)}">{escape(text[:WIDEST])}…</span>'


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def skip_of_others(
    app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn and reservoirpy add to every class."""
    function = getattr(member, "__func__", member)
    module = getattr(function, "__module__", "") or ""
    return True if module.startswith(("sklearn.", "reservoirpy.")) else None


def name_thumbnails(app: Sphinx, tree: nodes.document) -> None:
    """Give each picture of the gallery's index the title of its example as its text."""
    for image in tree.findall(nodes.image):
        stem = re.search(r"sphx_glr_(plot_\w+)_thumb", image["uri"])
        if stem and not image.get("alt"):
            image["alt"] = (ROOT / "examples" / f"{stem[1]}.py").read_text().splitlines()[1]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what runs during a build."""
    app.connect("builder-inited", write_pages, priority=100)
    app.connect("source-read", to_pages)
    app.connect("doctree-read", name_thumbnails)
    app.connect("autodoc-skip-member", skip_of_others)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
