"""Draw the way of a token from text to a probability, as SVG.

Lines and letters take the colour of the text around them, so the picture suits a dark page.
"""

import math
from collections.abc import Iterator

import numpy as np

WIDTH, HEIGHT = 490, 585
FROZEN, LEARNT = "#4a7fb5", "#d5812f"
WORDS = ["the", "boys", "who", "Mary"]
KINDS = (
    "ridge: closed form",
    "softmax: second order",
    "mixture of experts: EM",
    "classes, low rank: 50 000 words",
)
#: The next word and its probability, roughly as in the gallery's grammar.
NEXT = [("sees", 0.26), ("hears", 0.25), ("chases", 0.24), ("feeds", 0.23), ("walks", 0.02)]


def pipeline_svg() -> str:
    """The picture."""
    parts = [*_tokens(), *_reservoir(), *_state(), *_readout(), *_distribution(), *_direct()]
    arrow = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0 8 4 0 8z" fill="currentColor"/></marker>'
    )
    title = "Tokens drive a frozen reservoir; its state is read into the next word's probabilities."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
            ' font-family="system-ui, sans-serif" font-size="15" fill="currentColor">',
            f"<title>{title}</title><defs>{arrow}</defs>",
            *parts,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, size: int = 15, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" {more}>{text}</text>'


def _box(x: float, y: float, w: float, h: float, colour: str = "currentColor", fill: str = "none",
         opacity: float = 1.0) -> str:  # fmt: skip
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="5" stroke="{colour}"'
        f' stroke-width="1.5" fill="{fill}" fill-opacity="{opacity}"/>'
    )


def _arrow(path: str, more: str = "") -> str:
    return (
        f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="1.6"'
        f' marker-end="url(#tip)" {more}/>'
    )


def _tokens() -> Iterator[str]:
    for place, word in enumerate(WORDS):
        yield _box(30 + 66 * place, 14, 58, 32)
        yield _text(59 + 66 * place, 35, word, more='text-anchor="middle"')
    yield _text(304, 28, "tokens u[t]", 15)
    yield _text(304, 45, "or vectors, or features", 12, 'opacity="0.75"')
    yield _arrow("M160 52V88")
    yield _text(170, 76, "W_in", 14, 'font-style="italic"')


def _reservoir() -> Iterator[str]:
    x, y, radius = 160, 172, 80
    yield f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{FROZEN}" fill-opacity="0.13"'
    yield f' stroke="{FROZEN}" stroke-width="1.5"/>'
    rng = np.random.default_rng(4)
    angles = rng.uniform(0, 2 * math.pi, 15)
    places = np.sqrt(rng.uniform(0.03, 0.75, 15)) * radius
    points = np.column_stack([x + places * np.cos(angles), y + places * np.sin(angles)])
    for here in range(15):
        for there in rng.choice(15, 2, replace=False):
            if here != there:
                (a, b), (c, d) = points[here], points[there]
                yield (
                    f'<path d="M{a:.0f} {b:.0f}Q{(a + c) / 2 + 9:.0f} {(b + d) / 2 - 9:.0f}'
                    f' {c:.0f} {d:.0f}" fill="none" stroke="{FROZEN}" opacity="0.6"/>'
                )
    for a, b in points:
        yield f'<circle cx="{a:.0f}" cy="{b:.0f}" r="5" fill="{FROZEN}"/>'
    yield _text(258, 150, "reservoir", 17, 'font-weight="600"')
    yield _text(258, 172, "drawn once, then frozen", 13, f'fill="{FROZEN}"')
    yield _text(258, 192, "sparse W of exact spectral radius", 13)
    yield _text(258, 210, "a leak rate for each unit", 13)
    yield _arrow("M160 256V288")


def _state() -> Iterator[str]:
    rng = np.random.default_rng(1)
    for place, value in enumerate(rng.uniform(0, 1, 14)):
        yield _box(48 + 16 * place, 292, 16, 26, FROZEN, FROZEN, round(0.08 + 0.8 * value, 2))
    yield _text(286, 304, "state h[t]", 15)
    yield _text(286, 321, "streams through in blocks", 12, 'opacity="0.75"')
    yield _arrow("M160 322V354")


def _readout() -> Iterator[str]:
    yield _box(48, 358, 224, 70, LEARNT, LEARNT, 0.13)
    yield _text(160, 386, "readout", 17, 'text-anchor="middle" font-weight="600"')
    centred = f'text-anchor="middle" fill="{LEARNT}"'
    yield _text(160, 409, "solved, not back-propagated", 13, centred)
    for row, line in enumerate(KINDS):
        yield _text(286, 372 + 18 * row, line, 12)
    yield _arrow("M160 432V460")


def _distribution() -> Iterator[str]:
    for row, (word, chance) in enumerate(NEXT):
        y = 466 + 23 * row
        yield _text(96, y + 14, word, 14, 'text-anchor="end"')
        yield _box(104, y + 1, 600 * chance, 16, LEARNT, LEARNT, 0.55)
    yield _text(286, 488, "P(next word | all before)", 15)
    yield _text(286, 508, "sums to one", 12, 'opacity="0.75"')


def _direct() -> Iterator[str]:
    yield _arrow("M40 52C24 130 24 300 44 378", 'stroke-dasharray="5 4"')
    yield (
        '<text transform="translate(18 328) rotate(-90)" font-size="12">direct connections:'
        " the last tokens</text>"
    )
