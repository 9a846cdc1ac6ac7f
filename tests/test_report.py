"""The page of a report: valid, closed to the network, escaped, repeatable, true to its files."""

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import html5lib
import pandas as pd
import pytest

from esnlm import LanguageModel
from esnlm.__main__ import main
from esnlm.evaluation.minimal_pairs.table import COLUMNS as PAIR_COLUMNS
from esnlm.reporting import about
from esnlm.reporting.contents import find, read_csv
from esnlm.reporting.page import Table, cell, table
from esnlm.reporting.plots import curve

#: Words of a corpus that would do harm in a page that took them for its own.
HARM = "<script>alert(1)</script> &amp; $x_1$ \"'`"
SENTENCES = [
    "the boy sees the dog",
    "the dog sees the boy",
    "the boy walks",
    "the dogs walk",
    f"the dog hears {HARM}",
]
PAIRS = "\n".join(
    f'{{"sentence_good": "{good}", "sentence_bad": "{bad}", "UID": "{uid}", "field": "syntax",'
    f' "linguistics_term": "{term}", "pairID": "{number}"}}'
    for number, (good, bad, uid, term) in enumerate(
        [
            ("the boy walks", "the boy walk", "agreement", "subject_verb_agreement"),
            ("the dogs walk", "the dogs walks", "agreement", "subject_verb_agreement"),
            ("the dog sees the boy", "sees the dog the boy", "order", "island_effects"),
            ("the boy sees the dog", "the dog the sees boy", "order", "island_effects"),
        ]
    )
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of a run: text, a model with its log and record, n-grams, and their CSVs."""
    home = Path.cwd()
    folder = tmp_path_factory.mktemp("report")
    os.chdir(folder)
    Path("text").write_text("\n".join(SENTENCES * 12) + "\n")
    Path("held").write_text("\n".join(SENTENCES * 6) + "\n")
    Path("pairs").mkdir()
    Path("pairs/some.jsonl").write_text(PAIRS + "\n")
    for argv in (
        "train text --units 24 --held-out held --out run/<esn> --log run/log.csv --score-every 20"
        " --chunk-tokens 100 --tokenizer word",
        "ngram text --order 3 --tokenizer word --out run/ngrams",
        "evaluate run/<esn> held --csv run/evaluation.csv --bins text --bins-csv run/bins.csv",
        "blimp run/<esn> --data pairs --csv run/pairs.csv --name <b>esn</b>",
    ):
        assert main(argv.split()) == 0, argv
    yield folder
    os.chdir(home)


@pytest.fixture
def at(run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(run)
    return run


BESIDE = "Beside baselines of --train, with the interval over sentences"
WHOLE = "report run --held-out held --train text --blimp pairs --resamples 200 --out"


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    assert main([*WHOLE.split(), "page.html"]) == 0
    return (run / "page.html").read_text()


def parsed(page: str):
    """The elements of a page that breaks no rule of HTML."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


def tables(page: str) -> dict[str, list[dict[str, str]]]:
    """Caption -> rows of whole values by heading."""
    found = {}
    for figure in parsed(page).iter("figure"):
        if figure.get("class") != "table" or (inner := figure.find(".//table")) is None:
            continue
        caption = figure.find("figcaption")
        if caption is None:
            caption = figure.find(".//summary")
        heads = [head.text for head in inner.iter("th")]
        rows = []
        for row in inner.find("tbody").iter("tr"):
            cells = [each.get("data-value") or "".join(each.itertext()) for each in row]
            rows.append(dict(zip(heads, cells, strict=True)))
        found[re.sub(r" \(\d+ rows\)$", "", caption.text)] = rows
    return found


def test_the_page_is_valid_and_has_every_section(page: str):
    sections = {each.get("id") for each in parsed(page).iter("section")}
    assert sections == {
        "runs", "models", "data", "texts", "training", "groups", "calibration", "pairs",
        "contributions", "reservoir", "samples",
    }  # fmt: skip
    for link in parsed(page).iter("a"):
        assert link.get("href").removeprefix("#") in sections


def test_the_page_loads_nothing(page: str):
    page = re.sub(r'<img [^>]* src="data:image/png;base64,[\w+/=]*">', "", page)
    outside = re.findall(r"https?:|//[a-z]|@import|\bsrc=|<link|<img|<iframe|<object", page)
    assert not outside
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_ids_are_used_once_and_lead_somewhere(page: str):
    ids = [each.get("id") for each in parsed(page).iter() if each.get("id")]
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', page))
    assert wanted <= set(ids)


def test_text_of_corpora_and_names_is_escaped(page: str):
    root = parsed(page)
    assert len(list(root.iter("script"))) == 1
    assert "alert" not in next(root.iter("script")).text
    assert not list(root.iter("esn"))
    assert not list(root.iter("b")) or all(each.text != "esn" for each in root.iter("b"))
    shown = "".join(root.itertext())
    assert "<b>esn</b>" in shown
    assert "<esn>" in shown
    samples = "".join("".join(each.itertext()) for each in root.iter("pre"))
    assert "<script>alert(1)</script>" in samples


def test_the_same_input_gives_the_same_bytes(page: str, at: Path):
    argv = [sys.executable, "-m", "esnlm", *WHOLE.split(), "again.html"]
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    subprocess.run(argv, check=True, capture_output=True, env=environment)
    assert Path("again.html").read_text() == page


def test_figures_are_those_of_the_files(page: str, at: Path):
    found = tables(page)
    for name, caption, columns in (
        ("evaluation", "evaluation.csv", {"nll_per_token": "nats a token", "model": "model",
                                          "perplexity": "perplexity", "n_words": "words"}),
        ("bins", "bins.csv: perplexity by frequency",
         {"bin": "occurrences in training", "perplexity": "perplexity", "lower": "95 % from"}),
        ("log", "log.csv", {"held_out_nll": "nats a token", "tokens": "tokens"}),
    ):  # fmt: skip
        with open(f"run/{name}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        shown = found[caption]
        assert [{new: row[old] for old, new in columns.items()} for row in rows] == [
            {new: row[new] for new in columns.values()} for row in shown
        ]
    with open("run/pairs.csv", newline="") as file:
        of_file = {row["paradigm"]: row for row in csv.DictReader(file)}
    listed = [row for row in found["By paradigm"] if row["model"] == "<b>esn</b>"]
    assert {row["paradigm"] for row in listed} == {"agreement", "order"}
    for row in listed:
        for old, new in (("accuracy", "ties half"), ("strict", "ties wrong"), ("ties", "ties")):
            assert row[new] == of_file[row["paradigm"]][old]


def test_computed_figures_are_those_of_the_commands(page: str, at: Path):
    found = tables(page)
    with open("run/evaluation.csv", newline="") as file:
        (known,) = csv.DictReader(file)
    rows = {row["model"]: row for row in found["Scored for this report, on --held-out"]}
    assert float(rows["<esn>"]["nats a token"]) == pytest.approx(
        float(known["nll_per_token"]), 1e-5
    )
    alone = {row["model"]: float(row["nats a token"])
             for row in found[BESIDE]}  # fmt: skip
    assert alone["<esn>"] == pytest.approx(float(known["nll_per_token"]), 1e-5)
    with open("run/pairs.csv", newline="") as file:
        of_file = {row["phenomenon"]: row["accuracy"] for row in csv.DictReader(file)
                   if row["level"] == "phenomenon"}  # fmt: skip
    judged = {row["phenomenon"]: row["ties half"] for row in found["By phenomenon"]
              if row["model"] == "<esn>"}  # fmt: skip
    assert {name: float(value) for name, value in judged.items()} == pytest.approx(
        {name: float(value) for name, value in of_file.items()}
    )


def test_losses_by_group_add_up_to_the_whole(page: str):
    found = tables(page)
    whole = {row["model"]: float(row["nats a token"])
             for row in found[BESIDE]}  # fmt: skip
    grouped = [rows for caption, rows in found.items() if caption.startswith("Loss by ")]
    assert len(grouped) == 3
    for rows in grouped:
        for model, loss in whole.items():
            part = [
                (int(r["tokens"]), float(r["nats a token"])) for r in rows if r["model"] == model
            ]
            total = sum(n * nats for n, nats in part) / sum(n for n, _ in part)
            assert total == pytest.approx(loss, rel=1e-4)


def test_what_is_missing_is_named_with_what_brings_it(at: Path, capsys):
    assert main(["report", "run/ngrams", "--out", "bare.html", "--overwrite"]) == 0
    page = Path("bare.html").read_text()
    missing = page.partition('id="missing"')[2]
    for name in ("--held-out SHARDS|TEXT", "--blimp FOLDER", "esnlm train --log FILE"):
        assert name in missing
    assert "bare.html: " in capsys.readouterr().out


@pytest.mark.parametrize("study", ["elman", "babylm", "controls", "search", "dyck", "shakespeare"])
def test_studies_have_a_table_and_a_plot(study: str, tmp_path: Path):
    folder = Path(__file__).parent.parent / "reports" / study
    out = tmp_path / "page.html"
    assert main(["report", str(folder), "--out", str(out)]) == 0
    page = out.read_text()
    root = parsed(page)
    assert list(root.iter("img"))
    captions = " ".join(tables(page))
    for path in folder.rglob("*.csv"):
        shown = re.search(rf"\b{path.name}\b", captions) or path.name == "differences.csv"
        assert shown or read_csv(path).columns[1] == "level", path


def test_a_csv_that_nobody_knows_is_a_table(tmp_path: Path):
    (tmp_path / "own.csv").write_text('\ufeffname,value\n"a,\nb",0.5\n<i>,1e-3\n')
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--out", str(out)]) == 0
    assert tables(out.read_text())["own.csv"] == [
        {"name": "a,\nb", "value": "0.5"},
        {"name": "<i>", "value": "1e-3"},
    ]


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    before = sorted(Path.cwd().rglob("*"))
    capsys.readouterr()
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = (line for line in err.splitlines() if not line.startswith("esnlm: reading"))
    assert sorted(Path.cwd().rglob("*")) == before
    return line.removeprefix("esnlm: error: ")


BAD = {
    "empty.csv": (b"", "is empty: expected a CSV with its columns"),
    "cut.csv": (b"a,b\n1,2\n3", "ends inside a line: it was cut, or is still being written"),
    "short.csv": (b"a,b\n1,2\n3\n", "row 3 of short.csv has 1 fields, expected 2"),
    "binary.csv": (b"\xff\xfe\x00\n", "is no CSV"),
    "excel.csv": (b"a;b\n1;2\n", "excel.csv separates its columns by ';', expected ','"),
    "twice.csv": (b"a,a\n1,2\n", "names a column twice: a,a"),
    "text.csv": (b"level,model,paradigm,phenomenon,n_pairs,accuracy,ties\noverall,m,o,o,9,x,0\n",
                 "holds 'x', expected a number"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_damaged_files_have_one_message(name: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    content, message = BAD[name]
    Path(name).write_bytes(content)
    assert message in refused(["report", name, "--out", "page.html"], capsys)


def test_blank_lines_are_no_rows(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.csv").write_text("a,b\n1,2\n\n3,4\n,\n\n,,,\n")
    assert main(["report", "own.csv", "--out", "page.html"]) == 0
    rows = [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert tables(Path("page.html").read_text())["own.csv"] == rows


def test_what_is_named_twice_is_shown_once(at: Path, monkeypatch, capsys):
    out = str(at / "twice.html")
    assert main(["report", "run", "run/ngrams", "run/log.csv", "run", "--out", out]) == 0
    assert ", of 2 models, " in capsys.readouterr().out
    monkeypatch.chdir("run/ngrams")
    assert main(["report", ".", "--out", out, "--overwrite"]) == 0
    assert "reading ngrams\n" in capsys.readouterr().err


def test_folders_that_hold_nothing_and_models_that_are_not_whole(
    at: Path, tmp_path: Path, monkeypatch, capsys
):
    model = shutil.copytree("run/<esn>", tmp_path / "model")
    shutil.copy("run/<esn>.run.json", tmp_path / "model.run.json")
    monkeypatch.chdir(tmp_path)
    argv = ["--out", "page.html"]
    assert refused(["report", "nowhere", *argv], capsys) == "no such file or folder: nowhere"
    Path("foreign").mkdir()
    Path("foreign/notes.txt").write_text("notes")
    assert "foreign holds nothing that a report shows" in refused(
        ["report", "foreign", *argv], capsys
    )
    assert "--train needs --held-out" in refused(["report", "model", *argv, "--train", "x"], capsys)
    Path("rows.csv").write_text("a,b\n1,2\n")
    assert "need a model" in refused(
        ["report", "rows.csv", *argv, "--held-out", "rows.csv"], capsys
    )
    Path("model.run.json").write_text(Path("model.run.json").read_text()[:-40])
    assert "model.run.json is no whole record of a run" in refused(
        ["report", "model", *argv], capsys
    )
    Path("model.run.json").unlink()
    weights = model / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    assert "truncated or altered" in refused(["report", "model", *argv], capsys)
    config = model / "config.json"
    config.write_text(config.read_text()[:100])
    assert "config.json is not JSON" in refused(["report", "model", *argv], capsys)
    config.write_text("{}")
    assert "does not describe a model folder" in refused(["report", "model", *argv], capsys)


def test_a_page_that_is_there_is_kept(at: Path, capsys):
    Path("kept.html").write_text("mine")
    assert "kept.html exists" in refused(["report", "run", "--out", "kept.html"], capsys)
    assert Path("kept.html").read_text() == "mine"


@pytest.mark.skipif(os.name == "nt" or sys.platform == "darwin", reason="names are Unicode there")
def test_names_that_are_no_text_are_escaped_in_pages_and_plots(at: Path, capsys):
    shutil.copytree("run", "caf\udce9")  # as Python has b"caf\xe9"
    command = ["report", "caf\udce9", "--held-out", "held", "--out", "named.html"]
    assert main([*command, "--resamples", "10"]) == 0
    assert "caf\\udce9" in Path("named.html").read_text("utf-8")
    shutil.rmtree("caf\udce9")


def test_the_record_of_a_run_lies_beside_its_model(at: Path, capsys):
    found = find([Path("run")])
    record = found.records["<esn>"]
    assert record["seed"] == 0
    assert record["data"]["training text"][0]["bytes"] == Path("text").stat().st_size
    phases = [each["phase"] for each in record["phases"]]
    scores = ["score training text", "score baselines"]
    assert phases == ["read text", "choose penalty", "train in passes", *scores]
    assert 0 < record["training_loss"] < 10
    assert all(each["seconds"] >= 0 and each["peak_rss_mib"] > 0 for each in record["phases"])
    Path("other.run.json").write_text("{}")
    line = refused(["train", "text", "--units", "8", "--out", "other"], capsys)
    assert line.startswith("other.run.json exists and is no record of a run")
    Path("other.run.json").unlink()
    assert main(["train", "text", "--units", "8", "--out", "run2/m"]) == 0
    assert list(find([Path("run2")]).records) == ["m"]
    shutil.rmtree("run2/m")
    shutil.copytree("run/<esn>", "run2/m")
    assert not find([Path("run2")]).records  # of the model that was there before


def test_a_text_that_goes_during_training_is_in_the_record(at: Path, monkeypatch):
    shutil.copy("text", "brief")
    size, save = Path("brief").stat().st_size, LanguageModel.save

    def save_and_remove(model: LanguageModel, *arguments: object) -> None:
        save(model, *arguments)
        Path("brief").unlink()

    monkeypatch.setattr(LanguageModel, "save", save_and_remove)
    assert main(["train", "brief", "--units", "8", "--out", "run3/m"]) == 0
    record = find([Path("run3")]).records["m"]
    assert record["data"]["training text"][0]["bytes"] == size
    shutil.rmtree("run3")


def test_cells_keep_all_digits():
    assert cell("4.293117182").text == "4.293"
    assert cell("4.293117182").value == "4.293117182"
    assert cell("10360679").text == "10,360,679"
    assert cell("-0.00123456").text == "\u22120.001235"
    assert cell("nan").text == "nan"
    assert cell(None).text == cell(float("nan")).text == ""
    assert not cell("1_000").is_number
    made = table("t", [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}], share=True)
    assert made.columns == ["a"]
    assert [(name, each.text) for name, each in made.above] == [("b", "x")]


def test_tables_of_version_0_1_0_are_read(tmp_path: Path):
    old = PAIR_COLUMNS[:10]
    rows = ["m,paradigm,p,syntax,binding,10,0.6,1,True,sum",
            "m,phenomenon,all,syntax,binding,10,0.6,1,True,sum",
            "m,overall,overall,overall,overall,10,0.6,1,True,sum"]  # fmt: skip
    (tmp_path / "old.csv").write_text("\n".join([",".join(old), *rows]) + "\n")
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--out", str(out)]) == 0
    assert tables(out.read_text())["By phenomenon"][0]["ties half"] == "0.6"


def test_each_run_of_a_log_is_a_line_of_its_own() -> None:
    log = pd.DataFrame({"tokens": [10, 20, 30, 10, 20], "held_out_nll": [3.0, 2.5, 2.2, 3.1, 2.7]})
    figure = curve({"log": log}, {}, "tokens", "tokens learned")
    lines = figure.axes[0].get_lines()
    assert [list(line.get_xdata()) for line in lines] == [[10, 20, 30], [10, 20]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["log"]


def test_a_version_is_not_called_a_commit(tmp_path: Path) -> None:
    rows = {"size": "8", "nll": "2.5", "notes": "", "commit": "esnlm 0.2.0"}
    pd.DataFrame([rows]).to_csv(tmp_path / "rows.csv", index=False)
    section = about.runs(find([tmp_path]))
    (made,) = (block for block in section.blocks if isinstance(block, Table))
    assert made.columns == ["file", "rows", "version"]


def test_a_table_has_no_empty_column() -> None:
    assert table("one row", [{"a": 1, "b": None, "c": ""}]).columns == ["a"]
    assert table("two rows", [{"a": 1, "b": ""}, {"a": 2, "b": ""}]).columns == ["a"]
