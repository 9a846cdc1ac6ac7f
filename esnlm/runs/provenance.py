"""The version of the code that made a row."""

import os
import subprocess
from pathlib import Path


def code_version(*folders: Path) -> str:
    """Return the commit of the code, with + where tracked files differ from it.

    ``folders`` are those of the code, by default this package's; other files of the checkout do
    not count. Without git, or where the code is in no checkout of its own, as in an environment
    that lies in a project: the package's version, such as ``esnlm 0.1.0``.
    """
    from esnlm.utils import __version__

    code = [str(folder) for folder in folders or (Path(__file__).parents[1],)]
    tracked = _git(code[0], "ls-files", "--", code[0])
    commit = tracked and _git(code[0], "rev-parse", "--short=9", "HEAD")
    if not commit:
        return f"esnlm {__version__}"
    changed = _git(code[0], "status", "--porcelain", "--untracked-files=no", "--", *code)
    return f"{commit}+" if changed else commit


def _git(folder: str, *arguments: str) -> str:
    """Return the output of git, empty where it fails or is not installed."""
    # Git's hooks have it name the repository of the hook, wherever the folder is.
    elsewhere = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    environment = {name: value for name, value in os.environ.items() if name not in elsewhere}
    environment["GIT_OPTIONAL_LOCKS"] = "0"  # a lock that a kill leaves stops the user's commits
    try:
        command = ["git", "-C", folder, *arguments]
        process = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, env=environment
        )
    except OSError:
        return ""
    return process.stdout.strip()
