"""The experiment on natural language: its rows, its resumption, its plots, what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from esnlm import LanguageModel, LowRankReadout, Reservoir
from esnlm.__main__ import _app, main
from esnlm.plots.figures import GREY
from esnlm.runs.grid import read_rows
from esnlm.runs.provenance import code_version
from esnlm.studies.minimal_pairs import PHENOMENA
from esnlm.studies.natural.plots import published, sweep_figure, why_not_published
from esnlm.studies.shards_grid import COLUMNS, GridWeights, ShardsGrid, planned
from esnlm.studies.shards_run import parameter_counts
from esnlm.text.tokenizers import Tokenizer

TEXT = "the boy sees the dog\nthe dogs see the boy\n\nthe girl walks with the boy\n" * 200
PAIRS = [("the boy sees the dog", "the boy see the dog"), ("the dogs see", "the dogs sees")]
#: What depends on the machine and the moment.
MEASURED = ("fit_seconds", "tokens_per_second", "score_seconds", "peak_rss_mib", "commit")
QUICK = [
    "--features",
    "0",
    "--readout",
    "softmax",
    "--passes",
    "2",
    "--chunk-tokens",
    "600",
    "--checkpoint-every",
    "0",
    "--degrees",
    "4",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> dict[str, str]:
    """Paths of training shards, held-out shards and minimal pairs."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "train.txt").write_text(TEXT)
    (folder / "dev.txt").write_text(TEXT[:300])
    train, dev = str(folder / "train"), str(folder / "dev")
    assert main(["prepare", f"{train}.txt", "--tokenizer", "word:40", "--out", train]) == 0
    tokenizer = f"{train}/tokenizer.json"
    assert main(["prepare", f"{dev}.txt", "--tokenizer", tokenizer, "--out", dev]) == 0
    pairs = folder / "pairs"
    pairs.mkdir()
    for phenomenon in ("binding", "quantifiers"):
        lines = [
            {"sentence_good": good, "sentence_bad": bad, "linguistics_term": phenomenon}
            for good, bad in PAIRS
        ]
        (pairs / f"{phenomenon}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return {"train": train, "dev": dev, "pairs": str(pairs)}


def command(corpus: dict[str, str], out: Path, *options: str) -> list[str]:
    shared = ["--held-out", corpus["dev"], "--blimp", corpus["pairs"], "--out", str(out)]
    return ["natural", corpus["train"], *shared, *QUICK, *options]


def process(argv: list[str]) -> subprocess.Popen[str]:
    whole = [sys.executable, "-m", "esnlm", *argv]
    return subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory) -> Path:
    """A folder with the rows of two sizes, never disturbed."""
    out = tmp_path_factory.mktemp("whole")
    assert main(command(corpus, out, "--sizes", "8", "16", "--baseline", "5-gram=1.5:60")) == 0
    return out


def lasting(rows):
    return [{k: v for k, v in row.items() if k not in MEASURED} for row in rows]


def test_rows_hold_setting_and_result(whole: Path):
    rows = read_rows(whole / "size.csv")
    assert tuple(rows[0]) == COLUMNS
    assert [row["n_units"] for row in rows] == [8, 16]
    for row in rows:
        assert row["connectivity"] == 4 / row["n_units"]
        assert (row["leak"], row["min_leak"]) == ("uniform:0:1", 0)
        assert (row["degree"], row["input_degree"], row["spectral_radius"]) == (4, 4, 0.99)
        assert row["perplexity"] == pytest.approx(np.exp(row["nll_per_token"]))
        assert row["blimp"] == np.mean([row["blimp_binding"], row["blimp_quantifiers"]])
        assert row["blimp_ellipsis"] is None
        assert row["words"] == len(TEXT.split())
        assert all(row[name] > 0 for name in MEASURED if name != "commit")
        assert row["commit"] == code_version()
    assert (whole / "size.png").read_bytes().startswith(b"\x89PNG")
    assert not (whole / "running").exists()


