"""Messages on standard error, one line each, through the logger ``esnlm``."""

import logging
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

_PREFIXES = {logging.WARNING: "warning: ", logging.ERROR: "error: "}

log = logging.getLogger("esnlm")


#: The words of the command line that is run, without the program's name.
_given: list[str] = []
#: Names options in the place of parameters, in the messages of that command.
_named: list[Callable[[str], str]] = []


def run_command(words: Sequence[str], named: Callable[[str], str] = str) -> None:
    """Remember the command line that is run, and how messages name its options."""
    _given[:] = words
    _named[:] = [named]


def this_command(*more: str) -> str:
    """Return the command line that is run, with more options, as it is typed.

    >>> run_command(["train", "my text", "--out", "m"])
    >>> this_command("--resume")
    "esnlm train 'my text' --out m --resume"
    """
    return shlex.join(["esnlm", *_given, *(word for word in more if word not in _given)])


class _Console(logging.Handler):
    """One line a message, prefixed with the program's name and its level."""

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        for named in _named:
            line = named(line)
        line = " ".join(line.split())
        print(f"esnlm: {_PREFIXES.get(record.levelno, '')}{line}", file=sys.stderr)


def is_terminal() -> bool:
    """Whether a person sees standard error as it is written."""
    return bool(sys.stderr is not None and sys.stderr.isatty())


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
