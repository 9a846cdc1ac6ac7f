"""Run the commands of a page of the guide in a folder, and write what they print into the page.

    python docs/tools/run_guide.py docs/guide/first_model.md FOLDER

Commands are the lines after ``$`` in console blocks; a line that ends with a backslash goes on.
Python blocks of a page are one session, and the output block after one holds what it prints.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"```(console|python|output)\n(.*?)```\n", re.DOTALL)


def ran(commands: str) -> str:
    """A console block with the output of its commands as of now."""
    lines = commands.splitlines()
    parts: list[str] = []
    while lines:
        line = lines.pop(0)
        if not line.startswith("$ "):
            continue
        shown, command = [line], line[2:]
        while shown[-1].endswith("\\"):
            shown.append(lines.pop(0))
            command = f"{command[:-1]}{shown[-1].strip()}"
        print("+", command, flush=True)
        done = subprocess.run(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        told = done.stdout.rstrip().splitlines()
        parts += [*shown, *(line for line in told if "%|" not in line and line)]  # no bars
    return "\n".join(parts) + "\n"


def main(page: Path, folder: Path) -> None:
    """Rewrite the page."""
    page, names = page.resolve(), {"__name__": "guide"}
    os.chdir(folder)
    printed = ""

    def replaced(match: re.Match[str]) -> str:
        nonlocal printed
        kind, text = match.groups()
        if kind == "console":
            text = ran(text)
        elif kind == "python":
            print("+ python", text.splitlines()[0], flush=True)
            with contextlib.redirect_stdout(io.StringIO()) as told:
                exec(compile(text, str(page), "exec"), names)
            printed = told.getvalue()
        else:
            text = printed
        return f"```{kind}\n{text.rstrip()}\n```\n"

    text, place = page.read_text(), 0
    while match := BLOCK.search(text, place):
        block = replaced(match)
        text = text[: match.start()] + block + text[match.end() :]
        place = match.start() + len(block)
        page.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
