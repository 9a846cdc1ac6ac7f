"""The page of a report in Chromium: tables sort by mouse and by keyboard; dark, narrow, printed."""

from pathlib import Path
from typing import Any

import pytest

from esnlm.__main__ import main

pytestmark = pytest.mark.app

ROWS = "name,value\nb,0.5\nc,\na,-1e-3\nd,12\n"
LOG = (
    "pass,tokens,share,held_out_nll,held_out_perplexity,seconds\n"
    "1,100,0.5,5.0,148.4,1.0\n1,200,1.0,4.5,90.0,2.0\n"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("browser")
    (folder / "rows.csv").write_text(ROWS)
    (folder / "log.csv").write_text(LOG)
    assert main(["report", str(folder), "--out", str(folder / "page.html")]) == 0
    return (folder / "page.html").as_uri()


def opened(chromium: Any, place: str, **options: Any) -> Any:
    page = chromium.new_context(**options).new_page()
    page.requests, page.complaints = [], []
    page.on("request", lambda request: page.requests.append(request.url))
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(place)
    return page


def names(page: Any) -> list[str]:
    return page.locator("#table tbody tr td:first-child").all_inner_texts()


def test_tables_sort_by_mouse_and_keyboard(chromium: Any, place: str):
    page = opened(chromium, place)
    assert names(page) == ["b", "c", "a", "d"]
    head = page.locator("#table th", has_text="value")
    head.locator("button").click()
    assert names(page) == ["a", "b", "d", "c"]  # by number, what is empty last
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").click()
    assert names(page) == ["d", "b", "a", "c"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    assert names(page) == ["a", "b", "c", "d"]
    assert head.get_attribute("aria-sort") is None
    assert page.complaints == []
    assert page.requests == [place]


def test_the_page_reads_without_scripts(chromium: Any, place: str):
    page = opened(chromium, place, java_script_enabled=False)
    assert names(page) == ["b", "c", "a", "d"]
    assert page.locator("th button").count() == 0


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_and_nothing_overflows(chromium: Any, place: str, scheme: str, width: int):
    view = {"width": width, "height": 900}
    page = opened(chromium, place, viewport=view, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for name in ("body", "figcaption", "th", "td"):
        behind, text = page.evaluate(
            """name => {
                const found = getComputedStyle(document.querySelector(name));
                const page = getComputedStyle(document.body).backgroundColor;
                return [page, found.color];
            }""",
            name,
        )
        assert contrast(behind, text) >= 4.5, (name, behind, text)


def contrast(one: str, two: str) -> float:
    """Contrast ratio of two colours as WCAG 2 defines it, 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour[4:-1].split(",")]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted(map(luminance, (one, two)))
    return (high + 0.05) / (low + 0.05)


def test_the_page_prints(chromium: Any, place: str, tmp_path: Path):
    page = opened(chromium, place, color_scheme="dark")
    page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 10_000
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
