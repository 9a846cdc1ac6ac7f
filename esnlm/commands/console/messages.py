"""What a command tells its user on standard error: one line each."""

import sys


def warn(message: str) -> None:
    """Print a warning."""
    print(f"esnlm: warning: {one_line(message)}", file=sys.stderr)


def note(message: str) -> None:
    """Print what is neither wrong nor a result."""
    print(f"esnlm: {one_line(message)}", file=sys.stderr)


def fail(message: str) -> int:
    """Print an error; the exit status of bad input."""
    print(f"esnlm: error: {one_line(message)}", file=sys.stderr)
    return 2


def one_line(message: str) -> str:
    """The message without line breaks."""
    return " ".join(message.split())
