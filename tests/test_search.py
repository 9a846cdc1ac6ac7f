"""Search of settings: its spaces, its trials, what resumes, what it refuses, what mattered."""

import csv
import gc
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esnlm import ElmanGrammar, LanguageModel, Reservoir, RidgeReadout
from esnlm.__main__ import main
from esnlm.options.search import SearchOptions
from esnlm.search.objective import (
    RUNGS,
    Corpora,
    elman_corpora,
    loss_after_fit,
    split,
)
from esnlm.storage.atomic import locked
from esnlm.text.boundaries import joined
from esnlm.text.corpus import TextCorpus, TokenStream
from esnlm.text.tokenizers import Tokenizer

optuna = pytest.importorskip("optuna")

from esnlm.search import trial_models  # noqa: E402
from esnlm.search.importance import importances  # noqa: E402
from esnlm.search.space import Space, read_space, written  # noqa: E402
from esnlm.search.study import (  # noqa: E402
    JOURNAL,
    Search,
    SearchPlan,
    make_pruner,
    make_sampler,
)

WORDS = ["the", "boy", "sees", "a", "dog", "boys", "see", "dogs", "and", "walk", "Mary", "who", "."]
NAMES = {"units", "spectral-radius", "leak-rate", "readout", "alpha", "option", "direct", "lower"}
SPACE = """
units = 12
spectral-radius = {low = 0.1, high = 1.4}
leak-rate = {choices = [1, "uniform:0:1"]}

[readout.ridge]
option.selection = "gcv"

[readout.softmax]
alpha = {low = 0.1, high = 10, log = true}
option.max_iter = 2
"""
#: Columns that depend on the machine and the moment.
MEASURED = ("seconds", "cpu_seconds", "peak_rss_mib")


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, size=5)) for _ in range(120)]
    blocks = ["\n".join(lines[at : at + 3]) for at in range(0, len(lines), 3)]
    Path("text").write_text("\n\n".join(blocks) + "\n")
    Path("space.toml").write_text(SPACE)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of losses without models: neither the disk nor the memory is tested."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(gc, "collect", lambda: 0)


def command(*options: str, out: str = "out") -> list[str]:
    return ["search", "space.toml", "text", "--out", out, *options]


def rows_of(folder: str) -> list[dict[str, str]]:
    with open(Path(folder) / "trials.csv", newline="") as file:
        return [
            {name: value for name, value in row.items() if name not in MEASURED}
            for row in csv.DictReader(file)
        ]


def space_of(text: str) -> Space:
    Path("file.toml").write_text(text)
    return read_space(Path("file.toml"), NAMES)


