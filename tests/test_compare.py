"""The comparison of networks: its grid, its rows, its files."""

import json
import threading
from contextlib import contextmanager

import joblib
import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from esnlm.__main__ import main  # noqa: E402
from esnlm.evaluation.token_groups import FrequencyBins  # noqa: E402
from esnlm.runs.grid import read_rows  # noqa: E402
from esnlm.runs.subprocess_run import Lifeline  # noqa: E402
from esnlm.storage.atomic import BusyError, locked  # noqa: E402
from esnlm.studies.networks.command import _varied  # noqa: E402
from esnlm.studies.networks.compare import (  # noqa: E402
    differing_trainings,
    grid,
    power_laws,
    quantities,
    run_name,
    table,
    training_losses,
)
from esnlm.studies.networks.plots import (  # noqa: E402
    curves_figure,
    figure,
    lines_of,
    power_law_figure,
)
from esnlm.studies.networks.run import bin_perplexities, measure  # noqa: E402
from esnlm.text.boundaries import framed  # noqa: E402
from esnlm.text.corpus import TokenStream, join_sequences  # noqa: E402
from esnlm.text.tokenizers import Tokenizer  # noqa: E402
from esnlm.torch.networks.registry import network_class  # noqa: E402
from esnlm.torch.training.plan import Plan  # noqa: E402
from esnlm.torch.training.trainer import NetworkTrainer  # noqa: E402

pytestmark = pytest.mark.torch

TEXT = "the boy sees the dog and the dog sees the boy who walks.\n" * 12


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def places(folder, stream, tokenizer):
    """What a run is given: the stream as both texts, the tokenizer, no minimal pairs."""
    joblib.dump((stream, stream, None, tokenizer), folder / "corpus")
    files = {"corpus_file": str(folder / "corpus"), "checkpoints": str(folder / "running")}
    files |= {"log": str(folder / "log.csv"), "sample": str(folder / "sample.txt")}
    own = {"reset": "sentence", "blimp": None, "device": "cpu", "bins": False, "generate": None}
    return files | own


def compare(text, out, *options):
    return main(["compare", str(text), "--held-out", str(text), "--tokenizer", "char",
                 "--out", str(out), *options])  # fmt: skip


def test_the_grid_has_each_model_in_each_size_and_seed():
    entries = [("char-esn", {}), ("lstm", {"n_units": 9})]
    rows = grid(entries, [2000, 4000], {"n_passes": 2}, seeds=2, n_tokens=20)
    assert [(row["model"], row["size"], row["seed"]) for row in rows] == [
        ("char-esn", 2000, 0), ("char-esn", 2000, 1), ("char-esn", 4000, 0), ("char-esn", 4000, 1),
        ("lstm", None, 0), ("lstm", None, 1),
    ]  # fmt: skip
    assert json.loads(rows[0]["settings"]) == {"n_units": 99}
    plan = json.loads(rows[0]["plan"])
    assert (plan["n_passes"], plan["batching"], plan["learning_rate"]) == (2, "windows", 1e-4)


def test_settings_vary_for_the_networks_that_have_them():
    entries = [("esn", {"rank": 4}), ("lstm", {})]
    degrees = "reservoir.degree,reservoir.input_degree=1,32"
    rows = _varied(entries, degrees)
    expected = [{"rank": 4, "reservoir": {"degree": d, "input_degree": d}} for d in (1, 32)]
    assert rows == [("esn", expected[0]), ("esn", expected[1]), ("lstm", {})]
    (rates, *_) = _varied(rows[:1], "reservoir.leak_rate=uniform:0.5:1,1")
    assert rates[1]["reservoir"] == expected[0]["reservoir"] | {"leak_rate": ("uniform", 0.5, 1.0)}
    with pytest.raises(ValueError, match="none of the networks lstm has this setting"):
        _varied([("lstm", {})], degrees)
    with pytest.raises(ValueError, match="size is no setting of a reservoir"):
        _varied(entries, "reservoir.size=9")


def test_a_network_that_cannot_be_made_is_refused_before_the_first_run(monkeypatch):
    monkeypatch.setattr("esnlm.torch.find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"model gpt2 needs transformers: pip install 'esnlm\[hf\]'"
    ):
        grid([("lstm", {}), ("gpt2", {})], [], {}, 1, 20)


