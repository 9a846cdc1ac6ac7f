"""``--unwrap``, ``--strip-gutenberg`` and ``--encoding`` of commands that read text."""

import json
import os
from pathlib import Path

import pytest
from test_layout import NEW, PROSE, wrap

from esnlm import LanguageModel
from esnlm.__main__ import main
from esnlm.text.shards import Shards

BOOK = NEW.format("\n".join(wrap(PROSE * 30, 60)) + "\n\nThe end.\n")
SMALL = ["--units", "20", "--readout", "ridge", "--features", "0"]


@pytest.fixture(autouse=True)
def book(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book").write_text(BOOK)
    Path("held").write_text("It was a dark night, and nobody went home at once.\n")


def test_prepare_warns_once_and_undoes_what_it_is_asked(capsys):
    assert main(["prepare", "book", "--out", "plain"]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(warnings) == 2
    assert "--strip-gutenberg" in warnings[0]
    assert "--unwrap" in warnings[1]
    undone = ["--strip-gutenberg", "--unwrap", "--encoding", "UTF8"]
    assert main(["prepare", "book", "--out", "out", *undone]) == 0
    assert "warning" not in capsys.readouterr().err
    made = Shards("out")
    assert made.manifest["totals"]["words"] == len((PROSE * 30 + "The end.").split())
    assert len(made) == 2
    assert made.manifest["made_from"]["unwrap"]
    assert "Gutenberg" not in made.tokenizer.vocabulary


@pytest.mark.parametrize("command", [["train", *SMALL], ["ngram"]])
def test_training_reads_the_text_alike(command: list[str], capsys, monkeypatch):
    undone = ["--strip-gutenberg", "--unwrap"]
    name, *rest = command
    held = ["--held-out", "held"] if name == "train" else []
    words = [name, "book", *held, "--out", "model", *rest, *undone]
    monkeypatch.setattr("sys.argv", ["esnlm", *words])
    assert main(words) == 0
    assert "warning: book" not in capsys.readouterr().err
    tokenizer = json.loads(Path("model/tokenizer.json").read_text())
    assert "Gutenberg" not in tokenizer["model"]["vocab"]
    if name == "train":
        assert "--unwrap" in Path("model.run.json").read_text()
        model = LanguageModel.load("model")
        assert model.tokenizer_.encode("The dark night")[0] != model.tokenizer_.unk_id


def test_evaluation_reads_the_text_alike(capsys):
    assert main(["ngram", "book", "--out", "model", "--strip-gutenberg", "--unwrap"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "model", "book", "--strip-gutenberg", "--unwrap"]) == 0
    out = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert int(out["n_words"]) == len((PROSE * 30 + "The end.").split())
    assert float(out["unknown_share"]) == 0


def test_training_warns(capsys):
    assert main(["train", "book", "--held-out", "book", "--out", "model", *SMALL]) == 0
    err = capsys.readouterr().err
    for said in ("--strip-gutenberg", "--unwrap", "of text that was learnt"):
        assert err.count(said) == 1


@pytest.mark.parametrize("command", [["prepare"], ["train", *SMALL], ["ngram"]])
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["book", "./book"], "given twice, so its text would count twice: name it once"),
        (["latin"], "byte 0xe9) at byte 3: --encoding cp1252 reads it if"),
        (["book", "--encoding", "klingon"], "encoding must be one that Python knows"),
    ],
)
def test_bad_files_are_refused_in_one_line(command, more, message, capsys):
    Path("latin").write_bytes(b"caf\xe9\n")
    before = sorted(os.listdir())
    name, *rest = command
    assert main([name, *more, "--out", "out", *rest]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
    assert sorted(os.listdir()) == before


def test_text_in_another_encoding_is_read(capsys):
    Path("latin").write_bytes("café noir\n".encode("latin-1"))
    assert main(["prepare", "latin", "--encoding", "latin-1", "--out", "out"]) == 0
    made = Shards("out")
    assert "café" in made.tokenizer.vocabulary
    assert made.manifest["made_from"]["encoding"] == "iso8859-1"


def test_shards_take_no_layout(capsys):
    assert main(["prepare", "book", "--out", "out"]) == 0
    assert main(["train", "out", "--unwrap", "--out", "model", *SMALL]) == 2
    assert "shards were cut in tokens by prepare" in capsys.readouterr().err


def test_spaces_that_are_tokens_are_warned_of(capsys):
    Path("text").write_text("\n".join(["the dog saw the cat", "the cat saw the dog"] * 50))
    for name, out in (("bpe:280", "bpe"), ("word", "wor")):
        assert main(["ngram", "text", "--tokenizer", name, "--out", out]) == 0
    Path("stimuli").write_text("the dog saw the cat\nthe cat  saw the dog\n")
    for model, warned in (("bpe", True), ("wor", False)):
        assert main(["evaluate", model, "stimuli", "--surprisal-csv", f"{model}.csv"]) == 0
        told = "stimuli, line 2: a tab or several spaces" in capsys.readouterr().err
        assert told == warned


def test_shards_of_the_same_text_are_warned_of(capsys):
    Path("text").write_text("a b c\nb c a\n" * 20)
    Path("other").write_text("b a c\n" * 20)
    for name in ("text", "other"):
        assert main(["prepare", name, "--tokenizer", "word", "--out", f"{name}-shards"]) == 0
    capsys.readouterr()
    train = ["train", "text-shards", "--units", "5", "--readout", "ridge", "--out", "m"]
    assert main([*train, "--held-out", "text-shards"]) == 0
    told = "text-shards holds text, which is the text text of"
    assert told in capsys.readouterr().err
    grid = ["--sizes", "5", "--readout", "ridge", "--out", "n", "--no-plots"]
    assert main(["natural", "text-shards", "--held-out", "text-shards", *grid]) == 0
    assert told in capsys.readouterr().err
    pytest.importorskip("optuna")
    Path("space.toml").write_text('units = {choices = [4, 5]}\nreadout = "ridge"\n')
    search = ["search", "space.toml", "text-shards", "--trials", "1"]
    assert main([*search, "--held-out", "text-shards", "--out", "s"]) == 0
    assert told in capsys.readouterr().err


def test_a_model_folder_is_no_text(capsys):
    Path("text").write_text("a b c\nb c a\n" * 20)
    assert main(["ngram", "text", "--tokenizer", "word", "--out", "model"]) == 0
    assert main(["evaluate", "model", "model"]) == 2
    assert "model is a model folder, not text: name text files" in capsys.readouterr().err


def test_the_same_model_twice_is_not_interpolated(capsys):
    Path("text").write_text("a b c\nb c a\n" * 20)
    assert main(["ngram", "text", "--tokenizer", "word", "--out", "model"]) == 0
    both = ["interpolate", "model", "model", "--held-out", "text", "--out", "mixed"]
    assert main(both) == 2
    assert "models 1 and 2 give every token the same probability" in capsys.readouterr().err
    assert not Path("mixed").exists()


@pytest.mark.parametrize("option", ["--csv", "--pairs-csv", "--plot", "--data", "--published"])
def test_an_empty_name_is_no_file(option, capsys):
    assert main(["blimp", "model", "--data", "pairs", option, ""]) == 2
    assert "expected the name of a file or folder, got an empty one" in capsys.readouterr().err


def test_control_characters_are_warned_of(capsys):
    Path("text").write_bytes("a \N{EN DASH} b\nb \N{EN DASH} a\n".encode("cp1252") * 20)
    assert main(["ngram", "text", "--encoding", "latin-1", "--out", "m"]) == 0
    assert "is it --encoding cp1252?" in capsys.readouterr().err
    assert main(["ngram", "text", "--encoding", "cp1252", "--out", "n"]) == 0
    assert "control characters" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "head",
    ["{\\rtf1\\ansi", "\n<!DOCTYPE html>", "<?xml?>", '{"text": "a b"}', '[\n {\n  "id": 1', "a"],
)
def test_markup_is_warned_of(head, capsys):
    Path("page").write_text(f"{head}\n" + "a b\nb a\n" * 20)
    assert main(["ngram", "page", "--out", "m"]) == 0
    warned = "page has markup, which is read as words: extract its text" in capsys.readouterr().err
    assert warned == (head != "a")