def texts(reset: str = "sentence") -> tuple[TokenStream, Tokenizer]:
    corpus = TextCorpus("text")
    tokenizer = Tokenizer.train_words(corpus)
    return joined(corpus, tokenizer, reset, len(tokenizer)), tokenizer


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: it must name options"),
        ("units = ", "is no TOML file"),
        ("unit = 3", "that make a model, got unit: did you mean units?"),
        ("zzz = 3", "settings must be options of esnlm train that make a model, got zzz"),
        ("units = {low = 3, high = 3}", "units must have low < high, got low = 3 and high = 3"),
        ("alpha = {low = 0, high = 1, log = true}", "log must have low above 0, got low = 0"),
        ("alpha = {low = 1, high = 2, log = 1}", "log of alpha must be true or false, got 1"),
        ("alpha = {low = 1, high = 2, step = 1, log = true}", "must have a step or log, got both"),
        ("alpha = {low = 1, high = 2, step = 5}", "step of alpha must lie in (0, high - low]"),
        ("alpha = {low = 1}", "alpha must have low and high, or choices: high is missing"),
        (
            "alpha = {low = 1, high = 2, steps = 3}",
            "has low, high, step, log and start, or choices",
        ),
        ("alpha = {low = 1, high = 2, start = 3}", "start of alpha must be one of its values, got"),
        ("units = {low = 1, high = 9, step = 4, start = 4}", "start of units must be one of its"),
        ("units = {choices = [1, 2], start = 3}", "start of units must be one of its choices, got"),
        ("alpha = {low = nan, high = 2}", "low of alpha must be a finite number, got nan"),
        ('alpha = {low = "a", high = 2}', "low of alpha must be a finite number, got 'a'"),
        ("alpha = inf", "alpha must be finite, got inf"),
        ("alpha = [1, 2]", "alpha must be a value, {low = A, high = B} or {choices = [...]}"),
        ("alpha = {choices = [1]}", "alpha must have two choices or more, got [1]"),
        ("alpha = {choices = [1, 1.0]}", "alpha has the choice 1.0 twice"),
        ("option = 3", "option must be a table of parameters, got 3"),
        ("alpha = 3\n[readout.ridge]\nalpha = 2", "alpha is given twice: by readout and beside it"),
        ("[readout.ridge]\nalpah = 2", "got readout.ridge.alpah"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(text: str, message: str):
    with pytest.raises(ValueError, match=r"^file\.toml") as error:
        space_of(text)
    assert message in str(error.value)


def test_a_file_of_settings_reads_back():
    settings = {"units": 9, "alpha": 1e-05, "lower": True, "readout": 'a"\\b', "option": {"k": [1]}}
    settings["option"] = {"k": 2, "name": "x"}
    assert space_of(written(settings)).fixed() == settings


def test_every_setting_of_a_grid_is_counted_and_tables_hold_for_their_value():
    space = space_of(
        "units = {low = 2, high = 9, step = 3}\nalpha = {low = 0.0, high = 1.0, step = 0.3}\n"
        "[readout.ridge]\n[readout.softmax]\noption.max_iter = {choices = [1, 2, 3]}"
    )
    assert space.size() == 3 * 4 * (1 + 3)
    assert list(space.free()) == ["units", "alpha", "readout", "readout.softmax.option.max_iter"]
    assert space.free()["alpha"].ends == (0.0, pytest.approx(0.9))
    found = list(space.examples())
    assert {each["readout"] for each in found} == {"ridge", "softmax"}
    assert {("option" in each) == (each["readout"] == "softmax") for each in found} == {True}
    assert {each["option"]["max_iter"] for each in found if "option" in each} == {1, 2, 3}


def test_a_search_writes_trials_best_settings_and_what_mattered(capsys):
    assert main(command("--trials", "5", "--pruner", "none")) == 0
    told, err = capsys.readouterr()
    assert all(line.startswith("esnlm: trial ") for line in err.splitlines())
    rows = rows_of("out")
    assert [row["trial"] for row in rows] == list("01234")
    assert {row["state"] for row in rows} == {"complete"}
    best = min(rows, key=lambda row: float(row["nats"]))
    assert f"the best, {best['trial']}, has {float(best['nats']):.4f} nats" in told
    assert "what mattered (share of the variance of the losses): " in told
    with open("out/importance.csv") as file:
        shares = [float(row["importance"]) for row in csv.DictReader(file) if not row["among"]]
    assert sum(shares) == pytest.approx(1, abs=0.01)
    assert Path("out/importance.png").read_bytes()[:4] == b"\x89PNG"
    for row in rows:
        assert (row["readout.softmax.alpha"] != "") == (row["readout"] == "softmax")


def test_a_trial_is_the_model_of_its_settings_fitted_to_the_rest(capsys):
    Path("space.toml").write_text(
        'units = 12\nreadout = "ridge"\nfeatures = "0"\nspectral-radius = {low = 0.1, high = 1.4}'
    )
    assert main(command("--trials", "2", "--pruner", "none", "--held-out", "0.2")) == 0
    stream, tokenizer = texts()
    train, held = split(stream, 0.2, 0)
    for row in rows_of("out"):
        radius = float(row["spectral-radius"])
        reservoir = Reservoir(
            12,
            topology="offsets",
            spectral_radius=radius,
            input_scaling=0.2,
            leak_rate=("uniform", 0.2, 1.0),
            random_state=0,
        )
        model = LanguageModel(reservoir, RidgeReadout(), tokenizer=tokenizer, random_state=0)
        wanted = -model.fit(train, held_out=held).score(held)
        assert float(row["nats"]) == pytest.approx(wanted, rel=1e-9)


def test_the_best_settings_train_the_same_model(capsys):
    assert main(command("--trials", "1", "--pruner", "none", "--lower")) == 0
    best = Path("out/best.toml").read_text()
    shown = next(line for line in best.splitlines() if line.startswith("# esnlm train TEXT"))
    words = shown.removeprefix("# esnlm ").replace("TEXT", "text").replace("MODEL", "a").split()
    assert main(words) == 0
    assert main(["train", "text", "--recipe", "out/best.toml", "--out", "b"]) == 0
    a, b = (Path(name, "weights.safetensors").read_bytes() for name in "ab")
    assert a == b
    assert (
        LanguageModel.load("a").tokenizer_.to_json() == LanguageModel.load("b").tokenizer_.to_json()
    )


def quadratic(settings: Mapping[str, Any], report: Any) -> float:
    """A loss without a model: least at 0.3, told along the way where it is asked for."""
    loss = (settings["alpha"] - 0.3) ** 2 + settings.get("units", 0) / 1e4
    if settings["readout"] == "softmax" and settings["alpha"] > 0.7:
        raise ValueError("too much")
    for rung in RUNGS if report is not None else ():
        report(rung, loss + 1 / rung)
    return float(loss)


def a_search(folder: str, plan: SearchPlan, *, resume: bool = False, space: str = "") -> Search:
    Path(folder).mkdir(exist_ok=True)
    tables = "[readout.ridge]\n[readout.softmax]\nunits = {low = 1, high = 100}"
    found = space_of(space or f"alpha = {{low = 0.0, high = 1.0}}\n{tables}")
    return Search(Path(folder), found, plan, {"task": "text"}, resume=resume)


def backwards(name: str, function: Any, given: Any, items: Any) -> Iterator[Any]:
    """Those who run a round end it in the opposite order."""
    return iter([function(given, item) for item in items[::-1]][::-1])


def unmeasured(search: Search) -> list[dict[str, Any]]:
    return [{n: v for n, v in row.items() if n not in MEASURED} for row in search.rows()]


@pytest.mark.parametrize(
    ("sampler", "pruner"),
    [
        ("tpe", "median"),
        *(
            pytest.param(sampler, pruner, marks=pytest.mark.slow)
            for sampler in ("tpe", "random")
            for pruner in ("median", "halving", "none")
            if (sampler, pruner) != ("tpe", "median")
        ),
    ],
)
def test_one_trial_at_once_is_the_loop_of_optuna(sampler: str, pruner: str, fast):
    plan = SearchPlan(sampler, pruner, seed=1)
    search = a_search("out", plan)
    list(search.run(quadratic, 18, None))
    study = optuna.create_study(pruner=make_pruner(pruner))

    def objective(trial: Any) -> float:
        def report(rung: int, loss: float) -> None:
            trial.report(loss, rung)
            if trial.should_prune():
                raise optuna.TrialPruned

        try:
            settings = search.space.suggested(trial)
            return quadratic(settings, None if pruner == "none" else report)
        except ValueError:
            raise optuna.TrialPruned from None

    for number in range(18):
        study.sampler = make_sampler(plan, number)
        study.optimize(objective, n_trials=1)
    for found, wanted in zip(search.trials, study.trials, strict=True):
        for name in ("number", "params", "state", "value", "intermediate_values"):
            assert getattr(found, name) == getattr(wanted, name)


@pytest.mark.parametrize(
    ("sampler", "pruner"),
    [
        ("tpe", "median"),
        pytest.param("tpe", "halving", marks=pytest.mark.slow),
        pytest.param("random", "median", marks=pytest.mark.slow),
    ],
)
def test_trials_depend_on_the_size_of_a_round_not_on_who_runs_them(sampler: str, pruner: str, fast):
    rows = {}
    for folder, at_once, over in (("a", 4, {}), ("b", 4, {"over": backwards}), ("c", 1, {})):
        search = a_search(folder, SearchPlan(sampler, pruner, 0, at_once))
        assert len(list(search.run(quadratic, 18, None, **over))) == 18
        rows[folder] = unmeasured(search)
    assert rows["a"] == rows["b"]
    assert rows["a"] != rows["c"]
    assert [row["trial"] for row in rows["a"]] == list(range(18))
    assert len({row["alpha"] for row in rows["a"]}) == 18


def test_a_search_that_is_resumed_keeps_the_size_of_its_rounds(fast):
    first = a_search("out", SearchPlan("random"))
    list(first.run(quadratic, 2, None))
    assert a_search("out", SearchPlan("random"), resume=True).plan.at_once == 1
    with pytest.raises(ValueError, match="at_once is 2, but was 1 when the search began"):
        a_search("out", SearchPlan("random", at_once=2), resume=True)
    a_search("more", SearchPlan("random", at_once=3))
    kept = Search(
        Path("more"), first.space, SearchPlan("random"), {"task": "text"}, resume=True, usual=8
    )
    assert kept.plan.at_once == 3


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_a_grid_is_every_setting_once(at_once: int, fast):
    space = (
        "alpha = {choices = [1, 2]}\n[readout.ridge]\nunits = {choices = [4, 6]}\n"
        "[readout.factored]\nunits = {low = 1, high = 5, step = 2}"
    )
    plan, found = SearchPlan("grid", "none", 0, at_once), []
    search = a_search("out", plan, space=space)
    for _ in search.run(lambda settings, _: found.append(settings) or 1.0, 99, None):
        pass
    tables = [("ridge", 4), ("ridge", 6), ("factored", 1), ("factored", 3), ("factored", 5)]
    wanted = sorted((a, *table) for a, table in itertools.product((1, 2), tables))
    assert sorted((each["alpha"], each["readout"], each["units"]) for each in found) == wanted


@pytest.mark.parametrize(
    ("sampler", "pruner", "at_once"),
    [
        ("tpe", "median", 4),
        *(
            pytest.param(*search, at_once, marks=pytest.mark.slow)
            for search in (("tpe", "median"), ("tpe", "halving"), ("random", "none"))
            for at_once in (1, 4)
            if (*search, at_once) != ("tpe", "median", 4)
        ),
    ],
)
def test_a_search_that_was_interrupted_ends_as_one_that_was_not(
    sampler: str, pruner: str, at_once: int, fast
):
    plan, rows = SearchPlan(sampler, pruner, 0, at_once), unmeasured
    whole = a_search("whole", plan)
    assert len(list(whole.run(quadratic, 18, None))) == 18
    states = {row["state"] for row in rows(whole)}
    assert states == {"complete", "failed", "pruned"} - ({"pruned"} if pruner == "none" else set())
    calls = itertools.count()

    def interrupted(settings: Any, report: Any) -> float:
        if next(calls) == 14:
            if report is not None:
                report(1, -9.0)  # what it had reported must not count
            raise KeyboardInterrupt
        return quadratic(settings, report)

    part = a_search("part", plan)
    with pytest.raises(KeyboardInterrupt):
        list(part.run(interrupted, 18, None))
    assert rows(part) == rows(whole)[:14]
    with open(f"part/{JOURNAL}", "ab") as file:  # a kill tears a line, and leaves Optuna's lock
        file.write(b'{"op_code": 4, "torn')
    os.symlink("nothing", f"part/{JOURNAL}.lock")
    again = a_search("part", plan, resume=True)
    assert len(list(again.run(quadratic, 18, None))) == 4
    assert rows(again) == rows(whole)
    assert a_search("part", plan, resume=True).best == whole.best
    other = a_search("other", SearchPlan(sampler, pruner, 4, at_once))
    list(other.run(quadratic, 2, None))
    assert rows(other) != rows(whole)[:2]


def test_a_first_trial_begins_where_it_is_told_to(fast):
    text = (
        "alpha = {low = 0.0, high = 1.0, start = 0.25}\n"
        'readout = {choices = ["ridge", "moe"], start = "moe"}\n'
        "units = {low = 2, high = 90, step = 4, start = 14}\ndirect = {low = 1, high = 9}"
    )
    for sampler in ("tpe", "random"):
        search = a_search(sampler, SearchPlan(sampler, "none"), space=text)
        list(search.run(quadratic, 2, None))
        first, second = search.rows()
        assert (first["alpha"], first["readout"], first["units"]) == (0.25, "moe", 14)
        assert second["alpha"] != 0.25
    grid = "alpha = {choices = [1, 2, 3], start = 2}\nreadout = 'ridge'"
    search = a_search("grid", SearchPlan("grid", "none"), space=grid)
    trials = list(search.run(quadratic, 9, None))
    assert trials[0].params["alpha"] == 2
    assert sorted(row["alpha"] for row in search.rows()) == [1, 2, 3]


def test_an_interrupt_says_how_to_go_on(monkeypatch, capsys):
    calls, fitted = itertools.count(), trial_models.TrialModels.__call__

    def interrupted(self: Any, settings: Any, report: Any = None) -> float:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return fitted(self, settings, report)

    monkeypatch.setattr(trial_models.TrialModels, "__call__", interrupted)
    assert main(command("--trials", "2")) == 130
    assert "the same command with --resume continues" in capsys.readouterr().err
    assert len(rows_of("out")) == 1
    assert main(command("--trials", "2", "--resume")) == 0
    assert len(rows_of("out")) == 2
    lines = Path("out", JOURNAL).read_text().splitlines(keepends=True)
    Path("out", JOURNAL).write_text("".join([*lines[:-1], "\0\n"]))
    assert main(command("--trials", "2", "--resume")) == 2
    advice = f"line {len(lines)} is no JSON object): delete the damaged line and all after it to go"
    assert advice in " ".join(capsys.readouterr().err.split())
    Path("out", JOURNAL).write_text("".join(lines[:-1]))
    assert main(command("--trials", "2", "--resume")) == 0
    assert len(rows_of("out")) == 2
    Path("out", JOURNAL).write_text("{}\n{}\n")
    assert main(command("--trials", "2", "--resume")) == 2
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.slow
def test_a_search_that_is_killed_again_and_again_ends_as_one_that_was_not():
    options = "--trials", "12", "--pruner", "halving"
    assert main(command(*options, out="whole")) == 0
    rng = np.random.default_rng(0)
    for n_rows in (0, 3, 6, 9, 99):  # the last one is left alone
        again = ["--resume"] if Path("out", JOURNAL).exists() else []
        argv = [sys.executable, "-m", "esnlm", *command(*options, *again)]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and n_rows < 99:
            if Path("out/trials.csv").exists() and len(rows_of("out")) >= n_rows:
                time.sleep(rng.uniform(0, 1))
                process.kill()
                break
            time.sleep(0.05)
        done = process.wait()
    assert done == 0
    assert rows_of("out") == rows_of("whole")
    assert Path("out/best.toml").read_text() == Path("whole/best.toml").read_text()


def test_models_of_trials_that_ended_are_gone_before_the_next():
    class Model:
        def __init__(self) -> None:
            self.itself = self

    made: list[weakref.ref[Model]] = []

    def evaluate(settings: Mapping[str, Any], report: Any) -> float:
        assert all(model() is None for model in made)
        made.append(weakref.ref(Model()))
        return quadratic(settings, report)

    gc.disable()
    try:
        list(a_search("out", SearchPlan()).run(evaluate, 6, None))
    finally:
        gc.enable()
    assert len(made) == 6


def test_trials_that_fail_are_rows_and_the_search_goes_on(capsys):
    Path("space.toml").write_text(
        'units = 8\nactivation = "relu"\nspectral-radius = {choices = [0.5, 1e6, 2e6]}'
    )
    assert main(command("--sampler", "grid")) == 0
    rows = rows_of("out")
    assert sorted(row["state"] for row in rows) == ["complete", "failed", "failed"]
    for row in rows:
        assert ("diverge" in row["message"]) == (row["state"] == "failed")
    assert "2 failed" in capsys.readouterr().out
    for radii, message in (
        ("[1e6, 2e6]", "none of 2 trials was completed: the states of the reservoir diverge"),
        ("[-1, -2]", "space.toml: spectral_radius must lie in [0, 1e+30], got -1"),
    ):
        Path("space.toml").write_text(
            f'units = 8\nactivation = "relu"\nspectral-radius = {{choices = {radii}}}'
        )
        assert main(command("--sampler", "grid", "--overwrite")) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("units = 9", "", "space.toml: no parameter is free: give one a range"),
        (
            "alpha = {low = 1.0, high = 2}",
            "--sampler grid",
            "grid needs choices or a step of alpha",
        ),
        ('units = {choices = [2, "b"]}', "", "space.toml: --units: expected an integer, got 'b'"),
        (
            'readout = {choices = ["ridge", "x"]}',
            "",
            'space.toml: Invalid value "x" for --readout.',
        ),
        (
            'readout = "ridge"\nexperts = {choices = [1, 2]}',
            "",
            "space.toml: experts is not valid with the readout ridge",
        ),
        ("lower = {choices = [true, false]}", "", "lower must have one value"),
        ('model = "lstm"\nunits = {choices = [1, 2]}', "", "model is of networks trained by"),
        (SPACE, "--held-out 1.5", "--held-out must be a share in (0, 1) or a text, got 1.5"),
        (SPACE, "--held-out nowhere", "no such file or folder: nowhere"),
        (SPACE, "--resume --overwrite", "give one of them"),
        (SPACE, "--task elman", "--task elman draws its sentences"),
        (SPACE, "--test-seeds 2", "--test-seeds needs --test TEXT"),
        (SPACE, "--at-once 0", "--at-once must be at least 1, got 0"),
        (SPACE, "--cluster local:0", "--cluster: expected local:N with N of at least 1"),
    ],
)
def test_bad_input_is_one_line(text: str, options: str, message: str, capsys):
    Path("space.toml").write_text(text)
    before = sorted(Path.cwd().rglob("*"))
    assert main(command(*options.split())) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert (out, err.count("\n")) == ("", 1)
    assert sorted(Path.cwd().rglob("*")) == before


