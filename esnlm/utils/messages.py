"""Messages on standard error, one line each, through the logger ``esnlm``."""

import logging
import sys
import warnings
from typing import Any

_PREFIXES = {logging.WARNING: "warning: ", logging.ERROR: "error: "}

log = logging.getLogger("esnlm")


class _Console(logging.Handler):
    """One line a message, prefixed with the program's name and its level."""

    def emit(self, record: logging.LogRecord) -> None:
        line = " ".join(record.getMessage().split())
        print(f"esnlm: {_PREFIXES.get(record.levelno, '')}{line}", file=sys.stderr)


def say(line: str) -> None:
    """Log what ``verbose`` asked for; printed on standard error where logging is not configured."""
    if not log.hasHandlers():
        log.addHandler(_Console())
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    log.info(line)


def show_messages() -> None:
    """Print the messages of the logger ``esnlm``, and Python's warnings, on standard error."""
    if not any(isinstance(handler, _Console) for handler in log.handlers):
        log.addHandler(_Console())
    log.setLevel(logging.INFO)
    log.propagate = False
    warnings.showwarning = _show_warning


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    log.warning("%s", message)
