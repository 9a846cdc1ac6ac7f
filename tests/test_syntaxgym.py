"""SyntaxGym: surprisals of regions beside those of prefixes, accuracies, and the command."""

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import refused

from esnlm.__main__ import main
from esnlm.evaluation.minimal_pairs.scores import sentence_log_likelihoods
from esnlm.evaluation.syntaxgym.formulas import Formula
from esnlm.evaluation.syntaxgym.scores import (
    is_published,
    read_published,
    region_rows,
    region_surprisals,
    tabulate,
)
from esnlm.evaluation.syntaxgym.suites import Item, Suite, SuiteError, read_suites
from esnlm.models.ngram import NgramLanguageModel
from esnlm.text.named_tokenizers import trained

TEXT = [
    "the boy sees the dog .",
    "the boys see the dog .",
    "when the boy walks , the dog sees .",
] * 3


def suite(name: str = "number", n_items: int = 1, **changes: Any) -> dict[str, Any]:
    """A made-up suite in SyntaxGym's JSON, with an empty region and spaces at ends."""
    regions = {
        "match": ["the", "boys", "", " see", "the dog "],
        "mismatch": ["the", "boys", "", " sees", "the dog "],
    }
    conditions = [
        {
            "condition_name": condition,
            "regions": [
                {"region_number": number, "content": content}
                for number, content in enumerate(contents, start=1)
            ],
        }
        for condition, contents in regions.items()
    ]
    items = [{"item_number": n, "conditions": conditions} for n in range(1, n_items + 1)]
    formulas = ["(4;%match%) < (4;%mismatch%)", "(3;%match%) = (3;%mismatch%)"]
    return {
        "meta": {"name": name, "metric": "sum"},
        "region_meta": {},
        "predictions": [{"type": "formula", "formula": text} for text in formulas],
        "items": items,
    } | changes


def folder_of(path: Path, *suites: dict[str, Any]) -> Path:
    path.mkdir(exist_ok=True)
    for content in suites:
        (path / f"{content['meta']['name']}.json").write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("reset", ["sentence", "never"])
@pytest.mark.parametrize("tokenizer", ["word", "wordpunct", "char", "bpe:300"])
def test_a_region_has_the_bits_that_a_longer_prefix_costs(tokenizer: str, reset: str):
    parts = trained(tokenizer, TEXT)
    model = NgramLanguageModel(order=3, tokenizer=parts, reset=reset).fit(TEXT)
    regions = {1: "when the", 2: "boy", 3: "", 4: "walks", 5: ",", 6: "", 7: "the dogs", 8: "see"}
    item = Item(1, {"a": regions, "b": {1: "the", 2: "dog"}})
    one = Suite("one", (Formula("(1;%a%) < (2;%a%)"),), (item,))
    (bits,) = region_surprisals(model, [one])
    prefix, previous = "", 0.0
    for number, text in regions.items():
        prefix = f"{prefix} {text}".strip()
        total = -sentence_log_likelihoods(model, [prefix])[0] / np.log(2)
        np.testing.assert_allclose(bits[number, "a"], total - previous, atol=1e-9)
        previous = total
    assert bits[3, "a"] == bits[6, "a"] == 0
    rows = list(region_rows([one], [bits], "m"))
    assert [row["content"] for row in rows] == [*regions.values(), "the", "dog"]
    assert rows[1]["surprisal_bits"] == bits[2, "a"][0]


def test_accuracies_are_shares_of_items_and_means_over_suites():
    less, equal = Formula("(1;%a%) < (1;%b%)"), Formula("(1;%a%) = (1;%b%)")
    items = tuple(Item(n, {"a": {1: "x"}, "b": {1: "y"}}) for n in range(20))
    suites = [
        Suite("first", (less,), items),
        Suite("few", (less,), items[:2]),
        Suite("second", (less, equal), items[:10]),
    ]
    bits = [
        {(1, "a"): np.arange(float(n)), (1, "b"): np.full(n, threshold)}
        for n, threshold in ((20, 5.0), (2, 9.0), (10, 1.0))
    ]
    *rows, overall = tabulate(suites, bits, "m")
    found = [(row["suite"], row["prediction"], row["accuracy"]) for row in rows]
    assert found == [
        ("first", 1, 0.25), ("few", 1, 1.0), ("second", 1, 0.1), ("second", 2, 0.1),
    ]  # fmt: skip
    assert overall["accuracy"] == pytest.approx((0.25 + 0.1) / 2)
    assert (overall["n_suites"], overall["n_items"]) == (2, 30)
    # The standard deviation of the mean of two binomial shares, by hand: 0.0679.
    deviation = np.sqrt(0.25 * 0.75 / 20 + 0.1 * 0.9 / 10) / 2
    assert overall["upper"] - overall["lower"] == pytest.approx(4 * deviation, rel=0.1)
    assert [row["level"] for row in tabulate(suites[1:2], bits[1:2], "m")] == ["suite"]


