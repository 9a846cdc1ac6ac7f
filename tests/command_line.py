"""Commands run in this process."""

from esnlm.__main__ import main


def refused(capsys, *arguments: object) -> str:
    """The one line of an error with status 2."""
    assert main([str(argument) for argument in arguments]) == 2
    said = capsys.readouterr().err.splitlines()
    (line,) = [line for line in said if line.startswith("esnlm: error: ")]
    assert all(line.startswith("esnlm: ") for line in said)
    return line