def test_text_without_sentences_is_read_as_streams_or_windows(monkeypatch):
    monkeypatch.setattr("esnlm.torch.networks.gpt2.require_transformers", lambda what: None)
    entries = [("lstm", {}), ("gpt2", {"context": 64}), ("aerc", {})]
    plans = [json.loads(row["plan"]) for row in grid(entries, [], {}, 1, 20, one_text=True)]
    found = [(plan["batching"], plan["length"]) for plan in plans]
    assert found == [("streams", 128), ("windows", 64), ("windows", 32)]


def test_a_reservoir_is_drawn_by_the_seed(tmp_path):
    stream = TokenStream(np.arange(40) % 7, np.arange(0, 40, 8), np.array([0, 40]))
    tokenizer = Tokenizer.train_words(["a b c d"])
    assert len(tokenizer) == 7
    given = places(tmp_path, stream, tokenizer)
    entry = ("esn", {"reservoir": {"n_units": 12}})
    rows = grid([entry], [], {"n_passes": 2}, seeds=2, n_tokens=7)
    scores = [measure(row | given, Lifeline())["held_out_nll"] for row in rows + rows]
    assert scores[:2] == scores[2:]
    assert scores[0] != scores[1]


def test_the_training_loss_is_the_mean_over_batches_as_they_were_learned(tmp_path):
    stream = TokenStream(np.arange(800) % 7, np.arange(0, 800, 8), np.array([0, 800]))
    tokenizer = Tokenizer.train_words(["a b c d"])
    given = places(tmp_path, stream, tokenizer)
    entry = "esn", {"reservoir": {"n_units": 12}}
    (row,) = grid([entry], [], {"batch_size": 8}, seeds=1, n_tokens=7)
    found = measure(row | given, Lifeline())["training_loss"]
    settings = {"reservoir": {"n_units": 12, "random_state": 0}}
    torch.manual_seed(0)
    network = network_class("esn")(7, **settings)
    losses, learn = [], network.loss

    def loss(hidden, targets):
        losses.append(learn(hidden, targets))
        return losses[-1]

    network.loss = loss
    NetworkTrainer(network, stream, None, Plan(batch_size=8)).run()
    assert found == pytest.approx(torch.cat(losses).mean().item(), rel=1e-6)


