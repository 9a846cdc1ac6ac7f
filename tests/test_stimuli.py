"""Stimuli of tables: their texts, and their keys in the result."""

import gzip
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import refused
from small_models import ngrams

from esnlm.__main__ import main
from esnlm.text.corpus import CorpusError
from esnlm.text.stimuli import read_texts, read_words

TABLE = """item,condition,sentence
1,a,"the boy, he sees"
1,b,the boys see
2,a,the dog sees
"""
WORDS = """zone,item,word
1,7,the
2,7,boy
3,7,sees
1,8,the
2,8,dogs
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ngrams().save("model")
    Path("stimuli.csv").write_text(TABLE)
    Path("words.csv").write_text(WORDS)


def test_texts_keep_the_other_columns() -> None:
    command = "evaluate model stimuli.csv --column sentence --surprisal-csv w.csv --lags 1"
    assert main(command.split()) == 0
    rows = pd.read_csv("w.csv", keep_default_na=False)
    assert [*rows.columns[-2:]] == ["item", "condition"]
    words = rows[rows["word"] != "</s>"]
    text = "the boy, he sees the boys see the dog sees"
    assert " ".join(words["word"]) == text
    assert words["condition"].tolist() == [*"aaaa", *"bbb", *"aaa"]
    assert words["item"].tolist() == [1] * 7 + [2] * 3
    assert words["document"].tolist() == [1] * 4 + [2] * 3 + [3] * 3
    table = ngrams().surprisal(["the boy, he sees", "the boys see", "the dog sees"])
    expected = table["surprisal_bits"].tolist()
    assert words["surprisal_bits"].astype(float).tolist() == pytest.approx(expected)


def test_words_keep_their_keys_and_merge_with_reading_times() -> None:
    command = "evaluate model words.csv --word-column word --group item --surprisal-csv w.csv"
    assert main([*command.split(), "--name", "trigrams"]) == 0
    times = pd.DataFrame({"item": [8, 7, 7, 7, 8], "zone": [2, 1, 2, 3, 1], "ms": range(5)})
    rows = times.merge(pd.read_csv("w.csv"), on=["item", "zone"], validate="one_to_one")
    assert rows["word"].tolist() == ["dogs", "the", "boy", "sees", "the"]
    assert set(rows["model"]) == {"trigrams"}
    expected = ngrams().surprisal(["the boy sees", "the dogs"])["surprisal_bits"]
    assert rows["surprisal_bits"].tolist() == pytest.approx(expected[[4, 0, 1, 2, 3]].tolist())


def test_a_place_of_ones_own_takes_the_place_of_ours() -> None:
    Path("places.tsv").write_text("position\tsentence\tw\n10\t5\tthe\n11\t5\tboy\n")
    command = "evaluate model places.tsv --word-column w --group sentence --surprisal-csv w.csv"
    assert main(command.split()) == 0
    rows = pd.read_csv("w.csv")
    assert rows["position"].tolist() == [10, 11]
    assert rows["sentence"].tolist() == [5, 5]
    assert rows["word"].tolist() == ["the", "boy"]


def test_units_other_than_words_keep_columns_too() -> None:
    for unit in ("sentence", "token"):
        command = f"evaluate model stimuli.csv --column sentence --surprisal-csv {unit}.csv"
        assert main([*command.split(), "--unit", unit]) == 0
        assert pd.read_csv(f"{unit}.csv").groupby("document")["item"].first().tolist() == [1, 1, 2]


@pytest.mark.parametrize(
    "command",
    [
        "ngram stimuli.csv --out new",
        "train stimuli.csv --out new",
        "prepare stimuli.csv --tokenizer word --out new",
        "evaluate model stimuli.csv --column sentence --bins words.csv",
        "blimp model --data pairs.jsonl --words-of stimuli.csv",
    ],
)
def test_no_command_takes_a_table_as_text(command: str, capsys: Any) -> None:
    Path("pairs.jsonl").write_text('{"good": "the boy sees", "bad": "the boy see"}\n')
    assert ".csv is a table, not text" in refused(capsys, *command.split())
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("stimuli.csv", "stimuli.csv is a table, not text: name its column of texts by --column"),
        ("pairs.jsonl", "pairs.jsonl is a table, not text"),
        ("pairs.NDJSON.gz", "pairs.NDJSON.gz is a table, not text"),
        ("stimuli.csv --column text", "no column 'text': it has item, condition, sentence"),
        ("none.csv --column text", "no such file: none.csv"),
        ("stimuli.csv --word-column sentence", "must hold one word a row, got 'the boy, he sees'"),
        ("words.csv --word-column word --group story", "no column 'story': it has zone, item"),
        ("readers.csv --word-column word --group item", "hold their words more than once: of sev"),
        ("gap.csv --word-column text --group item", "row 2: column 'item' of --group is empty"),
        ("words.csv --group item", "--group needs --word-column NAME"),
        ("words.csv --column word --word-column word", "give one of them"),
        ("words.csv --word-column word --unit token", "rows of words, got --unit token"),
        ("clash.csv --column text", "rename it in the file"),
        ("empty.csv --column text", "has no row below its header"),
        ("commas.csv --column text", "has no row below its header"),
        ("excel.csv --column text", "excel.csv separates its columns by ';', expected ','"),
        ("tabs.csv --column text", "tabs.csv separates its columns by '\\t', expected ','"),
        ("excel.tsv --column text", "excel.tsv separates its columns by ';', expected '\\t'"),
        ("twice.csv --column text", "twice.csv names the column 'text' twice: rename one"),
        ("apart.csv --column text", "apart.csv names the column 'text' twice: rename one"),
        ("stimuli.csv --column sentence --counts words.csv", "is a table, and counts are of a"),
        ("blank.csv --column text", "row 2: column 'text' is empty"),
        ("stimuli.csv --column sentence --lags 4", "lags must be at most 3, got 4"),
    ],
)
def test_bad_tables_are_refused_and_leave_nothing(
    arguments: str, message: str, capsys: Any
) -> None:
    Path("pairs.jsonl").write_text("{}\n")
    Path("clash.csv").write_text("rank,text\n1,the boy\n")
    Path("empty.csv").write_text("item,text\n")
    Path("commas.csv").write_text("item,text\n,\n,\n")
    rows = [f"{who},{item},{word}" for who in "ab" for item in "12" for word in ("the", "boy")]
    Path("readers.csv").write_text("\n".join(["reader,item,word", *rows]) + "\n")
    Path("twice.csv").write_text("text,,,text\nthe boy,,,the dog\n")
    Path("apart.csv").write_text("text, text\nthe boy,the dog\n")
    for name, text in ("excel.csv", "1;a, b\n"), ("tabs.csv", "1\ta\n"), ("excel.tsv", "1;a\n"):
        Path(name).write_text(f"item{text[1]}text\n{text}")
    Path("blank.csv").write_text("item,text\n1,the\n2, \n")
    Path("gap.csv").write_text("item,text\n1,the\n ,boy\n1,sees\n")
    before = sorted(Path.cwd().iterdir())
    assert main(["evaluate", "model", *arguments.split(), "--surprisal-csv", "w.csv"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert sorted(Path.cwd().iterdir()) == before


def test_spaces_around_names_and_rows_of_commas_at_the_end_are_nothing() -> None:
    Path("spaced.csv").write_text('item, text ,kind\n1, "so, the boy sees", a\n,,\n\n,,\n')
    stimuli = read_texts("spaced.csv", "text")
    assert stimuli.columns == ("item", "kind")
    assert stimuli.texts == ["so, the boy sees"]
    assert stimuli.keys == [[("1", "a")]]


def test_groups_are_texts_in_the_order_of_the_rows() -> None:
    stimuli = read_words("words.csv", "word", ["item"])
    assert stimuli.texts == ["the boy sees", "the dogs"]
    assert stimuli.keys_of(1, 1) == {"zone": "2", "item": "8"}
    assert read_words("words.csv", "word", []).texts == ["the boy sees the dogs"]
    assert read_texts("stimuli.csv", "sentence").texts[0] == "the boy, he sees"


def test_rows_of_marks_do_not_shift_the_keys(capsys: Any) -> None:
    Path("marked.csv").write_text("zone,word\n0,<s>\n1,the\n2,boy\n3,</s>\n")
    arguments = ["evaluate", "model", "marked.csv", "--word-column", "word"]
    assert main([*arguments, "--surprisal-csv", "w.csv"]) == 2
    assert "leave out the rows of marks such as <s> and </s>" in capsys.readouterr().err
    assert not Path("w.csv").exists()


def test_texts_with_commas_do_not_shift_the_columns() -> None:
    Path("commas.csv").write_text("item,text\n1,Well, the boy\n2,So, the dog\n")
    with pytest.raises(CorpusError, match="more fields in its rows than in its header"):
        read_texts("commas.csv", "text")


def test_lone_quotation_marks_do_not_join_rows() -> None:
    Path("quotes.tsv").write_text('item\ttext\n1\t"Yes,\n2\the said"\n')
    with pytest.raises(CorpusError, match=r"quotes\.tsv, row 1: .* holds a tab"):
        read_texts("quotes.tsv", "text")
    Path("quotes.tsv").write_text('item\ttext\n1\t"""Yes,"\n2\t"he\nsaid"\n')
    assert read_texts("quotes.tsv", "text").texts == ['"Yes,', "he\nsaid"]


@pytest.mark.parametrize("field", [r'"so \"it\" is"', r'"so \"it, is\""', '"so" it is'])
def test_quotation_marks_that_are_not_doubled_are_named(field: str) -> None:
    Path("r.csv").write_text(f'item,text\n1,so \\"it\n2,"C:\\"\n3,{field}\n')  # write.table of R
    with pytest.raises(CorpusError, match=r"r\.csv is no table, line 4: .* of its own twice"):
        read_texts("r.csv", "text")
    Path("r.csv").write_text('item,text\n1,so \\"it\n2,"C:\\"\n3,"so ""it"" is"\n')
    assert read_texts("r.csv", "text").texts == ['so \\"it', "C:\\", 'so "it" is']


def test_a_damaged_table_is_refused() -> None:
    Path("odd.csv").write_text('a,b\n1,"2\n')
    with pytest.raises(CorpusError, match=r"odd\.csv is no table"):
        read_texts("odd.csv", "a")


def test_the_name_of_a_table_may_be_in_capitals() -> None:
    with gzip.open("STIMULI.TSV.GZ", "wt") as file:
        file.write("item\ttext\n1\tthe boy, he sees\n")
    assert read_texts("STIMULI.TSV.GZ", "text").texts == ["the boy, he sees"]