def test_what_is_in_the_folder_is_kept(capsys):
    def refused(*options: str) -> str:
        assert main(command(*options)) == 2
        return capsys.readouterr().err

    Path("out").mkdir()
    Path("out/mine").touch()
    assert "out holds mine and no search" in refused()
    for name in ("trials.csv", "best.toml"):
        Path("out", name).write_text("not of a search")
    assert "and no search" in refused("--overwrite")
    for name in ("trials.csv", "best.toml"):
        assert Path("out", name).read_text() == "not of a search"
        Path("out", name).unlink()
    Path("out/mine").unlink()
    assert main(command("--trials", "1")) == 0
    capsys.readouterr()
    assert "out holds a search: pass --resume" in refused()
    assert "study.journal: seed is 1, but was 0 when the search began" in refused(
        "--resume", "--seed", "1"
    )
    assert "the corpus is another one" in refused("--resume", "--held-out", "0.3")
    Path("space.toml").write_text(SPACE.replace("1.4", "1.3"))
    assert "the space is another one" in refused("--resume")
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(Path("out")):
            held.set()
            leave.wait()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    assert "is being written by process" in refused("--overwrite")
    leave.set()
    other.join()
    before = rows_of("out")
    assert main(command("--trials", "1", "--overwrite")) == 0
    assert rows_of("out") != before