def test_rows_of_another_held_out_text_are_not_added(corpus, whole: Path, capsys):
    before = (whole / "size.csv").read_bytes()
    assert main(command({**corpus, "dev": corpus["train"]}, whole, "--sizes", "8")) == 2
    message = "size.csv holds runs with n_held_out_tokens = "
    assert message in " ".join(capsys.readouterr().err.split())
    assert (whole / "size.csv").read_bytes() == before


@pytest.mark.usefixtures("in_this_process")
def test_models_are_kept_where_they_are_asked_for(corpus, tmp_path: Path, caplog):
    options = ("--sizes", "8", "--no-plots", "--keep-models", str(tmp_path / "models"))
    assert main(command(corpus, tmp_path / "out", *options)) == 0
    (row,) = read_rows(tmp_path / "out" / "size.csv")
    (folder,) = (tmp_path / "models").iterdir()
    assert folder.name == f"8-{row['version']}"
    model = LanguageModel.load(folder)
    assert row["training_loss"] == pytest.approx(-model.score(TEXT.splitlines()), rel=1e-5)
    assert parameter_counts(model)["n_parameters"] == row["n_parameters"]
    assert not (tmp_path / "out" / "running").exists()
    assert "rows" not in caplog.text
    elsewhere = (*options[:-1], str(tmp_path / "other"))
    assert main(command(corpus, tmp_path / "out", *elsewhere)) == 0
    assert "other has no model of 1 of 1 runs, whose rows were in" in caplog.text


def test_a_row_is_what_train_and_evaluate_say(whole: Path, corpus, tmp_path: Path):
    options = [
        "--units",
        "16",
        "--degree",
        "4",
        "--input-degree",
        "4",
        "--leak-rate",
        "uniform:0:1",
        "--features",
        "0",
        "--topology",
        "offsets",
        "--input-scaling",
        "1",
    ]
    model, table = str(tmp_path / "model"), tmp_path / "table.csv"
    shared = ["--readout", "softmax", "--passes", "2", "--chunk-tokens", "600", *options]
    train = ["train", corpus["train"], "--held-out", corpus["dev"], "--spectral-radius", "0.99"]
    train += ["--alpha", "1"]  # a study does not choose it by the text that it scores
    assert main([*train, "--score-every", "0", *shared, "--out", model]) == 0
    assert main(["evaluate", model, corpus["dev"], "--csv", str(table)]) == 0
    (evaluated,) = read_rows(table)
    row = read_rows(whole / "size.csv")[1]
    assert row["nll_per_token"] == evaluated["nll_per_token"]
    assert row["n_parameters"] == LanguageModel.load(model).n_parameters_


@pytest.mark.usefixtures("in_this_process")
def test_finished_rows_are_not_run_again(whole: Path, corpus, tmp_path: Path):
    path = tmp_path / "size.csv"
    lines = (whole / "size.csv").read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2]))
    assert main(command(corpus, tmp_path, "--sizes", "8", "16", "--no-plots")) == 0
    assert path.read_text().splitlines(keepends=True)[1] == lines[1]
    assert lasting(read_rows(path)) == lasting(read_rows(whole / "size.csv"))
    assert not (tmp_path / "size.png").exists()


