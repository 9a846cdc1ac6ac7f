"""Progress bars, in terminals and in notebooks."""

from collections.abc import Iterable
from typing import Any


def progress_bar(show: bool, steps: Iterable[Any] | None = None, **options: Any) -> Any:
    """A bar of tqdm, shown if ``show`` and a person sees it: on a terminal, or in a notebook."""
    from tqdm import auto, std

    in_notebook = auto.notebook_tqdm is not std.tqdm
    # None: hidden where standard error is no terminal, which a notebook's never is.
    hidden = False if in_notebook else None
    return auto.tqdm(steps, disable=hidden if show else True, **options)