def test_published_accuracies(tmp_path: Path):
    path = tmp_path / "published.csv"
    path.write_text("model_corpus,suite,items_scored,accuracy\nlstm,one,20,0.5\nlstm,two,20,0.25\n")
    assert is_published(path)
    path.write_text(path.read_text(), "utf-8-sig")  # as Excel writes it
    assert is_published(path)
    items = tuple(Item(n, {}) for n in range(10))
    suites = [Suite(name, (), items) for name in ("one", "two")]
    assert read_published(path, suites) == {"lstm": {"one": 0.5, "two": 0.25, "overall": 0.375}}
    more = [*suites, Suite("three", (), items)]
    assert "overall" not in read_published(path, more)["lstm"]
    path.write_text("model,suite,accuracy\nNA,one,0.5\nnull,one,0.25\n")
    assert read_published(path, suites) == {"NA": {"one": 0.5}, "null": {"one": 0.25}}
    for text, message in (
        ("", "is no table of a header and rows"),
        ("model;suite;accuracy\nm;one;0,5\n", "separates its columns by ';', expected ','"),
        ("model,suite,prediction,accuracy\nm,one,1,2\n", "are no numbers in"),
        (
            "suite,accuracy\none,1\n",
            "has no accuracies of suites: expected the columns model, suite",
        ),
        ("model,suite,accuracy\nm,one,50\n", "are no numbers in"),
        ("model,suite,accuracy\nm,one,\n", "are no numbers in"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_published(path, suites)


def test_suites_are_read_from_files_folders_and_archives(tmp_path: Path):
    folder = folder_of(tmp_path / "suites", suite("b"), suite("a", 2))
    suites = read_suites(folder)
    assert [(each.name, len(each.items)) for each in suites] == [("a", 2), ("b", 1)]
    assert suites[1].items[0].conditions["match"] == {
        1: "the",
        2: "boys",
        3: "",
        4: "see",
        5: "the dog",
    }
    assert read_suites(folder / "a.json") == suites[:1]
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / "a-checkpoint.json").write_text("{}")
    assert read_suites(folder) == suites
    with tarfile.open(tmp_path / "suites.tar.gz", "w:gz") as archive:
        archive.add(folder, "json")
    assert read_suites(tmp_path / "suites.tar.gz") == suites
    for file in folder.glob("*.json"):
        file.unlink()
    (tmp_path / "suites.tar.gz").rename(folder / "suites.tar.gz")
    assert read_suites(folder) == suites


def item_of(*texts: str | None, number: int | None = None) -> dict[str, Any]:
    """Return an item of one condition; all its regions have the number, or else their places."""
    regions = [{"region_number": number or i, "content": each} for i, each in enumerate(texts, 1)]
    return {"item_number": 1, "conditions": [{"condition_name": "match", "regions": regions}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, r"number.json is no suite of SyntaxGym: .* \(KeyError: 'meta'\)"),
        ([], "is no suite of SyntaxGym"),
        (suite(meta={"name": "number", "metric": "mean"}), "the metric of suite number is 'mean'"),
        (suite(items=[]), "suite number has no items"),
        (suite(predictions=[]), "suite number has no predictions"),
        (suite(items=[item_of("the", None)]), "'NoneType' object has no attribute 'strip'"),
        (suite(items=[item_of("the \ud83d boy")]), r"holds half a character, U\+D83D, at place 4"),
        (suite(items=[item_of("the", "boys", number=1)]), "regions of an item are called 1"),
        (suite(predictions=[{"formula": "(4;%match%"}]), "a prediction is no formula: .*match"),
        (
            suite(predictions=[{"formula": "(9;%match%) < 1"}]),
            "item 1 of suite number has no region 9 of condition match, which a prediction names",
        ),
        (suite(predictions=[{"formula": "(*;%x%) < 1"}]), r"no region \* of condition x"),
    ],
)
def test_what_is_no_suite_is_named(tmp_path: Path, content: Any, message: str):
    (tmp_path / "number.json").write_text(json.dumps(content))
    with pytest.raises(SuiteError, match=message):
        read_suites(tmp_path)


def test_the_command_compares_models(folders: Path, tmp_path: Path, capsys):
    data = folder_of(tmp_path / "suites", suite("number", 12), suite("few", 2))
    published = data / "published_accuracy.csv"
    published.write_text("model_corpus,suite,accuracy\nlstm,number,0.5\nlstm,few,0.25\n")
    table, regions = tmp_path / "suites.csv", tmp_path / "regions.csv"
    models = [str(folders / "ngrams"), str(folders / "ridge")]
    command = ["syntaxgym", *models, "--suites", str(data)]
    files = ["--csv", str(table), "--regions-csv", str(regions)]
    assert main([*command, "--name", "kn", "--name", "esn", *files]) == 0
    shown = capsys.readouterr().out
    assert "mean over 1 suites" in shown
    assert "   50.00  lstm" in shown
    rows = pd.read_csv(table)
    assert rows["model"].unique().tolist() == ["kn", "esn"]
    assert rows["suite"].tolist() == ["few", "few", "number", "number", "overall"] * 2
    bits = pd.read_csv(regions, keep_default_na=False)
    assert len(bits) == 2 * 14 * 2 * 5
    wide = bits[bits["model"] == "esn"].pivot(
        index=["suite", "item"], columns=["condition", "region"], values="surprisal_bits"
    )
    right = wide["match", 4] < wide["mismatch", 4]
    assert rows.iloc[-1]["accuracy"] == right["number"].mean()
    # An earlier table stands beside, and is not taken for a suite.
    options = ["--published", str(table), "--beside", "esn"]
    assert main([*command[:2], *command[3:], *options]) == 0
    assert "esn" in capsys.readouterr().out.splitlines()[0]


def test_the_command_refuses_in_one_line(folders: Path, tmp_path: Path, capsys):
    data, model = folder_of(tmp_path / "suites", suite()), folders / "ngrams"
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, message in (
        ([model, "--suites", empty], "holds no suites: expected .json files, or an archive"),
        ([model, "--suites", tmp_path / "none"], "no such file or folder"),
        ([model, model, "--suites", data], "two models are called"),
        ([model, "--suites", data, "--name", "a", "--name", "b"], "got 2 names for 1 models"),
        ([model, "--suites", data, "--beside", "x"], "--beside x: the other models are none"),
        ([tmp_path / "none", "--suites", data], "no such model folder"),
        ([model, "--suites", data / "number.json", "--csv", data / "number.json"], "it is read"),
    ):
        assert message in refused(capsys, "syntaxgym", *arguments)