def test_a_run_whose_log_was_moved_is_not_summed_up_from_the_rest(tmp_path, monkeypatch):
    stream = TokenStream(np.arange(800) % 7, np.arange(0, 800, 8), np.array([0, 800]))
    place = places(tmp_path, stream, Tokenizer.train_words(["a b c d"]))
    plan = {"batch_size": 8, "score_every": 2}
    (run,) = grid([("lstm", {"n_units": 3})], [], plan, seeds=1, n_tokens=7)
    log, aside = tmp_path / "log.csv", tmp_path / "aside.csv"
    expected = measure(run | place, Lifeline())["training_loss"]
    log.unlink()
    lifeline = Lifeline()
    step = 0

    def stop():
        nonlocal step
        step += 1
        return step == 5

    @contextmanager
    def interrupted():
        yield stop
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(lifeline, "defer_exit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            measure(run | place, lifeline)
    log.rename(aside)
    with pytest.raises(ValueError, match=r"log.csv, the losses of this run so far, is gone"):
        measure(run | place, lifeline)
    aside.rename(log)
    step = 0

    @contextmanager
    def moved():
        def move():
            nonlocal step
            step += 1
            if step == 5:
                log.rename(aside)
            return False

        yield move

    with monkeypatch.context() as patched:
        patched.setattr(lifeline, "defer_exit", moved)
        with pytest.raises(ValueError, match=r"log.csv has \d of the run's \d\d? rows: put back"):
            measure(run | place, lifeline)
    aside.rename(log)
    assert measure(run | place, lifeline)["training_loss"] == expected


def test_a_run_waits_for_one_that_still_saves_its_checkpoint(tmp_path, monkeypatch):
    stream = TokenStream(np.arange(80) % 7, np.arange(0, 80, 8), np.array([0, 80]))
    place = places(tmp_path, stream, Tokenizer.train_words(["a b c d"]))
    (run,) = grid([("lstm", {"n_units": 3})], [], {}, seeds=1, n_tokens=7)
    errors = []

    def other():
        with pytest.raises(BusyError) as caught, locked(tmp_path / "running"):
            pass
        errors.append(caught.value)

    def train(*_, **__):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        raise KeyboardInterrupt

    monkeypatch.setattr(NetworkTrainer, "run", train)
    with pytest.raises(KeyboardInterrupt):
        measure(run | place, Lifeline())
    assert len(errors) == 1


def test_a_run_is_trained_and_scored(tmp_path):
    tokenizer = Tokenizer.train_characters([TEXT])
    sequences = framed([TEXT], tokenizer, "never")
    stream = join_sequences(sequences, n_tokens=len(tokenizer), reset=False)
    given = places(tmp_path, stream, tokenizer)
    plan = {"batch_size": 32, "learning_rate": 0.01, "n_passes": 6}
    (row,) = grid([("aerc", {"n_units": 30, "n_hidden": 5, "context": 8})], [], plan, 1, 20)
    found = measure(row | given, Lifeline())
    assert found["held_out_nll"] < min(found["training_loss"], 2.0)
    assert found["n_steps"] == 6 * -(-(len(TEXT) - 8) // 32)  # a window a place
    assert found["n_held_out_tokens"] == len(TEXT) - 1
    assert "aerc" in table([row | found | {"blimp": None}])


@pytest.mark.parametrize(("model", "size"), [("char-esn", "n_units"), ("transformer", "n_hidden")])
def test_generated_text_is_compared_with_both_texts_and_timed(model, size, tmp_path):
    tokenizer = Tokenizer.train_characters([TEXT])
    texts = {"train": TEXT, "held_out": "the dog sees the dog and the boy sees the boy"}
    streams = [
        join_sequences(framed([text], tokenizer, "never"), n_tokens=len(tokenizer), reset=False)
        for text in texts.values()
    ]
    given = places(tmp_path, streams[0], tokenizer) | {"reset": "never", "generate": 80}
    joblib.dump((*streams, None, tokenizer), given["corpus_file"])
    plan = {"batch_size": 64, "learning_rate": 0.02, "n_passes": 3}
    (row,) = grid([(model, {size: 40})], [], plan, 1, len(tokenizer))
    found = measure(row | given, Lifeline())
    sample = (tmp_path / "sample.txt").read_text()
    assert len(sample) == 80
    for n in (7, 8):
        pieces = {sample[place : place + n] for place in range(80 - n + 1)}
        for name, text in texts.items():
            share = sum(piece in text for piece in pieces) / len(pieces)
            assert found[f"overlap_{n}_{name}"] == pytest.approx(share)
    for part in ("train", "generation"):
        share = found[f"{part}_reservoir_seconds"] / found[f"{part}_seconds"]
        assert 0 < share < 1 if model == "char-esn" else share == 0


def test_a_network_that_diverges_is_no_row(tmp_path):
    stream = TokenStream(np.arange(40) % 7, np.arange(0, 40, 8), np.array([0, 40]))
    given = places(tmp_path, stream, Tokenizer.train_words(["a b c d"]))
    plan = {"n_passes": 2, "batch_size": 40, "learning_rate": 1e30}
    (row,) = grid([("lstm", {"n_units": 5})], [], plan, 1, 7)
    with pytest.raises(ValueError, match="training diverged: lower the learning rate"):
        measure(row | given, Lifeline())


def test_the_command_writes_rows_once_a_table_and_a_plot(text, tmp_path, capsys):
    options = (
        "--models",
        "char-esn:n_units=10,context=8",
        "--plan",
        "n_passes=1",
        "batch_size=256",
    )
    assert compare(text, tmp_path / "out", *options) == 0
    (row,) = read_rows(tmp_path / "out" / "compare.csv")
    assert row["n_parameters"] == row["vocabulary"] * 11
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "compare.csv", "compare.md", "compare.png", "curves.png", "logs",
    }  # fmt: skip
    before = (tmp_path / "out" / "compare.csv").read_bytes()
    assert compare(text, tmp_path / "out", *options) == 0
    assert (tmp_path / "out" / "compare.csv").read_bytes() == before
    assert "nats a token" in capsys.readouterr().out


@pytest.mark.usefixtures("in_this_process")
def test_networks_judge_minimal_pairs(text, tmp_path):
    (tmp_path / "pairs").mkdir()
    good, bad = "the boy sees the dog", "gggghhhh"
    for name, first, second in (("same", good, good), ("right", good, bad), ("wrong", bad, good)):
        pair = {"sentence_good": first, "sentence_bad": second, "UID": name}
        pair |= {"field": "syntax", "linguistics_term": "binding"}
        (tmp_path / "pairs" / f"{name}.jsonl").write_text(json.dumps(pair) + "\n")
    options = ("--models", "char-esn:n_units=60,context=8", "--blimp", str(tmp_path / "pairs"),
               "--plan", "n_passes=3", "batch_size=64", "learning_rate=0.02")  # fmt: skip
    assert compare(text, tmp_path / "out", *options) == 0
    (row,) = read_rows(tmp_path / "out" / "compare.csv")
    # A tie counts half.
    assert (row["blimp"], row["blimp_binding"], row["blimp_ellipsis"]) == (0.5, 0.5, None)
    assert "| 50.0 |" in (tmp_path / "out" / "compare.md").read_text()
    (tmp_path / "pairs" / "wrong.jsonl").unlink()
    # Rows that judged other pairs are not taken for these, nor lost.
    before = (tmp_path / "out" / "compare.csv").read_bytes()
    assert compare(text, tmp_path / "out", *options) == 2
    assert (tmp_path / "out" / "compare.csv").read_bytes() == before
    assert compare(text, tmp_path / "new", *options) == 0
    (row,) = read_rows(tmp_path / "new" / "compare.csv")
    assert row["blimp"] == 0.75


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--models", "lstn"], "--models must be one of"),
        (["--models", "lstm", "--plan", "speed=1"], "speed is no setting of a plan"),
        (["--models", "lstm", "--plan", "patience=5"], "name it with --validation"),
        (["--models", "lstm:n_units"], "--models lstm: expected NAME=VALUE, got 'n_units'"),
        (["--models", "lstm:n_layers=x"], "n_layers must be an integer of at least 1, got 'x'"),
        (["--models", "lstm:rank=3"], "rank is no setting of lstm, which has n_units"),
        (["--models", "esn", "--sizes", "7"], "no esn with"),
        (["--models", "lstm", "--device", "tpu"], "device must be"),
    ],
)
def test_bad_options_are_explained_in_one_line(options, message, text, tmp_path, capsys):
    assert compare(text, tmp_path / "out", *options) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--models", "lstm", "--held-out", "none"], "no such file or folder: none"),
        (["--models", "lstm", "--blimp", "none"], "none"),
        (["--models", "esn:rank=2,rank.x=3"], "--models esn has both rank and rank.x"),
        (["--models", "esn:reservoir=3"], "reservoir is set by its parts"),
        (["--models", "esn:reservoir.spin=3"], "spin is no setting of a reservoir, which has"),
        (["--models", "esn:reservoir.washout=3"], "washout is no setting of a reservoir"),
        (["--models", "lstm:n_units=-1"], "n_units must be an integer of at least 1, got -1"),
        (["--models", "esn:reservoir.leak_rate=uniform:0"], "expected a number, uniform:LOW:HIGH"),
    ],
)
def test_what_is_refused_leaves_nothing(text, tmp_path, capsys, options, message):
    assert compare(text, tmp_path / "some" / "out", *options) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [text.name]


