"""Progress on standard error: bars in terminals and notebooks, a line now and then elsewhere."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from esnlm.utils.messages import is_terminal, say

#: Seconds between two updates of the time on a bar, and between two lines where standard error is
#: no terminal.
TICK, BETWEEN_LINES = 1.0, 30.0


def progress_bar(show: bool, steps: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return a bar of tqdm, if ``show``: in a notebook, on a terminal, or as lines of plain text.

    On a terminal it moves every second, whatever the work does. In a pipe or a file it is a line
    of the log every half minute, without control characters.
    """
    from tqdm import auto, std

    if not show or auto.notebook_tqdm is not std.tqdm:
        return auto.tqdm(steps, disable=not show, **options)
    terminal, lines = _kinds()
    kind = terminal if is_terminal() else lines
    return kind(steps, **options)


@contextmanager
def phase(name: str, show: bool = True) -> Iterator[None]:
    """Show the name of work that has no steps to count, and how long it takes."""
    with progress_bar(show, desc=name, bar_format="{desc} {elapsed}", leave=False):
        yield


@cache
def _kinds() -> tuple[Any, Any]:
    """Return the two kinds of bars; tqdm is imported on first use."""
    from tqdm.std import tqdm

    class Ticking(tqdm):
        """A bar that is drawn every `TICK` seconds until it is closed."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self._ended = threading.Event()
            super().__init__(*args, **options)
            if not self.disable:
                threading.Thread(target=self._tick, daemon=True).start()

        def _tick(self) -> None:
            while not self._ended.wait(TICK):
                self.refresh()

        def close(self) -> None:
            self._ended.set()
            super().close()

    class Lines(Ticking):
        """The same as a line of the log every `BETWEEN_LINES` seconds."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self._told = time.monotonic()
            super().__init__(*args, **options)

        def display(self, msg: Any = None, pos: Any = None) -> bool:
            if time.monotonic() - self._told >= BETWEEN_LINES and not self._ended.is_set():
                self._told = time.monotonic()
                say(line_of(self.format_dict))
            return True

        def close(self) -> None:
            self._ended.set()
            self.leave = False
            self.fp = _Nowhere()
            super().close()

    return Ticking, Lines


class _Nowhere:
    """A file that takes nothing."""

    def write(self, text: str) -> None:
        """Take it."""

    def flush(self) -> None:
        """Nothing is kept back."""


def duration(seconds: float) -> str:
    """Return a time in its two largest units.

    >>> duration(2.4), duration(200), duration(4488), duration(93600)
    ('2.4 s', '3 min 20 s', '1 h 14 min', '1 d 2 h')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    left, parts = round(seconds), list[str]()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        parts += [f"{count} {unit}"] if count else ["0"] if parts else []
    return " ".join(part for part in parts[:2] if part != "0")


def line_of(state: dict[str, Any]) -> str:
    """Return the state of a bar (tqdm's ``format_dict``) in one line of plain text.

    >>> state = {"n": 250, "total": 1000, "elapsed": 20.0, "rate": None, "unit": "tok"}
    >>> line_of(state | {"prefix": "pass 1 of 2", "postfix": "held-out 4.2 nats"})
    'pass 1 of 2: 25 %, 250 of 1000 tok, 12.5 tok/s, about 1 min left, held-out 4.2 nats'
    >>> line_of({"n": 2, "total": 151, "elapsed": 60.0, "unit": "run"})
    '1 %, 2 of 151 run, 30 s a run, about 1 h 14 min left'
    >>> line_of({"n": 0, "total": None, "elapsed": 65.0, "prefix": "solving"})
    'solving: 1 min 5 s'
    """
    from tqdm import tqdm

    scale = state.get("unit_scale") or 1
    n, total, elapsed = scale * state["n"], scale * (state.get("total") or 0), state["elapsed"]
    unit, parts = state.get("unit", "it"), list[str]()

    def shown(count: float) -> str:
        return tqdm.format_sizeof(count) if state.get("unit_scale") else f"{count:g}"

    rate = n / elapsed if elapsed else 0
    if total:
        parts.append(f"{100 * n / total:.0f} %, {shown(n)} of {shown(total)} {unit}")
    elif n:
        parts.append(f"{shown(n)} {unit}")
    if rate:
        slow = rate < 1
        parts.append(f"{duration(1 / rate)} a {unit}" if slow else f"{shown(rate)} {unit}/s")
    if rate and total:
        parts.append(f"about {duration(max(0.0, total - n) / rate)} left")
    else:
        parts.append(duration(elapsed))
    parts += [state["postfix"]] if state.get("postfix") else []
    name = (state.get("prefix") or "").removesuffix(": ")
    return (f"{name}: " if name else "") + ", ".join(parts)
