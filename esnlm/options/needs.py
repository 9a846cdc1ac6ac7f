"""Options that do nothing without another."""

from typing import Any

from esnlm.options.common import option_name


def check_needs(options: Any, *needs: tuple[str, Any, str]) -> None:
    """Raise ValueError for an option with a value that nothing reads.

    ``needs``: names of options, what they do nothing without, and that in words.
    """
    for several, is_there, words in needs:
        for name in several.split():
            default = type(options).__dataclass_fields__[name].default
            if not is_there and getattr(options, name) != default:
                raise ValueError(f"{option_name(name)} needs {words}")