def test_the_table_has_settings_as_they_are_given_and_the_plot_all_runs_of_a_size():
    settings = {"rank": None, "reservoir": {"n_units": 9, "activation": "relu"}}
    made = {"model": "esn", "plan": "{}", "seed": 0, "n_parameters": 10, "n_parameters_total": 20,
            "n_steps": 3, "training_loss": 5.0,
            "held_out_perplexity": 2.0, "blimp": None, "train_seconds": 1.0,
            "tokens_per_second": 5.0, "machine": "CPU"}  # fmt: skip
    rows = [
        made | {"settings": json.dumps(given), "held_out_nll": loss}
        for given, loss in ((settings, 0.5), ({}, 0.7))
    ]
    printed = table(rows).splitlines()
    assert "| rank=null, reservoir.n_units=9, reservoir.activation=relu |  | 0 |" in printed[2]
    assert "| default |  | 0 |" in printed[3]
    lines = lines_of(pd.DataFrame(rows), "n_parameters")
    assert [list(line["held_out_nll"]) for line in lines] == [[0.5], [0.7]]


def test_the_table_shows_in_what_training_the_rows_of_a_model_differ():
    made = {"settings": "{}", "seed": 0, "n_parameters": 10, "n_parameters_total": 20,
            "n_steps": 3, "training_loss": 5.0,
            "held_out_nll": 1.0, "held_out_perplexity": 2.0, "blimp": None,
            "train_seconds": 1.0, "tokens_per_second": 5.0, "machine": "CPU"}  # fmt: skip
    plans = ("esn", {"pool": 4}), ("esn", {"pool": 4, "bf16": True}), ("lstm", {"n_passes": 2})
    rows = [made | {"model": model, "plan": json.dumps(plan)} for model, plan in plans]
    printed = [line.split(" | ")[2] for line in table(rows).splitlines()[2:]]
    assert printed == ["", "bf16=true", ""]
    assert differing_trainings(rows) == ["", "bf16=true", ""]


