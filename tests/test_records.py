"""Minimal pairs under the names and in the files of known sets, and under names of one's own."""

import gzip
import json
import tarfile
from pathlib import Path

import pandas as pd
import pytest
from command_line import refused

from esnlm.__main__ import main
from esnlm.evaluation.minimal_pairs.pairs import Pair, PairsError, read_pairs
from esnlm.evaluation.minimal_pairs.records import read_fields

G, B = "the dog walks", "the dog walk"
#: Files as their authors write them, and what is in them: phenomenon, paradigm and field.
SETS = {
    "blimp_supplement.jsonl": (
        '{"pair_ID": 0, "template": "1_RC", "sentence_good": "the dog walks", '
        '"sentence_bad": "the dog walk"}',
        ("unknown", "blimp_supplement", "unknown"),
    ),
    "sling.jsonl": (
        '{"sentence_good": "the dog walks", "sentence_bad": "the dog walk", "Phenomenon": "Aspect",'
        ' "Paradigm": "zai_le", "pair_ID": 0, "field": "syntax"}',
        ("Aspect", "zai_le", "syntax"),
    ),
    "zhoblimp.jsonl": (
        '{"UID": "BA_deletion", "phenomenon": "BA", "sentence_good": "the dog walks", '
        '"sentence_bad": "the dog walk"}',
        ("BA", "BA_deletion", "unknown"),
    ),
    "jblimp.jsonl": (
        '{"ID":0,"good_sentence":"the dog walks","bad_sentence":"the dog walk","type":"lexical",'
        '"phenomenon":"island effects","phenomenon-2":null,"paradigm":"complex NP island"}',
        ("island effects", "complex NP island", "unknown"),
    ),
    "qfrblimp.jsonl": (
        '{"sentence_good": "the dog walks", "sentence_bad": "the dog walk", '
        '"linguistic_phenomenon": "Accords", "phenomenon_id": 1}',
        ("Accords", "qfrblimp", "unknown"),
    ),
    "qfrblimp_annotated.jsonl": (
        '{"id": 1, "label": 0, "grammatical": "the dog walks", "category": "syntax", "type": 5, '
        '"subcat": null, "ungrammatical": "the dog walk"}',
        ("syntax", "qfrblimp_annotated", "unknown"),
    ),
    "rublimp.csv": (
        "id,source_sentence,target_sentence,source_word,target_word,level,phenomenon,PID,subtype\n"
        "13,the dog walks,the dog walk,walks,walk,Morphology,Word Formation,add_suffix,add_suffix",
        ("Word Formation", "add_suffix", "Morphology"),
    ),
    "blimp_nl.jsonl": (
        '{"sentence_good":"the dog walks","sentence_bad":"the dog walk","category":"Adverbs"}',
        ("Adverbs", "blimp_nl", "unknown"),
    ),
    "blimp_nl.csv": (
        "Number (phenomenon),Phenomenon,Number (paradigm),Paradigm,Item,Grammaticality,Sentence\n"
        "1,Anaphor agreement,1,number,1,Grammatical,the dog walks\n"
        "1,Anaphor agreement,1,number,1,Ungrammatical,the dog walk",
        ("Anaphor agreement", "number", "unknown"),
    ),
    "climp.csv": (
        ",0,1,2,3\n0,classifier,classifier_adj,the dog walks,1\n"
        "1,classifier,classifier_adj,the dog walk,0",
        ("classifier", "classifier_adj", "unknown"),
    ),
    "ba_construction_1000.csv": (
        "the dog walks\nthe dog walk",
        ("unknown", "ba_construction_1000", "unknown"),
    ),
    "wug_adj.jsonl": (
        '{"sentences": "the dog walks\\tthe dog walk", "ratio": 0.54}',
        ("unknown", "wug_adj", "unknown"),
    ),
    "lm_syneval.txt": (
        "test case\tgrammatical\tungrammatical\nvp_coord\tthe dog walks\tthe dog walk",
        ("unknown", "lm_syneval", "unknown"),
    ),
    "generated.tab": (
        "pattern\tconstr_id\tsent_id\tcorrect_number\tform\tclass\ttype\tprefix\tn_attr\tsent\n"
        'V\t0\t0\tsing\twalks\tcorrect\tgenerated\tthe dog\t1\t"the ""dog"" walks"\n'
        "V\t0\t0\tsing\twalk\twrong\tgenerated\tthe dog\t1\tthe dog walks",
        ("generated", "1 attractors", "unknown"),
    ),
}


