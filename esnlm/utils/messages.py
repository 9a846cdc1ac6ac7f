"""Messages and progress on standard error, through the logger ``esnlm`` and tqdm."""

import logging
import shlex
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

_PREFIXES = {logging.WARNING: "warning: ", logging.ERROR: "error: "}

#: Seconds between two updates of a bar, and between two lines where standard error is no terminal.
TICK, BETWEEN_LINES = 1.0, 30.0

log = logging.getLogger("esnlm")


#: The words of the command line that is run, without the program's name.
_words: list[str] = []
#: Names options in the place of parameters, in the messages of that command.
_rename: list[Callable[[str], str]] = []


def run_command(words: Sequence[str], rename: Callable[[str], str] = str) -> None:
    """Remember the command line that is run, and how messages name its options."""
    _words[:] = words
    _rename[:] = [rename]


def this_command(*more: str) -> str:
    """Return the command line that is run, with more options, as it is typed.

    >>> run_command(["train", "my text", "--out", "m"])
    >>> this_command("--resume")
    "esnlm train 'my text' --out m --resume"
    """
    return shlex.join(["esnlm", *_words, *(word for word in more if word not in _words)])


class _Console(logging.Handler):
    """One line a message, prefixed with the program's name and its level."""

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        for rename in _rename:
            line = rename(line)
        line = " ".join(line.split())
        with suppress(OSError):  # a full disk behind standard error ends no run
            print(f"esnlm: {_PREFIXES.get(record.levelno, '')}{line}", file=sys.stderr)


def as_text(name: object) -> str:
    """Return a name as text: bytes of a file's name that are no UTF-8 are escapes.

    >>> as_text(b"m\\xf6del".decode(errors="surrogateescape"))
    'm\\\\udcf6del'
    """
    return str(name).encode(errors="backslashreplace").decode()


def is_terminal() -> bool:
    """Return whether a person sees standard error as it is written."""
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
    warnings.showwarning = lambda message, *_, **__: log.warning("%s", message)


class _LogLines:
    """A file of which the log gets the last line now and then, without control characters."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def write(self, text: str) -> None:
        """Log a line of tqdm, unless one was logged less than `BETWEEN_LINES` seconds ago."""
        line = text.startswith("\r") and text.strip()
        if line and time.monotonic() - self._last >= BETWEEN_LINES:
            self._last = time.monotonic()
            say(line)


def progress_bar(show: bool, steps: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return a bar of tqdm, if ``show``: in a notebook, on a terminal, or as lines of plain text.

    On a terminal it moves every second, whatever the work does. In a pipe or a file it is a line
    of the log every half minute.
    """
    try:
        from tqdm import auto, std
    except ValueError as error:
        raise ValueError(
            f"tqdm refuses a variable TQDM_... of the environment ({error}): correct or unset it"
        ) from error
    if not hasattr(std.tqdm, "_lock"):
        # Its own is one of processes: it fixes how they start, and leaks where this one is killed.
        std.tqdm.set_lock(threading.RLock())
    in_notebook = auto.notebook_tqdm is not std.tqdm
    if show and not in_notebook and not is_terminal():
        options |= {"file": _LogLines(), "ncols": 0, "leave": False}
    bar = auto.tqdm(steps, disable=not show, **options)
    if show and not in_notebook:
        with suppress(RuntimeError):  # the system lets this process start no more threads
            threading.Thread(target=_refresh, args=(bar,), daemon=True).start()
    return bar


def _refresh(bar: Any) -> None:
    """Draw a bar every `TICK` seconds until it is closed."""
    while not bar.disable:
        time.sleep(TICK)
        with bar.get_lock():
            bar.refresh(nolock=True)


@contextmanager
def phase(name: str, show: bool = True) -> Iterator[None]:
    """Show the name of work that has no steps to count, and how long it takes."""
    with progress_bar(show, desc=name, bar_format="{desc} {elapsed}", leave=False):
        yield
