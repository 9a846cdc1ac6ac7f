"""The ladder: budgets that are kept, runs that fill them, rows, and outside peers' scores."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmark_cases import BENCHMARKS, make_corpus

from esnlm.__main__ import main as esnlm
from esnlm.loading import load_model
from esnlm.text.shards import Shards


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    names = "ladder", "_ladder_runs", "_ladder_peers", "_ladder_report", "_measured"
    found = SimpleNamespace(**{name.strip("_"): pytest.importorskip(name) for name in names})
    monkeypatch.setattr(found.ladder, "_has_bfloat16", lambda: True)  # which asks torch
    return found


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return make_corpus(tmp_path)


def launched(*arguments: str) -> dict[str, Any]:
    launcher = [sys.executable, "-S", str(BENCHMARKS / "_processor_time.py")]
    done = subprocess.run([*launcher, *arguments], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_processor_time_is_that_of_the_process_not_of_the_clock(tmp_path: Path) -> None:
    output = str(tmp_path / "output")
    work = "import time; time.sleep(1); b = bytearray(200 << 20); t = time.process_time()\n"
    work += "while time.process_time() - t < 0.5: pass\nprint('done')"
    found = launched("0", output, sys.executable, "-c", work)
    assert found["status"] == 0
    assert 0.5 < found["seconds"] < 1.4
    assert found["wall"] > 1.5
    assert 200 < found["peak_mib"] < 300
    assert Path(output).read_text() == "done\n"


def test_a_process_past_its_budget_is_ended(tmp_path: Path, modules: Any) -> None:
    command = [sys.executable, "-c", "while True: pass"]
    with pytest.raises(modules.measured.OverBudgetError) as ended:
        modules.measured.measured(command, tmp_path / "output", 1)
    # The system samples the time that it limits.
    assert 0.8 < ended.value.used.seconds < 1.5


def test_a_failing_process_says_why(tmp_path: Path, modules: Any) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such corpus')"]
    with pytest.raises(ChildProcessError, match=r"ended with status 1: no such corpus"):
        modules.measured.measured(command, tmp_path / "output")


_WAITS = """
import signal, sys, time
def end(*_):
    print("saved"); sys.exit(130)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""


def test_an_interrupt_is_the_commands_to_heed(tmp_path: Path, modules: Any) -> None:
    output = tmp_path / "output"

    def interrupt() -> None:
        while not (output.exists() and "ready" in output.read_text()):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(modules.measured.InterruptedRunError) as stopped:
        modules.measured.measured([sys.executable, "-c", _WAITS], output)
    thread.join()
    assert output.read_text() == "ready\nsaved\n"
    assert 0 < stopped.value.used.seconds < 5


