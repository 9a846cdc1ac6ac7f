"""Formulas as MathML, by docutils' own converter: pages need no script and no network."""

from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def visit_inline(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def visit_block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula of its own, centred."""
    writer.body.append(f'<div class="formula">{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, as_block: bool) -> str:
    text = node.astext()
    return f'<span title="{escape(text)}">{tex2mathml(text, as_block=as_block)}</span>'


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
