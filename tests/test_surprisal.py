"""Tables of surprisal: a row a word, sums, frequencies."""

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_models import DOCS, ngrams, of_bytes, reservoir_model

import esnlm
from esnlm import LanguageModel, NgramLanguageModel
from esnlm.__main__ import main


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("reset", ["sentence", "document", "never"])
@pytest.mark.parametrize("make", [reservoir_model, ngrams])
@pytest.mark.parametrize("tokens", ["word", "char", "bytes"])
def test_a_table_of_surprisal_has_a_row_a_word_and_sums_to_the_whole(make, reset, tokens):
    tokenizer = of_bytes() if tokens == "bytes" else tokens
    model = make(reset, tokenizer)
    text = ["the boy sees\n\nthe dog .", "boys see Mary ."]
    table = model.surprisal(text)
    assert table["word"].tolist() == " ".join(text).split()
    assert table["position"].tolist() == [1, 2, 3, 1, 2, 3, 1, 2, 3, 4]
    assert table["document"].tolist() == [1] * 6 + [2] * 4
    assert table["length"].tolist() == [len(word) for word in table["word"]]
    Path("text").write_text("\n\n".join(text).replace("\n\nthe", "\nthe") + "\n")
    model.save("model")
    assert main(["evaluate", "model", "text", "--surprisal-csv", "words.csv"]) == 0
    with open("words.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    ends = model.tokenizer_.eos
    if tokens == "word" or reset == "sentence":
        bits = [float(row["surprisal_bits"]) for row in rows if row["word"] != ends]
        assert table["surprisal_bits"].tolist() == pytest.approx(bits, rel=1e-4, abs=1e-6)


def test_the_sum_of_a_sentence_and_its_end_is_its_negative_log_likelihood():
    model = ngrams()
    table = model.surprisal("the boy sees Mary")
    (scores,) = model.log_likelihood("the boy sees Mary")
    np.testing.assert_allclose(table["surprisal_bits"] * np.log(2), -scores[:-1])
    assert table["n_tokens"].tolist() == [1] * 4


def test_frequencies_are_those_of_the_training_text_or_of_counts():
    counts = Counter(" ".join(DOCS).lower().split())
    expected = {word: np.log((n + 1) / counts.total()) for word, n in counts.items()}
    for model in (reservoir_model(), ngrams()):
        model.save("model")
        for each in (model, esnlm.load_model("model")):
            table = each.surprisal("The boy, sees cats")
            found = dict(zip(table["word"], table["log_frequency"], strict=True))
            assert found["The"] == pytest.approx(expected["the"])
            assert found["boy,"] == pytest.approx(expected["boy"])
            assert found["cats"] == pytest.approx(-np.log(counts.total()))
        given = model.surprisal("The boy", counts={"the": 3, "The": 1, "dog": 6})
        assert given["log_frequency"].tolist() == pytest.approx(np.log([0.5, 0.1]))
        same = model.surprisal("The boy", counts=["the the", "dog " * 6 + "The the"])
        assert same["log_frequency"].tolist() == pytest.approx(np.log([0.5, 0.1]))
        series = pd.Series({"the": 3, "The": 1, "dog": 6})
        assert model.surprisal("The boy", counts=series, lags=np.int64(0)).equals(given)
    for tokens in ("char", of_bytes()):
        assert ngrams(tokenizer=tokens).surprisal("the boy")["log_frequency"].isna().all()


def test_frequencies_grow_with_what_is_learned():
    model = reservoir_model()
    before = model.token_counts_.copy()
    model.partial_fit(["the boy"])
    assert (model.token_counts_ - before).sum() == 3  # two words and the end
    parts = LanguageModel.of_parts(model.reservoir_, model.readout_, tokenizer=model.tokenizer_)
    assert parts.surprisal("the boy")["log_frequency"].isna().all()


def test_surprisal_of_what_is_no_text_is_refused():
    with pytest.raises(ValueError, match="surprisal reads text, got a document of"):
        reservoir_model().surprisal([[1, 2]])
    with pytest.raises(ValueError, match="set a tokenizer"):
        NgramLanguageModel(order=2).fit([[0, 1, 2]]).surprisal("the")


def test_values_of_the_words_before_stand_beside_a_word():
    model = ngrams()
    text = ["the boy sees Mary\nthe dog", "boys see"]
    table = model.surprisal(text, lags=2, counts={"the": 3, "boy": 1})
    for name in ("surprisal_bits", "length", "log_frequency", "entropy_bits"):
        for lag in (1, 2):
            expected = table.groupby(["document", "sentence"])[name].shift(lag)
            assert table[f"{name}_lag{lag}"].equals(expected.astype(float))
    read_on = ngrams("document").surprisal(text, lags=1)  # it reads on to the next line
    expected = read_on.groupby("document")["surprisal_bits"].shift(1)
    assert read_on["surprisal_bits_lag1"].equals(expected)
    for context in ("document", 1):
        read_on = model.surprisal(text, lags=1, context=context)
        expected = read_on.groupby("document")["surprisal_bits"].shift(1)
        assert read_on["surprisal_bits_lag1"].equals(expected)
    with pytest.raises(ValueError, match="lags must be at most 3, got 4"):
        model.surprisal("the boy", lags=4)


def test_a_word_knows_whether_it_is_the_first_or_the_last():
    table = ngrams().surprisal("the boy sees\n\nMary\nboys see")
    assert table["is_first"].tolist() == [True, False, False, True, True, False]
    assert table["is_last"].tolist() == [False, False, True, True, False, True]


@pytest.mark.parametrize(
    ("text", "words"),
    [("वह जाती है।", ["वह", "जाती", "है"]), ("“שָׁלוֹ ที่!” มี", ["שָׁלוֹ", "ที่", "มี"])],
)
def test_vowel_signs_and_accents_at_the_end_of_a_word_are_no_punctuation(text, words):
    model = NgramLanguageModel(2, tokenizer="char", reset="sentence").fit([text, "जाता"] * 5)
    table = model.surprisal(text, counts=Counter(words))
    assert table["length"].tolist() == [len(word) for word in words]
    assert table["log_frequency"].tolist() == [np.log(2 / 3)] * 3
    is_mark = dict(zip(model.tokenizer_.vocabulary, model.tokenizer_.is_mark, strict=True))
    assert {token for token in is_mark if is_mark[token]} == {*text} & {*"।!“”"}


@pytest.mark.parametrize("make", [reservoir_model, ngrams])
def test_characters_that_training_never_had_are_unknown(make):
    for tokenizer in ("char", of_bytes()):
        model = make(tokenizer=tokenizer)
        table = model.surprisal("the boy \u2014 sees 3 dogs")
        unknown = dict(zip(table["word"], table["n_unknown"] > 0, strict=True))
        assert unknown == {
            "the": False, "boy": False, "\u2014": True, "sees": False, "3": True, "dogs": False,
        }  # fmt: skip


def test_the_csv_has_the_columns_of_the_table():
    model = reservoir_model()
    model.save("model")
    Path("text").write_text("the boy sees\nMary sees the zebra .\n")
    Path("counts.txt").write_text("the boy\n")
    command = "evaluate model text --surprisal-csv w.csv --counts counts.txt --lags 3"
    assert main([*command.split(), "--context", "document"]) == 0
    rows = pd.read_csv("w.csv")
    words = rows[rows["length"].notna()].reset_index(drop=True)
    table = model.surprisal(
        Path("text").read_text(), counts="counts.txt", lags=3, context="document"
    )
    assert words["string"].equals(words["word"])  # as the rows of all units have it
    assert [*words.drop(columns="string").columns[2:]] == [*table.columns]
    pd.testing.assert_frame_equal(words[[*table.columns]], table, check_dtype=False, rtol=1e-5)
    assert len(rows) == len(table) + 2  # ends of sentences


def test_marks_that_are_tokens_are_no_words_of_the_counts() -> None:
    text = 'Well, the boy said: "Don\'t!" The cats, too.'
    apart = NgramLanguageModel(2, tokenizer="wordpunct").fit([text])
    glued = NgramLanguageModel(2, tokenizer="word").fit([text])
    tables = [model.surprisal(text)["log_frequency"] for model in (apart, glued)]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(apart.surprisal(text, counts=[text])["log_frequency"])


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({}, "counts must be of one word at least, got none"),
        ({"the": "3"}, "counts must be numbers by word, got '3' for 'the'"),
        ({"the": 0.06, "boy": 1e-4}, "counts must be occurrences, got at most 0.06"),
        ({"the": -1}, "got -1 for 'the'"),
        (pd.Series([3, 4]), "got 3 for 0"),
        (pd.DataFrame({"word": ["the"], "n": [3]}), "a table of word, n: pass one of its columns"),
    ],
)
def test_counts_that_are_no_numbers_by_word_are_refused(counts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NgramLanguageModel(2).fit(DOCS).surprisal("the boy", counts=counts)


def test_marks_around_lines_are_no_words_of_the_counts() -> None:
    lines = ["the boy sees the dog", "the dog sees the boy"]
    model = NgramLanguageModel(2, "word").fit(lines)
    marked = [f"<s> {line} </s>" for line in lines]
    pd.testing.assert_frame_equal(
        model.surprisal(lines, counts=marked), model.surprisal(lines, counts=lines)
    )
