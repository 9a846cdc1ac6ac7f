"""The page of ``esnlm serve`` in Chromium, driven by Playwright."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve_models import counts_model, reservoir_model

pytest.importorskip("fastapi", reason="needs the app extra")
pytest.importorskip("uvicorn", reason="needs the app extra")
pytestmark = pytest.mark.app

#: Folders are named by their owner: this name must stay text.
MARKUP = "<img src=x onerror=alert(1)>"
TEXT = "the boy sees\nthe zebra walks"
SIZES = {"desktop": (1280, 900), "phone": (360, 740)}
#: Shares of a scale -> contrast of a word's ink with its colour, and the colour's luminance.
CONTRASTS = """(shares) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const luminance = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => v / 255).map(
      (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const item = document.querySelector(".words li");
  return shares.map((share) => {
    item.style.setProperty("--share", share);
    const style = getComputedStyle(item);
    const [under, ink] = [luminance(style.backgroundColor), luminance(style.color)];
    return [(Math.max(under, ink) + 0.05) / (Math.min(under, ink) + 0.05), under];
  });
}"""


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {"esn": reservoir_model(), MARKUP: counts_model()}


@pytest.fixture(scope="module")
def address(models: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    for name, model in models.items():
        model.save(folder / name)
    command = [sys.executable, "-m", "esnlm", "serve", *models, "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().rpartition(" at ")[2].split()[0]
    process.terminate()
    process.communicate(timeout=60)


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def page(chromium: Any, address: str) -> Iterator[Any]:
    yield from opened(chromium, address)


def opened(chromium: Any, address: str, **options: Any) -> Iterator[Any]:
    """The page, ready; what its console said and whom it asked is checked in the end."""
    context = chromium.new_context(**options)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.wait_for_selector(".next button")
    yield page
    context.close()
    # A refused question is an answer: the console names it, and the page shows its message.
    assert [line for line in said if "422" not in line and "ERR_FAILED" not in line] == []
    assert all(url.startswith((address, "data:")) for url in asked)


def show(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.click("#sentence button[type=submit]")
    until(page, "document.querySelector('#sentence-status').textContent === ''")


def until(page: Any, expression: str) -> None:
    """Wait for a condition; the page's own policy forbids to evaluate it there."""
    for _ in range(400):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not within 20 seconds: {expression}")


def panels(page: Any, place: str = "#answers") -> list[Any]:
    return list(page.query_selector_all(f"{place} .answer"))


def texts(panel: Any, selector: str) -> list[str]:
    return [each.text_content() for each in panel.query_selector_all(selector)]


def test_words_are_shown_with_their_numbers(page: Any, models: dict[str, Any]) -> None:
    show(page, TEXT)
    assert len(panels(page)) == 2
    for panel, (name, model) in zip(panels(page), models.items(), strict=True):
        assert texts(panel, "h3") == [name]
        (scores,) = model.log_likelihood([TEXT])
        strings = ["the", "boy", "sees", "end", "the", "zebra", "walks", "end"]
        assert texts(panel, ".words .string") == strings
        assert len(panel.query_selector_all(".words")) == 2
        shown = [float(text.split()[0]) for text in texts(panel, ".words .bits")]
        np.testing.assert_allclose(shown, -scores / np.log(2), atol=0.0501)
        assert texts(panel, ".words .unknown .string") == ["zebra"]
        assert "unknown" in texts(panel, ".words .unknown .bits")[0]
    # The same as a table, whose columns are the models.
    page.click("#table-of-words summary")
    rows = [texts(row, "td") for row in page.query_selector_all("#table-of-words tbody tr")]
    assert [row[:2] for row in rows[:2]] == [["1", "the"], ["1", "boy"]]
    both = [-model.log_likelihood([TEXT])[0] / np.log(2) for model in models.values()]
    columns = np.array([[float(cell) for cell in row[2:]] for row in rows]).T
    np.testing.assert_allclose(columns, [*both, both[1] - both[0]], atol=0.00051)


def test_the_next_word_is_appended_by_choosing_it(page: Any, models: dict[str, Any]) -> None:
    show(page, "the boy")
    for panel, model in zip(panels(page), models.values(), strict=True):
        shown = texts(panel, ".next .percent")
        expected = np.sort(model.predict_proba("the boy"))[::-1]
        assert len(shown) == min(10, len(expected)) + 1
        assert shown[0] == f"{100 * expected[0]:.1f} %"
        # Two digits each.
        assert sum(float(text.split()[0]) for text in shown) == pytest.approx(100, abs=0.5)
    button = panels(page)[0].query_selector(".next button")
    word = button.query_selector(".string").text_content()
    button.focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('#answers .words li').length === 8")
    assert page.input_value("#text") == f"the boy {word}"


def test_the_path_of_the_state_or_why_there_is_none(page: Any) -> None:
    show(page, TEXT)
    first, second = panels(page)
    assert len(first.query_selector_all("svg.path circle")) == 10
    assert len(first.query_selector_all("svg.path polyline")) == 2
    assert "two principal components" in first.query_selector("svg").get_attribute("aria-label")
    assert len(first.query_selector_all("details tbody tr")) == 10
    assert second.query_selector("svg") is None
    assert "this model has no reservoir" in second.text_content()


def test_a_pair_is_judged(page: Any, models: dict[str, Any]) -> None:
    first, second = "the boy sees the dog", "the boy dog"
    page.fill("#first", first)
    page.fill("#second", second)
    page.keyboard.press("Enter")
    page.wait_for_selector(".verdict")
    for panel, model in zip(panels(page, "#verdicts"), models.values(), strict=True):
        one, two = (
            -model.log_likelihood([each])[0][:-1].sum() / np.log(2) for each in (first, second)
        )
        likelier = "first" if one < two else "second"
        verdict = texts(panel, ".verdict")[0]
        assert verdict.startswith(f"The {likelier} is likelier by {abs(one - two):.2f} bits")
        assert "end" not in texts(panel, ".words .string")


def test_models_are_chosen(page: Any) -> None:
    show(page, "the boy")
    page.select_option("#second-model", "")
    until(page, "document.querySelectorAll('#answers .answer').length === 1")
    page.select_option("#first-model", MARKUP)
    until(page, "document.querySelector('#answers h3').textContent.startsWith('<img')")


def test_markup_stays_text(page: Any) -> None:
    show(page, f"{MARKUP} <b>the</b> &amp;")
    page.fill("#first", MARKUP)
    page.fill("#second", "the <script>alert(1)</script>")
    page.click("#pair button")
    page.wait_for_selector(".verdict")
    assert page.query_selector("img, b, main script") is None
    assert texts(panels(page)[0], ".words .string")[:3] == MARKUP.split()
    assert "&amp;" in texts(panels(page)[0], ".words .string")


def test_a_refusal_is_shown(page: Any, address: str) -> None:
    show(page, "a " * 300)
    message = "text must have at most 256 tokens, got 300 of esn"
    assert page.text_content("#sentence-problem") == message
    page.click("#pair button")
    until(page, "document.querySelector('#pair-problem').textContent !== ''")
    assert page.text_content("#pair-problem") == "first must hold a word, got ''"
    page.route("**/api/*", lambda route: route.abort())
    show(page, "the boy")
    assert "the server does not answer" in page.text_content("#sentence-problem")
    page.unroute("**/api/*")
    show(page, "the boy")
    assert page.text_content("#sentence-problem") == ""


def test_what_is_typed_is_shown_after_a_pause(page: Any) -> None:
    page.type("#text", "a boy")
    page.wait_for_selector(".words li")
    assert texts(panels(page)[0], ".words .string") == ["a", "boy", "end"]


def test_everything_is_reached_by_keys(page: Any) -> None:
    reached = []
    for _ in range(6):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.textContent")
        )
    assert reached[:3] == ["first-model", "second-model", "text"]
    assert reached[3:5] == ["Show", "by-token"]
    assert page.evaluate("document.activeElement.matches('.next button')")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize("size", SIZES)
def test_it_fits_the_screen_and_can_be_read(
    chromium: Any, address: str, scheme: str, size: str, tmp_path: Path
) -> None:
    width, height = SIZES[size]
    viewport = {"width": width, "height": height}
    for page in opened(chromium, address, viewport=viewport, color_scheme=scheme):
        show(page, f"{TEXT}\n{'donaudampfschifffahrtsgesellschaft' * 5}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        tops = [panel.bounding_box()["y"] for panel in panels(page)]
        assert (tops[0] == tops[1]) == (size == "desktop")  # side by side where there is room
        shares = np.linspace(0, 1, 101)
        contrast, luminance = np.array(page.evaluate(CONTRASTS, shares.tolist())).T
        assert contrast.min() > 4.5
        # Told apart without hue: lightness alone goes one way.
        steps = np.diff(luminance) * (-1 if scheme == "light" else 1)
        assert steps.min() >= -1e-9
        assert abs(luminance[-1] - luminance[0]) > 0.6
