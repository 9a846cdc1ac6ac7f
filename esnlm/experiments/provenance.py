"""Which code made a row."""

import subprocess
from pathlib import Path


def code_version() -> str:
    """The commit of the checkout that this code lies in, with + where it was changed.

    Without a checkout or git: the package's version, such as ``esnlm 0.1.0``.
    """
    from esnlm import __version__

    here = str(Path(__file__).parent)
    command = ["git", "-C", here, "describe", "--always", "--dirty=+", "--abbrev=9"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return f"esnlm {__version__}"
    return done.stdout.strip() or f"esnlm {__version__}"