def test_the_extra_is_named_where_it_is_missing(monkeypatch, capsys):
    monkeypatch.setattr("esnlm.commands.search.find_spec", lambda name: None)
    assert main(command()) == 2
    assert "esnlm search needs optuna: pip install 'esnlm[search]'" in capsys.readouterr().err


def test_resets_of_characters_have_the_boundaries_that_train_gives_them(capsys):
    Path("space.toml").write_text(
        'units = 8\nreadout = "ridge"\nreset = {choices = ["never", "sentence", "document"]}'
    )
    options = "--sampler", "grid", "--pruner", "none", "--tokenizer", "char", "--held-out", "text"
    assert main(command(*options)) == 0
    for row in rows_of("out"):
        model = ["train", "text", "--units", "8", "--readout", "ridge", "--tokenizer", "char"]
        more = "--reset", row["reset"], "--held-out", "text", "--out", "m", "--overwrite"
        assert main([*model, *more]) == 0
        documents = TextCorpus("text", "file" if row["reset"] == "never" else "blank_line")
        wanted = -LanguageModel.load("m").score(documents)
        assert float(row["nats"]) == pytest.approx(wanted, rel=1e-6)


def test_the_found_settings_and_the_defaults_are_scored_on_a_test_text(capsys):
    Path("other").write_text("the boy sees a dog .\nMary walk .\n")
    options = "--trials", "2", "--test", "other", "--test-seeds", "2"
    assert main(command(*options)) == 0
    with open("out/test.csv") as file:
        rows = list(csv.DictReader(file))
    assert [(row["settings"], row["seed"]) for row in rows] == [
        ("found", "0"), ("found", "1"), ("defaults", "0"), ("defaults", "1"),
    ]  # fmt: skip
    assert "test text, found: " in capsys.readouterr().out


