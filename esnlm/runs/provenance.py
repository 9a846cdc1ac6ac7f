"""The version of the code that made a row."""

import subprocess
from pathlib import Path


def code_version(*folders: Path) -> str:
    """Return the commit of the code, with + where tracked files differ from it.

    ``folders`` are those of the code, by default this package's; other files of the checkout do
    not count. Without a checkout or git: the package's version, such as ``esnlm 0.1.0``.
    """
    from esnlm.utils import __version__

    code = [str(folder) for folder in folders or (Path(__file__).parents[1],)]
    commit = _git(code[0], "rev-parse", "--short=9", "HEAD")
    if not commit:
        return f"esnlm {__version__}"
    changed = _git(code[0], "status", "--porcelain", "--untracked-files=no", "--", *code)
    return f"{commit}+" if changed else commit


def _git(folder: str, *arguments: str) -> str:
    """Return the output of git, empty where it fails or is not installed."""
    try:
        command = ["git", "-C", folder, *arguments]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return process.stdout.strip()
