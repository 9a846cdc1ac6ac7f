"""Minimal pairs: scores beside brute force, tables, and what may be wrong with the data."""

import csv
import gzip
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import bootstrap

from esnlm import (
    ClassFactoredReadout,
    LanguageModel,
    MixtureOfExpertsReadout,
    Reservoir,
    RidgeReadout,
    SoftmaxReadout,
    WordFeatures,
)
from esnlm.__main__ import main
from esnlm.datasets import cache
from esnlm.evaluation.bootstrap import percentile_intervals, resampled_shares
from esnlm.evaluation.minimal_pairs import scores as scoring
from esnlm.evaluation.minimal_pairs.pairs import Pair, PairsError, read_pairs
from esnlm.evaluation.minimal_pairs.parts import (
    permuting_paradigms,
    subsets,
    words_of_shards,
    words_of_text,
)
from esnlm.evaluation.minimal_pairs.scores import PairScores, score_pairs, sentence_log_likelihoods
from esnlm.evaluation.minimal_pairs.table import read_published, tabulate
from esnlm.models.ngram import NgramLanguageModel
from esnlm.text.named_tokenizers import trained
from esnlm.text.prepare import prepare
from esnlm.text.tokenizers import Tokenizer

SENTENCES = [
    "the boy sees the dog",
    "the boy see the dog",
    "the boys see the dog",
    "the boys sees the dog",
    "the dog that the boys see walks",
    "the dog that the boys see walk",
    "the boy",
    "dogs walk",
    "the boy sees the dog",
    "walk",
]
DOCS = [*SENTENCES[:1], *SENTENCES[2:3], SENTENCES[4], SENTENCES[7]] * 8
READOUTS = {
    "ridge": RidgeReadout(alpha=0.1),
    "softmax": SoftmaxReadout(max_iter=20),
    "factored": ClassFactoredReadout(n_classes=3, random_state=0),
    "moe": MixtureOfExpertsReadout(n_experts=2, max_iter=3, random_state=0),
}
#: Without a penalty so small a text gives weights that magnify the rounding of float32.
PENALISED = RidgeReadout(alpha=0.1)
#: Paradigm -> phenomenon and field, as the data files name them.
PARADIGMS = {
    "agreement_1": ("subject_verb_agreement", "morphology"),
    "agreement_2": ("subject_verb_agreement", "morphology"),
    "selection": ("s-selection", "syntax"),
    "dropping": ("argument_structure", "syntax"),
    "principle_A": ("binding", "syntax/semantics"),
}


def model_of(readout=None, reset: str = "sentence", tokenizer="word", **options) -> LanguageModel:
    options = {"topology": "offsets", "leak_rate": ("uniform", 0.1, 1.0)} | options
    features = options.pop("features", None)
    reservoir = Reservoir(40, degree=8, random_state=0, **options)
    return LanguageModel(
        reservoir, readout or PENALISED, tokenizer=tokenizer, features=features, reset=reset
    ).fit(DOCS)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return model_of(PENALISED)


def alone(model: LanguageModel, sentences: list[str]) -> list[np.ndarray]:
    """Log-probabilities of the tokens of each sentence by itself."""
    return [model.log_likelihood([sentence])[0] for sentence in sentences]