def test_held_out_documents_are_whole_and_no_sentence_is_in_both_parts():
    stream, _ = texts()
    train, held = split(stream, 0.2, 0)
    assert len(train.tokens) + len(held.tokens) == len(stream.tokens)
    assert 0.17 < len(held.tokens) / len(stream.tokens) <= 0.2
    documents = [d.tobytes() for d in np.split(stream.tokens, stream.bounds[1:-1])]
    joined_held = held.tokens.tobytes()
    inside = [document for document in documents if document in joined_held]
    assert sum(map(len, inside)) == len(joined_held)
    assert all(np.array_equal(stream.tokens[:1], p.tokens[p.starts][:1]) for p in (train, held))
    running, _ = texts("never")
    same = split(running, 0.2, 0)
    assert [part.starts for part in same] == [None, None]
    assert same[1].n_predicted == held.n_predicted - 1  # its first word has none before it
    few = TokenStream(running.tokens, None, np.array([0, len(running.tokens)]))
    last = split(few, 0.25, 0)[1].tokens
    assert np.array_equal(last, running.tokens[-len(last) :])


@pytest.mark.parametrize("reset", ["sentence", "never"])
def test_a_text_that_is_too_short_to_be_cut_is_refused(reset: str, capsys):
    Path("text").write_text("one")
    assert main(command("--reset", reset)) == 2
    assert "the text is too short to hold a part of it out" in capsys.readouterr().err