def of_set(name: str) -> tuple[str, list[Pair]]:
    text, (phenomenon, paradigm, field) = SETS[name]
    has_header = name.endswith((".csv", ".tab", ".txt")) and not name.startswith("ba_")
    pair = Pair(paradigm, field, phenomenon, "2" if has_header else "1", G, B)
    return text + "\n", [pair]


@pytest.mark.parametrize("name", SETS)
def test_known_sets_are_read_without_names(tmp_path: Path, name: str):
    text, pairs = of_set(name)
    (tmp_path / name).write_text(text, encoding="utf-8-sig")  # a mark, as spreadsheets write it
    assert read_pairs(tmp_path / name) == pairs
    if not name.startswith("ba_"):
        with gzip.open(tmp_path / f"{name}.gz", "wt") as file:
            file.write(text)
        assert read_pairs(tmp_path / f"{name}.gz") == pairs
    if not name.endswith(".txt"):
        with tarfile.open(tmp_path / "pairs.tar.gz", "w:gz") as archive:
            archive.add(tmp_path / name, f"data/{name}")
        assert read_pairs(tmp_path / "pairs.tar.gz") == pairs


def test_pairs_are_counted_as_often_as_they_stand(tmp_path: Path):
    """Identifiers that repeat, as those of BLiMP's supplement do, are no names of pairs."""
    text, _ = of_set("blimp_supplement.jsonl")
    (tmp_path / "a.jsonl").write_text(text * 3)
    (tmp_path / "b.jsonl").write_text(text * 2)
    assert len(read_pairs(tmp_path)) == 5
    text = SETS["blimp_nl.csv"][0]
    for number in (1, 2):  # one paradigm's name in two files
        (tmp_path / f"Phenomenon{number}.csv").write_text(text + "\n")
    assert len(read_pairs(tmp_path)) == 5  # beside JSON lines no table is read
    for path in tmp_path.glob("*.jsonl"):
        path.unlink()
    assert len(read_pairs(tmp_path)) == 2
    both = tmp_path / "both.csv"
    both.write_text(f"{text}\n\ufeff{text}\n", "utf-8")  # its header is no pair
    assert len(read_pairs(both)) == 2


