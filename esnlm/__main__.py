"""The command line: find the command, run it, and say in one line what went wrong."""

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from cyclopts import App, CycloptsError, Group

from esnlm.options.help_pages import ESSENTIALS, EXAMPLES, PANELS, short_help
from esnlm.options.parsing import Flags, app
from esnlm.utils import __version__
from esnlm.utils.blas import use_widest_kernels
from esnlm.utils.messages import log, run_command, show_messages

# Command -> what it does; `esnlm.commands` has a module of its name, with a function of it.
_COMMANDS = {
    "prepare": "Turn text into token shards.",
    "train": "Fit a model to text.",
    "search": "Search the settings of a model, judged on held-out text.",
    "ngram": "Count the n-grams of text: the baseline.",
    "interpolate": "Make one model of several.",
    "evaluate": "Score text with a model.",
    "blimp": "Judge minimal pairs with a model.",
    "syntaxgym": "Judge models with the test suites of SyntaxGym.",
    "generate": "Continue a prompt.",
    "serve": "Show in a browser what models say of a sentence.",
    "report": "One HTML page of a model, a run or a grid.",
    "export": "Write a model for other libraries.",
}
# Command -> its module in `esnlm.studies`, and what it does.
_STUDIES = {
    "compare": ("networks.command", "Train networks of several kinds side by side."),
    "controls": (
        "controls.command",
        "A reservoir without coupling, memory or direct connections, to CSVs, tables and a plot.",
    ),
    "natural": (
        "natural.command",
        "Reservoirs of many sizes, connectivities and leak rates on shards, to a CSV and a plot.",
    ),
    "elman": (
        "elman.command",
        "Grammar experiments: sizes x readouts x features x seeds, to a CSV and plots.",
    ),
    "shakespeare": (
        "shakespeare.command",
        "Reservoirs of several sizes on Shakespeare's characters, to a CSV and a plot.",
    ),
    "reading": ("reading.command", "Gains of surprisal on reading times, to tables and a plot."),
    "timescales": ("timescales.command", "Measure how long the units of a trained LSTM remember."),
    "ablation": (
        "timescales.command",
        "Measure what is left of a word in the state, tokens later.",
    ),
    "dyck": (
        "dyck.command",
        "Fixed timescales against learned ones on nested brackets, to a CSV and a plot.",
    ),
}
_ALL = "--help-all"
_REFUSED = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 0, 2 for bad input, 130 when interrupted."""
    if sys.stdout is None or sys.stderr is None:
        return _without_output()
    _encode_output()
    _outlive_terminal()
    use_widest_kernels()
    show_messages()
    words = sys.argv[1:] if argv is None else argv
    if argv is None:  # a notebook's shell hands on its own backend, which draws no files
        os.environ["MPLBACKEND"] = "agg"
    for name in ("COLUMNS", "LINES"):  # help of 2 columns has no end, of millions takes gigabytes
        size = os.environ.get(name, "")
        if not (size.isdecimal() and 2 < int(size[:5]) < 1000):
            os.environ.pop(name, None)
    arguments = _joined(["--help" if word == _ALL else word for word in words])
    try:
        commands = _app(words)
        flags = Flags(commands, words)
        run_command(words, flags)
        status: int | None = commands(arguments)
        sys.stdout.flush()
    except CycloptsError as error:
        return _refused(flags.reason(error))
    except BrokenPipeError:  # the reader has left: nobody to tell, nothing to flush at exit
        _forget_output()
        return _BROKEN_PIPE
    except SystemExit as leave:
        if not isinstance(leave.__context__, BrokenPipeError):
            raise
        return _BROKEN_PIPE  # rich, which prints help, has forgotten the output
    except KeyboardInterrupt as interrupt:
        log.info(str(interrupt) or "interrupted")
        return _INTERRUPTED
    except OSError as error:
        _forget_output()
        if error.errno == errno.ENOENT and error.filename is None:  # what getcwd raises
            return _refused("the current folder was removed: change to another one")
        if error.errno == errno.ENOSPC:  # errors of writing a file have its name
            error.filename = error.filename or "standard output"
        has_reason = error.strerror is not None and error.filename is not None
        return _refused(f"{error.filename}: {error.strerror}" if has_reason else str(error))
    except (ValueError, FloatingPointError, OverflowError, ImportError) as error:
        return _refused(str(error))
    except MemoryError as error:
        why = f" ({error})" if str(error) else ""
        return _refused(f"out of memory: lower --units, or the size of the vocabulary{why}")
    except RuntimeError as error:
        if str(error).startswith("Symlink loop"):  # what Python below 3.13 says of it
            return _refused(str(error))
        # Those of torch, which is not imported for this.
        if "can't allocate memory" in str(error):
            return _refused("out of memory: lower --batch-size, or --units")
        if type(error).__name__ != "OutOfMemoryError":
            raise
        return _refused("out of memory on the device: lower --batch-size, or --units")
    if status is None:  # help, or the version
        return 0 if arguments else _REFUSED
    return status


def _app(words: Sequence[str]) -> App:
    """Return the commands for these words; the module of one is imported when it is called."""
    commands = app(
        "esnlm",
        help="Language models on a fixed reservoir.",
        version=f"esnlm {__version__}",
        help_formatter="default",
        help_format="plaintext",
        group_commands=Group("Commands", sort_key=len(PANELS)),
    )
    shortens = _ALL not in words
    groups = {
        name: group
        for place, (panel, names) in enumerate(PANELS.items())
        for group in (Group(panel, sort_key=place),)
        for name in names
    }
    is_page = bool({"--help", "-h"} & {*words})
    modules = {name: (f"esnlm.commands.{name}", summary) for name, summary in _COMMANDS.items()}
    modules |= {name: (f"esnlm.studies.{at}", summary) for name, (at, summary) in _STUDIES.items()}
    for place, (name, (module, summary)) in enumerate(modules.items()):
        commands.command(
            f"{module}:{name}",
            name=name,
            help=summary,
            help_format="markdown",
            help_epilogue=_epilogue(name, shortens),
            help_formatter=short_help(name) if name in ESSENTIALS and is_page else "default",
            group=groups[name],
            sort_key=place,
        )
    return commands


def _epilogue(name: str, shortens: bool) -> str | None:
    """Return the foot of a command's help: an example, and where more options are."""
    more = f"More options: `esnlm {name} {_ALL}`" if shortens and name in ESSENTIALS else None
    example = f"Example: `{EXAMPLES[name]}`" if name in EXAMPLES else None
    return "\n\n".join(filter(None, (example, more))) or None