def test_losses_of_ridge_along_the_way_are_those_of_one_fit():
    stream, tokenizer = texts()
    train, held = split(stream, 0.2, 0)
    corpora = Corpora(train, held, None, len(tokenizer))

    def model() -> LanguageModel:
        reservoir = Reservoir(12, topology="offsets", random_state=0)
        return LanguageModel(reservoir, RidgeReadout(), tokenizer=tokenizer, random_state=0)

    told: list[tuple[int, float]] = []
    found = loss_after_fit(model(), corpora, None, lambda *each: told.append(each))
    assert [rung for rung, _ in told] == [1, 2, 4]
    assert found == pytest.approx(loss_after_fit(model(), corpora, None, None), rel=1e-6)


@pytest.fixture(scope="module")
def elman() -> Mapping[str, Corpora]:
    return {reset: elman_corpora(reset, 0.1, 0) for reset in ("sentence", "never")}


def test_all_words_of_elmans_sentences_are_predicted_with_and_without_resets(elman):
    whole, cut = elman["never"], elman["sentence"]
    for name in ("train", "held_out", "test"):
        running, sentences = getattr(whole, name), getattr(cut, name)
        assert np.array_equal(running.tokens[1:], sentences.tokens[sentences.predicted()])
        assert set(sentences.tokens[sentences.starts]) == {running.tokens[0]}
    assert len(cut.held_out.starts) == 550


