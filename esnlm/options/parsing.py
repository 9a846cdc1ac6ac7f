"""How options are parsed, by all commands alike, and how messages name them."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cached_property
from itertools import pairwise
from typing import Any

from cyclopts import App, CycloptsError, Parameter
from cyclopts.exceptions import (
    ConsumeMultipleError,
    MissingArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
)

# ``name must``, with the kind of number that an option has been read as.
_MUST = (
    r"(?:(?<=^)|(?<=: ))(\w+) "
    r"(?:must (be (?:None or )?an integer of )?|is (?:(?:not|only) valid|no setting) )"
)
# ``name=value``, but for names of parameters that are typed.
_SETTING = (
    r"(?<![\w./?&:,'\"-])(?<!--option )(?<!--plan )"
    r"(\w+)=(True|'[^']*'|[^\s,]+(?= has no effect))"
)
# Names of parameters in advice.
_ADVICE = r"(?<=leave out )\w+|(?<=or change )\w+"
# Parameters of the library that options call otherwise, where no rule tells.
_OTHER_NAMES = {
    "n_units": "sizes", "max_iter": "passes", "random_state": "seed", "topology": "topologies",
}  # fmt: skip


def app(name: str, **options: Any) -> App:
    """Return an app that raises errors; of an option given again the last value counts."""
    return App(
        name,
        default_parameter=Parameter(
            negative=(), allow_repeating=True, consume_multiple=1, show_default=_shown
        ),
        config=_last_values,
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
        **options,
    )


def _shown(default: Any) -> str | None:
    """Return a default as it would be typed; None of a flag or of no values."""
    if default is None or default is False or default in ((), ""):
        return None
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _last_values(_app: App, _commands: Any, arguments: Any) -> None:
    """Of an option of several values that is given twice, the last values count."""
    for argument in arguments:
        tokens = argument.tokens
        if argument.parameter.consume_multiple and tokens and tokens[0].keyword is not None:
            start = max(i for i, token in enumerate(tokens) if token.index == 0)
            argument.tokens = tokens[start:]


class Flags:
    """Messages of the command line that is run: options in the place of parameters."""

    def __init__(self, commands: App, words: Sequence[str]) -> None:
        self.words = list(words)
        self._command = commands[words[0]] if words and words[0] in commands else None

    @cached_property
    def _arguments(self) -> Any:
        """Arguments of the command, with their help."""
        return (
            ()
            if self._command is None
            else self._command.assemble_argument_collection(parse_docstring=True)
        )

    def reason(self, error: CycloptsError) -> str:
        """Return what is wrong with the command line, in one line."""
        if isinstance(error, MissingArgumentError | ConsumeMultipleError) and error.argument:
            return self._missing(error)
        if isinstance(error, UnknownOptionError) and error.token.value == "-":
            return "standard input is not read: write a file and name it in the place of -"
        if isinstance(error, UnusedCliTokensError):
            return f"got more than the command takes: {' '.join(error.unused_tokens or ())}"
        return str(error).removeprefix("Invalid value for ").replace(": must", " must", 1)

    def _missing(self, error: Any) -> str:
        """Return what an option or argument without a value is for: its help's first sentence.

        If an option was mistyped, return its correct name instead.
        """
        name, names = error.argument.name, [n for each in self._arguments for n in each.names]
        (parameter,) = (each.parameter for each in self._arguments if each.name == name)
        purpose = re.split(r"[.:]\s|\s\(", parameter.help or "")[0].rstrip(".:")
        if purpose[1:2].islower() or purpose[1:2] == " ":
            purpose = purpose[0].lower() + purpose[1:]
        purpose = " ".join(purpose.split())
        if not name.startswith("-"):
            return f"name {purpose} ({name})"
        for word in (word.partition("=")[0] for word in self.words):
            if word[:2] == "--" and word not in names and get_close_matches(word, [name]):
                return f"Unknown option: {word}. Did you mean {name}?"
        typed = any(word.partition("=")[0] == name for word in self.words)
        name = " ".join(filter(None, (name, parameter.metavar)))
        if not typed:
            return f"{name} is missing: {purpose}"
        count = error.argument.token_count()[0]
        needed = f"{name} needs {'a value' if count < 2 else f'{count} values'}: {purpose}"
        for option, word in pairwise(self.words):  # a value that was taken for an option
            if option == error.argument.name and re.match(r"-[^-]", word) and word not in names:
                return f"{needed}; one with a dash before it is joined: {option}={word}"
        return needed

    def __call__(self, message: str) -> str:
        """Return a message of the library as the command line would have it.

        A parameter that must be something else has the name it was typed by, and
        ``name=value`` is the option with its value.
        """
        if self._command is None or not re.search(r"\w=\S|\w must |valid with|no setting", message):
            return message
        message = re.sub(_MUST, self._typed, message)
        message = re.sub(_SETTING, self._advised, message)
        return re.sub(_ADVICE, lambda match: next(iter(self._names(match[0])), match[0]), message)

    def _typed(self, match: re.Match[str]) -> str:
        """Return the option of a parameter, as it was typed, and what it must be."""
        name, kind = match[1], "be " if match[2] else ""
        pairs = ("--option", "--plan")
        for before, word in zip(["", *self.words], self.words, strict=False):
            option, _, pair = word.partition("=") if before not in pairs else (before, "", word)
            if option in pairs and pair.partition("=")[0].rpartition(".")[2] == name:
                return f"{option} {match[0]}"
        flags = self._names(name)
        typed = next((f for f in flags if any(w.split("=")[0] == f for w in self.words)), None)
        if typed is None:
            return match[0]
        return f"{typed} must {kind}" if " must " in match[0] else match[0].replace(name, typed, 1)

    def _advised(self, match: re.Match[str]) -> str:
        name = next(iter(self._names(match[1])), None)
        if name is None:
            return match[0]
        return name if match[2] == "True" else f"{name} {match[2].strip(chr(39))}"

    def _names(self, parameter: str) -> list[str]:
        """Return the options that may set a parameter, the likeliest first."""
        stem = parameter.removeprefix("n_")
        candidates = parameter, stem, f"{stem}s", _OTHER_NAMES.get(parameter)
        options = {each.field_info.name: each.name for each in self._arguments if each.name != "*"}
        return [options[name] for name in candidates if name in options]
