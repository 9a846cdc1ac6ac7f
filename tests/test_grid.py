"""Grids of runs: resuming, repairing, interrupting, and the same rows for every job count."""

import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from tqdm.auto import tqdm

from esnlm.runs.grid import _described, read_rows, run_grid
from esnlm.runs.subprocess_run import run_apart
from esnlm.storage.atomic import write_whole

COLUMNS = ["name", "n", "size", "square"]
GRID = [{"name": name, "n": n} for name in ("a", "b") for n in (3, 1, 2)]

SCRIPT = """
import os, sys, time
os.environ["TQDM_DISABLE"] = "1"
from pathlib import Path
from esnlm.runs.grid import run_grid

def run(setting):
    time.sleep(0.15)
    with Path(sys.argv[2]).open("a") as log:
        log.write(f"{setting['name']}{setting['n']}\\n")
    return {"square": setting["n"] ** 2 / 3}

if __name__ == "__main__":
    grid = [{"name": name, "n": n} for name in ("a", "b") for n in (3, 1, 2)]
    columns = ["name", "n", "size", "square"]
    try:
        run_grid(grid, run, sys.argv[1], key=["name", "n"], columns=columns, fixed={"size": 5},
                 jobs=int(sys.argv[3]))
    except KeyboardInterrupt:
        sys.exit(130)
"""


def square(setting):
    return {"square": setting["n"] ** 2 / 3}


def square_at(commit, setting):
    return square(setting) | {"commit": commit}


def fail_at_two(setting):
    if setting["n"] == 2:
        raise ValueError("two is too many")
    return square(setting)


def die(setting):
    os._exit(3)


@pytest.fixture(autouse=True)
def _no_bar(monkeypatch):
    monkeypatch.setattr("tqdm.auto.tqdm", partial(tqdm, disable=True))


def grid(path, run=square, settings=GRID, **options):
    given = {"key": ["name", "n"], "columns": COLUMNS, "fixed": {"size": 5}, "jobs": 1}
    return run_grid(settings, run, path, **(given | options))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.csv"


def test_rows_read_back_as_written(path):
    rows = grid(path)
    assert rows == [s | {"size": 5, "square": s["n"] ** 2 / 3} for s in GRID]
    assert read_rows(path) == rows
    assert path.read_text().splitlines()[0] == "name,n,size,square"


@pytest.mark.parametrize("commit", ["340e29229", "619012848", "1995859e7+", "b6c87e2a1"])
def test_a_commit_stays_text(path, commit):
    run = partial(square_at, commit)
    rows = grid(path, run, columns=[*COLUMNS, "commit"])
    assert {row["commit"] for row in rows + read_rows(path)} == {commit}


@pytest.mark.parametrize(
    "save",
    [
        lambda text: "\ufeff" + text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text.replace("\n", "\r\n") + "a,2,5",
        lambda text: text + "\n",
        lambda text: text.replace("\n", "\r\n") + ",,,,\r\n\r\n",
        lambda text: text.replace(",5,", ",5.0,").replace("a,3,", '"a",3.0,'),
        lambda text: text.replace("True", "TRUE"),
    ],
)
def test_rows_that_a_spreadsheet_saved_are_not_run_again(path, save):
    options = {"columns": [*COLUMNS, "flag"], "fixed": {"size": 5, "flag": True}}
    rows = grid(path, **options)
    path.write_bytes(save(path.read_text()).encode())
    ran = []
    again = grid(path, run=lambda setting: ran.append(setting) or square(setting), **options)
    assert again == read_rows(path) == rows
    assert not ran


def test_settings_of_more_digits_than_a_spreadsheet_keeps_are_not_run_again(path):
    settings = [{"name": "a", "n": n} for n in (0.1 + 0.2, 1e-05, 12345678901234567890, 0.5)]
    rows = grid(path, settings=settings, fixed={"size": 1.1 * 1.1})
    text = path.read_text().replace("0.30000000000000004", "0.3").replace("1e-05", "0.00001")
    text = text.replace(str(1.1 * 1.1), "1.21").replace(
        "12345678901234567890", "1.23456789012346E+19"
    )
    path.write_text(text)
    again = grid(path, run=None, settings=settings, fixed={"size": 1.1 * 1.1})
    assert [{**row, "square": 0} for row in again] == [{**row, "square": 0} for row in rows]


def test_rows_of_commas_alone_are_no_rows(path):
    rows = grid(path, settings=GRID[:2])
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, ",,,\n", *rest, "\n", ",,,,,\n"]))
    assert read_rows(path) == rows
    whole = grid(path)
    assert whole[:2] == rows
    assert read_rows(path) == whole
    assert path.read_text().count("\n") == 1 + len(GRID)


