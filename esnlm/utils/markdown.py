"""Tables in Markdown."""

from collections.abc import Iterable


def markdown_table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> list[str]:
    """Return the lines of a table.

    >>> markdown_table(["a", "b"], [[1, "x"]])
    ['| a | b |', '|---|---|', '| 1 | x |']
    """
    head, *body = [f"| {' | '.join(map(str, row))} |" for row in (list(header), *rows)]
    return [head, "|---" * len(list(header)) + "|", *body]