def _joined(arguments: Sequence[str]) -> list[str]:
    """Values with a leading dash and a space joined to their option, so that they are values.

    ``~/`` after ``--option=`` is the home of the user: shells expand it at the start of words only.
    """
    words: list[str] = []
    for word in arguments:
        name, joins, path = word.partition("=~/")
        is_home = joins and name.startswith("--") and " " not in name
        argument = f"{name}={os.path.expanduser('~/' + path)}" if is_home else word
        option = words[-1] if words and "=" not in words[-1] else ""
        if argument.startswith("-") and " " in argument and option[:2] == "--" != option:
            words[-1] += f"={argument}"
        else:
            words.append(argument)
    return words


class _Terminal(io.FileIO):
    """A terminal that may be closed while a command runs: what it then says is lost, no result."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return memoryview(data).nbytes


def _outlive_terminal() -> None:
    """Let no line that a closed terminal refuses end a command before its files are written."""
    for name in ("stdout", "stderr"):
        out = getattr(sys, name)
        if (
            isinstance(out, io.TextIOWrapper)
            and out.isatty()
            and type(getattr(out.buffer, "raw", out.buffer)) is io.FileIO  # not that of Windows
        ):
            file = io.BufferedWriter(_Terminal(out.fileno(), "wb", closefd=False))
            terminal = io.TextIOWrapper(file, out.encoding, out.errors, line_buffering=True)
            setattr(sys, name, terminal)


def _encode_output() -> None:
    """Write redirected output as UTF-8, as Python does from 3.15 on, and never fail for a letter.

    The code pages of Windows lack most letters, as the locale C does, in which bytes of names are
    written as they are; ``PYTHONIOENCODING`` decides where it is set.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        decided = "PYTHONIOENCODING" in os.environ or sys.stdout.isatty()
        encoding, errors = sys.stdout.encoding if decided else "utf-8", sys.stdout.errors
        if errors == "strict" or (errors == "surrogateescape" and encoding != "utf-8"):
            errors = "backslashreplace"
        if (encoding.lower(), errors) != (sys.stdout.encoding.lower(), sys.stdout.errors):
            sys.stdout.reconfigure(encoding=encoding, errors=errors)


def _without_output() -> int:
    """Refuse a closed output: the next file that is opened would get what is meant for it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
            message = f"esnlm: error: {name} is closed: redirect it to {os.devnull}"
    print(message, file=sys.__stderr__ or sys.__stdout__ or sys.stdout)
    return _REFUSED


def _forget_output() -> None:
    """Discard unflushed output: else the exit fails too."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refused(message: str) -> int:
    log.error("%s", message)
    return _REFUSED


if __name__ == "__main__":
    sys.exit(main())