def test_an_interrupted_run_goes_on_and_all_that_it_took_counts(
    tmp_path: Path, modules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, made = modules.measured, []

    def measured(command: list[str], output: Path, limit: float) -> Any:
        made.append((command[-1], limit))
        if len(made) == 1:
            (tmp_path / "lstm.checkpoints").mkdir()
            raise tools.InterruptedRunError(tools.Used(40.0, 50.0, 700, ""))
        (tmp_path / "lstm").mkdir()
        return tools.Used(25.0, 30.0, 600, "8 tokens, 99 trained parameters")

    monkeypatch.setattr(modules.ladder_runs, "measured", measured)
    runs = modules.ladder_runs.Runs(Path("train"), 5, tmp_path, 0)
    with pytest.raises(KeyboardInterrupt, match="the same command resumes"):
        list(runs.once("lstm", ["train", "--model", "lstm"], 60.0))
    (found,) = runs.once("lstm", ["train", "--model", "lstm"], 60.0)
    assert made == [("--overwrite", 60.0), ("--resume", 20.0)]
    assert found.used[:3] == (65.0, 80.0, 700)
    assert found.n_parameters == 99
    assert list(runs.once("lstm", ["train", "--model", "lstm"], 70.0)) == [found]  # from the note
    assert list(runs.once("lstm", ["train", "--model", "lstm"], 60.0)) == []


def test_runs_of_one_seed_are_not_those_of_another(
    tmp_path: Path, modules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def measured(command: list[str], output: Path, limit: float) -> Any:
        made.append(command[command.index("--seed") + 1])
        Path(command[command.index("--out") + 1]).mkdir()
        return modules.measured.Used(1.0, 1.0, 1, f"{10 + int(made[-1])} trained parameters")

    monkeypatch.setattr(modules.ladder_runs, "measured", measured)
    found = {}
    for seed in (0, 1, 12, 1, 0):
        runs = modules.ladder_runs.Runs(Path("train"), 5, tmp_path / "corpus", seed)
        (found[seed],) = runs.once("lstm", ["train", "--model", "lstm"], 60.0)
        assert f"--seed {seed} " in found[seed].command
        assert found[seed].n_parameters == 10 + seed
    assert made == ["0", "1", "12"]
    scores = {modules.ladder_runs.scores_of(each.folder) for each in found.values()}
    assert len(scores) == 3
    assert found[0].folder == tmp_path / "corpus" / "lstm"  # where runs of seed 0 have always been


class Foretold:
    """Runs whose seconds are known, of units or of steps; a step learns half a text."""

    def __init__(self, modules: Any, seconds: Any) -> None:
        runs, made = modules.ladder_runs, []

        class Known(runs.Runs):
            def _trained(self, name: str, options: Any, limit: float) -> Any:
                number = int(options[-1].rpartition("=")[2])
                made.append(number)
                if limit and seconds(number) > limit:
                    return None
                used = runs.Used(seconds(number), 1.0, 1, "")
                return runs.Trained(Path(name), " ".join(options), used, number, 1)

        self.made, self.runs = made, Known(Path("shards"), 2, Path(os.devnull).parent, 0)


def test_sizes_double_until_the_next_would_not_fit(modules: Any) -> None:
    foretold = Foretold(modules, lambda units: 60 + 1e-5 * units**2)
    runs = foretold.runs.of_units("reservoir", [], 300.0)
    assert [each.units for each in runs] == [512, 1024, 2048, 4096]
    assert foretold.made == [512, 1024, 2048, 4096]  # 8 192 units: at least 227.8**2 / 101.9 s
    foretold.made.clear()
    assert [each.units for each in foretold.runs.of_units("reservoir", [], 90.0)] == [512, 1024]
    assert foretold.made == [512, 1024, 2048]
    assert list(foretold.runs.of_units("reservoir", [], 60.0)) == []
    runs = foretold.runs.of_units("reservoir", [], 300.0, (700, 1500))
    assert [each.units for each in runs] == [700, 1500]


@pytest.mark.parametrize("has", [False, True])
def test_networks_compute_in_bfloat16_where_the_processor_does(
    modules: Any, monkeypatch: pytest.MonkeyPatch, has: bool
) -> None:
    monkeypatch.setattr(modules.ladder, "_has_bfloat16", lambda: has)
    foretold = Foretold(modules, lambda steps: 2.0 * steps)
    for name in ("esn+mlp", "lstm", "gpt"):
        (trained,) = modules.ladder._runs(foretold.runs, name, 900.0, None)
        assert ("bf16=true" in trained.command, "bf16=false" in trained.command) == (has, not has)


def test_no_larger_size_is_made_after_one_that_is_worse_on_validation_text(
    modules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    foretold = Foretold(modules, lambda units: 1e-3 * units)
    losses = {512: 4.4, 1024: 4.3, 2048: 4.35, 4096: 4.0}
    monkeypatch.setattr(modules.ladder, "_validated", lambda trained, _: losses[trained.units])
    runs = foretold.runs.of_units("traces", [], 300.0)
    best, loss = modules.ladder._best(runs, Path("val"))
    assert (best.units, loss) == (1024, 4.3)
    assert foretold.made == [512, 1024, 2048]


def test_steps_fill_the_budget(modules: Any) -> None:
    # The run of one step comes first and takes what only a first run does.
    foretold = Foretold(modules, lambda steps: 7 + 0.3 * steps + 90 * (steps == 1))
    options = ["--rate=1"], 300.0, "--b 0", "--b 1"
    (found,) = foretold.runs.of_steps("lstm", *options)
    assert foretold.made == [1, 32, 160, found.steps]
    assert 0.96 * 300 < found.used.seconds <= 0.97 * 300
    assert found.command.startswith("--rate=1 --b 1 --plan steps=")  # hundreds of passes
    foretold.runs.n_predicted = found.steps
    (found,) = foretold.runs.of_steps("lstm", *options)
    assert found.command.startswith("--rate=1 --b 0 --plan steps=")  # one
    assert list(foretold.runs.of_steps("lstm", [], 20.0)) == []  # at the last short run
    with pytest.raises(ValueError, match=r"longer, got 1\.0 s for 64 steps"):
        modules.ladder_runs.steps_that_fit([2.0, 1.0], (16, 64), 60.0)


@pytest.mark.parametrize(
    ("longer", "minutes", "made"),
    # The longest stands where it is best; else none that is longer still is made.
    [([4.5, 4.4, 4.3], [1, 2, 3], [1, 2, 3]), ([4.5, 4.4, 4.6], [1, 2, 2], [1, 2, 3]),
     ([4.5, 4.6, 4.3], [1, 1, 1], [1, 2])],
)  # fmt: skip
def test_a_shorter_run_stands_in_larger_budgets_where_it_is_better(
    longer: list[float],
    minutes: list[int],
    made: list[int],
    modules: Any,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tools, ran = modules.ladder_runs, []

    def of_steps(self: Any, name: str, options: Any, budget: float, *care: str) -> Any:
        ran.append(round(budget / 60))
        used = tools.Used(budget, 1.0, 1, "")
        yield tools.Trained(Path(str(ran[-1])), "esnlm", used, 9, 1, steps=10 * ran[-1])

    monkeypatch.setattr(tools.Runs, "of_steps", of_steps)
    validated = lambda trained, _: longer[int(str(trained.folder)) - 1]  # noqa: E731
    monkeypatch.setattr(modules.ladder, "_validated", validated)
    monkeypatch.setattr(modules.ladder, "_scores", lambda *_: {"nll_per_token": 4.0})
    rows = climbed(modules, corpus, monkeypatch, "--models", "lstm", "--minutes", "1", "2", "3")
    assert [row["minutes"] for row in rows] == [1, 2, 3]
    assert [row["processor_minutes"] for row in rows] == minutes
    assert [row["steps"] for row in rows] == [10 * each for each in minutes]
    assert ran == made


def climbed(modules: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Any:
    shards = f"{corpus}/train --validation {corpus}/dev --held-out {corpus}/dev".split()
    folders = f"--out {corpus}/out --blimp {corpus}/pairs".split()
    monkeypatch.setattr(sys, "argv", ["ladder.py", *shards, *folders, *options])
    modules.ladder.main()
    return modules.ladder.read_rows(corpus / "out" / "ladder.csv")


def test_rows_are_those_of_the_commands_and_are_not_made_again(
    modules: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ("--models", "kneser-ney", "--minutes", "1", "2", "--name", "tiny words")
    rows = climbed(modules, corpus, monkeypatch, *chosen)
    assert [(row["model"], row["minutes"]) for row in rows] == [
        ("kneser-ney", 1),
        ("kneser-ney", 2),
    ]
    stream = Shards(corpus / "dev").stream()
    for row in rows:
        model = load_model(corpus / "out" / "running" / "tiny-words" / row["model"])
        scores = np.concatenate(model.log_likelihood(stream))
        assert row["nll_per_token"] == pytest.approx(-scores.mean(), abs=1e-9)
        assert row["nll_per_word"] == pytest.approx(-scores.sum() / 10, abs=1e-9)
        assert row["nll_validation"] == row["nll_per_token"]
        assert row["n_held_out_tokens"] == len(scores) == 12
        assert row["n_parameters"] == model.n_parameters_
        assert row["n_train_tokens"] == Shards(corpus / "train").stream().n_predicted
        assert 0 < row["processor_minutes"] < 1
        assert row["peak_memory_mib"] > 50
        assert row["trained_by"].startswith("esnlm ngram")
        assert row["blimp"] in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert rows[0] | {"minutes": 2} == rows[1]  # trained and scored once
    monkeypatch.setattr(modules.ladder_runs.Runs, "once", lambda *_: pytest.fail("made again"))
    (_, again, largest) = climbed(modules, corpus, monkeypatch, *chosen[:-2], "3", *chosen[-2:])
    assert (again, largest) == (rows[1], rows[0] | {"minutes": 3})
    rows = [*rows, largest]
    text = (corpus / "out" / "ladder.md").read_text()
    assert "## tiny words, 1 processor minutes" in text
    line = next(line for line in text.splitlines() if "`kneser-ney`" in line)
    assert line.split(" | ")[-1].rstrip(" |") == rows[0]["machine"].split(",")[0]
    assert (corpus / "out" / "ladder.png").stat().st_size > 1000
    monkeypatch.setattr(modules.ladder, "_row", lambda *_: pytest.fail("made again"))
    assert climbed(modules, corpus, monkeypatch, *chosen) == rows


def test_a_mixture_costs_what_its_members_and_its_weights_cost(
    modules: Any, corpus: Path, tmp_path: Path
) -> None:
    runs = modules.ladder_runs.Runs(corpus / "train", 5, tmp_path, 0)
    members = [
        next(runs.once(f"order-{order}", ["ngram", "--order", str(order)], 60.0))
        for order in (1, 2)
    ]
    mixture = runs.mixed("both", members, corpus / "dev")
    assert load_model(mixture.folder).weights_.sum() == pytest.approx(1)
    assert mixture.used.seconds > sum(each.used.seconds for each in members)
    assert mixture.used.peak_mib >= max(each.used.peak_mib for each in members)
    assert mixture.n_parameters == sum(each.n_parameters for each in members)
    assert mixture.n_tokens == members[0].n_tokens
    assert mixture == runs.mixed("both", members, corpus / "dev")  # not made again


def test_the_members_of_a_mixture_share_its_budget(
    modules: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, made = modules.ladder_runs, []

    def of_steps(self: Any, name: str, options: Any, budget: float, *care: str) -> Any:
        made.append((name, self.seed, budget))
        yield tools.Trained(Path(name), "", tools.Used(budget, 1.0, 1, ""), 9, 1)

    monkeypatch.setattr(tools.Runs, "of_steps", of_steps)
    monkeypatch.setattr(tools.Runs, "once", lambda *_: iter([None]))
    monkeypatch.setattr(tools.Runs, "mixed", lambda *arguments: arguments)
    runs = tools.Runs(Path("train"), 5, tmp_path, 4)
    options = SimpleNamespace(validation=Path("val"), sizes=())
    for name, seeds, budget in (("lstm+kn", [4], 60.0), ("2-esn+mlp+kn", [4, 5], 30.0)):
        made.clear()
        ((_, folder, members, held_out),) = modules.ladder._runs(runs, name, 60.0, options)
        base = name.removeprefix("2-").removesuffix("+kn")
        assert made == [(base, seed, budget) for seed in seeds]
        assert (folder, len(members), held_out) == (f"{name}-for-60-s", len(seeds) + 1, Path("val"))


def test_a_line_of_the_table_is_a_mean_over_seeds(modules: Any) -> None:
    row = dict.fromkeys(modules.ladder.COLUMNS) | {
        "corpus": "c", "model": "lstm", "minutes": 5, "says": "LSTM", "tokens_per_second": 1.0,
        "processor_minutes": 2.0, "machine": "m, 1 cores", "peak_memory_mib": 7,
    }  # fmt: skip
    seeds = [
        row | {"seed": seed, "nll_per_token": loss, "blimp": blimp}
        for seed, loss, blimp in ((0, 4.1, 0.6), (1, 4.3, 0.62))
    ]
    (*_, line) = modules.ladder_report.table(seeds, ["lstm"]).rstrip().splitlines()
    cells = [each.strip() for each in line.strip("|").split("|")]
    # The standard deviation of two values is their distance over the root of two.
    assert cells[:7] == ["`lstm`: LSTM", "4.200", "0.1000", "", "61.0", "1.00", "2"]


@pytest.mark.torch
def test_a_network_fills_its_budget_and_a_reservoir_that_does_not_fit_has_no_figures(
    modules: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    known = modules.ladder.MODELS
    tiny = "train --model lstm --units 4 --device cpu --schedule cosine"
    monkeypatch.setitem(known, "lstm", known["lstm"]._replace(options=tiny))
    monkeypatch.setitem(known, "direct", known["direct"]._replace(options="train --units 16384"))
    monkeypatch.setattr(modules.ladder_runs, "SHORT", (1, 2, 6))
    monkeypatch.setattr(modules.ladder_runs, "steps_that_fit", lambda *_: 9)

    def in_this_process(command: list[str], output: Path, limit: float) -> Any:
        with output.open("w") as file, redirect_stdout(file):
            assert esnlm(command[3:]) == 0
        return modules.measured.Used(1.0, 1.0, 1, output.read_text())

    with monkeypatch.context() as patched:  # what processes take is tested above
        patched.setattr(modules.ladder_runs, "measured", in_this_process)
        (row,) = climbed(modules, corpus, patched, "--models", "lstm", "--minutes", "1")
    assert row["steps"] == 9
    assert "--plan steps=9" in row["trained_by"]
    rows = climbed(modules, corpus, monkeypatch, "--models", "direct", "--minutes", "0.02")
    assert rows[0]["nll_per_token"] is None
    assert "does not fit" in (corpus / "out" / "ladder.md").read_text()


def test_a_loss_far_above_the_others_is_named_beside_the_axis(modules: Any, tmp_path: Path) -> None:
    axis = modules.ladder_report.panels(1)[1][0]
    modules.ladder_report._near(axis, pd.Series({"direct": 4.5, "lstm": 4.4, "unigram": 6.5}))
    assert axis.get_ylim() == pytest.approx((4.39, 4.52))
    assert [text.get_text() for text in axis.texts] == ["above: unigram 6.50"]
    modules.ladder_report._near(axis, pd.Series({"lstm": 4.4, "unigram": 6.5}))
    assert axis.get_ylim() == pytest.approx((4.3, 4.6))
    rows = pd.Series([4.5, 4.4, 4.8, 6.5], index=["lstm", "direct", "lstm", "unigram"])
    modules.ladder_report._near(axis, rows)  # all rows of a model that is on the axis
    assert axis.get_ylim() == pytest.approx((4.36, 4.88))


def test_the_legend_names_models_that_a_later_corpus_alone_has(
    modules: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(
        modules.ladder_report, "save", lambda *a, legend_of, **_: drawn.append(legend_of)
    )
    one = {"processor_minutes": 5.0, "nll_per_token": 4.4, "blimp": 0.6}
    pairs = ("first", "lstm"), ("second", "lstm"), ("second", "gpt2")
    rows = [{"corpus": corpus, "model": model, **one} for corpus, model in pairs]
    modules.ladder_report.plot(rows, ["gpt2", "lstm", "direct"], tmp_path / "x.png")
    assert drawn[0].get_legend_handles_labels()[1] == ["gpt2", "lstm"]


def test_peers_read_the_same_tokens(modules: Any, corpus: Path) -> None:
    peers = modules.ladder_peers
    text = peers._sentences(corpus / "dev", corpus)
    tokenizer = Shards(corpus / "dev").tokenizer
    lines = ["the dog sees a cat .", "a boy runs ."]
    wanted = [" ".join(map(str, tokenizer.encode(line).tolist())) for line in lines]
    assert text.read_text().splitlines() == wanted


def test_scores_of_a_peer_are_those_of_a_model_that_says_the_same(
    modules: Any, corpus: Path
) -> None:
    assert esnlm(["ngram", str(corpus / "train"), "--out", str(corpus / "kn"), "--order", "3"]) == 0
    model, peers = load_model(corpus / "kn"), modules.ladder_peers
    tokenizer = model.tokenizer_

    def scored(path: Path) -> Any:
        docs = [
            np.array([tokenizer.bos_id, *map(int, line.split()), tokenizer.eos_id])
            for line in path.read_text().splitlines()
        ]
        found = model.log_likelihood(docs)
        return peers.Scores(
            np.array([each.sum() for each in found]), np.array([each[:-1].sum() for each in found])
        )

    at = corpus / "peer"
    at.mkdir()
    for file in (corpus / "pairs").iterdir():  # enough for intervals
        file.write_text(file.read_text() * 6)
    row = peers.peer_scores(scored, corpus / "dev", corpus / "pairs", at)
    table = corpus / "pairs.csv"
    assert (
        esnlm(["blimp", str(corpus / "kn"), "--data", str(corpus / "pairs"), "--csv", str(table)])
        == 0
    )
    judged = modules.ladder_runs.first_row(table, level="overall")
    assert row["nll_per_token"] == pytest.approx(-model.score(Shards(corpus / "dev").stream()))
    for name, column in (
        ("blimp", "accuracy"),
        ("blimp_strict", "strict"),
        ("blimp_upper", "upper"),
    ):
        assert row[name] == pytest.approx(float(judged[column]))


def test_whole_passes_of_faster_rnnlm_count_though_the_budget_ends_it(
    modules: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers, tools = modules.ladder_peers, modules.measured
    output = "Initial entropy (bits) valid: 9.2\nEpoch  1  lr: 1e-1  progress: 56%  Epoch 1 entropy"
    output += " (bits) valid: 7.9  elapsed: 4.7s\nEpoch  2  lr: 1e-1  progress: 12%"

    def measured(command: list[str], _: Path, limit: float) -> Any:
        Path(command[2]).write_text("</s> 9\n1 8\n2 7\n")
        raise tools.OverBudgetError(tools.Used(limit, 3.0, 400, output))

    monkeypatch.setattr(peers, "measured", measured)
    runs = modules.ladder_runs.Runs(corpus / "train", 1, corpus / "work", 0)
    found = peers.faster_rnnlm(peers.Places(runs, corpus), 60.0)
    stream = Shards(corpus / "train").stream()
    lengths = np.delete(stream.lengths, np.s_[:: peers._VALIDATION])
    assert found.n_tokens == (lengths - 1).sum()
    assert found.used.seconds == 60.0
    output = output.partition("Epoch")[0]
    assert peers.faster_rnnlm(peers.Places(runs, corpus), 60.0) is None  # no whole pass


def test_what_kenlm_prints_is_read(modules: Any) -> None:
    lines = (
        "12=5 2 -1.5\t7=0 1 -6\t</s>=2 1 -0.5\tTotal: -8 OOV: 1\n</s>=2 2 -3\tTotal: -3 OOV: 0\n"
    )
    found = modules.ladder_peers.query_scores(lines)
    np.testing.assert_allclose(found.with_end, np.log(10) * np.array([-8.0, -3.0]))
    np.testing.assert_allclose(found.without_end, np.log(10) * np.array([-7.5, 0.0]))


def test_a_peer_is_built_from_its_source_where_its_program_is_not(
    modules: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, peers = tmp_path / "source", modules.ladder_peers
    source.mkdir()
    script = 'cd "$(dirname "$0")" && mkdir faster-rnnlm && touch faster-rnnlm/rnnlm'
    (source / "build.sh").write_text(script)
    program, (clone, made) = peers.SOURCES["faster-rnnlm"]
    copied = f"cp -r {source} {{}}"
    assert clone.startswith("git clone https://")
    monkeypatch.setitem(peers.SOURCES, "faster-rnnlm", (program, (copied, made)))
    folder = tmp_path / "peer with a space"
    peers.build("faster-rnnlm", folder)
    assert (folder / "faster-rnnlm" / "rnnlm").exists()
    (source / "build.sh").write_text("exit 3")
    peers.build("faster-rnnlm", folder)  # it is there
    with pytest.raises(ValueError, match=r"was not built: bash .*/build\.sh ended with 3"):
        peers.build("faster-rnnlm", tmp_path / "other")
    with pytest.raises(ValueError, match="holds no faster-rnnlm/rnnlm: name the folder where"):
        peers.build("faster-rnnlm", source)
    (source / "build.sh").write_text("exit 0")
    with pytest.raises(ValueError, match="was built, but"):
        peers.build("faster-rnnlm", tmp_path / "third")


def test_messages_of_faster_rnnlm_do_not_cut_its_scores(modules: Any, tmp_path: Path) -> None:
    program = tmp_path / "faster-rnnlm" / "rnnlm"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\necho Reading >&2\nprintf '%s\\nOOV\\n-38.' -2.5\n"
        "echo 'Test entropy 7.9' >&2\nprintf '957123\\n'\n"
    )
    program.chmod(0o755)
    (tmp_path / "text").write_text("1\n2\n3\n")
    peers = modules.ladder_peers
    found = peers.faster_rnnlm_scores(peers.Places(None, tmp_path), tmp_path, tmp_path / "text")
    np.testing.assert_allclose(found.with_end, np.log(10) * np.array([-2.5, np.nan, -38.957123]))


def test_scores_above_certainty_are_refused(modules: Any, corpus: Path) -> None:
    peers = modules.ladder_peers
    scores = peers.Scores(*[np.array([-1.0, 957123.0])] * 2)
    with pytest.raises(ValueError, match="must be at most 0, got 957123: were the scores misread"):
        peers.peer_scores(lambda _: scores, corpus / "dev", None, corpus)


def test_a_sentence_that_a_peer_leaves_out_counts_nowhere(modules: Any, corpus: Path) -> None:
    peers = modules.ladder_peers
    sums = iter([np.array([-7.0, np.nan]), np.array([-1.0, -2.0, -1.0, np.nan])])

    def scored(path: Path) -> Any:
        return peers.Scores(*[next(sums)] * 2)

    row = peers.peer_scores(scored, corpus / "dev", corpus / "pairs", corpus)
    assert row["nll_per_token"] == pytest.approx(1.0)  # six words and the end
    assert row["nll_per_word"] is None
    assert row["blimp"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--models", "kenlm"], "--models kenlm needs --kenlm"),
        (["--minutes", "0"], "--minutes must be positive, got 0"),
        (["--sizes", "8", "4"], "--sizes must be positive and grow, got 8 4"),
        (["--sizes", "0", "4"], "--sizes must be positive and grow, got 0 4"),
        (["--models", "rnn"], "invalid choice: 'rnn'"),
    ],
)
def test_bad_options_are_refused(
    given: list[str], message: str, modules: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        modules.ladder._options(["train", "--validation", "val", "--held-out", "dev", *given])
    assert message in capsys.readouterr().err