def test_one_run_in_two_spellings_is_named(path):
    grid(path)
    path.write_text(path.read_text() + "a,3.0,5,9\n")
    with pytest.raises(ValueError, match=r"line 8 of .* repeats a run of a line above: remove it"):
        grid(path)


def test_columns_between_semicolons_are_named(path):
    grid(path)
    path.write_text(path.read_text().replace(",", ";"))
    with pytest.raises(ValueError, match=r"separates its columns by ';', expected ','"):
        grid(path)


def test_a_repeated_row_is_named(path):
    grid(path)
    whole = path.read_text()
    lines = whole.splitlines()
    path.write_text("\n".join([*lines[:2], lines[1], *lines[3:]]) + "\n")
    with pytest.raises(ValueError, match=r"line 3 of .* repeats a run of a line above: remove it"):
        grid(path)
    path.write_text("\n".join([*lines[:2], *lines[3:]]) + "\n")
    grid(path)
    assert path.read_text() == whole


def test_same_file_for_every_number_of_jobs(path, tmp_path):
    grid(path)
    other = tmp_path / "other.csv"
    grid(other, jobs=2, cost=lambda setting: setting["n"])
    assert other.read_bytes() == path.read_bytes()


def test_finished_rows_are_not_run_again(path):
    grid(path, settings=GRID[:4])
    ran = []
    grid(path, run=lambda setting: ran.append(setting) or square(setting))
    assert ran == GRID[4:]
    assert [row["n"] for row in read_rows(path)] == [s["n"] for s in GRID]


@pytest.mark.parametrize("name", ["007", "1e6", "1_000", "nan"])
def test_names_that_read_as_numbers_tell_runs_apart(path, name):
    settings = [{"name": name, "n": 1}, {"name": "0", "n": 1}]
    squares = [row["square"] for row in grid(path, settings=settings)]
    assert squares == [1 / 3] * 2
    ran = []
    grid(path, run=lambda setting: ran.append(setting) or square(setting), settings=settings)
    assert not ran


def test_rows_of_another_grid_are_kept_last(path):
    first = grid(path, settings=GRID[3:])
    assert grid(path, settings=GRID[:3]) == read_rows(path)[:3]
    assert read_rows(path)[3:] == first


@pytest.mark.parametrize("torn", [1, 5, 12])
def test_torn_last_line_is_repaired(path, torn):
    whole = grid(path)
    path.write_bytes(path.read_bytes()[:-torn])
    ran = []
    assert grid(path, run=lambda setting: ran.append(setting) or square(setting)) == whole
    assert len(ran) in (1, 2)
    assert read_rows(path) == whole


def test_torn_header_starts_anew(path):
    path.write_text("name,n,si")
    assert grid(path) == read_rows(path)


def test_numbers_that_overflow_in_a_run_apart_are_an_error_of_one_line(tmp_path, monkeypatch):
    for error in ("FloatingPointError", "OverflowError"):
        text = f"def measure(setting, lifeline):\n    raise {error}(setting['why'])\n"
        (tmp_path / f"{error.lower()}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ValueError, match="the loss is nan"):
            run_apart(error.lower(), {"why": "the loss is nan"})


def test_other_columns_are_refused(path):
    path.write_text("readout,size\nridge,3\n")
    with pytest.raises(ValueError, match=r"it lacks name,n.*, and has readout besides; move it"):
        grid(path)
    assert path.read_text() == "readout,size\nridge,3\n"


@pytest.mark.parametrize("text", ["readout,size\nridge,3\nmoe,4", "one line without an end"])
def test_a_file_of_someone_else_keeps_its_last_line(path, text):
    path.write_text(text)
    with pytest.raises(ValueError, match=r"it lacks name,n.*, and has .* besides"):
        grid(path)
    assert path.read_text() == text


def test_other_fixed_values_are_refused(path):
    grid(path)
    with pytest.raises(ValueError, match=r"holds runs with size = 5, got 6: use another folder"):
        grid(path, fixed={"size": 6})


@pytest.mark.parametrize(
    ("line", "reason"),
    [("a,1", "has 2 fields, expected 4"), ("a,1,5,#REF!", "has square = #REF!, expected a number")],
)
def test_broken_line_is_named(path, line, reason):
    grid(path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], line, *lines[3:]]) + "\n")
    with pytest.raises(ValueError, match=f"line 3 of .* {reason}"):
        grid(path)


def test_binary_file_is_refused(path):
    path.write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(ValueError, match="is no CSV"):
        grid(path)


def test_repeated_settings_and_bad_jobs_are_refused(path):
    with pytest.raises(ValueError, match="settings repeat: 7 of them, 6 distinct"):
        grid(path, settings=[*GRID, GRID[0]])
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        grid(path, jobs=0)
    assert not path.exists()


