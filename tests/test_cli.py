"""The command line: what it prints and writes, and one line for everything that is wrong."""

import csv
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from esnlm import __version__
from esnlm.__main__ import _COMMANDS, _app, main
from esnlm.models.language_model import LanguageModel
from esnlm.models.recipes import default_settings, make_readout, make_reservoir
from esnlm.options.help_pages import EXAMPLES, PANELS
from esnlm.options.train import ReadoutOptions, ReservoirOptions, model_settings
from esnlm.storage.model_folder import check_target

TEXT = "the boy sees the dog\nthe dog sees the boy\n\nthe boy walks\n" * 20


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text(TEXT)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "empty").write_text("\n\n")


def trained(*options: str) -> Path:
    assert main(["train", "text", "--out", "model", "--units", "30", *options]) == 0
    return Path("model")


def failure(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of an error, after checking status, stream and that nothing was written."""
    before = sorted(Path.cwd().rglob("*"))
    capsys.readouterr()
    status = main(argv)
    out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert err.startswith("esnlm: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert sorted(Path.cwd().rglob("*")) == before
    return err


def in_process(*argv: str, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "esnlm", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.skipif(os.name == "nt", reason="Windows removes no current folder")
def test_a_current_folder_that_was_removed(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    text = str(tmp_path / "text")
    assert main(["ngram", text, "--out", "m"]) == 2
    assert capsys.readouterr().err.startswith("esnlm: error: the current folder was removed")
    assert main(["ngram", text, "--out", str(tmp_path / "model")]) == 0


@pytest.mark.parametrize("tokenizer", ["word", "char"])
@pytest.mark.parametrize("reset", ["sentence", "document", "never"])
def test_train_evaluate_generate(tokenizer: str, reset: str, capsys):
    trained("--tokenizer", tokenizer, "--reset", reset, "--lower", "--held-out", "text")
    assert "trained parameters" in capsys.readouterr().out
    Path("copy").write_text(TEXT)
    assert main(["evaluate", "model", "text", "copy", "--csv", "rows.csv"]) == 0
    with open("rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == ["text", "copy", "all"]
    assert float(rows[0]["perplexity"]) == pytest.approx(float(rows[2]["perplexity"]))
    assert int(rows[0]["n_words"]) == len(TEXT.split())
    assert float(rows[0]["unknown_share"]) == 0
    capsys.readouterr()
    generate = ["generate", "model", "--prompt", "the boy", "--tokens", "12", "--seed", "1"]
    assert main(generate) == 0
    text = capsys.readouterr().out
    assert text.startswith("the boy ")
    assert main(generate) == 0
    assert capsys.readouterr().out == text


def test_a_rank_without_processes_changes_nothing(monkeypatch):
    """Schedulers and scripts set RANK, too, without torch's launcher."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "3")
    trained()
    assert Path("model.run.json").is_file()


def test_evaluation_counts_every_character_and_agrees_with_the_model(capsys):
    trained("--tokenizer", "char")
    assert main(["evaluate", "model", "text", "--csv", "rows.csv"]) == 0
    with open("rows.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    model = LanguageModel.load("model")
    assert int(row["n_characters"]) == len(TEXT)
    assert int(row["n_tokens"]) == len(TEXT) - 1
    assert float(row["nll_per_token"]) == pytest.approx(-model.score([TEXT]))


def test_share_of_unknown_tokens(capsys):
    trained()
    Path("other").write_text("the zebra walks\n")
    assert main(["evaluate", "model", "other", "--csv", "rows.csv"]) == 0
    with open("rows.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["unknown_share"]) == pytest.approx(1 / 4)  # of zebra, three others


@pytest.mark.parametrize("readout", ["softmax", "moe", "factored"])
def test_every_readout_trains(readout: str, capsys):
    option = ["--option", "max_iter=2"] if readout in ("softmax", "moe") else []
    trained("--readout", readout, *option)
    assert main(["evaluate", "model", "text"]) == 0


@pytest.mark.parametrize(
    "options",
    [
        "--factors ridge",
        "--factors ridge --alpha 2",
        "--factors softmax --passes 2",
        "--factors moe --experts 2 --alpha 3",
    ],
)
def test_factors_train_in_passes(options: str, capsys):
    trained("--readout", "factored", "--checkpoint-every", "9", *options.split())
    joint = LanguageModel.load("model").readout_.joint_
    assert joint.settings.n_experts == {"ridge": 0, "softmax": 1, "moe": 2}[options.split()[1]]
    assert joint.settings.softmax_words == ("ridge" not in options)
    assert main(["evaluate", "model", "text"]) == 0


@pytest.mark.parametrize(
    ("leak_rate", "readout", "wanted"),
    [
        (None, {}, (8, 100.0, ("uniform", 0.0, 1.0))),
        (0.5, {"alpha": 3.0}, (8, 3.0, 0.5)),
        (None, {"option": (("alpha", 7.0), ("n_direct", 5))}, (5, 7.0, ("uniform", 0.0, 1.0))),
        (None, {"direct": 0}, (0, 100.0, ("uniform", 0.0, 1.0))),
    ],
)
def test_characters_beside_ngrams_have_defaults_of_their_own(
    leak_rate: Any, readout: dict, wanted: tuple
):
    options = ReservoirOptions(leak_rate=leak_rate), ReadoutOptions(readout="gated", **readout)
    settings = default_settings(model_settings(*options, None), 60, characters=True)
    made, fitted = make_reservoir(settings, 0), make_readout(settings, 0)
    assert (fitted.n_direct, fitted.alpha, made.leak_rate) == wanted
    assert (made.topology, made.spectral_radius) == ("offsets", 0.97)


@pytest.mark.parametrize(
    ("readout", "n_tokens", "characters", "wanted"),
    [({}, 99, True, "TokenGatedReadout"), ({}, 100, True, "LowRankReadout"),
     ({"readout": "ridge"}, 99, True, "RidgeReadout"), ({}, 99, False, "RidgeReadout")],
)  # fmt: skip
def test_few_characters_are_read_beside_their_ngrams_by_default(
    readout: dict, n_tokens: int, characters: bool, wanted: str
):
    chosen = model_settings(ReservoirOptions(), ReadoutOptions(**readout), None)
    made = make_readout(default_settings(chosen, n_tokens, characters=characters), 0)
    assert type(made).__name__ == wanted
    n_direct = {"TokenGatedReadout": 8, "LowRankReadout": 3}.get(wanted, 0)
    assert getattr(made, "n_direct", 0) == n_direct


def test_training_on_characters_takes_that_default(capsys):
    trained("--tokenizer", "char")
    assert type(LanguageModel.load("model").readout_).__name__ == "TokenGatedReadout"


def test_short_texts_have_a_larger_penalty(capsys):
    words = [f"w{k}" for k in range(120)]
    Path("text").write_text("\n".join(" ".join(words[k:] + words[:k]) for k in range(20)))
    assert main(["train", "text", "--out", "m", "--units", "20"]) == 0
    assert LanguageModel.load("m").readout_.alpha is None
    weak = ["train", "text", "--out", "w", "--units", "20", "--alpha"]
    assert main([*weak, "100"]) == 0
    assert main([*weak, "10", "--overwrite", "--out", "x"]) == 0
    default, same, less = (Path(name, "weights.safetensors").read_bytes() for name in "mwx")
    assert default == same != less


@pytest.mark.parametrize(
    ("options", "n_tokens", "wanted"),
    [
        ({}, 100, 3),
        ({"readout": "lowrank"}, 99, 0),
        ({"direct": 1}, 100, 1),
        ({"option": (("n_direct", 2),)}, 100, 2),
    ],
)
def test_words_are_read_directly_too(options: dict, n_tokens: int, wanted: int):
    settings = model_settings(ReservoirOptions(), ReadoutOptions(**options), None)
    readout = make_readout(default_settings(settings, n_tokens), 0)
    assert readout.n_direct == wanted


def test_direct_is_refused_where_nothing_reads_it(capsys):
    Path("text").write_text("a b c\n" * 50)
    command = ["train", "text", "--out", "m", "--readout", "ridge", "--direct", "1"]
    assert "--direct is not valid with the readout ridge" in failure(command, capsys)


@pytest.mark.parametrize("law", ["0.5", "uniform:0.2:1", "inverse_gamma:0.56"])
def test_leak_rates_survive_saving(law: str, capsys):
    trained("--leak-rate", law, "--features", "2")
    loaded = LanguageModel.load("model")
    assert loaded.reservoir_.get_params()["leak_rate"] == (
        0.5 if ":" not in law else (law.split(":")[0], *map(float, law.split(":")[1:]))
    )


@pytest.mark.parametrize("place", ["model/tokenizer.json", "model"])
def test_a_tokenizer_that_is_there_is_taken_as_it_is(place: str, capsys):
    trained()
    command = ["train", "text", "--out", "second", "--tokenizer", place]
    assert main([*command, "--units", "10"]) == 0
    assert Path("second/tokenizer.json").read_text() == Path("model/tokenizer.json").read_text()


@pytest.mark.parametrize("place", ["shards", "model"])
def test_text_is_prepared_with_the_tokenizer_of_a_folder(place: str):
    trained()
    assert main(["prepare", "text", "--tokenizer", "word", "--out", "shards"]) == 0
    assert main(["prepare", "text", "--tokenizer", place, "--out", "again"]) == 0
    assert Path("again/tokenizer.json").read_text() == Path(place, "tokenizer.json").read_text()


def test_a_home_after_an_option_is_that_of_the_user(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    Path("few.txt").write_text("a b\nb a\n" * 9)
    assert main(["ngram", "few.txt", "--tokenizer", "word", "--out=~/models/m"]) == 0
    assert (tmp_path / "home" / "models" / "m").is_dir()
    assert not Path("~").exists()


def test_overwrite(capsys):
    trained()
    train = ["train", "text", "--out", "model", "--units", "10"]
    assert "pass --overwrite" in failure(train, capsys)
    assert LanguageModel.load("model").reservoir_.n_units == 30
    assert main([*train, "--overwrite"]) == 0
    assert LanguageModel.load("model").reservoir_.n_units == 10


def test_a_folder_of_other_things_is_never_replaced(capsys):
    train = ["train", "text", "--units", "10", "--overwrite", "--out"]
    assert "is not a model" in failure([*train, ".."], capsys)
    # The last is a name that is free until the folders above it are made.
    for place in (".", f"new/../../{Path.cwd().name}"):
        assert f"{Path.cwd()} is the current folder" in failure([*train, place], capsys)
    (trained() / "notes").write_text("of the owner")
    assert "other files beside it, such as notes" in failure([*train, "model"], capsys)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("conjure", 'Unknown command "conjure"'),
        ("train", "name a text to train on, such as book.txt (SHARDS|TEXT)"),
        ("train text", "--out MODEL is missing: the folder to write"),
        ("train text --out", "--out MODEL needs a value: the folder to write"),
        ("train text --ou m", "Unknown option: --ou. Did you mean --out?"),
        ("train text --out m --wings 2", "Unknown option: --wings"),
        ("train text --out m --overwrit", "Unknown option: --overwrit. Did you mean --overwrite?"),
        ("train text --out m --no-overwrite", "Unknown option: --no-overwrite"),
        ("train text --out m --empty-held-out", "Unknown option: --empty-held-out"),
        ("train text --out m --held-out", "--held-out SHARDS|TEXT needs a value: text to"),
        ("train text --out m --text text", "Unknown option: --text"),
        ("train text --out m --option spin=1 alpha=2", "got more than the command takes: alpha=2"),
        ("train none --out m", "no such file or folder: none"),
        ("train empty --out m", "corpus is empty"),
        ("train binary --out m", "binary"),
        ("train text --out m --tokenizer none", "no such tokenizer or file: none"),
        ("train text --out m --tokenizer wrdpunct --vocab-size 9", "did you mean wordpunct?"),
        ("train text --out m --readout moe --option alpha=1e999", "alpha must be"),
        ("train text --out m --option alpha=x", "alpha must be a finite number, got 'x'"),
        ("train text --out m --option alphas=3", "alphas must be a list of penalties"),
        ("train text --out m --option gram_rows=0", "gram_rows must be None or an integer"),
        ("train text --out m --readout softmax --option tol=x", "tol must be a finite number"),
        ("train text --out text", "is not a model"),
        ("train text --out text/m", "text: Not a directory"),
        ("elman --out text", "cannot write to --out text: it is a file; name a folder"),
        ("train text --out m --units 0", "--units must be at least 1, got 0"),
        ("train text --out m --units -5", "--units must be at least 1, got -5"),
        (
            "train text --out m --option n_passes=0 --readout softmax",
            "--option n_passes must be an",
        ),
        ("train text --out m --readout softmax --passes 0", "--passes must be at least 1, got 0"),
        ("elman --plural 2", "--plural must lie in [0, 1], got 2.0"),
        ("ngram text --order 0 --out m", "--order must be at least 1, got 0"),
        ("train text --out m --topology ofset", "got 'ofset': did you mean offsets?"),
        ("train text --out m --tokenizer bpe", "write bpe:8000"),
        ("prepare text --out m --tokenizer bpe", "write bpe:8000"),
        ("evaluate text -", "standard input is not read: write a file"),
        ("search text --out m", "the first argument is the search space: esnlm search space.toml"),
        ("train text --out m --units 2.5", "--units: expected an integer, got '2.5'"),
        ("train text --out m --degree 0", "--degree must be"),
        ("train text --out m --features -1", "--features must be at least 0, got -1"),
        ("train text --out m --features x", "expected F or spectral:F, got 'x'"),
        ("train text --out m --features spectral:0", "must be spectral:F of at least 1, got 0"),
        ("shakespeare none --out m", "no such file or folder: none"),
        ("train text --out m --vocab-size 0", "--vocab-size must be larger"),
        ("train text --out m --tokenizer none", "none"),
        ("train text --out m --tokenizer text", "text is not a tokenizer.json"),
        ("train text --out m --tokenizer .", ". holds no tokenizer.json, which save_pretrained"),
        ("train text --out m --tokenizer text --lower", "--lower and --vocab-size need"),
        (
            "train text --out m --topology ring --degree 4",
            "leave out --degree, or change --topology",
        ),
        ("train text --out m --topology knot", "--topology must be one of"),
        ("train text --out m --activation step", "--activation must be one of"),
        ("train text --out m --spectral-radius nan", "--spectral-radius must be a finite number"),
        ("train text --out m --spectral-radius inf", "--spectral-radius must be a finite number"),
        ("train text --out m --input-scaling -1", "--input-scaling must lie in [0, 1e+30], got -1"),
        ("train text --out m --leak-rate 0", "--leak-rate must lie in"),
        ("train text --out m --leak-rate nan", "--leak-rate must lie in"),
        ("train text --out m --leak-rate uniform:1", "expected a number, uniform:LOW:HIGH"),
        ("train text --out m --leak-rate uniform:a:b", "expected a number, uniform:LOW:HIGH"),
        ("train text --out m --alpha nan", "finite"),
        ("train text --out m --experts 2", "--experts is not valid with the readout ridge"),
        ("train text --out m --readout softmax --factors moe", "--factors is only valid with the"),
        (
            "train text --out m --readout factored --factors ridge --passes 2",
            "--passes is only valid with the factors softmax and moe, got ridge",
        ),
        (
            "train text --out m --readout factored --experts 2",
            "--experts is only valid with the factors moe, got softmax",
        ),
        ("train text --out m --option spin=1", "option spin: the readout ridge has alpha"),
        ("train text --out m --option spin", "expected NAME=VALUE"),
        ("train text --out m --reset daily", '"daily" for --reset. Choose from: "sentence"'),
        ("train text --out m --activation relu --spectral-radius 9 --reset never", "diverge"),
        ("evaluate none text", "no such model folder: none"),
        ("blimp none --data text --plot p.pdf", "--plot: expected a name that ends in .png, got"),
        ("export none n.arpa", "n.arpa would be a folder: pass --format arpa"),
        ("train text --out m --encoding utf-16", "text is not UTF-16 text (UTF-16 stream does"),
        ("generate none second", "got more than the command takes: second"),
        ("evaluate text text", "it has no counts of n-grams; expected one, or a model folder"),
        (
            "train text --out m --seed 4294967296",
            "--seed: expected an integer from 0 to 4294967295, got '4294967296'",
        ),
        ("train text --out m --seed -1", "expected an integer from 0 to 4294967295, got '-1'"),
        ("generate none --seed 0.5", "expected an integer from 0 to 4294967295, got '0.5'"),
        ("generate none", "no such model folder: none"),
        (
            "generate none --prompt -x",
            "needs a value: text to continue; one with a dash before it is joined: --prompt=-x",
        ),
        ("generate none --tokens 1000000001", "--tokens must be at most 1000000000, got 10000000"),
        (f"generate none --tokens {10**100}", "--tokens must be at most 1000000000, got 10000000"),
        ("elman --sizes 10 2.5", "--sizes: expected an integer, got '2.5'"),
        ("elman --readouts ridge tree", '"tree" for --readouts. Choose from: "ridge"'),
        ("elman --noun-phrase 0.1 0.2", "RELATIVE needs 3 values: probabilities of a name"),
    ],
)
def test_bad_input_is_one_line(line: str, message: str, capsys):
    assert message in failure(line.split(), capsys)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("evaluate model none", "no such file or folder: none"),
        ("evaluate model binary", "binary"),
        ("evaluate model empty", "corpus is empty"),
        ("evaluate model text --csv none/rows.csv", "cannot write none/rows.csv: No such"),
        ("evaluate model text --csv model", "cannot write model: it is a folder"),
        ("evaluate model text --csv text", "cannot write text: it is read"),
        ("evaluate model text --csv rows --surprisal-csv ./rows", "named for another result"),
        ("evaluate model text --bins empty --bins-csv empty", "cannot write empty: it is read"),
        ("evaluate model text --csv model/config.json --overwrite", "it is read, or in a folder"),
        ("evaluate model text --surprisal-csv model/rows.csv", "it is read, or in a folder"),
        ("evaluate model text ./text", "text is given twice"),
        ("evaluate model text --bins empty empty", "empty is given twice"),
        ("blimp model --data text --csv model/rows.csv", "it is read, or in a folder"),
        ("report model --out model/config.json --overwrite", "it is read, or in a folder"),
        (
            "report model --out model.run.json --overwrite",
            "model.run.json: it is read",
        ),
        ("train text --out m --log m.run.json --held-out text", "where the model is written"),
        ("train text --out m --log m/log.csv --held-out text", "where the model is written"),
        (
            "train text --out m --alpha 1 --option alpha=2",
            "alpha is given twice: as alpha and as option",
        ),
        ("blimp model --data text --csv rows --pairs-csv rows", "named for another result"),
        ("blimp model --data text --csv text", "cannot write text: it is read"),
        ("generate model --tokens -1", "--tokens must be at least 0, got -1"),
        ("generate model --temperature nan", "--temperature must be a finite number"),
        ("generate model --top-k 0", "--top-k must be at least 1, got 0"),
        ("generate model --top-p 1.5", "--top-p must lie in (0, 1], got 1.5"),
    ],
)
def test_bad_input_beside_a_model_is_one_line(line: str, message: str, capsys):
    trained()
    capsys.readouterr()
    before = sorted(Path.cwd().rglob("*"))
    status = main(line.split())
    assert status == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert sorted(Path.cwd().rglob("*")) == before


