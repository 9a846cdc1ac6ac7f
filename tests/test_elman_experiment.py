"""The Elman experiment end to end on small corpora: rows, plots, tables, bad input."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from esnlm import Reservoir, RidgeReadout
from esnlm.__main__ import main
from esnlm.plots.figures import save
from esnlm.runs.grid import read_rows
from esnlm.studies.elman import command as elman
from esnlm.studies.elman.assignments import ASSIGNMENTS, context_experts, word_clusters
from esnlm.studies.elman.experts import ExpertsTable, describe_experts, gate_information
from esnlm.studies.elman.plots import perplexity_figure, plot_cosine, principal_components
from esnlm.studies.elman.presets import PRESETS, Settings, preset
from esnlm.studies.elman.run import fit_readout, run_readout
from esnlm.studies.elman.states import contexts_of, drive, make_corpora, make_grammar
from esnlm.studies.elman.tables import write_summary

ROOT = Path(__file__).resolve().parent.parent
CONTRACT = [
    *("readout", "features", "n_units", "seed", "perplexity", "cosine", "oracle_perplexity"),
    *("n_train_tokens", "n_test_tokens", "n_parameters", "fit_seconds", "score_seconds"),
]
TIMES = ("fit_seconds", "score_seconds", "drive_seconds")
CORPORA = ["--train-sentences", 300, "--test-sentences", 200]
SMALL = ["--sizes", 5, 12, "--features", 0, 2, "--seeds", 1, "--experts", 2, *CORPORA]


def run(*options):
    return main(["elman", *map(str, options)])


def without_times(path):
    return [{k: v for k, v in row.items() if k not in TIMES} for row in read_rows(path)]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elman") / "new" / "folder"
    assert run("--out", folder, *SMALL, "--jobs", 1) == 0
    return folder


def test_one_row_a_run_with_the_columns_of_the_contract(small):
    with (small / "elman.csv").open() as file:
        assert next(csv.reader(file))[: len(CONTRACT)] == CONTRACT
    rows = read_rows(small / "elman.csv")
    names = {(r["readout"], r["features"], r["n_units"], r["seed"]) for r in rows}
    expected = {(name, f, n, 0) for name in elman.READOUTS for f in (0, 2) for n in (5, 12)}
    assert len(rows) == len(names)
    assert names == expected


def test_every_readout_is_above_the_oracle_and_below_chance(small):
    for row in read_rows(small / "elman.csv"):
        assert row["oracle_perplexity"] < row["perplexity"] < 24
        assert 0 < row["cosine"] < 100
        assert row["n_parameters"] > row["n_units"]
        assert row["fit_seconds"] >= row["drive_seconds"] >= 0


def test_ngram_rows(small):
    rows = read_rows(small / "ngrams.csv")
    assert [row["order"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[0]["perplexity"] > rows[1]["perplexity"] > rows[1]["oracle_perplexity"]
    first = read_rows(small / "elman.csv")[0]
    assert rows[0]["n_test_tokens"] == first["n_test_tokens"]
    assert rows[0]["oracle_perplexity"] == first["oracle_perplexity"]


@pytest.mark.parametrize("name", ["elman.png", "elman_cosine.png", "elman_states.png"])
def test_plots_are_images(small, name):
    from matplotlib.image import imread

    image = imread(small / name)
    assert image.shape[0] > 300
    assert image.shape[1] > 600
    assert len(np.unique(image.reshape(-1, image.shape[2])[::97], axis=0)) > 4


def test_table_of_experts(small):
    with (small / "experts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    assert sum(float(row["gate_share"]) for row in rows) == pytest.approx(1.0, abs=1e-4)
    text = (small / "experts.md").read_text()
    assert "12 units, 2 word features, 2 experts" in text
    assert ExpertsTable(12, 2, 2, small).is_written
    assert not ExpertsTable(2, 2, 2, small).is_written  # whose title ends the other's
    assert "length of the sentence" in text


def test_summary_names_every_readout(small):
    text = (small / "summary.md").read_text()
    for name in elman.READOUTS:
        assert f"| {name} | 2 |" in text


def test_nothing_half_written_stays(small):
    assert not list(small.glob("*.new"))
    assert not list(small.glob(".*"))


def test_second_run_repeats_nothing(small):
    before = (small / "elman.csv").read_bytes()
    assert run("--out", small, *SMALL, "--no-plots", "--jobs", 1) == 0
    assert (small / "elman.csv").read_bytes() == before


@pytest.mark.slow
def test_two_jobs_give_the_same_rows(small, tmp_path):
    fewer = ["--sizes", 5, "--readouts", "moe", "ridge", "--no-plots", "--jobs", 2]
    assert run("--out", tmp_path, *SMALL, *fewer) == 0
    expected = without_times(small / "elman.csv")
    rows = without_times(tmp_path / "elman.csv")
    assert len(rows) == 4
    assert all(row in expected for row in rows)


def test_corpora_depend_on_the_seed_alone():
    settings = Settings(train_sentences=50, test_sentences=20)
    first, again, other = (make_corpora(settings, seed) for seed in (0, 0, 1))
    assert np.array_equal(first.train, again.train)
    assert not np.array_equal(first.train[:50], other.train[:50])
    assert first.train_oracle.shape == (len(first.train) - 1, 24)
    assert first.grammar.vocabulary[first.train[first.held_out - 1]] == "."


@pytest.mark.parametrize("features", [0, 3])
def test_states_are_those_of_each_sentence_alone(features):
    settings = Settings(train_sentences=60, test_sentences=20, leak_rate=0.6, standardised=False)
    corpora, driven = make_corpora(settings, 1), drive(settings, 8, features, 1)
    end, options = corpora.grammar.vocabulary.index("."), {"random_state": 1, "leak_rate": 0.6}
    names = "spectral_radius", "input_scaling", "degree"
    options |= {name: getattr(settings, name) for name in names}
    reservoir = Reservoir(8, **options).fit(n_inputs=features or 24)
    for tokens, states in ((corpora.train, driven.train), (corpora.test, driven.test)):
        ends = np.flatnonzero(tokens == end) + 1
        alone = [
            reservoir.transform(np.append(end, sentence[:-1]), features=driven.embedding)
            for sentence in np.split(tokens, ends[:-1])
        ]
        np.testing.assert_allclose(states, np.concatenate(alone)[1:], atol=1e-6)


def test_standardised_states_have_variance_one_on_the_training_corpus_alone():
    settings = Settings(train_sentences=60, test_sentences=20)
    driven, plain = (drive(replace(settings, standardised=s), 8, 2, 0) for s in (True, False))
    np.testing.assert_allclose(driven.train.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(driven.train.std(axis=0), 1, atol=1e-5)
    mean, deviation = plain.train.mean(axis=0), plain.train.std(axis=0)
    np.testing.assert_allclose(driven.test, (plain.test - mean) / deviation, rtol=1e-3, atol=1e-5)


def test_the_preset_of_the_paper_has_its_settings():
    paper = preset("rachez2012", experts=5)
    assert (paper.spectral_radius, paper.input_scaling, paper.leak_rate) == (0.97, 1.0, 1.0)
    assert (paper.reset, paper.word_features, paper.experts) == ("never", "gradient", 5)
    assert preset("found") == Settings()
    assert all(values.keys() <= vars(Settings()).keys() for values in PRESETS.values())


@pytest.mark.parametrize(("name", "features"), [("ridge", 0), ("ridge", 2), ("softmax", 0)])
def test_the_preset_of_the_paper_gives_the_rows_of_its_report(name, features):
    setting = {"readout": name, "features": features, "n_units": 10, "seed": 0}
    rows = read_rows(ROOT / "reports" / "elman" / "rachez2012.csv")
    (row,) = (row for row in rows if row.items() >= setting.items())
    found = run_readout(preset("rachez2012"), setting)
    for column in ("perplexity", "cosine", "train_perplexity", "oracle_perplexity", "alpha"):
        assert found[column] == pytest.approx(row[column], rel=1e-5), column
    assert found["n_parameters"] == row["n_parameters"]


def test_the_supervised_mixture_of_the_paper_has_ten_experts_of_words():
    settings = preset("rachez2012", train_sentences=400)
    corpora, driven = make_corpora(settings, 0), drive(settings, 12, 2, 0)
    fitted = fit_readout("factored", settings, 0, driven.train, corpora, driven.embedding)
    parts = [np.flatnonzero(fitted.word_class_ == expert) for expert in range(10)]
    assert sorted(np.concatenate(parts)) == list(range(24))
    assert all(len(part) for part in parts)
    assert np.array_equal(fitted.word_class_, word_clusters(driven.embedding, 10, 0))
    one_hot = drive(settings, 12, 0, 0)
    fitted = fit_readout("factored", settings, 0, one_hot.train, corpora, one_hot.embedding)
    assert fitted.n_classes_used_ == 10


def test_experts_by_position_and_by_length_of_the_sentence():
    corpora = make_corpora(Settings(train_sentences=50, test_sentences=20), 0)
    end = corpora.grammar.vocabulary.index(".")
    sentences = np.split(corpora.train, np.flatnonzero(corpora.train == end)[:-1] + 1)
    position = np.concatenate([np.arange(len(words)) for words in sentences])
    length = np.concatenate([np.full(len(words), len(words) - 1) for words in sentences])
    assert np.array_equal(context_experts("position", corpora, 10), position[1:])
    assert np.array_equal(context_experts("length", corpora, 10), length[1:])
    assert np.array_equal(context_experts("position", corpora, 3), position[1:].clip(max=2))


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_every_assignment_of_experts_is_above_the_oracle_and_below_unigrams(assignment):
    settings = preset("rachez2012", train_sentences=400, assignment=assignment)
    setting = {"readout": "factored", "features": 2, "n_units": 12, "seed": 0}
    row = run_readout(settings, setting)
    assert row["oracle_perplexity"] < row["perplexity"] < 14


def test_options_stand_before_those_of_the_preset(tmp_path):
    options = ["--sizes", 4, "--readouts", "mlp", "--features", 2, "--seeds", 1, "--no-plots"]
    small = ["--train-sentences", 60, "--test-sentences", 40, "--jobs", 1]
    control = ["--spectral-radius", 0, "--leak-rate", "uniform:0.2:1", "--reset", "never"]
    assert run("--out", tmp_path, *options, *small, *control, "--preset", "rachez2012") == 0
    (row,) = read_rows(tmp_path / "elman.csv")
    assert row["spectral_radius"] == 0
    assert row["leak_rate"] == "('uniform', 0.2, 1.0)"
    assert (row["input_scaling"], row["word_features"]) == (1.0, "gradient")
    assert row["preset"] == "rachez2012"


def test_options_of_the_grammar_reach_it(tmp_path):
    options = ["--sizes", 4, "--readouts", "ridge", "--features", 0, "--seeds", 1, "--no-plots"]
    small = ["--train-sentences", 60, "--test-sentences", 40, "--jobs", 1]
    grammar = ["--lengths", "3:1", "4:1", "--max-length", 4, "--plural", 1, "--object", 0.2]
    phrase = ["--noun-phrase", 0.5, 0.25, 0.25]
    assert run("--out", tmp_path, *options, *small, *grammar, *phrase) == 0
    (row,) = read_rows(tmp_path / "elman.csv")
    assert row["n_test_tokens"] < 40 * 5
    process = make_grammar(row["grammar"])
    assert process.plural_probability == 1
    assert process.noun_phrase["proper"] == 0.5
    assert set(process.length_distribution) == {3, 4}


def test_settings_of_another_grid_are_refused(small, capsys):
    assert run("--out", small, *SMALL, "--experts", 3, "--no-plots") == 2
    assert "holds runs with experts = 2, got 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("esnlm.studies.elman.run.__version__", "9.9.9"),
        ("esnlm.studies.elman.run.PATIENCE", 7),
        ("esnlm.studies.elman.run.HELD_OUT", 0.2),
        ("esnlm.studies.elman.run.RidgeReadout", lambda: RidgeReadout(floor=1e-9)),
    ],
)
def test_rows_of_other_defaults_are_refused(small, monkeypatch, name, value, capsys):
    before = (small / "elman.csv").read_bytes()
    monkeypatch.setattr(name, value)
    assert run("--out", small, *SMALL, "--no-plots", "--jobs", 1) == 2
    assert re.search(
        r"holds runs with version = \S+, got \S+: use another", capsys.readouterr().err
    )
    assert (small / "elman.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--readouts", "forest"], '"forest" for --readouts. Choose from: "ridge"'),
        (["--sizes", 25, 0], "--sizes must be at least 1, got 0"),
        (["--features", -1], "--features must be at least 0, got -1"),
        (
            ["--features", 2, 25],
            "--features must be at most the 24 words of the grammar where they",
        ),
        (["--seeds", -3], "--seeds must be at least 1, got -3"),
        (["--assignment", "luck"], '"luck" for --assignment. Choose from: "clusters", "frequency"'),
        (["--experts", 0], "--experts must be at least 1, got 0"),
        (["--jobs", 0], "--jobs must be at least 1, got 0"),
        (["--train-sentences", 0], "--train-sentences must be at least 10, got 0"),
        (["--test-sentences", 0], "--test-sentences must be at least 1, got 0"),
        (["--spectral-radius", -0.1], "--spectral-radius must be at least 0 and finite, got -0.1"),
        (["--input-scaling", 0], "--input-scaling must be positive and finite, got 0.0"),
        (["--leak-rate", "often"], "expected a number, uniform:LOW:HIGH or inverse_gamma:ALPHA"),
        (["--preset", "paper"], '"paper" for --preset. Choose from: "found", "rachez2012"'),
        (["--leak-rate", 1.5], "--leak-rate must lie in (0, 1], got 1.5"),
        (["--lengths", "3-9"], "--lengths takes LENGTH:WEIGHT, such as 3:150, or 'free'"),
        (["--lengths", "3:1", "03:2"], "--lengths 03:2: length 3 has a weight already: name one"),
        (["--plural", 1.5], "--plural must lie in"),
    ],
)
def test_bad_options_leave_nothing(tmp_path, options, message, capsys):
    assert run("--out", tmp_path / "out", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_folder_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run("--out", tmp_path / "file" / "out", *SMALL) == 2
    assert re.search(r"file: Not a directory", capsys.readouterr().err)


def test_interrupt_ends_with_130(tmp_path, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(elman, "run_experiment", interrupt)
    assert run("--out", tmp_path, *SMALL) == 130
    assert "finished rows are kept" in capsys.readouterr().err


def test_plots_of_one_readout_and_one_size(tmp_path):
    row = {"readout": "moe", "features": 0, "n_units": 7, "seed": 0, "perplexity": 6.0}
    row |= {"cosine": 80.0, "train_cosine": 82.0, "oracle_perplexity": 5.0}
    save(perplexity_figure([row], []), tmp_path / "a.png")
    plot_cosine([row], [], tmp_path / "b.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_targets_by_hand(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from elman_grid import targets

    def row(readout, n_units, value):
        run = {"readout": readout, "features": 0, "n_units": n_units, "seed": 0}
        return run | {"perplexity": value, "oracle_perplexity": 5.0}

    rows = [row("ridge", 100, 8.0), row("softmax", 100, 6.0), row("moe", 25, 5.4)]
    rows.append(row("mlp", 25, 5.1))
    ngrams = [{"order": 3, "seed": 0, "perplexity": 7.0}]
    got = {what.split(" (")[0]: (value, met) for what, _, value, met in targets(rows, ngrams)}
    assert got == {
        "lowest perplexity / oracle, any run": ("1.0200", "yes"),
        "worst run from 100 units / trigram": ("1.1429", "no"),
        "mixture, 25 units / oracle": ("1.0800", "yes"),
        "best setting / oracle": ("1.0200", "yes"),
        "best setting without a network / oracle": ("1.0800", "yes"),
        "softmax / ridge, 100 units, F 0": ("0.7500", "yes"),
    }


def test_summary_of_several_seeds(tmp_path, small):
    rows = read_rows(small / "elman.csv")
    more = [row | {"seed": 1, "perplexity": row["perplexity"] + 0.2} for row in rows]
    write_summary(rows + more, read_rows(small / "ngrams.csv"), tmp_path / "summary.md")
    assert "± 0.141" in (tmp_path / "summary.md").read_text()


def test_experts_that_split_by_position_are_described():
    grammar = make_grammar("{}")
    tokens = grammar.encode(grammar.sample(300, random_state=0))
    contexts = contexts_of(tokens, grammar.vocabulary.index("."))
    late = (contexts["position"] > 2).to_numpy(dtype=float)
    gate = np.stack([late, 1 - late], axis=1)
    rows = describe_experts(gate, gate, contexts, grammar).to_dict("records")
    assert [row["gate_share"] for row in rows] == sorted(gate.mean(axis=0), reverse=True)
    by_expert = {row["expert"]: row for row in rows}
    assert by_expert[1]["position_mean"] < 2 < by_expert[0]["position_mean"]
    explained = gate_information(gate, contexts, grammar)
    assert explained["position in the sentence"] == pytest.approx(1.0)
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in explained.values())


def test_principal_components_of_one_unit():
    points, shares = principal_components(np.array([[1.0], [2.0], [3.0]]))
    assert points.shape == (3, 2)
    assert shares.tolist() == pytest.approx([1.0, 0.0])


def test_one_readout_in_this_process():
    settings = Settings(train_sentences=100, test_sentences=50)
    row = run_readout(settings, {"readout": "ridge", "features": 2, "n_units": 6, "seed": 0})
    assert row["n_parameters"] == 24 * 7 + 24 * 2
    with pytest.raises(ValueError, match="readout must be one of"):
        run_readout(settings, {"readout": "tree", "features": 0, "n_units": 6, "seed": 0})
