"""How options are parsed, by all commands alike: the settings of a cyclopts `App`."""

from typing import Any

from cyclopts import App, Parameter


def app(name: str, **options: Any) -> App:
    """An app whose errors are raised, and whose options may be given again: the last one counts."""
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
    """A default as it would be typed; None of a flag or of no values."""
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