def test_a_line_joins_the_sizes_of_a_model_and_has_all_seeds_of_each():
    rows = [
        {"settings": str(size), "train_seconds": size + seed, "held_out_nll": size + seed / 4}
        for size in (10, 20)
        for seed in (0, 1)
    ]
    (line,) = lines_of(pd.DataFrame(rows), "train_seconds")
    assert list(line["train_seconds"]) == [10.5, 10.5, 20.5, 20.5]
    assert list(line["held_out_nll"]) == [10.0, 10.25, 20.0, 20.25]


def test_a_network_of_three_sizes_has_power_laws(tmp_path, caplog):
    sizes = {"aerc": (1000, 4000, 8000), "lstm": (1000, 4000)}
    rows = [
        {"model": model, "settings": str(n), "plan": "{}", "seed": 0, "n_parameters": n,
         "held_out_nll": 8 * n**-0.25, "train_seconds": 3e-3 * n + 5,
         "generation_seconds": 2.0, "generation_reservoir_seconds": 1.0,
         "train_reservoir_seconds": 5.0}
        for model in sizes for n in sizes[model]
    ]  # fmt: skip
    for row in rows:
        losses = "".join(f"{n},,{loss * row['n_parameters'] ** -0.5}\n" for n, loss in
                         ((10, 90), (20, 60), (30, 70)))  # fmt: skip
        (tmp_path / f"{run_name(row)}.csv").write_text(
            "tokens,held_out_nll,training_nll\n" + losses
        )
    losses = training_losses(rows, tmp_path)
    assert len(losses) == 3 * len(rows)
    lines = quantities(rows, losses)
    laws = {law["quantity"]: law for law in power_laws(lines)}
    assert {law["model"] for law in laws.values()} == {"aerc"}
    expected = {
        "held_out_nll": (-0.25, 8),
        "least_training_nll": (-0.5, 60),
        "train_seconds_without_reservoir": (1, 3e-3),
        "generation_seconds": (0, 2),
        "generation_seconds_without_reservoir": (0, 1),
    }
    assert laws.keys() == expected.keys() | {"train_seconds"}
    for name, (exponent, scale) in expected.items():
        assert laws[name]["exponent"] == pytest.approx(exponent, abs=1e-9)
        assert laws[name]["scale"] == pytest.approx(scale)
        assert laws[name]["n_rows"] == 3
    more = lines.assign(settings="other")  # no law is of several curves
    with caplog.at_level("INFO", "esnlm"):
        assert power_laws(pd.concat([lines, more])) == []
    assert caplog.messages == ["no power law of aerc: it has several settings of one size"]
    caplog.clear()
    assert len(power_law_figure(lines, [*laws.values()]).axes) == 3
    assert [axis.get_title(loc="left") for axis in curves_figure(losses).axes] == [*sizes]
    assert caplog.text == ""
    (tmp_path / f"{run_name(rows[0])}.csv").unlink()
    assert len(training_losses(rows, tmp_path)) == 3 * len(rows) - 3
    assert f"1 of {len(rows)} runs have no log in {tmp_path}" in caplog.text
    assert len(training_losses(rows, tmp_path / "none")) == 0


