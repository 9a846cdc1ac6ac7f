"""Rows added to CSV files."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import refused

from esnlm.__main__ import main
from esnlm.reporting.contents import read_csv

pytestmark = pytest.mark.usefixtures("in_folder_of_model")


EVALUATE = ["evaluate", "model", "text", "--csv"]


def rows_of(path: str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_rows_that_fit_are_added_and_all_else_is_refused(capsys):
    for _ in range(2):
        assert main([*EVALUATE, "rows.csv"]) == 0
    assert len(rows_of("rows.csv")) == 2
    Path("other.csv").write_text("name,size\na,1\n")
    capsys.readouterr()
    assert "other.csv exists and has not the columns model," in refused(
        capsys, *EVALUATE, "other.csv"
    )
    assert Path("other.csv").read_text() == "name,size\na,1\n"
    assert main([*EVALUATE, "other.csv", "--overwrite"]) == 0
    assert main([*EVALUATE, "rows.csv", "--overwrite"]) == 0
    assert len(rows_of("other.csv")) == len(rows_of("rows.csv")) == 1


def test_rows_are_added_to_a_file_that_a_spreadsheet_saved():
    Path("more").write_text("the dog sees the boy\n")
    command = [*EVALUATE, "rows.csv", "--surprisal-csv", "words.csv"]
    assert main(command) == 0
    for name in ("rows.csv", "words.csv"):
        Path(name).write_text("\ufeff" + Path(name).read_text().replace("\n", "\r\n"))
    assert main([*command[:2], "more", *command[3:]]) == 0
    with open("rows.csv", newline="", encoding="utf-8-sig") as file:
        assert [row["text"] for row in csv.DictReader(file)] == ["text", "more"]


def test_rows_are_added_to_a_file_that_holds_a_long_text():
    Path("long").write_text("the " + "dog" * 50_000)
    command = ["evaluate", "model", "long", "--surprisal-csv", "s.csv", "--unit", "sentence"]
    for name in "ab":
        assert main([*command, "--name", name]) == 0
    assert [len(row["string"]) for row in rows_of("s.csv")] == [150_004] * 2
    assert len(read_csv(Path("s.csv"))) == 2


def test_a_file_that_a_spreadsheet_saved_in_another_encoding_is_refused_before_the_work(capsys):
    assert main([*EVALUATE, "rows.csv"]) == 0
    content = Path("rows.csv").read_bytes() + b"row\n" * 9999 + "café\n".encode("cp1252")
    Path("rows.csv").write_bytes(content)
    capsys.readouterr()
    message = refused(capsys, *EVALUATE, "rows.csv")
    assert "rows.csv exists and has not the columns model," in message
    assert " in UTF-8: choose another name" in message
    assert Path("rows.csv").read_bytes() == content


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_what_cannot_be_printed_loses_no_result():
    row = {"sentence_good": "the boy sees the dog", "sentence_bad": "the boy see the dog"}
    Path("pairs.jsonl").write_text(json.dumps({**row, "UID": "x", "linguistics_term": "y"}) + "\n")
    for command in (EVALUATE, ["blimp", "model", "--data", "pairs.jsonl", "--csv"]):
        name = f"{command[0]}.csv"
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-u", "-m", "esnlm", *command, name],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert "No space left on device" in done.stderr
        assert done.returncode == 2
        assert rows_of(name)


def test_results_do_not_go_where_text_is_read(capsys):
    Path("texts").mkdir()
    Path("texts/one.txt").write_text("the boy sees the dog\n")
    command = ["evaluate", "model", "texts", "--csv", "texts/rows.csv"]
    assert "cannot write texts/rows.csv: it is read, or in a folder that is" in refused(
        capsys, *command
    )
    assert [path.name for path in Path("texts").iterdir()] == ["one.txt"]


def test_a_log_keeps_the_rows_of_earlier_runs_unless_they_are_overwritten():
    train = "train text --units 5 --held-out text --log log.csv --overwrite --out"
    for name in ("a", "b"):
        assert main([*train.replace("--overwrite ", "").split(), name]) == 0
    both = rows_of("log.csv")
    assert main([*train.split(), "c"]) == 0
    assert len(both) == 2 * len(rows_of("log.csv"))
