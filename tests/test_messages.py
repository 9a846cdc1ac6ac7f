"""Progress as it is seen: on a terminal it moves by itself, in a pipe it is lines of text."""

import os
import re
import subprocess
import sys
from typing import Any

import pytest
from tqdm import auto

from esnlm.__main__ import _outlive_terminal
from esnlm.utils.messages import progress_bar

SCRIPT = """
import time
from esnlm.utils import messages
messages.TICK, messages.BETWEEN_LINES = 0.05, 0.2
with messages.progress_bar(True, total=8, unit="tok", desc="pass 1 of 2") as bar:
    bar.update(2)
    time.sleep(1.0)  # stands still
    bar.set_description("solving")
    time.sleep(0.5)
with messages.phase("counting"):
    time.sleep(0.6)
"""


def test_lines_in_a_pipe_have_no_control_characters():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert all(letter.isprintable() or letter == "\n" for letter in done.stderr)
    lines = done.stderr.splitlines()
    assert 4 <= len(lines) <= 12
    assert lines[0].startswith("esnlm: pass 1 of 2: 25% 2/8 [")
    assert any(line.startswith("esnlm: solving: 25% ") for line in lines)
    assert re.fullmatch(r"esnlm: counting 00:0\d", lines[-1])


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
def test_a_bar_on_a_terminal_moves_while_work_stands_still():
    termios = pytest.importorskip("termios")
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 100))
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stderr=slave)
    os.close(slave)
    seen = b""
    while True:
        try:
            if not (part := os.read(master, 4096)):
                break
        except OSError:  # Linux: the other end is closed
            break
        seen += part
    os.close(master)
    assert process.wait() == 0
    shown = seen.decode().split("\r")
    assert sum("pass 1 of 2:  25%" in line for line in shown) >= 5
    assert sum("counting 00:00" in line for line in shown) >= 3


def test_a_bar_that_is_not_asked_for_is_not_there():
    script = "from esnlm.utils.messages import phase\nwith phase('x', False):\n    pass"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_bars_are_shown_in_notebooks(monkeypatch):
    asked: list[Any] = []

    class Bar:
        def __init__(self, steps: Any, disable: Any, **options: Any) -> None:
            asked.append(disable)

    monkeypatch.setattr(auto, "tqdm", Bar)
    monkeypatch.setattr(auto, "notebook_tqdm", Bar)
    progress_bar(True)
    progress_bar(False)
    assert asked == [False, True]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_message_that_cannot_be_written_ends_no_run():
    script = "from esnlm.utils.messages import log, show_messages\nshow_messages()\nlog.info('a')"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", f"{script}\nprint('on')"],
            stderr=full,
            stdout=subprocess.PIPE,
            text=True,
        )
    assert done.stdout == "on\n"


def test_a_terminal_that_is_closed_ends_no_run(monkeypatch) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal:
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, terminal)
        _outlive_terminal()
        os.close(ours)
        print("lost")
        print("lost", file=sys.stderr, flush=True)
        assert sys.stdout.buffer.write(b"lost") == 4
        sys.stdout.flush()


def test_bars_leave_the_start_of_processes_to_the_caller() -> None:
    script = "import multiprocessing; from esnlm.utils.messages import progress_bar\n"
    script += "progress_bar(True).close(); multiprocessing.set_start_method('spawn')\n"
    script += "print(multiprocessing.get_start_method())"
    started = [sys.executable, "-c", script]
    done = subprocess.run(started, check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    assert done.stdout == "spawn\n"


@pytest.mark.parametrize("variable", ["TQDM_MININTERVAL=x", "NUMBA_NUM_THREADS=0"])
def test_variables_that_a_library_refuses_are_named(variable: str) -> None:
    name, value = variable.split("=")
    code = "import esnlm.kernels\nfrom esnlm.utils.messages import progress_bar; progress_bar(True)"
    command, variables = [sys.executable, "-c", code], {**os.environ, name: value}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert name.partition("_")[0] in last
    assert last.endswith("correct or unset it")