SLOW = ["--passes", "12", "--sizes", "16", "--no-plots"]


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory) -> list[dict]:
    """The row of a run with many steps."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert main(command(corpus, out, *SLOW)) == 0
    return read_rows(out / "size.csv")


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT]
)
def test_a_stopped_run_goes_on_from_its_checkpoint(corpus, undisturbed, tmp_path: Path, number):
    argv = command(corpus, tmp_path, *SLOW)
    begun = process(argv)
    running = tmp_path / "running"
    deadline = time.monotonic() + 60
    while not list(running.glob("*/checkpoints/step-*")):
        assert time.monotonic() < deadline
        assert begun.poll() is None
        time.sleep(0.01)
    begun.send_signal(number)
    _, printed = begun.communicate(timeout=60)
    if number == signal.SIGINT:
        assert begun.returncode == 130
        assert "finished rows are kept" in printed
        assert list(running.glob("*/checkpoints/step-*"))
        (peak,) = running.glob("*/peak_rss_mib")
        assert int(peak.read_text()) > 50
        peak.write_text("123456")  # a peak of before is not forgotten
    assert not (tmp_path / "size.csv").read_text().splitlines()[1:]
    # The run of the parent that was killed may still be ending: the next waits for it.
    assert main(argv) == 0
    rows = read_rows(tmp_path / "size.csv")
    assert lasting(rows) == lasting(undisturbed)
    assert (rows[0]["peak_rss_mib"] == 123456) == (number == signal.SIGINT)


def test_a_fitted_model_is_not_fitted_again(corpus, tmp_path: Path, monkeypatch):
    from esnlm.runs.subprocess_run import Lifeline
    from esnlm.studies import shards_run

    given = {}
    monkeypatch.setattr(
        "esnlm.runs.subprocess_run.run_apart",
        lambda module, setting, *rest: given.update(setting),
    )
    with pytest.raises(TypeError):  # the run that was caught measured nothing
        main(command(corpus, tmp_path, "--sizes", "8"))
    first = shards_run.measure(given, Lifeline())
    monkeypatch.setattr("esnlm.studies.shards_run.Trainer", None)
    again = shards_run.measure(given, Lifeline())
    for measured in (first, again):
        del measured["score_seconds"], measured["peak_rss_mib"]
    assert first == again


def settings_of(argv: list[str]) -> list[dict]:
    """Columns of the settings that a command stands for."""
    _, bound, _ = _app([]).parse_args(argv)
    options = bound.kwargs["options"]
    settings, runs = planned(bound.args[0], options.held_out, options.blimp, options.grid)
    assert [setting["version"] for setting in settings] == list(runs)
    return settings


def test_grid_of_connectivities(corpus, tmp_path: Path):
    argv = [a for a in command(corpus, tmp_path) if a not in ("--degrees", "4")]
    settings = settings_of([*argv, "--sizes", "16", "64", "--connectivities", "2^-3", "0.5"])
    assert [(one["n_units"], one["degree"]) for one in settings] == [
        (16, 2), (16, 8), (64, 8), (64, 32)
    ]  # fmt: skip
    assert [one["connectivity"] for one in settings] == [0.125, 0.5] * 2
    assert [one["input_degree"] for one in settings] == [2, 8, 8, 32]
    (few,) = settings_of([*argv, "--sizes", "8"])  # which have no 32 connections each
    assert (few["degree"], few["connectivity"]) == (8, 1.0)


def test_grid_of_leak_rates_and_features(corpus, tmp_path: Path):
    laws = ["--leaks", "0.80", "uniform:0.5:1", "inverse_gamma:0.56"]
    settings = settings_of(
        command(corpus, tmp_path, *laws, "--features", "0", "spectral:3", "--seeds", "2")
    )
    assert [(one["leak"], one["min_leak"]) for one in settings[::4]] == [
        ("0.8", 0.8),
        ("uniform:0.5:1", 0.5),
        ("inverse_gamma:0.56", None),
    ]
    assert [one["seed"] for one in settings] == [0, 1] * 6
    # Word features drive every unit, tokens as many as they have connections.
    assert [(one["features"], one["input_degree"]) for one in settings[:4:2]] == [
        (0, 4),
        ("spectral:3", None),
    ]
    assert len({one["version"] for one in settings}) == len(settings)


def test_rows_hold_direct_connections(corpus, tmp_path: Path):
    for direct in ("0", "3"):
        argv = command(corpus, tmp_path, "--readout", "lowrank", "--direct", direct)
        (setting,) = settings_of(argv)
        assert setting["options"] == f"direct={direct} passes=2"


def test_another_text_is_another_run(corpus, tmp_path: Path):
    (one,) = settings_of(command(corpus, tmp_path))
    (other,) = settings_of(command(corpus | {"dev": corpus["train"]}, tmp_path))
    judged = command(corpus, tmp_path)
    place = judged.index("--blimp")
    (unjudged,) = settings_of(judged[:place] + judged[place + 2 :])
    assert len({one["version"], other["version"], unjudged["version"]}) == 3


@pytest.mark.usefixtures("in_this_process")
def test_a_timescale_law_with_word_features_runs(corpus, tmp_path: Path):
    law = ["--name", "timescales", "--leaks", "inverse_gamma:0.56", "--features", "spectral:3"]
    assert main(command(corpus, tmp_path, "--sizes", "8", *law)) == 0
    (made,) = read_rows(tmp_path / "timescales.csv")
    assert (made["leak"], made["min_leak"]) == ("inverse_gamma:0.56", None)
    assert (tmp_path / "timescales.png").is_file()


def test_parameters_are_counted_as_in_the_paper():
    n_units, n_tokens, degree, rank = 60, 30, 7, 5
    rng = np.random.default_rng(0)
    reservoir = Reservoir(
        n_units, degree=degree, input_degree=degree, leak_rate=("uniform", 0, 1), random_state=0
    )
    readout = LowRankReadout(n_components=rank, n_frequent=3, n_classes=2, random_state=0)
    model = LanguageModel(reservoir, readout, n_tokens=n_tokens)
    model.fit([rng.integers(0, n_tokens, 12) for _ in range(60)])
    counts = parameter_counts(model)
    frozen = (n_units + n_tokens) * degree + n_units  # equations 6 and 7, and the leak rates
    assert counts["n_parameters_nonzero"] == counts["n_parameters"] + frozen
    total = n_units**2 + n_units * n_tokens + n_units
    assert counts["n_parameters_total"] == counts["n_parameters"] + total


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--sizes", "0"], "--sizes must be at least 1"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--degrees", "9", "--sizes", "8"], "more than the 8 units"),
        (["--leaks", "uniform:1:0.5"], "0 <= low <= high <= 1"),
        (["--leaks", "1.5"], "must lie in (0, 1], got 1.5"),
        (["--leaks", "uniform:0.5"], "expected a number, uniform:LOW:HIGH"),
        (["--leaks", "inverse_gamma:0"], "needs alpha > 0"),
        (["--baseline", "5-gram"], "expected NAME=NLL"),
        (["--input-degree", "some"], "expected degree, all or a count"),
        (["--connectivities", "2"], "expected a share in (0, 1]"),
        (["--connectivities", "0.5"], "not allowed with --degrees"),
        (["--checkpoint-every", "-1"], "--checkpoint-every must be at least 0"),
        (["--topology", "knot"], "topology must be one of"),
        (["--spectral-radius", "nan"], "--spectral-radius must be a finite number"),
        (["--experts", "3"], "--experts is not valid with the readout softmax"),
        (["--held-out", "nowhere"], "no such shards folder: nowhere"),
        (["--held-out", __file__], ", which is a file"),
        (["--blimp", "nowhere"], "no such file or folder: nowhere"),
    ],
)
def test_wrong_options_are_refused_before_any_run(corpus, tmp_path, capsys, options, printed):
    assert main(command(corpus, tmp_path / "out", *options)) == 2
    found = capsys.readouterr().err
    assert printed in found
    assert found.startswith("esnlm: error: ")
    assert not (tmp_path / "out").exists()


def test_a_first_run_that_is_refused_leaves_nothing(corpus, tmp_path, capsys):
    assert main(command(corpus, tmp_path / "some" / "out", "--alpha", "nan")) == 2
    assert "error: --alpha must be a finite number, got nan (in the run " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def row(**values):
    made = dict.fromkeys(COLUMNS) | {"words": 10_000_000, "readout": "lowrank", "features": 0}
    return made | {"blimp": 0.5, "seed": 0, "leak": "uniform:0:1", "nll_per_token": 5.0} | values


def labels(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_lines_of_sizes_and_the_published_curve():
    rows = [
        row(n_units=n, seed=seed, features=f, nll_per_token=5 + seed)
        for n in (512, 1024)
        for seed in (0, 2)
        for f in (0, "spectral:128")
    ]
    figure = sweep_figure("size", rows, {"5-gram": (4.4, 53.7), "4-gram": (4.5, None)})
    losses, pairs = figure.axes
    assert labels(figure) == [
        "ours, 10M words, 0 features",
        "ours, 10M words, spectral:128 features",
        "Ueda et al., 100M words of BabyLM",
    ]
    ours, _, theirs = losses.get_lines()[:3]
    np.testing.assert_array_equal(ours.get_xydata(), [[512, 6], [1024, 6]])
    assert len(losses.collections) == 3  # two bands over seeds, and bars of published errors
    expected = published("size")["nll"].reset_index()
    assert len(expected) == 7
    np.testing.assert_array_equal(theirs.get_xydata(), expected)
    assert pairs.get_lines()[0].get_ydata()[0] == 50
    assert [text.get_text() for text in losses.texts] == ["5-gram 4.40", "4-gram 4.50"]
    assert [text.get_text() for text in pairs.texts] == ["5-gram 53.70"]
    assert losses.get_xscale() == "log"


def test_models_of_other_tokens_stand_without_the_published_curve(monkeypatch):
    words = Tokenizer.train_words(["a b"])
    why_not = why_not_published(words)
    assert why_not.endswith("they are of GPT-2's tokenizer, this is another, of 5 tokens")
    for kind in ("size", "connectivity", "min_leak", "timescales"):
        figure = sweep_figure(kind, [row(n_units=512, connectivity=0.5, min_leak=0.5)], {}, why_not)
        shown = {" ".join(label.split()) for label in labels(figure)}
        assert shown == {"ours, 10M words", why_not}
        for axis in figure.axes:
            colours = {line.get_color() for line in axis.get_lines() if line.get_label() != why_not}
            assert GREY not in colours
    monkeypatch.setattr("esnlm.studies.natural.plots.is_gpt2", lambda tokenizer: True)
    assert why_not_published(words) == ""


def test_options_are_named_in_words():
    rows = [row(n_units=512, options=text) for text in ("", "direct=3 n_pairs=9")]
    shown = labels(sweep_figure("size", rows))
    assert shown[:2] == [
        "ours, 10M words, default options",
        "ours, 10M words, direct 3, pairs 9",
    ]


@pytest.mark.parametrize("kind", ["connectivity", "min_leak"])
def test_published_curves_of_the_appendices(kind):
    rows = [row(n_units=4096, connectivity=0.5, min_leak=0.5)]
    losses, pairs = sweep_figure(kind, rows).axes
    for axis, measure in ((losses, "nll"), (pairs, "blimp")):
        expected = published(kind)[measure].reset_index()
        np.testing.assert_array_equal(axis.get_lines()[1].get_xydata(), expected)


def test_laws_of_leak_rates_stand_side_by_side():
    laws = ("uniform:0:1", "inverse_gamma:0.56", 1)
    figure = sweep_figure("timescales", [row(leak=law, blimp=None) for law in laws])
    (losses,) = figure.axes
    names = [text.get_text() for text in losses.get_xticklabels()]
    assert names == ["uniform\n0 to 1", "inverse\ngamma\n0.56", "constant\n1"]
    ours, theirs = (bars.lines[0].get_xydata() for bars in losses.containers)
    np.testing.assert_array_equal(ours, [[0, 5], [1, 5], [2, 5]])
    np.testing.assert_array_equal(theirs, [[0, 4.794], [2, 5.018]])


def test_phenomena_are_those_of_the_table():
    assert len(set(PHENOMENA)) == 12
    assert sum(name.startswith("blimp_") for name in COLUMNS) == 12


@pytest.mark.parametrize("topology", ["ring", "diagonal", "orthogonal", "delay_line"])
def test_few_units_of_a_topology_without_degree_are_planned(corpus, topology):
    def grid(**options):
        return ShardsGrid(sizes=(8,), weights=GridWeights(topology=topology), **options)

    shared = corpus["train"], corpus["dev"], None
    (setting,), _ = planned(*shared, grid())
    assert (setting["topology"], setting["n_units"]) == (topology, 8)
    with pytest.raises(ValueError, match="degree=4 has no effect"):
        planned(*shared, grid(degrees=(4,)))
