"""The command line: find the command, run it, and say in one line what went wrong."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from esnlm.commands.console.messages import fail, one_line, warn
from esnlm.utils.blas import use_widest_kernels
from esnlm.utils.version import __version__

# Command -> its module, which has add_arguments(parser) and run(args), and what it does.
_COMMANDS = {
    "prepare": ("esnlm.commands.prepare", "turn text into token shards"),
    "train": ("esnlm.commands.train", "fit a model to text"),
    "compare": ("esnlm.commands.compare", "train networks of several kinds side by side"),
    "ngram": ("esnlm.commands.ngram", "count the n-grams of text: the baseline"),
    "evaluate": ("esnlm.commands.evaluate", "score text with a model"),
    "blimp": ("esnlm.commands.blimp", "judge minimal pairs with a model"),
    "generate": ("esnlm.commands.generate", "continue a prompt"),
    "export": ("esnlm.commands.export", "write a model for other libraries"),
    "natural": (
        "esnlm.commands.natural",
        "reservoirs of many sizes, connectivities and leak rates on shards, to a CSV and a plot",
    ),
    "elman": (
        "esnlm.commands.elman",
        "grammar experiments: sizes x readouts x features x seeds, to a CSV and plots",
    ),
    "shakespeare": (
        "esnlm.commands.shakespeare",
        "reservoirs of several sizes on Shakespeare's characters, to a CSV and a plot",
    ),
    "timescales": ("esnlm.commands.timescales", "how long the units of a trained LSTM remember"),
    "ablation": ("esnlm.commands.ablation", "what is left of a word in the state, tokens later"),
    "dyck": (
        "esnlm.commands.dyck",
        "fixed timescales against learned ones on nested brackets, to a CSV and a plot",
    ),
    "text": (
        "esnlm.commands.text",
        "reservoirs beside n-grams on Penn Treebank and tiny Shakespeare, to a CSV",
    ),
}
_INTERRUPTED = 130
_BROKEN_PIPE = 141


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"esnlm: error: {one_line(message)}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 0, 2 for bad input, 130 when interrupted.

    Bad options leave as argparse does, by ``SystemExit`` with status 2.
    """
    use_widest_kernels()
    warnings.showwarning = _show_warning
    arguments = sys.argv[1:] if argv is None else list(argv)
    args = _parser(arguments).parse_args(arguments)
    try:
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has left: nobody to tell, nothing to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        print("esnlm: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except OSError as error:
        return fail(_of_system(error))
    except (ValueError, FloatingPointError, OverflowError) as error:
        return fail(str(error))
    except MemoryError:
        return fail("out of memory: lower --units, or the size of the vocabulary")
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's, which is not imported for this
            raise
        return fail("out of memory on the device: lower --batch-size, or --units")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """A parser of the command that the arguments name; of the others it knows the names."""
    parser = _Parser(prog="esnlm", description="Language models on a fixed reservoir.")
    parser.add_argument("--version", action="version", version=f"esnlm {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (home, summary) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if arguments[:1] == [name]:
            module = import_module(home)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    warn(str(message))


def _of_system(error: OSError) -> str:
    """``name: what is wrong`` of an error that came from the operating system."""
    if error.strerror is None or error.filename is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


if __name__ == "__main__":
    sys.exit(main())