def records(n_pairs: int = 4) -> dict[str, list[dict]]:
    """A made-up BLiMP: paradigm -> its lines."""
    pairs = [(SENTENCES[0], SENTENCES[1]), (SENTENCES[2], SENTENCES[3]), (SENTENCES[4:6])] * 2
    return {
        paradigm: [
            {
                "sentence_good": good,
                "sentence_bad": bad,
                "field": field,
                "linguistics_term": term,
                "UID": paradigm,
                "pairID": str(k),
            }
            for k, (good, bad) in enumerate(pairs[:n_pairs])
        ]
        for paradigm, (term, field) in PARADIGMS.items()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "blimp" / "data"
    data.mkdir(parents=True)
    for paradigm, lines in records().items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (data / f"{paradigm}.jsonl").write_text(text)
    return tmp_path / "blimp"


@pytest.mark.parametrize("reset", ["sentence", "document", "never"])
@pytest.mark.parametrize("readout", list(READOUTS))
def test_scores_are_those_of_each_sentence_alone(readout: str, reset: str):
    model = model_of(READOUTS[readout], reset)
    expected = alone(model, SENTENCES)
    whole = sentence_log_likelihoods(model, SENTENCES, eos=True)
    np.testing.assert_allclose(whole, [scores.sum() for scores in expected], atol=1e-4)
    found = sentence_log_likelihoods(model, SENTENCES)
    np.testing.assert_allclose(found, [scores[:-1].sum() for scores in expected], atol=1e-4)


@pytest.mark.parametrize("topology", ["offsets", "random"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("features", [None, WordFeatures(n_features=3, n_passes=2, random_state=0)])
def test_scores_with_features_and_any_reservoir(topology: str, dtype: str, features):
    model = model_of(PENALISED, topology=topology, dtype=dtype, features=features)
    expected = [scores[:-1].sum() for scores in alone(model, SENTENCES)]
    np.testing.assert_allclose(sentence_log_likelihoods(model, SENTENCES), expected, atol=1e-4)


@pytest.mark.parametrize("reset", ["sentence", "document", "never"])
def test_characters(reset: str):
    model = model_of(reset=reset, tokenizer="char")
    expected = alone(model, SENTENCES)
    end = None if reset == "never" else -1
    found = sentence_log_likelihoods(model, SENTENCES)
    np.testing.assert_allclose(found, [scores[:end].sum() for scores in expected], atol=1e-4)


def test_scores_do_not_depend_on_the_batch(model: LanguageModel, monkeypatch):
    many = [f"{a} {b}" for a in SENTENCES for b in SENTENCES]
    wide = sentence_log_likelihoods(model, many)
    monkeypatch.setattr(scoring, "_BATCH", 7)
    np.testing.assert_allclose(sentence_log_likelihoods(model, many), wide, atol=1e-4)


def test_without_bos_the_first_token_is_read_and_not_scored(model: LanguageModel):
    ids = [model.tokenizer_.encode(sentence) for sentence in SENTENCES]
    expected = [model.log_likelihood([doc])[0].sum() for doc in ids]
    found = sentence_log_likelihoods(model, SENTENCES, bos=False)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert found[-1] == 0  # one word


def test_a_reset_that_is_set_after_fit_changes_no_score():
    model = NgramLanguageModel(2, "word").fit(["the dog walks", "the cat sees the dog"])
    before = sentence_log_likelihoods(model, ["the dog walks"])
    after = sentence_log_likelihoods(model.set_params(reset="never"), ["the dog walks"])
    np.testing.assert_array_equal(before, after)


def test_bos_may_be_asked_of_a_model_that_never_resets():
    model = model_of(reset="never")
    bos = model.tokenizer_.bos_id
    doc = np.array([bos, *model.tokenizer_.encode(SENTENCES[0])])
    found = sentence_log_likelihoods(model, SENTENCES[:1], bos=True)
    np.testing.assert_allclose(found, model.log_likelihood([doc])[0].sum(), atol=1e-4)


def test_means_are_over_the_tokens_scored(model: LanguageModel):
    lengths = [len(sentence.split()) for sentence in SENTENCES]
    sums = sentence_log_likelihoods(model, SENTENCES)
    means = sentence_log_likelihoods(model, SENTENCES, reduction="mean")
    np.testing.assert_allclose(means, sums / lengths)


def test_none_and_blank_sentences(model: LanguageModel):
    assert len(sentence_log_likelihoods(model, [])) == 0
    assert sentence_log_likelihoods(model, ["", "  "]).tolist() == [0, 0]


def test_what_is_no_sentence_is_refused(model: LanguageModel):
    with pytest.raises(ValueError, match="must be strings, got int"):
        sentence_log_likelihoods(model, [3])
    with pytest.raises(ValueError, match="reduction must be one of sum, mean"):
        sentence_log_likelihoods(model, SENTENCES, reduction="max")
    integers = LanguageModel(Reservoir(10, random_state=0), RidgeReadout()).fit([[0, 1, 2, 1]])
    with pytest.raises(ValueError, match="no tokenizer"):
        sentence_log_likelihoods(integers, SENTENCES)
    bare = Tokenizer.train_characters(DOCS)
    model = model_of(reset="never", tokenizer=bare)
    with pytest.raises(ValueError, match="no EOS"):
        sentence_log_likelihoods(model, SENTENCES, eos=True)
    with pytest.raises(ValueError, match="no BOS"):
        sentence_log_likelihoods(model, SENTENCES, bos=True)


class Duck:
    """A model that is no `LanguageModel`: a probability for each word, whatever came before."""

    def __init__(self, constant: bool = False) -> None:
        self.tokenizer_ = Tokenizer.train_words(DOCS)
        values = np.random.default_rng(0).random(len(self.tokenizer_))
        self.logs = np.log(values / values.sum()) * (not constant)

    def log_likelihood(self, docs):
        return [self.logs[np.asarray(doc)[1:]] for doc in docs]


def test_models_that_score_integers():
    duck = Duck()
    ids = [duck.tokenizer_.encode(sentence) for sentence in SENTENCES]
    expected = [duck.logs[doc].sum() for doc in ids]
    np.testing.assert_allclose(sentence_log_likelihoods(duck, SENTENCES), expected)
    later = [duck.logs[doc[1:]].sum() for doc in ids]
    np.testing.assert_allclose(sentence_log_likelihoods(duck, SENTENCES, bos=False), later)


@pytest.mark.parametrize("reset", ["sentence", "document", "never"])
def test_n_grams(reset: str):
    model = NgramLanguageModel(order=3, tokenizer="word", reset=reset).fit(DOCS)
    expected = [scores[:-1].sum() for scores in alone(model, SENTENCES)]
    np.testing.assert_allclose(sentence_log_likelihoods(model, SENTENCES), expected)


def test_line_ends_stand_inside_a_sentence():
    model = model_of(reset="sentence", tokenizer="char")
    two = "the boy\nsees"
    ids = np.array([model.tokenizer_.bos_id, *model.tokenizer_.encode(two)])
    assert len(ids) == 1 + len(two)
    expected = model.log_likelihood([ids])[0].sum()
    np.testing.assert_allclose(sentence_log_likelihoods(model, [two]), expected, atol=1e-4)


def test_a_space_before_each_sentence():
    model = model_of(tokenizer="char")
    spaced = sentence_log_likelihoods(model, [f" {sentence}" for sentence in SENTENCES])
    found = sentence_log_likelihoods(model, SENTENCES, prefix_space=True)
    assert found.tolist() == spaced.tolist()
    assert (found != sentence_log_likelihoods(model, SENTENCES)).all()


def test_word_order_is_a_tie_for_unigrams():
    words = ["the", "boys", "see", "the", "dog", "that", "walks"]
    pairs = [
        Pair("p", "f", "q", str(seed), " ".join(words), " ".join(mixed))
        for seed in range(50)
        for mixed in [np.random.default_rng(seed).permutation(words)]
    ]
    scores = score_pairs(Duck(), pairs)
    assert scores.ties.all()
    assert (scores.credit == 0.5).all()


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_constant_model_is_right_in_half_of_the_pairs(folder: Path, reduction: str):
    pairs = read_pairs(folder)
    rows = tabulate(pairs, score_pairs(Duck(constant=True), pairs, reduction=reduction), "none")
    assert all(row["accuracy"] == 0.5 and row["ties"] == row["n_pairs"] for row in rows)


def test_ties_count_half_and_are_reported():
    scores = PairScores(
        np.array([-1.0, -np.inf, -3.0, -4.0]), np.array([-1, -np.inf, -4, -3]), True, "sum"
    )
    assert scores.ties.tolist() == [True, True, False, False]
    assert scores.credit.tolist() == [0.5, 0.5, 1.0, 0.0]


def test_the_last_digit_of_an_arithmetic_decides_nothing():
    near, far = -44.701009 * (1 + 1e-7), -44.701009 * (1 + 1e-5)
    scores = PairScores(np.full(2, -44.701009), np.array([near, far]), True, "sum")
    assert scores.ties.tolist() == [True, False]
    assert scores.credit.tolist() == [0.5, 1]


def test_scores_that_are_no_numbers_are_named(folder: Path):
    duck = Duck()
    duck.logs = np.full_like(duck.logs, np.nan)
    with pytest.raises(FloatingPointError, match="is not a number"):
        score_pairs(duck, read_pairs(folder))


def test_the_table_is_that_of_brute_force(model: LanguageModel, folder: Path):
    pairs = read_pairs(folder)
    rows = tabulate(pairs, score_pairs(model, pairs), "m")
    right = {paradigm: [] for paradigm in PARADIGMS}
    for paradigm, lines in records().items():
        for line in lines:
            good, bad = alone(model, [line["sentence_good"], line["sentence_bad"]])
            right[paradigm].append(float(good[:-1].sum() > bad[:-1].sum()))
    by_level = {
        level: {
            row["paradigm"] if level == "paradigm" else row["phenomenon"]: row
            for row in rows
            if row["level"] == level
        }
        for level in ("paradigm", "phenomenon", "overall")
    }
    found = {name: row["accuracy"] for name, row in by_level["paradigm"].items()}
    assert found == {name: np.mean(values) for name, values in right.items()}
    assert set(by_level["phenomenon"]) == {
        "subject_verb_agreement", "argument_structure", "binding",
    }  # fmt: skip
    structure = by_level["phenomenon"]["argument_structure"]
    assert structure["accuracy"] == (found["selection"] + found["dropping"]) / 2
    assert by_level["overall"]["overall"]["accuracy"] == pytest.approx(np.mean([*found.values()]))
    assert by_level["overall"]["overall"]["n_pairs"] == 20
    assert by_level["phenomenon"]["binding"]["field"] == "syntax_semantics"


def packed(folder: Path, kind: str) -> Path:
    """The folder as an archive that stands alone in a folder."""
    home = folder.parent / kind
    home.mkdir()
    archive = home / f"blimp.{kind}"
    files = sorted(folder.rglob("*.jsonl"))
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as opened:
            for file in files:
                opened.write(file, file.relative_to(folder.parent))
    else:
        with tarfile.open(archive, "w:gz") as opened:
            opened.add(folder, "blimp")
    return archive


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_archives_hold_the_same_pairs(folder: Path, kind: str):
    archive = packed(folder, kind)
    pairs = sorted(read_pairs(folder), key=lambda pair: (pair.paradigm, pair.name))
    for path in (archive, archive.parent):
        found = sorted(read_pairs(path), key=lambda pair: (pair.paradigm, pair.name))
        assert found == pairs
    assert len(read_pairs(folder / "data" / "agreement_1.jsonl")) == 4


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_damaged_archives_are_named(folder: Path, kind: str):
    archive = packed(folder, kind)
    data = archive.read_bytes()
    for part in (data[: len(data) // 2], b"", b"no archive at all", data[:-300]):
        archive.write_bytes(part)
        with pytest.raises(PairsError, match=r"is not a whole archive|holds no") as refused:
            read_pairs(archive)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"sentence_good": "a", ', "is not JSON"),
        ("[1, 2]", "expected a JSON object, got list"),
        ('{"sentence_good": "a"}', "no field of the bad sentence; the fields are sentence_good;"),
        ('{"right": "a", "wrong": "b"}', "the good and the bad sentence; the fields are right, wr"),
        ('{"sentence_good": 3, "sentence_bad": "a"}', "sentence_good must be a text .* got 3"),
        ('{"sentence_good": " ", "sentence_bad": "a"}', "sentence_good must be a text"),
        ('{"sentence_good": "a", "sentence_bad": "b", "UID": [7]}', "UID must be a text"),
        (json.dumps(records()["dropping"][2]), "pair 2 of dropping was already read from .*:3"),
        (b"\xff\xfe{}", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"sentence_good": "a \\ud800", "sentence_bad": "a"}', "holds half a character"),
    ],
)
def test_bad_lines_name_file_and_line(folder: Path, line, message: str):
    file = folder / "data" / "dropping.jsonl"
    file.write_bytes(file.read_bytes() + (line if isinstance(line, bytes) else line.encode()))
    with pytest.raises(PairsError, match=rf"dropping\.jsonl:5: .*{message}"):
        read_pairs(folder)
    with pytest.raises(PairsError, match=r"blimp/data/dropping\.jsonl:5: "):
        read_pairs(packed(folder, "tar.gz"))


def test_folders_without_pairs(tmp_path: Path):
    for path, message in ((tmp_path, "holds no .jsonl files"), (tmp_path / "no", "no such file")):
        with pytest.raises(PairsError, match=message):
            read_pairs(path)
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(PairsError, match=r"holds no minimal pairs: expected JSON lines"):
        read_pairs(tmp_path)
    (tmp_path / "a.jsonl").write_bytes(gzip.compress(json.dumps(records()["dropping"][0]).encode()))
    with pytest.raises(PairsError, match=r"a\.jsonl is packed by gzip: let its name end in \.gz"):
        read_pairs(tmp_path)
    (tmp_path / "a.json").write_text(json.dumps(records()["dropping"], indent=1))
    with pytest.raises(PairsError, match=r"a\.json is JSON: expected an object a line, in a file"):
        read_pairs(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own.JSONL", '{"good": "a, b", "bad": "b"}\n'),
        ("own.csv", 'good, bad\n"a, b", b\n'),
        ("own.csv", 'good,bad\n"a, b",b\n'),
        ("own.csv.GZ", 'good, bad\n"a, b", "b"\n'),
    ],
)
def test_names_in_capitals_and_spaces_after_commas_change_nothing(
    name: str, text: str, tmp_path: Path
) -> None:
    data = gzip.compress(text.encode()) if name.endswith("GZ") else text.encode()
    (tmp_path / name).write_bytes(data)
    for place in (tmp_path, tmp_path / name):
        (pair,) = read_pairs(place)
        assert (pair.paradigm, pair.good, pair.bad) == ("own", "a, b", "b")


def test_little_is_needed_of_a_line(tmp_path: Path):
    (tmp_path / "own.jsonl").write_text('{"sentence_good": "a", "sentence_bad": "b"}\n\n')
    (tmp_path / "._own.jsonl").write_bytes(b"\x00\x05\x16\x07")
    copies = tmp_path / ".ipynb_checkpoints"
    copies.mkdir()
    (copies / "own-checkpoint.jsonl").write_bytes((tmp_path / "own.jsonl").read_bytes())
    assert read_pairs(tmp_path) == [Pair("own", "unknown", "unknown", "1", "a", "b")]


PUBLISHED = """level,UID,linguistics_term,lstm,human_individual_agreement,human_judgements
paradigm,selection,s-selection,0.5,0.8,100
paradigm,dropping,argument_structure,0.7,0.9,99
phenomenon,,argument_structure,0.65,,
overall,,overall,0.62,,
"""


def test_published_accuracies(tmp_path: Path):
    path = tmp_path / "published.csv"
    path.write_text(PUBLISHED)
    found = read_published(path)
    assert found["LSTM"] == {"argument_structure": 0.65, "overall": 0.62}
    assert found["human"] == pytest.approx({"argument_structure": 0.85, "overall": 0.85})
    assert set(found) == {"LSTM", "human"}
    for text in ("a,b\n1,2\n", "level,linguistics_term,x\nparadigm,p,17\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match="holds no published accuracies"):
            read_published(path)
    for data, message in (
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"", "is no table of a header and rows"),
        (b"level;linguistics_term;x\nparadigm;p;0,5\n", "separates its columns by ';', expected"),
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=message):
            read_published(path)


@pytest.fixture(scope="module")
def saved(model: LanguageModel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    model.save(folder)
    return folder


def test_the_command_writes_table_scores_and_plot(saved: Path, folder: Path, tmp_path, capsys):
    published = tmp_path / "published.csv"
    published.write_text(PUBLISHED)
    files = {name: tmp_path / f"out.{name}" for name in ("csv", "pairs", "png")}
    options = ["--csv", files["csv"], "--pairs-csv", files["pairs"], "--plot", files["png"]]
    options += ["--published", published, "--name", "a reservoir"]
    command = ["blimp", str(saved), "--data", str(folder), *map(str, options)]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "overall (mean over paradigms)" in shown.out
    assert "LSTM" in shown.out
    assert shown.err == ""
    with files["csv"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["level"] for row in rows].count("paradigm") == 5
    assert rows[-1]["level"] == "overall"
    assert {row["model"] for row in rows} == {"a reservoir"}
    assert {row["bos"] for row in rows} == {"True"}
    assert {row["reduction"] for row in rows} == {"sum"}
    assert {row["lower"] for row in rows} == {""}  # four pairs a paradigm
    assert "few pairs" in shown.out
    with files["pairs"].open(newline="") as file:
        pairs = list(csv.DictReader(file))
    assert len(pairs) == 20
    sentences = [(pair["sentence_good"], pair["sentence_bad"]) for pair in pairs]
    assert sentences == [(pair.good, pair.bad) for pair in read_pairs(folder)]
    credit = np.mean([float(pair["credit"]) for pair in pairs])
    assert float(rows[-1]["accuracy"]) == pytest.approx(credit)
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    # An earlier table can stand beside.
    assert (
        main(
            [
                "blimp",
                str(saved),
                "--data",
                str(folder),
                "--no-bos",
                "--published",
                str(files["csv"]),
            ]
        )
        == 0
    )
    assert {path.name for path in tmp_path.iterdir()} == {
        "blimp", "out.csv", "out.pairs", "out.png", "published.csv",
    }  # fmt: skip


def test_the_command_says_what_is_wrong_in_one_line(saved: Path, folder: Path, tmp_path, capsys):
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "data" / "selection.jsonl").write_text("{}\n{\n")
    out = tmp_path / "out.csv"
    for arguments in (
        [saved, "--data", broken],
        [saved, "--data", tmp_path / "nothing"],
        [tmp_path / "nothing", "--data", folder],
        [saved, "--data", folder, "--published", folder / "data" / "selection.jsonl"],
        [saved, "--data", folder, "--plot", tmp_path / "no" / "plot.png"],
        [saved, "--data", folder, "--pairs-csv", tmp_path],
        [saved, "--data", folder, "--weight", "0.3"],
        [saved, "--data", folder, "--interpolate", saved, "--weight", "2"],
    ):
        assert main(["blimp", *map(str, arguments), "--csv", str(out)]) == 2
        shown = capsys.readouterr()
        assert shown.err.startswith("esnlm: error: ")
        assert shown.err.count("\n") == 1
        assert not out.exists()


def test_a_file_that_cannot_be_read_is_named(saved: Path, folder: Path, capsys):
    (folder / "data" / "gone.jsonl").symlink_to(folder / "nowhere")
    assert main(["blimp", str(saved), "--data", str(folder)]) == 2
    assert "gone.jsonl: No such file" in capsys.readouterr().err


def test_two_models_judge_together(saved: Path, folder: Path, tmp_path: Path, capsys):
    second = NgramLanguageModel(order=3, tokenizer=LanguageModel.load(saved).tokenizer_).fit(DOCS)
    second.save(tmp_path / "ngrams")
    tables = []
    for weight in ("1", "0.5"):
        out = tmp_path / f"{weight}.csv"
        options = ["--interpolate", tmp_path / "ngrams", "--weight", weight, "--pairs-csv", out]
        assert main(["blimp", *map(str, [saved, "--data", folder, *options])]) == 0
        with out.open(newline="") as file:
            tables.append(list(csv.DictReader(file)))
    first = LanguageModel.load(saved)
    sentences = [SENTENCES[0], SENTENCES[1]]
    found = [float(tables[0][0][name]) for name in ("good", "bad")]
    np.testing.assert_allclose(found, sentence_log_likelihoods(first, sentences), atol=1e-4)
    tokens = [np.exp(model.log_likelihood(sentences)[0]) for model in (first, second)]
    expected = np.log(np.mean(tokens, axis=0))[:-1].sum()
    assert float(tables[1][0]["good"]) == pytest.approx(expected, abs=1e-4)
    assert tables[1][0]["model"].startswith("0.5 ")


def test_unknown_words_are_told(saved: Path, tmp_path: Path, capsys):
    pair = {"sentence_good": "the cat sees", "sentence_bad": "the cow sees"}
    (tmp_path / "own.jsonl").write_text(json.dumps(pair))
    assert main(["blimp", str(saved), "--data", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "33.3 % of the tokens" in shown.err
    assert "50.00       1       1" in shown.out
    # Bytes of another script are no unknown token, but training had none of them.
    text = ["the cat sees the dog"] * 5
    NgramLanguageModel(2, trained("bpe:270", text)).fit(text).save(tmp_path / "bytes")
    pair = {"sentence_good": "\u6211\u5011", "sentence_bad": "\u5011\u6211"}
    for value, message in ((pair, "does not know 100.0 % of the tokens"), ({}, "")):
        (tmp_path / "own.jsonl").write_text(json.dumps(value or {
            "sentence_good": "the dog sees", "sentence_bad": "dog the sees"
        }))  # fmt: skip
        assert main(["blimp", str(tmp_path / "bytes"), "--data", str(tmp_path / "own.jsonl")]) == 0
        said = capsys.readouterr().err
        assert message in said
        assert bool(message) == ("does not know" in said)


@pytest.fixture
def scored() -> tuple[list[Pair], PairScores]:
    """Three paradigms of different sizes, of two phenomena; a third of the choices are ties."""
    rng = np.random.default_rng(1)
    sizes = {("p", "one"): 40, ("p", "two"): 25, ("q", "three"): 60}
    pairs = [
        Pair(paradigm, "f", phenomenon, str(k), "a b", "a c")
        for (phenomenon, paradigm), size in sizes.items()
        for k in range(size)
    ]
    good = rng.integers(-3, 0, size=len(pairs)).astype(float)
    return pairs, PairScores(good, rng.integers(-3, 0, size=len(pairs)).astype(float), True, "sum")


def test_ties_count_by_three_rules(scored):
    pairs, scores = scored
    rows = tabulate(pairs, scores, "m")
    right = pd.Series(scores.good > scores.bad, dtype=float)
    ties = pd.Series(scores.good == scores.bad, dtype=float)
    names = [pair.paradigm for pair in pairs]
    for column, tie in (("strict", 0), ("accuracy", 0.5), ("correct", 1)):
        by_paradigm = (right + tie * ties).groupby(names).mean()
        found = {row["paradigm"]: row[column] for row in rows if row["level"] == "paradigm"}
        assert found == pytest.approx(by_paradigm.to_dict())
        assert rows[-1][column] == pytest.approx(by_paradigm.mean())
        (over_pairs,) = (row for row in rows if row["level"] == "subset")
        assert over_pairs[column] == pytest.approx((right + tie * ties).mean())
        assert over_pairs["mean_over"] == "pairs"


def test_intervals_are_those_of_pairs_drawn_one_by_one(scored):
    pairs, scores = scored
    rng = np.random.default_rng(2)
    names = np.array([pair.paradigm for pair in pairs])
    credits = [scores.credit[names == name] for name in ("one", "two", "three")]
    drawn = [rng.choice(credit, (10_000, len(credit))).mean(axis=1) for credit in credits]
    rows = tabulate(pairs, scores, "m")
    phenomenon = next(row for row in rows if row["phenomenon"] == "p" and row["paradigm"] == "all")
    for row, expected in (
        (rows[0], drawn[0]),
        (phenomenon, np.mean(drawn[:2], axis=0)),
        (rows[-1], np.mean(drawn, axis=0)),
    ):
        found = [row["lower"], row["upper"]]
        np.testing.assert_allclose(found, np.quantile(expected, [0.025, 0.975]), atol=0.015)
    of_scipy = bootstrap((credits[0],), np.mean, method="percentile", random_state=0)
    interval = [*of_scipy.confidence_interval]
    np.testing.assert_allclose([rows[0]["lower"], rows[0]["upper"]], interval, atol=0.015)
    again = tabulate(pairs, scores, "m")
    assert again == rows
    assert tabulate(pairs, scores, "m", random_state=1) != rows


def test_few_pairs_a_paradigm_have_no_interval(scored):
    pairs, scores = scored
    few = np.zeros(len(pairs), dtype=bool)
    few[[0, 1, 40, 41, 65]] = True
    rows = tabulate(pairs, scores, "m", {"few": few})
    of_few = [row for row in rows if row["subset"] == "few"]
    assert {row["lower"] for row in of_few} == {row["correct_upper"] for row in of_few} == {None}
    assert all(row["lower"] is not None for row in rows if row["subset"] == "all")


def test_an_interval_holds_the_truth_as_often_as_it_says():
    right = np.random.default_rng(0).binomial(200, 0.7, size=400)
    drawn = resampled_shares(np.stack([right, 200 - right], axis=1), 1000, random_state=0)
    lower, upper = percentile_intervals(drawn[:, :, 0].T).T
    assert 0.92 <= np.mean((lower <= 0.7) & (upper >= 0.7)) <= 0.98


def test_paradigms_that_permute_words():
    texts = {
        "case": ("Whose hat had Ann seen?", "Whose had Ann seen hat?"),
        "mark": ("Had Bruce ever played?", "Bruce had ever played."),
        "twice": ("A dog saw a cat.", "A dog saw cat."),
        "other": ("It's himself.", "It's herself."),
        "lemma": ("The dog runs.", "The dogs run."),
        "sign": ("लड़की जाती है।", "लड़की जाता है।"),
    }
    pairs = [Pair(name, "f", "q", "1", *pair, name == "lemma") for name, pair in texts.items()]
    assert permuting_paradigms(pairs) == ["case", "mark"]
    rare = [Pair("case", "f", "q", str(k), "a b", "a c") for k in range(2, 20)]
    assert permuting_paradigms([*pairs, *rare]) == ["mark"]
    parts = subsets(pairs)
    assert parts["not_permuted"].tolist() == [False, False, True, True, True, True]
    assert parts["other_items"].tolist() == [False, False, True, True, False, True]
    assert subsets(pairs[2:4]) == {}


PERMUTING = (
    "adjunct_island", "complex_NP_island", "coordinate_structure_constraint_complex_left_branch",
    "ellipsis_n_bar_1", "existential_there_quantifiers_2", "left_branch_island_echo_question",
    "left_branch_island_simple_question", "matrix_question_npi_licensor_present", "only_npi_scope",
    "principle_A_domain_3", "principle_A_reconstruction", "sentential_negation_npi_scope",
    "sentential_subject_island",
)  # fmt: skip


def test_the_permuting_paradigms_of_the_real_data():
    try:
        pairs = read_pairs(cache() / "blimp")
    except PairsError:
        pytest.skip("BLiMP has not been downloaded")
    assert permuting_paradigms(pairs) == list(PERMUTING)
    parts = subsets(pairs)
    assert (len(pairs), parts["not_permuted"].sum(), parts["other_items"].sum()) == (
        67_000, 54_000, 45_000,
    )  # fmt: skip
    marked = {pair.paradigm for pair in pairs if pair.same_items}
    assert len(marked) == 20
    assert len(marked | set(PERMUTING)) == 22
    guide = Path(__file__).parents[1] / "docs" / "guide" / "minimal_pairs.md"
    assert all(f"`{name}`" in guide.read_text() for name in marked | set(PERMUTING))


def test_words_of_text_and_of_shards(tmp_path: Path):
    text = tmp_path / "text"
    text.write_text("The boy sees naïve dogs.\nthe  dog — who?\n\nThe end\n")
    words = words_of_text([str(text)])
    assert words.words == set(text.read_text().split())
    for tokenizer in ("bpe:300", "word"):
        folder = tmp_path / tokenizer
        prepare(text, folder, tokenizer)
        assert words_of_shards(str(folder)).words == words.words
    assert words.hold("The dog sees The end")
    assert not words.hold("The dogs sees")  # a full stop follows it there
    assert not words.hold("Who?")
    prepare(text, tmp_path / "lower", "word", lower=True)
    lower = words_of_shards(str(tmp_path / "lower"))
    assert lower.hold("Who? THE END")
    assert not lower.hold("the cat")
    text.write_text('He said, "the dog (the cat)."\n')
    prepare(text, tmp_path / "apart", "wordpunct")
    apart = words_of_shards(str(tmp_path / "apart"))
    assert apart.hold('the dog said, "He (the cat)."')
    assert not apart.hold("He said, the boy.")


def test_pairs_of_seen_words_are_a_part(saved: Path, folder: Path, tmp_path: Path, capsys):
    text, csvs = tmp_path / "text", [tmp_path / f"{name}.csv" for name in "abc"]
    text.write_text("the boy sees see\nthe dog that\nthe boys walks\n")
    prepare(text, tmp_path / "shards", "bpe:300")
    command = ["blimp", str(saved), "--data", str(folder)]
    assert main([*command, "--csv", str(csvs[0])]) == 0
    assert "overall, seen_words" not in capsys.readouterr().out
    for csv_path, words in zip(csvs[1:], (text, tmp_path / "shards"), strict=True):
        assert main([*command, "--words-of", str(words), "--csv", str(csv_path)]) == 0
    shown = capsys.readouterr().out
    assert "overall, seen_words (mean over 5 paradigms)" in shown
    bare, of_text, of_shards = (pd.read_csv(path) for path in csvs)
    pd.testing.assert_frame_equal(of_text, of_shards)
    # Of the pairs of each paradigm "walk" is missing from the third, and "see" is not.
    part = of_text[(of_text["level"] == "subset") & (of_text["phenomenon"] == "overall")]
    assert part["n_pairs"].tolist() == [15]
    seen = [pair for pair in read_pairs(folder) if "walk" not in pair.bad.split()]
    model = LanguageModel.load(saved)
    assert part["accuracy"].item() == np.mean(score_pairs(model, seen).credit)
    whole = of_text[of_text["level"] != "subset"].reset_index(drop=True)
    pd.testing.assert_frame_equal(whole, bare)
    assert tuple(bare)[:10] == (
        "model", "level", "paradigm", "field", "phenomenon", "n_pairs", "accuracy", "ties", "bos",
        "reduction",
    )  # fmt: skip
    assert of_text["level"].iloc[-1] == "overall"
    assert read_published(csvs[1]) == read_published(csvs[0])
    text.write_text("nothing of this\n")
    assert main([*command, "--words-of", str(text)]) == 0
    assert "no pair has all its words in --words-of" in capsys.readouterr().err
    for wrong, message in (
        ([tmp_path / "none"], "no such file or folder"),
        ([text, tmp_path / "shards"], "is a folder of shards, the rest is text"),
    ):
        assert main([*command, "--words-of", *map(str, wrong), "--csv", str(tmp_path / "d")]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "d").exists()


def test_ends_of_sentences_are_scored_if_asked_for(saved: Path, folder: Path, tmp_path: Path):
    out = tmp_path / "pairs.csv"
    assert main(["blimp", str(saved), "--data", str(folder), "--eos", "--pairs-csv", str(out)]) == 0
    model = LanguageModel.load(saved)
    pairs = read_pairs(folder)
    expected = [scores.sum() for scores in alone(model, [pair.good for pair in pairs])]
    np.testing.assert_allclose(pd.read_csv(out)["good"], expected, atol=1e-4)


def test_a_published_table_with_names_of_rows_is_refused(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("level,linguistics_term,gpt2\n1,paradigm,binding,0.5\n2,paradigm,npi,0.6\n")
    with pytest.raises(ValueError, match=r"more fields in its rows than .* row.names=FALSE"):
        read_published(path)


def test_pairs_of_equal_sentences_are_named(saved: Path, tmp_path: Path, capsys):
    path = tmp_path / "own.csv"
    path.write_text("good,bad\nthe boy walks,the boy walk\nthe boy walks,the boy walks\n")
    assert main(["blimp", str(saved), "--data", str(path)]) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "equal in 1 of the 2 pairs, such as pair 3 of own: each counts as a tie" in err
