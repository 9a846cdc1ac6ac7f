"""Controls: what each leaves out, paired differences beside brute force, resumption, refusals."""

import csv
import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from esnlm import LanguageModel, LowRankReadout, Reservoir
from esnlm.__main__ import main
from esnlm.evaluation.bootstrap import resampled_means, resampled_sums
from esnlm.evaluation.minimal_pairs.pairs import Pair
from esnlm.runs import subprocess_run
from esnlm.runs.grid import read_rows
from esnlm.studies.controls.comparison import (
    difference_rows,
    judged_pairs,
    judged_tokens,
    value_rows,
)
from esnlm.studies.controls.plots import figure, tables
from esnlm.studies.controls.settings import CONTROLS
from esnlm.studies.shards_grid import COLUMNS
from esnlm.studies.shards_run import log_probabilities
from esnlm.text.shards import Shards

WORDS = ["the", "a", "boy", "girl", "dog", "sees", "hears", "walks", "who", "that"]
PAIRS = [("the boy sees the dog", "the boy dog the sees"), ("the dog walks", "the dog who")]
OPTIONS = ["--sizes", "12", "--degrees", "4", "--seeds", "2", "--resamples", "50"]
OPTIONS += ["--readout", "lowrank", "--direct", "2", "--chunk-tokens", "600"]
OPTIONS += ["--features", "spectral:4", "--option", "n_components=8", "--no-plots"]


def sentences(n: int, seed: int) -> str:
    rng = np.random.default_rng(seed)
    chances = 1 / np.arange(1, len(WORDS) + 1)
    lines = (
        " ".join(rng.choice(WORDS, size=rng.integers(1, 9), p=chances / chances.sum()))
        for _ in range(n)
    )
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("corpus")
    train, dev = str(folder / "train"), str(folder / "dev")
    Path(f"{train}.txt").write_text(sentences(300, 0))
    Path(f"{dev}.txt").write_text(sentences(60, 1))
    assert main(["prepare", f"{train}.txt", "--tokenizer", "word:12", "--out", train]) == 0
    tokenizer = f"{train}/tokenizer.json"
    assert main(["prepare", f"{dev}.txt", "--tokenizer", tokenizer, "--out", dev]) == 0
    (folder / "pairs").mkdir()
    for phenomenon in ("binding", "quantifiers"):
        lines = [
            {"sentence_good": good, "sentence_bad": bad, "linguistics_term": phenomenon}
            for good, bad in PAIRS
        ]
        text = "\n".join(map(json.dumps, lines))
        (folder / "pairs" / f"{phenomenon}.jsonl").write_text(text)
    return {"train": train, "dev": dev, "pairs": str(folder / "pairs")}


def command(corpus: dict[str, str], out: Path, *options: str) -> list[str]:
    shared = ["--held-out", corpus["dev"], "--blimp", corpus["pairs"], "--out", str(out)]
    return ["controls", corpus["train"], *shared, *OPTIONS, *options]


@pytest.fixture(scope="module", autouse=True)
def in_this_process():
    """Runs are not given processes of their own, which `tests/test_natural.py` tests."""

    def run_apart(module: str, setting: dict, *rest: object) -> dict:
        return dict(import_module(module).measure(setting, subprocess_run.Lifeline()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess_run, "run_apart", run_apart)
        yield


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory) -> Path:
    """All controls, two seeds each, never disturbed."""
    out = tmp_path_factory.mktemp("whole")
    assert main(command(corpus, out)) == 0
    return out


def test_each_control_leaves_out_what_it_says(whole: Path):
    rows = read_rows(whole / "controls.csv")
    assert tuple(rows[0]) == ("control", *COLUMNS)
    assert [row["control"] for row in rows] == [name for name in CONTROLS for _ in range(2)]
    assert [row["seed"] for row in rows] == [0, 1] * len(CONTROLS)
    found = {row["control"]: row for row in rows}
    kept = ("spectral_radius", "leak", "input_scaling", "options")
    assert [tuple(found[name][k] for k in kept) for name in CONTROLS] == [
        (0.99, "uniform:0:1", 1, "direct=2 n_components=8"),
        (0, "uniform:0:1", 1, "direct=2 n_components=8"),
        (0, 1, 1, "direct=2 n_components=8"),
        (0, 1, 0, "direct=2 n_components=8"),
        (0.99, "uniform:0:1", 1, "direct=0 n_components=8"),
        (0, "uniform:0:1", 1, "direct=0 n_components=8"),
    ]
    assert len({row["version"] for row in rows}) == len(rows)
    assert not (whole / "running").exists()
    assert not (whole / "controls.png").exists()


