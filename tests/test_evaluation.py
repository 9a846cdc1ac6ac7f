"""Evaluation against the models' own scores, and against words counted by hand."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from command_line import refused
from scipy.optimize import minimize_scalar
from small_models import as_of_gpt2
from tampered import altered, resealed

from esnlm import LanguageModel, Reservoir, RidgeReadout
from esnlm.__main__ import main
from esnlm.evaluation.measures import Evaluation
from esnlm.models.ngram import NgramLanguageModel
from esnlm.models.surprisal import SURPRISAL_COLUMNS, surprisal_rows
from esnlm.storage.model_folder import (
    TOKENIZER,
)
from esnlm.text.corpus import TextCorpus
from esnlm.text.prepare import prepare
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.interpolation import likeliest_weight, log_mixture

DOCS = [
    "the boy sees  the dog .\nthe naïve dog walks — 日本語 .",
    " who ?\n\n\tthe dog who the boy sees lives .",
    "the cats chase the dogs .",
] * 3
TEXT = "\n\n".join(DOCS) + "\n"
RESETS = ["sentence", "document", "never"]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text(TEXT)
    Path("other").write_text("the dogs see the boy .\nthe boy lives .\n")


def bytes_tokenizer() -> Tokenizer:
    return as_of_gpt2(["the boy sees the dog .", "the cats chase the dogs ."])


def tokenizer_of(kind: str) -> Tokenizer:
    if kind == "bytes":
        return bytes_tokenizer()
    train = Tokenizer.train_words if kind == "word" else Tokenizer.train_characters
    return train(DOCS[:1], boundaries=True)


def ngrams(kind: str = "bytes", reset: str = "sentence", order: int = 3) -> NgramLanguageModel:
    return NgramLanguageModel(order=order, tokenizer=tokenizer_of(kind), reset=reset).fit(DOCS)


def rows_of(path: str) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.filterwarnings("ignore:.* of the tokens are not in the vocabulary")
@pytest.mark.parametrize("kind", ["word", "char", "bytes"])
@pytest.mark.parametrize("reset", RESETS)
def test_parts_of_a_text_add_up_to_the_whole(kind, reset, monkeypatch):
    monkeypatch.setattr("esnlm.text.tokenizers._BATCH_CHARACTERS", 40)
    reservoir = Reservoir(20, random_state=0, leak_rate=0.5)
    whole = LanguageModel(reservoir, RidgeReadout(), tokenizer=tokenizer_of(kind), reset=reset).fit(
        DOCS
    )
    for model in (whole, ngrams(kind, reset)):
        docs = list(TextCorpus("text"))
        (row,) = Evaluation([model], ["m"], "blank_line").rows(["text"])
        stream = model.tokenize(docs)
        assert row["n_tokens"] == stream.n_predicted
        assert row["n_words"] == len(TEXT.split())
        assert row["nll_per_token"] == pytest.approx(-model.score(docs), rel=1e-5)
        nats = row["nll_per_token"] * row["n_tokens"]
        assert row["nll_per_word"] * row["n_words"] == pytest.approx(nats)
        bits = row["bits_per_character"] * row["n_characters"]
        assert bits == pytest.approx(nats / np.log(2))


@pytest.mark.parametrize("kind", ["word", "char", "bytes"])
@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("split", ["blank_line", "file"])
def test_surprisals_of_every_unit_sum_to_the_same(kind, reset, split):
    model = ngrams(kind, reset)
    evaluation = Evaluation([model], ["m"], split, words=True, correct_boundaries=False)
    for unit, columns in SURPRISAL_COLUMNS.items():
        table = []
        options = model, unit, "text"
        (row,) = evaluation.rows(
            ["text"], lambda _, part, to=table, o=options: to.extend(surprisal_rows(part, *o))
        )
        assert {tuple(entry) for entry in table} == {columns}
        bits = sum(entry["surprisal_bits"] for entry in table)
        assert bits * np.log(2) == pytest.approx(row["nll_per_token"] * row["n_tokens"])
        counted = len(table) if unit == "token" else sum(entry["n_tokens"] for entry in table)
        assert counted == row["n_tokens"]
        ends = model.tokenizer_.eos
        if unit == "word":
            assert [e["word"] for e in table if e["word"] != ends] == TEXT.split()
        if unit == "sentence":
            assert sum(entry["n_words"] for entry in table) == len(TEXT.split())
            lines = [line.strip() for line in TEXT.splitlines() if line.strip()]
            assert [entry["string"] for entry in table] == lines


def test_a_words_surprisal_is_that_of_its_pieces_after_what_came_before():
    model = ngrams(order=4)
    options = model, "word", "text"
    found = []
    text = "the naïve dogs walks ."
    Path("one").write_text(text + "\n")
    Evaluation([model], ["m"], "blank_line", words=True, correct_boundaries=False).rows(
        ["one"], lambda _, part: found.extend(surprisal_rows(part, *options))
    )
    before = [model.tokenizer_.bos_id]
    cut = 0
    for row, word in zip(found, text.split(), strict=False):
        assert list(row.values())[:5] == ["text", 1, 1, row["position"], word]
        end = text.index(word, cut) + len(word)
        bits = 0.0
        for token in model.tokenizer_.encode(text[cut:end]).tolist():
            bits -= np.log2(model.predict_proba(before)[token])
            before.append(token)
        assert row["surprisal_bits"] == pytest.approx(bits)
        cut = end
    assert [row["position"] for row in found] == list(range(1, len(text.split()) + 2))
    assert found[-1]["word"] == "<|endoftext|>"
    assert found[-1]["surprisal_bits"] == pytest.approx(
        -np.log2(model.predict_proba(before)[before[0]])
    )


def test_tokens_name_the_characters_that_they_are_part_of():
    model = ngrams()
    options = model, "token", "text"
    found = []
    Path("one").write_text("naïve 日\n")
    Evaluation([model], ["m"], "line").rows(
        ["one"], lambda _, part: found.extend(surprisal_rows(part, *options))
    )
    strings = [row["string"] for row in found]
    assert strings[2:4] == ["ï", "ï"]  # two bytes, each its own token
    assert strings[-1] == "<|endoftext|>"
    assert [row["position"] for row in found if "日" in row["string"]] == [2, 2, 2]


def test_shards_are_scored_as_the_text_they_were_made_of(monkeypatch):
    monkeypatch.setattr("esnlm.evaluation.measures._PART_TOKENS", 30)
    ngrams().save("model")
    prepare("text", "shards", bytes_tokenizer())
    command = ["evaluate", "model", "text", "shards", "--csv", "rows.csv", "--bins", "shards"]
    assert main(command) == 0
    text, shards, both = rows_of("rows.csv")
    for name in ("n_tokens", "n_words", "nll_per_token", "nll_per_word", "unknown_share"):
        assert float(text[name]) == pytest.approx(float(shards[name]))
    assert int(both["n_tokens"]) == 2 * int(text["n_tokens"])


def test_marks_around_lines_are_neither_words_nor_characters():
    lines = ["the boy sees the dog .", "the dogs see the boy ."]
    Path("plain").write_text("".join(f"{line}\n" for line in lines))
    Path("marked").write_text("".join(f"<s> {line} </s>\n" for line in lines))
    model = NgramLanguageModel(order=2, tokenizer="word").fit(lines)
    for name in ("plain", "marked"):
        prepare(name, f"{name}_shards", model.tokenizer_)
    names = ["plain", "marked", "plain_shards", "marked_shards"]
    rows = Evaluation([model], ["model"], "blank_line").rows(names)[: len(names)]
    assert rows[0]["n_words"] == 12
    assert [row | {"text": "plain"} for row in rows] == [rows[0]] * 4


def test_shards_of_another_tokenizer_are_refused(capsys):
    ngrams().save("model")
    prepare("text", "shards", "word")
    assert main(["evaluate", "model", "shards"]) == 2
    assert "is not the model's" in capsys.readouterr().err
    ngrams(reset="document").save("model")
    prepare("text", "again", bytes_tokenizer())
    assert main(["evaluate", "model", "again"]) == 2
    assert "shards hold sentences" in capsys.readouterr().err
    assert main(["evaluate", "model", "again", "--surprisal-csv", "s.csv"]) == 2
    assert "holds tokens, not text" in capsys.readouterr().err
    assert not Path("s.csv").exists()


def test_the_interpolation_is_a_third_row_and_better_than_both_on_held_out_text(capsys):
    ngrams(order=1).save("one")
    NgramLanguageModel(order=4, tokenizer=bytes_tokenizer()).fit(["the dogs see the cats ."]).save(
        "two"
    )
    command = ["evaluate", "one", "other", "--interpolate", "two", "--csv", "rows.csv"]
    options = ["--held-out", "other", "--surprisal-csv", "s.csv", "--uncorrected"]
    assert main([*command, *options]) == 0
    assert "--held-out is scored too" in capsys.readouterr().err
    one, two, both = rows_of("rows.csv")
    assert [row["model"] for row in (one, two, both)] == ["one", "two", "one + two"]
    losses = [float(row["nll_per_token"]) for row in (one, two, both)]
    assert losses[2] < min(losses[:2])
    assert 0 < float(both["weight"]) < 1
    assert one["weight"] == two["weight"] == ""
    bits = sum(float(row["surprisal_bits"]) for row in rows_of("s.csv"))
    assert bits * np.log(2) == pytest.approx(losses[2] * int(both["n_tokens"]))
    assert main([*command, "--weight", "0.25"]) == 0
    assert float(rows_of("rows.csv")[5]["weight"]) == 0.25
    assert rows_of("rows.csv")[:3] == [one, two, both]
    assert main([*command, "--weight", "0.25", "--overwrite"]) == 0
    assert float(rows_of("rows.csv")[2]["weight"]) == 0.25


def test_surprisals_of_models_stand_in_one_file_and_never_twice(capsys):
    ngrams().save("one")
    ngrams(order=1).save("two")
    for model in ("one", "two"):
        command = ["evaluate", model, "text", "--surprisal-csv", "s.csv", "--uncorrected"]
        assert main(command) == 0
    assert "s.csv was there: rows were added to it" in capsys.readouterr().err
    before = rows_of("s.csv")
    assert list(dict.fromkeys(row["model"] for row in before)) == ["one", "two"]
    sums = {
        name: sum(float(row["surprisal_bits"]) for row in before if row["model"] == name)
        for name in ("one", "two")
    }
    for name, order in (("one", 3), ("two", 1)):
        (row,) = Evaluation([ngrams(order=order)], [name], "blank_line").rows(["text"])
        nats = row["nll_per_token"] * row["n_tokens"]
        assert sums[name] * np.log(2) == pytest.approx(nats)
    assert main(["evaluate", "two", "other", "text", "--surprisal-csv", "s.csv"]) == 2
    assert "s.csv has rows of model two and text text" in capsys.readouterr().err
    assert rows_of("s.csv") == before
    assert main(["evaluate", "two", "text", "--surprisal-csv", "s.csv", "--overwrite"]) == 0
    assert {row["model"] for row in rows_of("s.csv")} == {"two"}


def test_unknown_words_are_told_where_they_are_many(capsys):
    known = Tokenizer.train_words(["the dog"], boundaries=True)
    NgramLanguageModel(order=2, tokenizer=known).fit(["the dog"]).save("few")
    assert main(["evaluate", "few", "text"]) == 0
    assert "of the tokens of text are not in the vocabulary" in capsys.readouterr().err


def test_bins_part_the_tokens_by_training_frequency(capsys):
    ngrams().save("model")
    command = ["evaluate", "model", "other", "--bins", "text", "--bins-csv", "bins.csv"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "<100" in shown
    assert "nan" not in shown
    rows = rows_of("bins.csv")
    assert [row["bin"] for row in rows] == ["<100", "all"]  # no token is more frequent
    counted = [int(row["n_tokens"]) for row in rows]
    assert rows[-1]["bin"] == "all"
    assert sum(counted[:-1]) == counted[-1]
    ngrams(order=1).save("two")
    assert main([*command, "--interpolate", "two"]) == 0
    rows = rows_of("bins.csv")
    names = list(dict.fromkeys(row["model"] for row in rows))
    assert names == ["model", "two", "model + two", "model - two"]
    one, two, _, difference = (
        next(row for row in rows if (row["model"], row["bin"]) == (name, "all")) for name in names
    )
    expected = float(one["perplexity"]) - float(two["perplexity"])
    assert float(difference["perplexity"]) == pytest.approx(expected)
    (row,) = Evaluation([ngrams()], ["m"], "blank_line").rows(["other"])
    assert float(one["perplexity"]) == pytest.approx(row["perplexity"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--weight 0.5", "--weight needs --interpolate"),
        ("--held-out text", "--held-out needs --interpolate"),
        ("--bins-csv b.csv", "--bins-csv needs --bins"),
        ("--unit token", "--unit needs --surprisal-csv"),
        ("--uncorrected", "--uncorrected needs --surprisal-csv"),
        ("--lags 1 --surprisal-csv s.csv --unit token", "--lags is of words, got --unit token"),
        ("--interpolate model --weight 2", "--weight must lie in [0, 1], got 2"),
        ("--interpolate model --weight 1 --held-out text", "leave one out"),
        ("--interpolate word", "different tokenizers"),
        ("--interpolate document", "must read sequences alike"),
        ("--surprisal-csv model", "cannot write model: it is a folder"),
        ("none --surprisal-csv s.csv", "no such file or folder: none"),
    ],
)
def test_bad_options_leave_nothing(options, message, capsys):
    ngrams().save("model")
    ngrams("word").save("word")
    ngrams(reset="document").save("document")
    before = sorted(Path.cwd().iterdir())
    assert main(["evaluate", "model", "text", *options.split()]) == 2
    assert message in capsys.readouterr().err
    assert sorted(Path.cwd().iterdir()) == before


def test_a_model_that_is_interpolated_with_itself_is_told(capsys):
    ngrams().save("model")
    assert main(["evaluate", "model", "text", "--interpolate", "./model"]) == 0
    assert "--interpolate model is the MODEL itself, which" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--unwrap", "--encoding latin-1", "--documents line"])
def test_options_of_text_are_refused_where_all_is_shards(option, capsys):
    ngrams().save("model")
    prepare(["text"], "shards", bytes_tokenizer())
    assert main(["evaluate", "model", "shards", *option.split()]) == 2
    assert "are of text: shards were cut in tokens by prepare" in capsys.readouterr().err
    assert main(["evaluate", "model", "shards", "text", *option.split()]) == 0


@pytest.mark.parametrize("option", ["--unwrap", "--strip-gutenberg", "--documents line"])
def test_options_of_lines_are_refused_where_all_is_tables(option, capsys):
    ngrams().save("model")
    Path("table.csv").write_text("sentence,item\nthe boy sees,1\n")
    command = ["evaluate", "model", "table.csv", "--column", "sentence", *option.split()]
    assert main(command) == 2
    assert "a row of a table is a document" in capsys.readouterr().err
    assert main([*command, "--bins", "text"]) == 0


def test_the_weight_is_the_one_a_minimiser_finds():
    rng = np.random.default_rng(0)
    for scale in (0.1, 1.0, 20.0):
        left, right = -rng.gamma(2.0, scale, size=(2, 500))
        found = likeliest_weight(left, right)
        best = minimize_scalar(
            lambda w, p=left, q=right: -log_mixture([p, q], [w, 1 - w]).mean(),
            bounds=(0, 1),
            method="bounded",
            options={"xatol": 1e-12},
        )
        assert found == pytest.approx(best.x, abs=1e-5)


def test_the_weight_at_its_bounds():
    left = np.log([0.5, 0.5])
    assert likeliest_weight(left, left - 1) == 1
    assert likeliest_weight(left - 1, left) == 0
    impossible = np.array([-np.inf, 0.0])
    assert 0 < likeliest_weight(impossible, np.log([0.5, 0.1])) < 1
    both = np.append(left, left - 1)
    assert likeliest_weight(both, np.append(left - 1, left)) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="impossible to both"):
        likeliest_weight(impossible, impossible)
    with pytest.raises(ValueError, match="hold no token"):
        likeliest_weight(left[:0], left[:0])


def test_a_text_without_tokens_has_no_scores(tmp_path, text, capsys, folders):
    place = altered(folders / "characters", tmp_path / "m", lambda config, arrays: None)
    layout = json.loads((place / TOKENIZER).read_text())
    layout["pre_tokenizer"] = {
        "type": "Split", "pattern": {"Regex": "never"}, "behavior": "Isolated", "invert": True,
    }  # fmt: skip
    (place / TOKENIZER).write_text(json.dumps(layout))
    resealed(place)
    assert "holds no token to predict" in refused(capsys, "evaluate", place, text)


def layout(**vocab: int) -> dict:
    tokenizer = json.loads(Tokenizer.train_words(["a b"], boundaries=False).to_json())
    tokenizer["model"]["vocab"] = {"<unk>": 0, "a": 1, "b": 2} | vocab
    return tokenizer