def test_the_table_has_means_and_standard_errors_over_seeds():
    made = {"model": "mts-lstm", "plan": "{}", "n_parameters": 10, "n_parameters_total": 20,
            "n_steps": 3, "training_loss": 5.0, "blimp": None, "train_seconds": 1.0,
            "tokens_per_second": 5.0, "machine": "CPU", "settings": "{}"}  # fmt: skip
    values = [59.0, 60.0, 61.0, 60.5, 58.5]
    rows = [
        made | {"seed": seed, "held_out_nll": np.log(value), "held_out_perplexity": value}
        for seed, value in enumerate(values)
    ]
    rows.append(rows[0] | {"model": "awd-lstm"})
    *_, line = table(rows).splitlines()
    expected = np.mean(values), np.std(values, ddof=1) / np.sqrt(5)
    assert line.split(" | ")[:1] == ["| mts-lstm"]
    assert line.endswith(f"{expected[0]:.4f} | {expected[1]:.4f} |")


def test_bins_of_frequency_are_those_of_the_evaluation(tmp_path):
    rng = np.random.default_rng(0)
    train = TokenStream(rng.integers(0, 7, 900) // 2 * 2, None, np.array([0, 900]))
    held_out = TokenStream(rng.integers(0, 7, 300), None, np.array([0, 300]))
    scores = np.log(rng.uniform(0.1, 1, 300))
    expected = FrequencyBins()
    expected.add(scores[1:], np.bincount(train.tokens, minlength=7)[held_out.tokens[1:]])
    found = bin_perplexities(train, held_out, scores)
    for row in expected.rows(n_resamples=2)[:-1]:
        value = found[f"perplexity {row.name}"]
        assert (value is None) if not row.n_tokens else value == pytest.approx(row.perplexity)
    assert sum(value is not None for value in found.values()) == 2


def test_the_plot_is_by_the_setting_that_varies(monkeypatch):
    """Figure 10 of Mahto et al.: perplexity by alpha, the baseline beside."""
    made = {"plan": "{}", "seed": 0, "n_parameters": 10, "train_seconds": 1.0}
    bins = {"perplexity <100": 900.0, "perplexity 100-1k": None}
    rows = [
        made | bins | {"model": model, "settings": settings, "held_out_nll": loss}
        for model, settings, loss in (
            ("awd-lstm", '{"n_units": 8}', 5.0),
            ("mts-lstm", '{"alpha": 0.3, "n_units": 8}', 4.0),
            ("mts-lstm", '{"alpha": 1, "n_units": 8}', 4.5),
        )
    ]
    chart = figure(rows)
    left, _, right, *_ = chart.axes
    assert left.get_xlabel() == right.get_xlabel() == "alpha"
    level, line = left.lines
    assert set(level.get_ydata()) == {5.0}
    assert line.get_xydata().tolist() == [[0.3, 4.0], [1, 4.5]]
    other = [*rows[:2], rows[2] | {"n_parameters": 11}]
    assert figure(other).axes[0].get_xlabel() == "trained parameters"


@pytest.mark.usefixtures("in_this_process")
def test_runs_that_were_made_before_stay_in_the_table(text, tmp_path):
    plan = ["--plan", "n_passes=1"]
    assert compare(text, tmp_path / "out", "--models", "lstm:n_units=3", *plan) == 0
    assert compare(text, tmp_path / "out", "--models", "lstm:n_units=4", *plan) == 0
    printed = (tmp_path / "out" / "compare.md").read_text()
    assert "n_units=3" in printed
    assert "n_units=4" in printed