def test_losses_are_those_of_the_kept_log_probabilities(whole: Path, corpus):
    for row in read_rows(whole / "controls.csv"):
        kept = log_probabilities(whole / "scores" / row["version"])
        assert len(kept["tokens"]) == row["n_held_out_tokens"]
        assert -kept["tokens"].mean(dtype=float) == pytest.approx(row["nll_per_token"], rel=1e-6)
        right = np.where(kept["good"] == kept["bad"], 0.5, kept["good"] > kept["bad"])
        assert right.mean() == row["blimp"]
    values = pd.read_csv(whole / "values.csv")
    of_seed = values[(values["measure"] == "nats") & (values["by"] == "all")]
    for row in read_rows(whole / "controls.csv"):
        where = (of_seed["control"] == row["control"]) & (of_seed["seed"] == str(row["seed"]))
        assert of_seed["value"][where].item() == pytest.approx(row["nll_per_token"], rel=1e-6)


def test_groups_are_those_of_tokens_counted_one_by_one(whole: Path, corpus):
    train, dev = (Path(f"{corpus[name]}.txt").read_text() for name in ("train", "dev"))
    tokenizer = Shards(corpus["train"]).tokenizer
    encode = tokenizer.encode
    counts = np.zeros(len(tokenizer), dtype=int)
    for line in train.splitlines():
        for token in [*encode(line), tokenizer.eos_id]:
            counts[token] += 1
    row = read_rows(whole / "controls.csv")[0]
    logs = log_probabilities(whole / "scores" / row["version"])["tokens"].tolist()[::-1]
    sums: dict[tuple[str, str], list[float]] = {}
    for line in dev.splitlines():
        for position, token in enumerate([*encode(line), tokenizer.eos_id], start=1):
            count, loss = counts[token], -logs.pop()
            frequency = "<100" if count < 100 else "100-1k" if count < 1000 else "1k-10k"
            place = next(
                name
                for last, name in ((1, "1"), (2, "2"), (4, "3-4"), (8, "5-8"), (16, "9-16"))
                if position <= last
            )
            for group in (("frequency", frequency), ("position", place)):
                sums.setdefault(group, []).append(loss)
    assert not logs
    values = pd.read_csv(whole / "values.csv", dtype={"group": str})
    rows = values[(values["control"] == "full") & (values["seed"] == "0")]
    rows = rows[rows["by"].isin(["frequency", "position"])]
    found = {(r.by, r.group): (r.n, r.value) for r in rows.itertuples()}
    assert found == {
        group: (len(losses), pytest.approx(np.mean(losses), rel=1e-5))
        for group, losses in sums.items()
    }


def test_differences_are_paired_and_seeds_are_pooled(whole: Path):
    values, less = (pd.read_csv(whole / f"{name}.csv") for name in ("values", "differences"))
    assert set(zip(less["control"], less["against"], strict=True)) == {
        (name, against) for name, control in CONTROLS.items() for against in control.against
    }
    key = ["control", "seed", "measure", "by", "group"]
    known = values.set_index(key)["value"].to_dict()
    for row in less.itertuples():
        rest = row.seed, row.measure, row.by, row.group
        expected = known[row.control, *rest] - known[row.against, *rest]
        assert row.difference == pytest.approx(expected, abs=1e-9)
        assert row.lower <= row.upper
    of_seeds = less[less["seed"] != "mean"].groupby([*key[:1], "against", *key[2:]])["difference"]
    pooled = less[less["seed"] == "mean"].set_index([*key[:1], "against", *key[2:]])["difference"]
    pd.testing.assert_series_equal(of_seeds.mean().sort_index(), pooled.sort_index())


def runs_of(*names: str, seeds: int = 1) -> list[dict]:
    about = {"topology": "offsets", "n_units": 4}
    return [{"control": name, "seed": seed, **about} for name in names for seed in range(seeds)]


