"""The user's own files: outputs that are special, shared, kept, killed over or locked."""

import csv
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from command_line import refused

from esnlm import NgramLanguageModel
from esnlm.__main__ import main
from esnlm.loading import load_model
from esnlm.storage.atomic import file_aside, folder_aside, locked, put_in_place, write_whole
from esnlm.storage.results import results, write_rows

EVALUATE = ["evaluate", "model", "text", "--csv"]

pytestmark = pytest.mark.usefixtures("in_folder_of_model")


def rows_of(path: str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def names() -> set[str]:
    return set(os.listdir("."))


def test_a_device_stays_a_device():
    assert main([*EVALUATE, "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()
    assert not list(Path("/dev").glob(".null*"))


def test_a_pipe_is_written_straight():
    os.mkfifo("pipe")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(Path("pipe").read_text()))
    reader.start()
    assert main([*EVALUATE, "pipe"]) == 0
    reader.join(10)
    assert found[0].startswith("model,")
    assert Path("pipe").is_fifo()


def test_what_a_link_leads_to_is_written():
    Path("folder").mkdir()
    Path("link.csv").symlink_to("folder/rows.csv")
    for _ in range(2):
        assert main([*EVALUATE, "link.csv"]) == 0
    assert Path("link.csv").is_symlink()
    assert len(rows_of("folder/rows.csv")) == 2
    assert os.listdir("folder") == ["rows.csv"]


def test_a_linked_model_is_replaced_where_it_lies():
    Path("link").symlink_to("model")
    assert main(["ngram", "text", "--out", "link", "--overwrite", "--order", "1"]) == 0
    assert Path("link").is_symlink()
    assert NgramLanguageModel.load("model").order == 1


def test_what_is_no_file_is_refused(capsys):
    Path("loop").symlink_to("loop")
    Path("folder").mkdir()
    assert "Too many levels" in refused(capsys, *EVALUATE, "loop")
    assert "it is a folder" in refused(capsys, *EVALUATE, "folder")
    assert "Not a directory" in refused(capsys, "ngram", "text", "--out", "loop/model")
    assert "Too many levels" in refused(capsys, "ngram", "text", "--out", "loop")
    with pytest.raises(OSError, match="it is a folder"):
        write_whole(Path("folder"), "text")


def test_the_file_of_standard_output_is_no_result():
    command = [sys.executable, "-m", "esnlm", *EVALUATE, "/dev/stdout"]
    with open("out", "w") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "standard output goes there" in done.stderr


def test_no_name_of_the_users_is_taken():
    mine = ("rows.csv.new", ".rows.csv.new", "rows.csv.tmp", ".rows.csv.old", "model.new")
    for name in mine:
        Path(name).write_text("mine")
    assert main([*EVALUATE, "rows.csv"]) == 0
    assert main(["ngram", "text", "--out", "model", "--overwrite"]) == 0
    assert {Path(name).read_text() for name in mine} == {"mine"}
    assert names() == {*mine, "rows.csv", "model", "text"}


KILLED = """
import os, signal
from esnlm.__main__ import main
from esnlm.storage import atomic

replace, calls = os.replace, [0]
def counted(*names):
    calls[0] += 1
    if calls[0] == int(os.environ["AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*names)

os.replace = counted
main(os.environ["COMMAND"].split())
"""


def killed_at_rename(number: int, command: str) -> None:
    environment = {**os.environ, "AT": str(number), "COMMAND": command}
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL


def test_what_a_kill_leaves_is_swept_by_the_next_command():
    killed_at_rename(1, "evaluate model text --csv rows.csv")
    assert len(names()) == 4  # lock and file aside
    assert main([*EVALUATE, "rows.csv"]) == 0
    assert names() == {"text", "model", "rows.csv"}
    killed_at_rename(1, "ngram text --out new")
    assert names() - {"text", "model", "rows.csv"}
    assert main(["ngram", "text", "--out", "new"]) == 0
    assert names() == {"text", "model", "rows.csv", "new"}


@pytest.mark.parametrize("read", ["evaluate model text", "generate model --tokens 1"])
def test_a_model_that_was_being_replaced_is_found_again(read: str, capsys):
    before = Path("model/weights.safetensors").read_bytes()
    # A model's own tokenizer and configuration are put in place, then the old folder moves away.
    killed_at_rename(4, "ngram text --order 1 --overwrite --out model")
    assert not Path("model").exists()
    assert main(read.split()) == 0
    assert "model was being replaced by a process that was killed" in capsys.readouterr().err
    assert Path("model/weights.safetensors").read_bytes() == before
    assert names() == {"text", "model"}


def test_load_model_finds_the_one_that_was_being_replaced():
    killed_at_rename(4, "ngram text --order 1 --overwrite --out model")
    assert load_model("model").order == 2


WRITERS = [
    "train text --units 5 --out out",
    "ngram text --out out",
    "prepare text --tokenizer word --out out",
    "export model out",
    "evaluate model text --csv out",
    "evaluate model text --surprisal-csv out",
    "blimp model --data pairs.jsonl --csv out",
    "blimp model --data pairs.jsonl --plot out",
    "train text --held-out text --units 5 --out other --log out",
    "elman --sizes 5 --out out",
]


@pytest.mark.parametrize("command", WRITERS)
def test_the_loser_says_at_once_who_writes(command: str, capsys):
    holder = """
import sys, time
from pathlib import Path
from esnlm.storage.atomic import locked
with locked(Path("out")):
    print("held", flush=True)
    sys.stdin.read()
"""
    Path("pairs.jsonl").write_text('{"sentence_good": "the boy", "sentence_bad": "the dog"}\n')
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", holder], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        said = refused(capsys, *command.split())
        assert time.monotonic() - began < 5
        assert f"out is being written by process {process.pid} (-c)" in said
        process.kill()
    assert not names() & {"out", "other"}


def test_a_lock_leaves_no_file_and_no_folder():
    with locked(Path("a/b/out")):
        assert os.listdir("a/b") == [".out.esnlm-lock"]
    assert not Path("a").exists()


def test_a_name_that_is_no_text_can_be_written_and_told(monkeypatch):
    monkeypatch.setattr("sys.argv", ["esnlm", "caf\udce9.txt"])  # as Python has b"caf\xe9.txt"
    with locked(Path("out")):
        holder = Path(".out.esnlm-lock").read_text("utf-8")
    assert r"caf\udce9.txt" in holder
    write_rows(Path("rows.csv"), ["text"], [{"text": "caf\udce9.txt"}])
    assert Path("rows.csv").read_text("utf-8") == "text\ncaf\\udce9.txt\n"
    write_whole(Path("page"), "<title>caf\udce9.txt</title>")
    assert Path("page").read_text("utf-8") == "<title>caf\\udce9.txt</title>"


def test_an_error_leaves_the_old_file_and_its_neighbours():
    Path("old").write_text("old")
    before = names()
    with pytest.raises(ZeroDivisionError), file_aside(Path("old"), "w") as file:
        file.write(str(1 // 0))
    assert Path("old").read_text() == "old"
    assert names() == before


def test_an_error_names_the_folder_that_was_asked_for(tmp_path):
    target = tmp_path / "new"
    with pytest.raises(OSError, match="full") as caught, folder_aside(target) as aside:
        raise OSError(errno.ENOSPC, "full", str(aside / "weights.safetensors"))
    assert caught.value.filename == str(target / "weights.safetensors")
    assert not target.exists()


def test_a_new_file_has_the_mode_of_any_other():
    write_whole(Path("a"), "")
    Path("b").touch()
    assert Path("a").stat().st_mode == Path("b").stat().st_mode


def test_what_is_replaced_keeps_its_mode():
    Path("old").write_text("old")
    Path("folder").mkdir()
    Path("old").chmod(0o640)
    Path("folder").chmod(0o750)
    write_whole(Path("old"), "new")
    with folder_aside(Path("folder")):
        pass
    assert [Path(name).stat().st_mode & 0o777 for name in ("old", "folder")] == [0o640, 0o750]


def test_what_is_protected_is_not_replaced(monkeypatch):
    Path("old").write_text("old")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as nothing is to an administrator
    with pytest.raises(PermissionError, match=r"protected from writing: '.*old'"):
        write_whole(Path("old"), "new")
    message = "cannot write old: it is protected from writing; name a file in a folder"
    with pytest.raises(ValueError, match=message), results([(Path("old"), None)], overwrite=True):
        pass
    assert Path("old").read_text() == "old"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="others are refused at once")
@pytest.mark.parametrize("option", ["--out", "--csv"])
def test_a_folder_without_files_is_not_busy(option, text, capsys):
    arguments = ("ngram", text) if option == "--out" else ("evaluate", "model", text)
    line = refused(capsys, *arguments, option, "/proc/new")
    assert "no file can be made in its folder" in line


def test_a_folder_that_cannot_be_replaced_stays(monkeypatch):
    Path("new").mkdir()
    replace = os.replace
    targets: list[str] = []

    def refused(source, target):
        targets.append(str(target))
        if str(source) == "new":
            raise PermissionError(13, "no")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(PermissionError):
        put_in_place(Path("new"), Path("model"))
    assert load_model("model").order == 2


@pytest.mark.parametrize(
    "arguments", [("ngram", "--out"), ("prepare", "--tokenizer=word", "--out")]
)
def test_a_link_to_itself_is_no_output(arguments, tmp_path, text, capsys):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    command, *options = arguments
    line = refused(capsys, command, text, *options, loop)
    assert "Symlink loop" in line or "symbolic links" in line


def test_a_drive_that_syncs_no_folder_and_keeps_no_mode_is_written(monkeypatch):
    """As network drives are: EINVAL and EPERM are what they say."""
    fsync = os.fsync

    def of_files(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(handle)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fsync", of_files)
    monkeypatch.setattr(Path, "chmod", refuse)
    assert main([*EVALUATE, "rows.csv"]) == 0
    assert main(["ngram", "text", "--out", "counts"]) == 0
    assert len(rows_of("rows.csv")) == 1
    assert load_model("counts")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has locks of its own")
def test_a_drive_without_locks_is_named(monkeypatch, capsys):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    line = refused(capsys, *EVALUATE, "rows.csv")
    assert "rows.csv: its file system cannot lock files (No locks available)" in line
    assert "rows.csv" not in names()
