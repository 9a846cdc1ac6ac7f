"""Figures of matplotlib as SVG inside a page: its colours and letters, no links, the same bytes."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from esnlm.experiments.common.figures import COLOURS, GREY

#: Colour of matplotlib -> variable of the page, which has other values in the dark.
_VARIABLES = {
    **{colour.lower(): f"--series-{number}" for number, colour in enumerate(COLOURS)},
    GREY.lower(): "--muted",
    "#999999": "--muted",
    "#bbbbbb": "--line",
    "#dddddd": "--line",
    "#b0b0b0": "--line",
    "#000000": "--ink",
    "#ffffff": "--page",
}
_TAG = re.compile(r"<[^>]*>")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_FONT = re.compile(r"font: ([\d.]+)px [^;\"]*")
_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r'(?:url\(#|href="#)([^")]+)')
_POINTS = 1.15  # pixels of a point: text as large as the page's small one


@contextmanager
def drawing() -> Iterator[None]:
    """Figures made in the block show text as it is: a dollar sign begins no formula."""
    with matplotlib.rc_context({"text.parse_math": False, "font.size": 10}):
        yield


def svg(figure: Figure, name: str, label: str) -> str:
    """The figure as an ``svg`` element: ``name`` tells it apart in a page, ``label`` is its text.

    Colours are variables of the page's style, letters are text in its font. The same figure gives
    the same bytes.

    >>> from esnlm.experiments.common.figures import panels
    >>> figure, (axis,) = panels(1)
    >>> text = svg(figure, "empty", "no data")
    >>> text.startswith('<svg role="img" aria-label="no data"'), "http" in text
    (True, False)
    """
    buffer = io.StringIO()
    nothing: Any = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    settings: Any = {"svg.hashsalt": name, "svg.fonttype": "none"}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the reader's fonts may have it
        figure.savefig(buffer, format="svg", metadata=nothing, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for found in (r"<metadata>.*?</metadata>", r"<style.*?</style>", r"<!--.*?-->"):
        text = re.sub(found, "", text, flags=re.DOTALL)
    wanted = set(_REFERENCE.findall(text))

    def in_page(match: re.Match[str]) -> str:
        tag = _ID.sub(lambda i: f' id="{name}-{i[1]}"' if i[1] in wanted else "", match[0])
        tag = tag.replace("xlink:href", "href")
        tag = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", tag)
        tag = _FONT.sub(r"font-size: \1px", tag)
        return _COLOUR.sub(_variable, tag)

    text = _TAG.sub(in_page, text)
    width, height = (round(_POINTS * inches * 72) for inches in figure.get_size_inches())
    head = (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="{_box(text)}" '
        f'style="width: {width}px; min-width: min(34rem, {width}px); '
        f'aspect-ratio: {width} / {height}">'
    )
    return head + text[text.index(">") + 1 :].strip()


def _variable(match: re.Match[str]) -> str:
    colour = match[0]
    return f"var({_VARIABLES[colour]})" if colour in _VARIABLES else colour


def _box(text: str) -> str:
    found = re.search(r'viewBox="([^"]*)"', text)
    assert found is not None, "matplotlib writes a view box"
    return found[1]
