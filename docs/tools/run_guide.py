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
# A bar, or the line of the log that stands for one: how long it takes is no output.
PROGRESS = re.compile(r"%\||^esnlm: .*\b\d\d:\d\d(<| left|, |$)")


def ran(commands: str) -> str:
    """Return a console block with the present output of its commands."""
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
        parts += [*shown, *(line for line in told if line and not PROGRESS.search(line))]
    return "\n".join(parts) + "\n"


def main(page: Path, folder: Path) -> None:
    """Rewrite the page, block by block: its prose may be edited meanwhile."""
    page, names = page.resolve(), {"__name__": "guide"}
    os.chdir(folder)
    printed = ""
    for place, (kind, text) in enumerate(BLOCK.findall(page.read_text())):
        if kind == "console":
            text = ran(text)
        elif kind == "python":
            print("+ python", text.splitlines()[0], flush=True)
            with contextlib.redirect_stdout(io.StringIO()) as told:
                exec(compile(text, str(page), "exec"), names)
            printed = told.getvalue()
        else:
            text = printed
        now = page.read_text()
        found = list(BLOCK.finditer(now))[place]
        block = f"```{kind}\n{text.rstrip()}\n```\n"
        page.write_text(now[: found.start()] + block + now[found.end() :])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