@pytest.mark.parametrize("separator", [",", "\t"])
def test_fields_are_named(tmp_path: Path, separator: str):
    rows = [["right", "wrong", "kind", "id"], ["walks, she said", "walk\n", "verbs", "x"]]
    lines = [separator.join(f'"{value}"' for value in row) for row in rows]
    path = tmp_path / "own"
    path.write_text("\n".join(lines))
    with pytest.raises(PairsError, match=r"own:3: no field of the good and the bad sentence; the "):
        read_pairs(path)
    names = read_fields("good=right, bad=wrong,phenomenon=kind,pair=id")
    expected = [Pair("own", "unknown", "verbs", "x", "walks, she said", "walk\n")]
    assert read_pairs(path, names) == expected
    begin = read_fields("good=right,bad=wrong,prefix=kind")
    assert read_pairs(path, begin)[0].good == "verbs walks, she said"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sentence_good,sentence_bad\na,b\n ,b\n", "p.csv:3: sentence_good must be .* blank, got"),
        ("good,bad,good\na,b,c\n", "p.csv:1: two fields are called 'good': rename one"),
        ("sentence_good,sentence_bad\na,b,c\n", "p.csv:2: expected 2 fields as in the first li"),
        ("good;bad\na, b;c\n", "p.csv separates its columns by ';', expected ',': save it with"),
        ('sentence_good,sentence_bad\n"a"b,c\n', "p.csv:2: not a row of a table: "),
        ('good\tbad\n"a\tb\nc"\td\n', "p.csv:3: a field between quotation marks holds a tab"),
        ("sentence,label\na,1\nb,1\n", "p.csv:2: two sentences of label 1: expected an acceptab"),
        ("sentence,label\na,1\nb,0\nc,1\n", "p.csv:4: a sentence without a second: expected"),
        ("sentence,label\na,1\nb,perhaps\n", "p.csv:2: label must be one of 1, true, .* 'perhap"),
        ("text,x\na,1\n", "p.csv:2: no field of the good and the bad .* fields are text, x; name"),
        (b"sentence_good,sentence_bad\n\xff,b\n", "p.csv is not UTF-8 text"),
        ("", "holds no minimal pairs"),
    ],
)
def test_bad_tables_name_the_row(tmp_path: Path, text: str | bytes, message: str):
    (tmp_path / "p.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(PairsError, match=message):
        read_pairs(tmp_path)
    with gzip.open(tmp_path / "q.csv.gz", "wt") as file:
        file.write("sentence_good,sentence_bad\n" + "a,b\n" * 1000)
    path = tmp_path / "q.csv.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(PairsError, match="is not a whole gzip file"):
        read_pairs(path)


@pytest.mark.parametrize("text", ["good", "good=", "nice=a", "good=a,good=b"])
def test_fields_that_are_no_names_are_refused(text: str):
    with pytest.raises(
        ValueError, match=r"expected PART=NAME,... with each part once, of good, bad"
    ):
        read_fields(text)


def test_the_command_reads_fields_and_spaces(folders: Path, tmp_path: Path, capsys):
    model, data, out = folders / "ngrams", tmp_path / "own.csv", tmp_path / "pairs.csv"
    data.write_text("right,wrong\nthe boy walks,the boy walk\n")
    line = refused(capsys, "blimp", model, "--data", data)
    assert "the fields are right, wrong; name them by --fields good=NAME,bad=NAME" in line
    assert "no field nice; the fields are" in refused(
        capsys, "blimp", model, "--data", data, "--fields", "good=nice,bad=wrong"
    )
    assert "PART=NAME" in refused(capsys, "blimp", model, "--data", data, "--fields", "right")
    names = ["--data", str(data), "--fields", "good=right,bad=wrong"]
    assert "it is read" in refused(capsys, "blimp", model, *names, "--pairs-csv", data)
    rows = tmp_path / "rows.csv"
    files = ["--pairs-csv", str(out), "--csv", str(rows), "--prefix-space"]
    assert main(["blimp", str(model), *names, *files]) == 0
    (row,) = pd.read_csv(out).to_dict("records")
    assert (row["sentence_good"], row["sentence_bad"]) == ("the boy walks", "the boy walk")
    assert pd.read_csv(rows)["prefix_space"].all()


FORMS = "2\twalks\twalk\t0\n3\tIs\tAre\t2\n"
TEXTS = "the dog walks home . <eos>\nthe dogs , is here . <eos>\n"


def test_number_agreement_of_gulordava(tmp_path: Path):
    gold, text = tmp_path / "linzen.gold", tmp_path / "linzen.text"
    gold.write_text(FORMS)
    with pytest.raises(PairsError, match=r"no such file: .*linzen\.text, the sentences of"):
        read_pairs(gold)
    text.write_text(TEXTS)
    pairs = [
        Pair("0 attractors", "agreement", "linzen", "1", "the dog walks", "the dog walk"),
        Pair("2 attractors", "agreement", "linzen", "2", "the dogs , is", "the dogs , are"),
    ]
    assert read_pairs(gold) == read_pairs(tmp_path) == pairs
    for path in (gold, text):
        with gzip.open(f"{path}.gz", "wt") as file:
            file.write(path.read_text())
    assert read_pairs(tmp_path / "linzen.gold.gz") == pairs
    for wrong, message in (
        (FORMS[:14], "have not the same number of lines"),
        ("2 walks walk 0\n", "linzen.gold:1: expected the verb's place, the right form, the"),
        ("1\twalks\twalk\t0\n", "linzen.gold:1: expected 'walks' as word 1 .* got 'dog'"),
        ("9\twalks\twalk\t0\n", "got ''"),
    ):
        gold.write_text(wrong)
        with pytest.raises(PairsError, match=message):
            read_pairs(gold)


def test_a_line_of_json_is_read_beside_its_neighbours(tmp_path: Path):
    path = tmp_path / "mixed.jsonl"
    lines = [json.dumps({"good": G, "bad": B}), SETS["jblimp.jsonl"][0]]
    path.write_text("\n\n".join(lines))
    assert [pair.name for pair in read_pairs(path)] == ["1", "3"]