def test_intervals_of_differences_are_those_of_sentences_drawn_one_by_one(corpus):
    train, dev = Shards(corpus["train"]), Shards(corpus["dev"])
    stream, rng = dev.stream(), np.random.default_rng(3)
    n = stream.n_predicted
    scores = -rng.gamma(2.0, size=(2, n))
    scores[1] = scores[0] - 0.1 + 0.3 * rng.standard_normal(n)  # nearly the same: paired
    judged = judged_tokens(train, dev, scores, n_resamples=4000, random_state=0)
    row = next(difference_rows(runs_of("full", "uncoupled"), judged))
    assert (row["by"], row["group"], row["n"]) == ("all", "all", n)
    by_sentence = np.split(scores[0] - scores[1], np.cumsum(stream.lengths - 1)[:-1])
    sums, sizes = (np.array([f(each) for each in by_sentence]) for f in (np.sum, len))
    drawn = rng.integers(len(sums), size=(4000, len(sums)))
    expected = np.quantile(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), [0.025, 0.975])
    np.testing.assert_allclose([row["lower"], row["upper"]], expected, atol=0.004)
    of_values = [
        each["upper"] - each["lower"]
        for each in value_rows(runs_of("full", "uncoupled"), judged)
        if each["by"] == "all"
    ]
    assert row["upper"] - row["lower"] < 0.5 * min(of_values)


def test_intervals_of_accuracies_are_those_of_pairs_drawn_within_paradigms():
    rng = np.random.default_rng(0)
    sizes = {("p", "one"): 40, ("p", "two"): 25, ("q", "three"): 60}
    pairs = [
        Pair(paradigm, "f", phenomenon, str(k), "a", "b")
        for (phenomenon, paradigm), size in sizes.items()
        for k in range(size)
    ]
    credit = rng.choice([0, 0.5, 1], size=(2, len(pairs)))
    credit[1, ::3] = credit[0, ::3]
    judged = judged_pairs(pairs, credit, n_resamples=4000, random_state=0)
    assert judged.groups == [("all", "all"), ("phenomenon", "p"), ("phenomenon", "q")]
    assert judged.sizes.tolist() == [125, 65, 60]
    names = np.array([pair.paradigm for pair in pairs])
    parts = [credit[:, names == name] for name in ("one", "two", "three")]
    means = np.array([part.mean(axis=1) for part in parts])
    np.testing.assert_allclose(judged.values[:, 0], means.mean(axis=0))
    np.testing.assert_allclose(judged.values[:, 1], means[:2].mean(axis=0))
    drawn = []
    for part in parts:
        places = rng.integers(part.shape[1], size=(4000, part.shape[1]))
        drawn.append((part[1] - part[0])[places].mean(axis=1))
    row = next(difference_rows(runs_of("full", "uncoupled"), judged))
    expected = np.quantile(np.mean(drawn, axis=0), [0.025, 0.975])
    np.testing.assert_allclose([row["lower"], row["upper"]], expected, atol=0.01)


def test_resampled_sums_have_the_variance_of_the_bootstrap():
    blocks = np.random.default_rng(0).gamma(1.0, size=(50, 2))
    sums = resampled_sums(blocks, 20_000, 1)
    np.testing.assert_allclose(sums.mean(axis=0), blocks.sum(axis=0), rtol=0.01)
    np.testing.assert_allclose(sums.var(axis=0), 50 * blocks.var(axis=0), rtol=0.05)
    means = resampled_means(blocks[:, :1], blocks[:, 1:], 20_000, 1)
    np.testing.assert_allclose(means, sums[:, :1] / sums[:, 1:])
    with pytest.raises(ValueError, match="n_resamples must be"):
        resampled_sums(blocks, 0)
    with pytest.raises(ValueError, match="a block or more to draw from, got none"):
        resampled_sums(blocks[:0])


def test_the_state_of_the_last_token_adds_nothing_to_direct_connections():
    """Radius 0 and leak 1: folded into the table of the last token, the state is gone."""
    rng = np.random.default_rng(0)
    docs = [rng.choice(12, size=9, p=np.arange(1, 13) / 78) for _ in range(200)]
    reservoir = Reservoir(16, spectral_radius=0.0, degree=4, random_state=0)
    readout = LowRankReadout(n_components=8, n_direct=2, random_state=0)
    model = LanguageModel(reservoir, readout, n_tokens=12).fit(docs)
    before = np.concatenate(model.log_likelihood(docs))
    fitted = model.readout_
    states = np.concatenate([model.reservoir_.transform([token]) for token in range(12)])
    fitted.direct_coef_[0, :12] += states @ fitted.directions_
    fitted.directions_[:] = 0
    np.testing.assert_allclose(np.concatenate(model.log_likelihood(docs)), before, atol=1e-5)