def test_the_floor_of_elmans_sentences_is_the_grammars(elman):
    grammar, found = ElmanGrammar(), elman["sentence"]
    for stream, floor in zip((found.held_out, found.test), found.floors, strict=True):
        bounds = np.append(stream.starts, len(stream.tokens))
        part = [stream.tokens[a + 1 : b] for a, b in itertools.pairwise(bounds[:40])]
        total = sum(len(each) for each in part)
        loss = 0.0
        for sentence in part:
            words = [grammar.vocabulary[token] for token in sentence]
            for at, token in enumerate(sentence):
                loss -= np.log(grammar.next_word_distribution(words[:at])[token])
        assert loss / total == pytest.approx(floor, rel=0.1)  # of 39 sentences, not of all


def test_what_matters_is_named_first(fast):
    Path("file.toml").write_text(
        "alpha = {low = 0.0, high = 1.0}\nunits = {low = 1, high = 100}\n"
        "[readout.ridge]\n[readout.softmax]\ndegree = {low = 1, high = 100}"
    )
    space = read_space(Path("file.toml"), NAMES | {"degree"})
    search = Search(Path.cwd(), space, SearchPlan("random", "none"), {})

    def loss(settings: Mapping[str, Any], _: Any) -> float:
        return float((settings["alpha"] - 0.3) ** 2 + settings.get("degree", 50) / 400)

    list(search.run(loss, 40, None))
    assert search.best is not None
    assert abs(search.best.settings["alpha"] - 0.3) < 0.2
    first, *others, last = importances(search.trials, space.free())
    assert (first["parameter"], first["among"]) == ("alpha", "")
    assert first["importance"] > 4 * max(row["importance"] for row in others)
    assert sum(row["importance"] for row in (first, *others)) == pytest.approx(1, abs=1e-3)
    assert (last["parameter"], last["among"]) == ("readout.softmax.degree", "readout = softmax")
    assert 0.1 < last["importance"] < 0.7
    assert all(row["alpha"] == float(f"{row['alpha']:.4g}") for row in search.rows())
    assert not list(search.run(loss, 99, 0.0))  # no time