def test_missing_column_is_named(path):
    with pytest.raises(ValueError, match="the run returned no square"):
        grid(path, run=lambda setting: {})


@pytest.mark.parametrize("jobs", [1, 2])
def test_failed_run_is_named_and_finished_rows_stay(path, jobs):
    with pytest.raises(ValueError, match=r"two is too many \(in the run name=[ab] n=2\)"):
        grid(path, run=fail_at_two, jobs=jobs)
    # Of several at once the refused run may be heard of first.
    rows = read_rows(path) if path.exists() else []
    kept = [(row["name"], row["n"]) for row in rows]
    if jobs == 1:
        assert kept == [("a", 3), ("a", 1)]
    ran = []
    grid(path, run=lambda setting: ran.append((setting["name"], setting["n"])) or square(setting))
    assert sorted(kept + ran) == sorted((setting["name"], setting["n"]) for setting in GRID)


def test_a_first_run_that_is_refused_leaves_no_file(path):
    with pytest.raises(ValueError, match="two"):
        grid(path, fail_at_two, [{"n": 2}, {"n": 3}], key=["n"], columns=["n", "square"], jobs=1)
    assert not path.exists()


def test_dead_worker_is_reported(path):
    with pytest.raises(ChildProcessError, match="a worker died"):
        grid(path, run=die, jobs=2)


def test_two_processes_do_not_share_a_file(path):
    def second(setting):
        with ThreadPoolExecutor() as pool, pytest.raises(ValueError, match="being written by"):
            pool.submit(grid, path).result()
        return square(setting)

    assert len(grid(path, run=second, settings=GRID[:1])) == 1


@pytest.fixture
def small_files():
    """A function that lets files grow to a number of bytes only: a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("cut", [1, 5, 8])
def test_a_full_disk_leaves_no_part_of_a_row(path, small_files, cut):
    grid(path, settings=GRID[:2])
    whole = path.read_bytes()
    small_files(len(whole) + cut)
    with pytest.raises(OSError, match=r"rows\.csv"):
        grid(path)
    assert path.read_bytes() == whole
    small_files(1 << 30)
    assert len(grid(path)) == len(GRID)


def test_a_full_disk_leaves_the_old_file_and_nothing_aside(tmp_path, small_files):
    path = tmp_path / "text"
    write_whole(path, "old")
    small_files(10)
    with pytest.raises(OSError, match="too large"):
        write_whole(path, "new" * 100)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("text", "old")]


@pytest.fixture
def start(path, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    log = tmp_path / "log"
    log.touch()

    def start(jobs):
        command = [sys.executable, str(script), str(path), str(log), str(jobs)]
        return subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True), log

    return start


def finished(path: Path) -> int:
    return path.read_text().count("\n") - 1 if path.exists() else 0


def wait_for_rows(path: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while finished(path) < count:
        assert time.monotonic() < deadline, "no rows in a minute"
        time.sleep(0.01)


def group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_grid_resumes_to_the_same_rows(path, tmp_path, start, jobs):
    process, log = start(jobs)
    wait_for_rows(path, 2)
    process.kill()
    process.communicate(timeout=60)
    kept = finished(path)
    assert 2 <= kept < len(GRID)
    time.sleep(0.5)  # a worker in flight may still log its run before it follows its parent
    before = log.read_text().splitlines()
    process, log = start(jobs)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors.decode()
    again = log.read_text().splitlines()[len(before) :]
    assert len(again) == len(GRID) - kept
    whole = tmp_path / "whole.csv"
    grid(whole)
    assert path.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("jobs", [1, 2])
def test_interrupt_keeps_rows_and_leaves_no_worker(path, start, jobs):
    process, _ = start(jobs)
    wait_for_rows(path, 2)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does: parent and workers get it
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors.decode()
    assert errors == b""
    assert 2 <= finished(path) < len(GRID)
    assert path.read_text().endswith("\n")
    deadline = time.monotonic() + 10
    while group_exists(process.pid):
        assert time.monotonic() < deadline, "a worker outlived the interrupted grid"
        time.sleep(0.05)


def test_the_bar_says_in_words_which_run_was_last():
    key = ("model", "n_units", "leak", "seed", "options", "version")
    wanted = [("mts", "64", "1", "1", "", "a"), ("esn", "128", "1", "0", "rank=2", "b")]
    setting = dict(zip(key, ("mts", 64, 1, 1, "", "a"), strict=True))
    assert _described(setting, key, wanted) == "last: mts, 64 units, seed 1"
    setting = dict(zip(key, ("esn", 128, 1, 0, "rank=2", "b"), strict=True))
    assert _described(setting, key, wanted) == "last: esn, 128 units, seed 0, rank=2"
    assert _described(setting, key, wanted[1:]) == ""