def test_every_required_option_says_what_it_is_for(capsys):
    commands = _app([])
    for name in _COMMANDS:
        arguments = commands[name].assemble_argument_collection(parse_docstring=True)
        asked = [each for each in arguments if each.required and each.name != "*"]
        places = [each for each in asked if each.name[0] != "-"]
        for number, each in enumerate(asked):
            words = ["x"] * min(number, len(places))
            words += [word for other in asked[len(places) : number] for word in (other.name, "x")]
            told = failure([name, *words], capsys)
            assert each.name in told
            purpose = re.split(r"[.:] | \(", " ".join(each.parameter.help.split()).rstrip("."))[0]
            assert purpose[1:] in told, (name, each.name)


def test_the_command_line_names_flags_where_the_library_names_parameters(capsys):
    trained()
    capsys.readouterr()
    assert "pass --overwrite" in failure(["train", "text", "--out", "model"], capsys)
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        check_target(Path("model"), overwrite=False)
    Path("wrapped").write_bytes("caf\xe9 \x93".encode("latin-1") + b" and more\n" * 9)
    assert "--encoding" in failure(["train", "wrapped", "--out", "m"], capsys)
    assert "or folder: seed=one" in failure(["train", "seed=one", "--out", "m"], capsys)


def test_rows_that_are_there_twice_are_the_only_thing_told(capsys):
    trained()
    evaluate = ["evaluate", "model", "text", "--surprisal-csv", "words.csv"]
    assert main(evaluate) == 0
    told = failure(evaluate, capsys)
    assert "has rows of model model and text text" in told
    Path("other").write_text("the dog walks\n")
    evaluate[2] = "other"
    assert main(evaluate) == 0
    assert "words.csv was there: rows were added to it" in capsys.readouterr().err