def test_a_worker_reads_the_text_by_its_paths_and_refuses_another(monkeypatch, tmp_path_factory):
    Path("words.json").write_text(texts()[1].to_json())
    Path("space.toml").write_text('tokenizer = "words.json"\nunits = {choices = [8, 9]}')
    space = read_space(Path("space.toml"), NAMES | {"tokenizer"})
    options = SearchOptions(out=Path("out"), held_out=("text",))
    here = trial_models.TrialModels(space, ("text",), options)
    packed, whole = pickle.dumps(here), Path("text").read_text()
    assert len(packed) < 5000
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    there = pickle.loads(packed)
    assert there is pickle.loads(packed)
    assert there({"units": 8}) == here({"units": 8})
    Path(there.text[0]).write_text(whole + "the boy walk\n")
    trial_models._trials_here.cache_clear()
    with pytest.raises(ValueError, match="the corpus is another one here than where the search"):
        pickle.loads(packed)


def test_workers_find_what_one_process_finds(capsys):
    pytest.importorskip("distributed")
    Path("space.toml").write_text(SPACE.replace("high = 1.4", "high = 1e7") + 'activation = "relu"')
    Path("other").write_text("the boy sees a dog .\nMary walk .\n")
    options = "--at-once", "2", "--trials", "5", "--test", "other", "--test-seeds", "1"
    assert main(command(*options, out="alone")) == 0
    assert main(command(*options[2:], "--cluster", "local:2", out="shared")) == 0
    rows = rows_of("alone")
    assert {row["state"] for row in rows} > {"failed"}
    assert rows_of("shared") == rows
    for name in ("best.toml", "test.csv"):
        assert Path("shared", name).read_text() == Path("alone", name).read_text()
    assert main(command("--trials", "7", "--resume", out="shared")) == 0  # without a cluster
    assert rows_of("shared")[:5] == rows
    assert len(rows_of("shared")) == 7


def dying_once(folder: str, settings: Mapping[str, Any], report: Any) -> float:
    """`quadratic`, whose worker is killed in the first attempt at every other trial."""
    mark = Path(folder) / str(settings["alpha"])
    if int(settings["alpha"] * 1e4) % 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return quadratic(settings, report)


@pytest.mark.slow
def test_trials_of_a_worker_that_dies_are_done_again(fast):
    pytest.importorskip("distributed")
    from esnlm.runs.workers import workers

    plan = SearchPlan("random", "median", 0, 4)
    whole, part = a_search("whole", plan), a_search("part", plan)
    list(whole.run(quadratic, 4, None))
    Path("marks").mkdir()
    with workers("local:2") as found:
        dying = partial(dying_once, str(Path("marks").absolute()))
        assert len(list(part.run(dying, 4, None, found.map))) == 4
    assert list(Path("marks").iterdir())
    assert unmeasured(part) == unmeasured(whole)


def test_a_scheduler_is_named_by_its_address_or_its_file(monkeypatch, capsys):
    distributed = pytest.importorskip("distributed")
    from esnlm.runs import workers

    monkeypatch.setattr(workers, "_limit_blas", lambda: None)  # the worker is in this process
    assert main(command("--trials", "2", out="alone")) == 0
    options: Any = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(processes=False, **options) as made:
        Path("scheduler.json").write_text(json.dumps({"address": made.scheduler_address}))
        assert main(command("--trials", "1", "--cluster", made.scheduler_address)) == 0
        again = "--trials", "2", "--resume", "--cluster", "scheduler.json"
        assert main(command(*again)) == 0
    assert rows_of("out") == rows_of("alone")
    capsys.readouterr()
    monkeypatch.setattr("esnlm.runs.cluster._PATIENCE", 1)
    assert main(command("--cluster", "tcp://127.0.0.1:1", out="new")) == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in capsys.readouterr().err
    assert not Path("new").exists()
