"""Ctrl-C and SIGTERM as a question that a long run asks itself."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from esnlm.utils.messages import log


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Whether the user asked to stop, by Ctrl-C or SIGTERM; asked again, the run ends at once."""
    asked: list[int] = []

    def ask(number: int, _: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        log.info("stopping after this step, with a checkpoint; once more to stop at once")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