def test_a_pair_without_a_sentence_shows_how_fields_are_named(capsys):
    trained()
    Path("pairs.jsonl").write_text('{"sentence_bad": "the boy see"}\n')
    told = failure(["blimp", "model", "--data", "pairs.jsonl"], capsys)
    assert "the fields are sentence_bad; name them by --fields good=NAME,bad=NAME" in told


def test_a_study_ends_with_where_its_results_are(capsys):
    grid = ["--sizes", "10", "--readouts", "ridge", "--features", "0", "--seeds", "1", "--out", "e"]
    sentences = ["--train-sentences", "100", "--test-sentences", "50"]
    assert main(["elman", *grid, *sentences]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("wrote e/elman.csv, e/ngrams.csv, e/elman.png, ")


def test_an_empty_name_is_not_the_current_folder(capsys):
    assert "name of a text file is empty" in failure(["train", "", "--out", "m"], capsys)


def test_unknown_words_of_a_prompt_are_told(capsys):
    trained()
    capsys.readouterr()
    assert main(["generate", "model", "--prompt", "the unicorn", "--tokens", "2"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("the unicorn")
    assert err.startswith("esnlm: warning: the model knows 1 of the 2 tokens of the prompt")


def test_the_mark_of_a_sentence_is_no_unknown_word_of_a_prompt(capsys):
    trained()
    capsys.readouterr()
    assert main(["generate", "model", "--prompt", "<s> the boy", "--tokens", "1"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(os.name != "posix", reason="arguments are no bytes")
def test_a_prompt_is_read_as_utf8_in_any_locale(capsys):
    trained()
    words = ["generate", "model", "--prompt", "the naïve", "--tokens", "1"]
    options = {"LC_ALL": "C", "PYTHONUTF8": "0", "PATH": "/usr/bin"}
    done = subprocess.run(
        [sys.executable, "-m", "esnlm", *words], capture_output=True, check=False,
        env={**os.environ, **options},
    )  # fmt: skip
    assert done.stdout.decode().startswith("the naïve"), done.stderr


def test_spaces_at_the_end_of_a_prompt_are_not_doubled(capsys):
    trained()
    capsys.readouterr()
    assert main(["generate", "model", "--prompt", "the ", "--tokens", "4", "--seed", "0"]) == 0
    assert "  " not in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="named pipes")
def test_a_pipe_is_refused(capsys):
    os.mkfifo("pipe")
    assert "pipe is a pipe or a device" in failure(["train", "pipe", "--out", "m"], capsys)


def test_a_truncated_model_is_one_line(capsys):
    weights = trained() / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    assert "truncated or altered" in failure(["evaluate", "model", "text"], capsys)


def test_version_and_help(capsys):
    for option, expected in (("--version", __version__), ("--help", "elman")):
        assert main([option]) == 0
        assert expected in capsys.readouterr().out


def test_without_a_command_the_help_is_shown(capsys):
    assert main([]) == 2
    assert "elman" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
@pytest.mark.parametrize("size", ["0", "1", "2", "5000", "9" * 5000, "²", "none"])
def test_help_is_printed_whatever_size_the_terminal_says_it_has(
    name: str, size: str, monkeypatch, capsys
):
    monkeypatch.setenv(name, size)
    assert main(["train", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--held-out" in out
    assert max(map(len, out.splitlines())) < 1000


def test_every_command_has_a_help(capsys):
    for name in _COMMANDS:
        assert main([name, "--help"]) == 0
        assert f"Usage: esnlm {name}" in capsys.readouterr().out


def test_options_given_twice_take_the_last_values(capsys):
    trained("--units", "20", "--held-out", "none", "--held-out", "text")
    assert LanguageModel.load("model").reservoir_.n_units == 20


@pytest.mark.parametrize("prompt", [["--prompt", "-the boy"], ["--prompt=-the"]])
def test_a_prompt_may_begin_with_a_dash(prompt: list[str], capsys):
    trained()
    capsys.readouterr()
    assert main(["generate", "model", *prompt, "--tokens", "1"]) == 0
    assert capsys.readouterr().out.startswith("-the")


def test_errors_of_a_process_are_one_line_and_status_2():
    process = in_process("train", "none", "--out", "m")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (
        2,
        "",
        "esnlm: error: no such file or folder: none\n",
    )


def test_a_closed_pipe_is_quiet(capsys):
    trained()
    process = in_process("generate", "model", "--tokens", "100000")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(5)
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=120) == 141


def test_help_that_nobody_reads_ends_as_other_output():
    process = in_process("train", "--help-all")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=120) == 141


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_is_one_line_and_leaves_nothing(capsys):
    Path("long").write_text(TEXT * 10000)
    argv = ["train", "long", "--out", "m", "--units", "800", "--tokenizer", "char"]
    process = in_process(*argv)
    time.sleep(6)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    (line,) = err.splitlines()
    assert out == ""
    assert line.partition(": nothing is saved. With")[0] == "esnlm: interrupted"
    assert not [path for path in Path.cwd().iterdir() if path.name.lstrip(".").startswith("m")]


def test_every_command_has_a_panel_and_an_example_that_is_right(capsys):
    for name in _COMMANDS:
        assert name in sum(PANELS.values(), ())
        words = shlex.split(EXAMPLES[name])
        assert words[:2] == ["esnlm", name]
        _app([]).parse_args(words[1:])
        assert main([name, "--help"]) == 0
        assert f"Example: {EXAMPLES[name]}" in " ".join(capsys.readouterr().out.split())
    assert main(["--help"]) == 0
    page = capsys.readouterr().out
    places = [page.index(f"─ {panel} ─") for panel in PANELS]
    assert places == sorted(places)


def test_help_has_no_default_of_what_each_network_sets_by_itself(capsys):
    assert main(["train", "--help-all"]) == 0
    rows = " ".join(capsys.readouterr().out.replace("│", " ").split()).split(" --")
    for name in ("batch-size", "learning-rate", "weight-decay", "clip", "passes"):
        (row,) = (row for row in rows if row.startswith(f"{name} "))
        assert not re.search(r"default|\d", row)


def test_training_ends_with_what_was_got_and_what_comes_next(capsys, monkeypatch):
    monkeypatch.setattr("esnlm.options.common.is_terminal", lambda: True)
    Path("plain").write_text("the boy, who sees. the dog! no?\n" * 30)
    assert main(["train", "plain", "--out", "m", "--units", "20", "--held-out", "plain"]) == 0
    out, err = capsys.readouterr()
    recipe, first, second, third, fourth = out.splitlines()
    n_tokens = len(LanguageModel.load("m").tokenizer_)
    assert recipe.startswith(f"recipe grammar (a vocabulary of {n_tokens}")
    assert first.startswith(f"m: vocabulary {n_tokens}; trained on 360 tokens; ")
    assert second.endswith(f", of the uniform distribution {n_tokens}")
    assert re.fullmatch(r"\d+:\d\d minutes, peak memory \d+ MiB", third)
    assert "words and punctuation are tokens apart (--tokenizer word" in err
    assert fourth == "plain was used in training: report the perplexity of another text"
    assert err.splitlines()[-1] == "esnlm: next: esnlm evaluate m TEXT"
    assert {"boy", ","} <= set(LanguageModel.load("m").tokenizer_.vocabulary)
    assert main(["train", "plain", "--out", "n", "--units", "20", "--tokenizer", "word"]) == 0
    assert "boy," in LanguageModel.load("n").tokenizer_.vocabulary
    assert main(["evaluate", "m", "plain", "--csv", "rows.csv"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "wrote rows.csv"


def test_training_by_names_of_tokenizers_with_sizes(capsys):
    Path("plain").write_text("the boy, who sees. the dog! no?\n" * 30)
    for name, size in (("bpe:270", 270), ("word:6", 6), ("wordpunct:7", 7)):
        given = ["--tokenizer", name, "--units", "10", "--overwrite"]
        assert main(["train", "plain", "--out", "m", *given]) == 0
        assert len(LanguageModel.load("m").tokenizer_) == size
    both = ["train", "plain", "--out", "n", "--tokenizer", "word:6", "--vocab-size", "6"]
    capsys.readouterr()
    assert main(both) == 2
    assert "has a size: leave out --vocab-size" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--units -5", "--units must be at least 1, got -5"),
        ("--leak-rate 3", "--leak-rate must"),
        ("--readout ridge --alpha -1", "--alpha must not be negative, got -1"),
        ("--chunk-tokens 0", "--chunk-tokens must be at least 1, got 0"),
        ("--features -2", "features must be at least 0, got -2"),
    ],
)
def test_parameters_are_refused_before_a_text_is_opened(capsys, option, message):
    Path("binary").write_bytes(b"\xff\xfe no text")
    assert main(["train", "binary", "--out", "m", *option.split()]) == 2
    assert message in capsys.readouterr().err


def test_an_interrupted_fit_says_that_nothing_is_saved(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("esnlm.LanguageModel._fit_tokens", interrupted)
        assert main(["train", "text", "--out", "m", "--units", "5"]) == 130
    assert "nothing is saved. With --checkpoint-every MINUTES" in capsys.readouterr().err
    assert not Path("m").exists()
    assert main(["train", "text", "--out", "m", "--units", "5", "--resume"]) == 0
    assert "no checkpoint to resume from: training begins anew" in capsys.readouterr().err


def test_an_interrupt_among_trials_says_that_nothing_is_saved(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("esnlm.models.parts.chosen_penalty", interrupted)
    given = ["--held-out", "text", "--readout", "softmax", "--checkpoint-every", "1"]
    assert main(["train", "text", "--out", "m", "--units", "5", *given]) == 130
    assert "nothing is saved. No step was taken yet; --alpha A" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["--log log.csv", "--score-every 9", "--held-out-tokens 9"])
def test_what_needs_held_out_text_says_so_without(given: str, capsys):
    assert main(["train", "text", "--units", "5", "--out", "m", *given.split()]) == 2
    assert f"{given.split()[0]} needs --held-out TEXT" in capsys.readouterr().err


def test_a_log_that_is_there_is_named(capsys):
    Path("held").write_text("the boy sees\n")
    given = ["--units", "5", "--held-out", "held", "--log", "log.csv", "--out"]
    assert main(["train", "text", *given, "m"]) == 0
    assert "log.csv is there" not in capsys.readouterr().err
    assert main(["train", "text", *given, "n"]) == 0
    assert "log.csv is there: rows are added to it" in capsys.readouterr().err


def test_gated_of_words_reads_two_tokens(capsys):
    words = [f"w{k}" for k in range(1000)]
    Path("text").write_text("\n".join(" ".join(words[k : k + 10]) for k in range(0, 1000, 5)))
    assert main(["train", "text", "--out", "m", "--units", "5", "--readout", "gated"]) == 0
    assert LanguageModel.load("m").readout_.n_direct == 2


def test_an_interrupted_run_names_the_command_that_goes_on(capsys, monkeypatch):
    Path("long").write_text(TEXT * 300)
    command = ["train", "long", "--out", "m", "--units", "30", "--checkpoint-every", "0"]
    command += ["--chunk-tokens", "500"]
    monkeypatch.setattr("esnlm.options.training_run.stopping", lambda: nullcontext(lambda: True))
    assert main(command) == 130
    wanted = f"continues from there: {shlex.join(['esnlm', *command])} --resume"
    assert capsys.readouterr().err.splitlines()[-1].endswith(wanted)


def ran(*arguments: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = " ".join([sys.executable, "-m", "esnlm", *arguments, shell])
    return subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False,
        env=os.environ | environment,
    )  # fmt: skip


@pytest.mark.parametrize("shell", [">&-", "2>&-"])
def test_a_closed_output_is_refused(shell, text, folders):
    done = ran("evaluate", str(folders / "ngrams"), str(text), shell=shell)
    assert done.returncode == 2
    (line,) = (done.stdout + done.stderr).splitlines()
    assert "is closed" in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_an_output_that_is_full_is_named():
    done = ran("--help", shell="> /dev/full")
    line = "esnlm: error: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, line)


def test_without_compiled_code_a_reservoir_is_refused(text, folders):
    done = ran("evaluate", str(folders / "ridge"), str(text), NUMBA_DISABLE_JIT="1")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line == "esnlm: error: reservoirs are compiled: unset NUMBA_DISABLE_JIT"


def test_plots_are_drawn_whatever_a_notebook_or_matplotlibrc_asks_for(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "esnlm", "elman", "--sizes", "10", "--readouts", "ridge"]
    command += ["--seeds", "1", "--train-sentences", "100", "--test-sentences", "50", "--jobs", "1"]
    command += ["--features", "0"]
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    asked = {
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MATPLOTLIBRC": str(tmp_path / "matplotlibrc"),
        "PATH": str(tmp_path),  # without LaTeX
    }
    subprocess.run([*command, "--out", "out"], check=True, cwd=tmp_path, env=os.environ | asked)
    assert (tmp_path / "out" / "elman.png").exists()