@pytest.mark.filterwarnings("ignore:the model has a perplexity")
def test_direct_connections_learn_without_states():
    rng = np.random.default_rng(0)
    chain = rng.dirichlet(np.full(12, 0.2), size=12)
    docs = []
    for _ in range(300):
        doc = [0]
        while len(doc) < 12:
            doc.append(int(rng.choice(12, p=chain[doc[-1]])))
        docs.append(np.array(doc))
    none = {"input_scaling": 0.0, "spectral_radius": 0.0}
    losses = []
    for weights, n_direct in ((none, 2), ({"spectral_radius": 0.0}, 2), (none, 0)):
        reservoir = Reservoir(16, degree=4, random_state=0, **weights)
        readout = LowRankReadout(n_components=8, n_direct=n_direct, random_state=0)
        model = LanguageModel(reservoir, readout, n_tokens=12).fit(docs)
        losses.append(-model.score(docs))
    alone, beside_states, nothing = losses
    assert abs(alone - beside_states) < 0.1
    assert nothing - alone > 0.5


def test_finished_runs_are_not_run_again_and_comparisons_are(whole: Path, corpus, tmp_path: Path):
    out = tmp_path / "out"
    one = ["--controls", "full", "uncoupled", "--seeds", "1"]
    assert main(command(corpus, out, *one)) == 0
    first = (out / "controls.csv").read_text()
    before = (out / "values.csv").read_bytes()
    (out / "values.csv").unlink()
    assert main(command(corpus, out, *one)) == 0
    assert (out / "controls.csv").read_text() == first
    assert (out / "values.csv").read_bytes() == before
    rows = pd.read_csv(out / "values.csv")
    of_whole = pd.read_csv(whole / "values.csv").query("seed == '0'")
    key = ["control", "measure", "by", "group"]
    merged = rows.merge(of_whole, on=key)
    assert len(merged) == len(rows)
    np.testing.assert_allclose(merged["value_x"], merged["value_y"], rtol=1e-9)


def test_a_run_whose_log_probabilities_are_gone_is_named(corpus, tmp_path: Path, capsys):
    one = command(corpus, tmp_path / "out", "--controls", "full", "--seeds", "1")
    assert main(one) == 0
    (kept,) = (tmp_path / "out" / "scores").iterdir()
    (kept / "log_probabilities.safetensors").unlink()
    assert main(one) == 2
    shown = capsys.readouterr().err
    assert "holds no log-probabilities of a run whose row is there: remove the row" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--sizes 8 16", "controls are of one reservoir: give --sizes one value"),
        ("--leaks 1 0.5", "give --leaks one value"),
        ("--direct 0 --controls no_direct", "--controls no_direct needs direct connections"),
        ("--readout ridge --controls direct_alone", "not valid with the readout ridge"),
        ("--spectral-radius 0 --controls full uncoupled", "is already one of the controls"),
        ("--controls other", "other"),
        ("--topologies knot", "--topologies must be one of"),
    ],
)
def test_what_cannot_be_run_is_refused(corpus, tmp_path: Path, options: str, message: str, capsys):
    assert main(command(corpus, tmp_path / "out", *options.split())) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_readouts_without_direct_connections_have_fewer_controls(corpus, tmp_path: Path):
    options = ["--readout", "softmax", "--passes", "1", "--sizes", "8", "--degrees", "4"]
    shared = ["--held-out", corpus["dev"], "--out", str(tmp_path), "--resamples", "20"]
    assert main(["controls", corpus["train"], *shared, *options]) == 0
    rows = read_rows(tmp_path / "controls.csv")
    assert [row["control"] for row in rows] == ["full", "uncoupled", "last_token"]
    with (tmp_path / "values.csv").open(newline="") as file:
        assert {row["measure"] for row in csv.DictReader(file)} == {"nats"}
    assert (tmp_path / "controls.png").read_bytes().startswith(b"\x89PNG")
    assert "BLiMP" not in (tmp_path / "controls.md").read_text()


def test_tables_and_figure_name_every_comparison(whole: Path):
    values, less = (
        pd.read_csv(whole / f"{name}.csv", dtype={"group": str}).to_dict("records")
        for name in ("values", "differences")
    )
    text = tables(values, less)
    for name, control in CONTROLS.items():
        assert f"| {name} | offsets | 12 |" in text
        assert all(f"| {name} | {against} | offsets |" in text for against in control.against)
    assert "## By phenomenon, points of BLiMP" in text
    assert len(figure(less).axes) == 4
