"""Runs in passes: the same model whatever happens on the way, and what is refused."""

import csv
import errno
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import refused

from esnlm import (
    ClassFactoredReadout,
    LanguageModel,
    LowRankReadout,
    MixtureOfExpertsReadout,
    NgramLanguageModel,
    Reservoir,
    RidgeReadout,
    SoftmaxReadout,
    TokenGatedReadout,
    WordFeatures,
)
from esnlm.__main__ import main
from esnlm.loading import load_model
from esnlm.storage import checkpoints as checkpoints_module
from esnlm.storage import model_folder
from esnlm.storage.checkpoints import CheckpointError, Checkpoints
from esnlm.storage.model_folder import ModelFormatError
from esnlm.text.corpus import TokenStream
from esnlm.text.shuffling import ChunkOrder, evenly_spaced, target_counts
from esnlm.training import resumable_run
from esnlm.training.resumable_run import StoppedError
from esnlm.training.trainer import Trainer, TrainingPlan
from esnlm.training.training_log import TrainingLog

V = 12
PLAN = TrainingPlan(chunk_tokens=300, score_every=900, random_state=3)
READOUTS = {
    "ridge": RidgeReadout(),
    "sampled ridge": RidgeReadout(gram_rows=350),
    "softmax": SoftmaxReadout(n_passes=3),
    "low rank": LowRankReadout(n_components=4, n_frequent=2, n_classes=2, random_state=0),
    "low rank, direct": LowRankReadout(
        n_components=4, n_frequent=2, n_classes=2, n_direct=2, n_ngrams=3, random_state=0
    ),
    "token gated": TokenGatedReadout(n_direct=2),
    "mixture": MixtureOfExpertsReadout(n_experts=2, max_iter=2, buffer_size=700, random_state=0),
    "factored": ClassFactoredReadout(n_classes=3, buffer_size=500, random_state=0),
    "factored jointly": ClassFactoredReadout(
        n_classes=3, buffer_size=500, solver="joint", random_state=0
    ),
    "factored ridge": ClassFactoredReadout(
        n_classes=3, class_readout="ridge", word_readout="ridge", buffer_size=500, random_state=0
    ),
    "factored ridge jointly": ClassFactoredReadout(
        n_classes=3, word_readout="ridge", buffer_size=500, solver="joint", random_state=0
    ),
}


def stream(n_sequences: int = 250, seed: int = 0, *, reset: bool = True) -> TokenStream:
    """Sequences of 2 to 9 tokens in which a token says much about the next."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 10, n_sequences)
    tokens = np.cumsum(rng.integers(1, 4, lengths.sum())) % V
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    bounds = np.array([0, len(tokens)])
    return TokenStream(tokens.astype(np.uint16), starts if reset else None, bounds)


def trainer(readout: str = "ridge", corpus: TokenStream | None = None, **options) -> Trainer:
    corpus = corpus or stream()
    reset = "never" if corpus.starts is None else "sentence"
    model = LanguageModel(
        Reservoir(15, leak_rate=0.5, random_state=1),
        READOUTS[readout],
        features=options.pop("features", None),
        reset=reset,
        n_tokens=V,
    )
    held_out = options.pop("held_out", stream(60, seed=9, reset=corpus.starts is not None))
    return Trainer(model, corpus, held_out=held_out, plan=options.pop("plan", PLAN))


def test_what_is_no_stream_is_refused():
    with pytest.raises(ValueError, match=r"stream must be a TokenStream, got list: Shards\("):
        Trainer(LanguageModel(Reservoir(15)), [[0, 1]])
    with pytest.raises(ValueError, match="held_out must be a TokenStream, got list"):
        trainer(held_out=[[0, 1]])
    with pytest.raises(ValueError, match="plan must be a TrainingPlan or None, got"):
        trainer(plan={})
    with pytest.raises(ValueError, match="model must be a LanguageModel, got NgramLanguageModel"):
        Trainer(NgramLanguageModel(2), stream())
    with pytest.raises(ValueError, match="got a TokenStream: give the Tokenizer that made"):
        Trainer(LanguageModel(Reservoir(15), tokenizer="word"), stream())


@pytest.mark.parametrize(
    ("starts", "bounds", "message"),
    [
        ([1], [0, 3], r"starts of the stream .* rise from 0 within its 3 tokens, got array\(\[1\]"),
        ([0, 3], [0, 3], "starts of the stream"),
        ([0, 2, 1], [0, 3], "starts of the stream"),
        ([0.0, 1.0], [0, 3], "starts of the stream"),
        ([0], [0, 9], "bounds of the stream"),
    ],
)
def test_places_of_a_stream_lie_in_it(starts, bounds, message):
    """The first had the score of other tokens, the next an IndexError."""
    model = LanguageModel(Reservoir(5, random_state=0), "ridge").fit([[0, 1, 2]] * 9)
    whole = TokenStream(np.array([0, 1, 2]), np.array([0]), np.array([0, 3]))
    assert model.score(whole) == model.score([[0, 1, 2]])
    with pytest.raises(ValueError, match=message):
        model.score(TokenStream(whole.tokens, np.array(starts), np.array(bounds)))


def test_names_of_files_are_paths(tmp_path: Path):
    """Checkpoints of a name failed at the first one, ten minutes into the run, which was lost."""
    place, losses = tmp_path / "checkpoints", tmp_path / "log.csv"
    with pytest.raises(ValueError, match=r"checkpoints must be Checkpoints\(path\) or None, got '"):
        trainer().run(str(place))
    with pytest.raises(ValueError, match=r"log must be TrainingLog\(path\) or None, got '"):
        trainer().run(log=str(losses))
    store = Checkpoints(str(place))
    with pytest.raises(StoppedError):
        trainer().run(store, log=TrainingLog(str(losses)), stop=lambda: True)
    assert store.latest() is not None
    trainer().run(store, resume=True, log=TrainingLog(str(losses)))
    assert rows_of(losses)


def saved(model: LanguageModel, folder: Path) -> dict[str, bytes]:
    model.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Clock:
    """Asks to stop after the given numbers of steps of a run."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize(
    ("readout", "reset"),
    [(name, True) for name in READOUTS] + [(name, False) for name in ("ridge", "softmax")],
)
def test_an_interrupted_run_ends_in_the_same_model(readout: str, reset: bool, tmp_path: Path):
    corpus = stream(250 if reset else 400, reset=reset)
    whole = trainer(readout, corpus)
    log = TrainingLog(tmp_path / "whole.csv")
    expected = saved(whole.run(log=log), tmp_path / "whole")
    store = Checkpoints(tmp_path / "checkpoints")
    log = TrainingLog(tmp_path / "parts.csv")
    for k in range(100):
        part = trainer(readout, corpus)
        try:
            model = part.run(store, resume=True, log=log, stop=Clock(k % 4))
            break
        except StoppedError:
            continue
    assert k > 1  # it was stopped, and more than once
    assert part.step == whole.step
    assert saved(model, tmp_path / "parts") == expected
    rows = [rows_of(tmp_path / name) for name in ("whole.csv", "parts.csv")]
    assert rows[0] == rows[1]
    assert len(rows[0]) > 1 or readout.endswith("ridge")


@pytest.mark.parametrize("readout", READOUTS)
def test_a_run_stopped_after_its_last_step_ends_in_the_same_model(readout: str, tmp_path: Path):
    whole = trainer(readout, held_out=None)
    expected = saved(whole.run(), tmp_path / "whole")
    store = Checkpoints(tmp_path / "checkpoints")
    with pytest.raises(StoppedError):
        trainer(readout, held_out=None).run(store, stop=Clock(whole.step - 1))
    assert store.latest().step == whole.step
    model = trainer(readout, held_out=None).run(store, resume=True)
    assert saved(model, tmp_path / "resumed") == expected


@pytest.mark.parametrize("resume", [False, True])
def test_progress_has_the_name_of_the_run(resume: bool, tmp_path: Path, monkeypatch):
    names, bar = [], resumable_run.progress_bar

    def named(*values, **options):
        names.append(options["desc"])
        return bar(*values, **options)

    store = Checkpoints(tmp_path / "checkpoints")
    with pytest.raises(StoppedError):
        trainer().run(store, stop=Clock(0))
    monkeypatch.setattr(resumable_run, "progress_bar", named)
    trainer().run(store, resume=resume, name="seed 0")
    assert names == ["seed 0"]


def rows_of(path: Path) -> list[list[str]]:
    """Rows of a log less their times."""
    with open(path, newline="") as file:
        return [row[:-1] for row in csv.reader(file)]


@pytest.mark.parametrize("readout", READOUTS)
def test_checkpoints_leave_no_trace(readout: str, tmp_path: Path):
    without = saved(trainer(readout).run(), tmp_path / "without")
    store = Checkpoints(tmp_path / "checkpoints")
    each = saved(trainer(readout).run(store, save_every=0), tmp_path / "each")
    assert without == each
    assert store.exists()


def test_features_are_kept_in_checkpoints(tmp_path: Path, monkeypatch):
    features = WordFeatures(n_features=2, n_passes=1, random_state=0)
    expected = saved(trainer(features=features).run(), tmp_path / "whole")
    store = Checkpoints(tmp_path / "checkpoints")
    with pytest.raises(StoppedError):
        trainer(features=features).run(store, stop=Clock(1))
    monkeypatch.setattr(WordFeatures, "fit", lambda *_, **__: pytest.fail("fitted again"))
    model = trainer(features=features).run(store, resume=True)
    assert saved(model, tmp_path / "parts") == expected


def test_one_pass_of_ridge_is_what_fit_gives():
    run = trainer(held_out=None)
    model = run.run()
    reservoir = Reservoir(15, leak_rate=0.5, random_state=1)
    fitted = LanguageModel(reservoir, RidgeReadout(), n_tokens=V, random_state=1).fit(run.stream)
    np.testing.assert_allclose(model.readout_.coef_, fitted.readout_.coef_, atol=1e-5)


def test_held_out_loss_is_that_of_the_saved_model(tmp_path: Path):
    run = trainer("softmax")
    model = run.run(log=TrainingLog(tmp_path / "log.csv"))
    score = model.score(run.held_out)
    assert run.last_score == pytest.approx(-score, abs=1e-5)
    assert float(rows_of(tmp_path / "log.csv")[-1][3]) == run.last_score


@pytest.mark.parametrize("readout", READOUTS)
def test_held_out_text_is_scored_ten_times_a_pass_where_that_solves_nothing(readout: str, tmp_path):
    run = trainer(readout, stream(500), plan=TrainingPlan(chunk_tokens=100))
    run.run(log=TrainingLog(tmp_path / "log.csv"))
    rows = rows_of(tmp_path / "log.csv")[1:]
    cheap = readout != "mixture" and "ridge" not in readout
    assert len(rows) == (10 if cheap else 1) * run.readout._training_passes
    assert run._bar.postfix == f"held-out {float(rows[-1][3]):.4f} nats"


def test_seconds_of_a_run_are_those_it_took(tmp_path: Path):
    began = time.monotonic()
    run = trainer()
    run.run(log=TrainingLog(tmp_path / "log.csv"))
    assert 0 < run.seconds < time.monotonic() - began


def test_a_log_goes_on_after_the_rows_of_the_checkpoint(tmp_path: Path):
    path = tmp_path / "log.csv"
    log = TrainingLog(path)
    log.begin()
    log.add(1, 100, 1000, 2.0, 1.0)
    digest = log.digest()
    log.add(1, 200, 1000, 1.5, 2.0)  # was not yet in the checkpoint
    with pytest.raises(ValueError, match="was altered since the checkpoint"):
        TrainingLog(path).resume(2, sha256=digest)
    again = TrainingLog(path)
    again.resume(1, sha256=digest)
    assert (again.n_rows, again.digest()) == (1, digest)
    again.add(1, 300, 1000, 1.0, 3.0)
    assert [row[1] for row in rows_of(path)[1:]] == ["100", "300"]
    nowhere = TrainingLog(None)
    nowhere.resume(7)
    assert (nowhere.n_rows, nowhere.digest()) == (7, None)


def test_a_saved_model_learns_on_as_the_one_in_memory(tmp_path: Path):
    docs = [np.arange(n, n + 6) % V for n in range(200)]
    for name, readout in READOUTS.items():
        model = LanguageModel(Reservoir(15, random_state=1), readout, n_tokens=V, reset="never")
        model.partial_fit(docs[:120])
        model.save(tmp_path / name, training=True)
        loaded = LanguageModel.load(tmp_path / name)
        for one in (model, loaded):
            one.partial_fit(docs[120:])
        assert saved(model, tmp_path / f"{name} a") == saved(loaded, tmp_path / f"{name} b")


def test_a_model_saved_without_its_training_says_so(tmp_path: Path):
    model = trainer().run()
    model.save(tmp_path / "model")
    loaded = LanguageModel.load(tmp_path / "model")
    with pytest.raises(ValueError, match="training=True"):
        loaded.partial_fit([np.array([0, 1])])
    with pytest.raises(ValueError, match="training=True"):
        loaded.save(tmp_path / "again", training=True)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("reset", [True, False])
def test_a_pass_reads_every_pair_once(reset: bool, monkeypatch: pytest.MonkeyPatch):
    corpus = stream(3000, reset=reset)
    order = ChunkOrder(corpus, 700, np.random.default_rng(0), warmup=64)
    seen = []
    for i in range(len(order)):
        for piece, washout in order.chunk(i):
            tokens, starts = piece.tokens, piece.starts
            for sequence in np.split(tokens, starts[1:]):
                pairs = np.stack([sequence[:-1], sequence[1:]], axis=1)
                seen.append(pairs[washout:])
    seen = np.concatenate(seen)
    marks = corpus.predicted()
    at = np.flatnonzero(marks)
    expected = np.stack([corpus.tokens[at - 1], corpus.tokens[at]], axis=1)
    assert np.array_equal(np.unique(seen, axis=0, return_counts=True)[1].sum(), len(expected))
    code = lambda pairs: np.sort(pairs[:, 0].astype(int) * V + pairs[:, 1])  # noqa: E731
    assert np.array_equal(code(seen), code(expected))
    for at_once in (1 << 24, 64):
        monkeypatch.setattr("esnlm.text.shuffling._COUNTED", at_once)
        counts = target_counts(corpus, V)
        assert np.array_equal(counts, np.bincount(corpus.tokens[at], minlength=V))


def test_chunks_mix_the_whole_corpus():
    n = 2000
    tokens = np.repeat(np.arange(n), 3)
    corpus = TokenStream(tokens, np.arange(0, 3 * n, 3), np.array([0, 3 * n]))
    order = ChunkOrder(corpus, 300, np.random.default_rng(0))
    for i in range(len(order)):
        ((piece, _),) = order.chunk(i)
        assert abs(piece.tokens.mean() / n - 0.5) < 0.2
        assert len(piece.tokens) <= 303


def test_evenly_spaced_sequences():
    corpus = stream(1000)
    part = evenly_spaced(corpus, 500)
    assert 200 < len(part.tokens) <= 600
    assert evenly_spaced(part, 10_000) is part


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"readout": "softmax"}, "readout is"),
        ({"features": WordFeatures(n_features=2)}, "features is"),
        ({"corpus": stream(seed=5)}, "the corpus is another one"),
        ({"held_out": None}, "the held-out text is another one"),
        (
            {"plan": TrainingPlan(chunk_tokens=301, random_state=3)},
            "chunk_tokens is 301, but was 300",
        ),
    ],
)
def test_other_settings_are_no_resumption(change, message: str, tmp_path: Path):
    store = Checkpoints(tmp_path / "checkpoints")
    with pytest.raises(StoppedError):
        trainer().run(store, stop=Clock(1))
    with pytest.raises(CheckpointError, match=message) as refusal:
        trainer(**change).run(store, resume=True)
    assert f"or remove {store.folder} to start again" in str(refusal.value)


def test_every_altered_byte_of_a_checkpoint_is_noticed(tmp_path: Path):
    store = Checkpoints(tmp_path / "checkpoints")
    with pytest.raises(StoppedError):
        trainer().run(store, stop=Clock(1))
    (folder,) = store.folder.iterdir()
    rng = np.random.default_rng(0)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        places = rng.integers(0, len(whole), 100)
        for place in [*range(min(64, len(whole))), *places]:
            changed = bytearray(whole)
            changed[place] ^= 1 << rng.integers(8)
            path.write_bytes(changed)
            with pytest.raises(ModelFormatError, match="overwrite=True"):
                store.latest()
        for length in (0, 1, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:length])
            with pytest.raises(ModelFormatError):
                store.latest()
        path.write_bytes(whole)
    assert store.latest() is not None


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch):
    store = Checkpoints(tmp_path / "checkpoints")
    with pytest.raises(StoppedError):
        trainer().run(store, stop=Clock(1))
    write = checkpoints_module.write_files

    def full(folder: Path, *args) -> None:
        write(folder, *args)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoints_module, "write_files", full)
    with pytest.raises(OSError, match=r"No space left.*of step 2 is whole.*resume=True"):
        trainer().run(store, resume=True, save_every=0)
    assert [path.name for path in store.folder.iterdir()] == ["step-0000000002"]
    monkeypatch.undo()
    trainer().run(store, resume=True)


def test_what_a_killed_process_left_is_swept(tmp_path: Path):
    store = Checkpoints(tmp_path / "checkpoints")
    store.save(1, {}, {"a": np.zeros(1)})
    (store.folder / ".new.abc").mkdir()
    (store.folder / ".old.0").mkdir()
    (store.folder / ".step-0000000000.esnlm-lock").write_text("process 1")
    (store.folder / ".step-0000000000.esnlm-abcdefgh").mkdir()
    store.save(2, {}, {"a": np.ones(1)})
    assert [path.name for path in store.folder.iterdir()] == ["step-0000000002"]


TEXT = "the boy sees the dog\nthe dog sees the boy\n\nthe girl walks with the boy\n" * 400
COMMAND = """train text --held-out text --units 40 --readout softmax --alpha 1 --passes 6
--chunk-tokens 600
--checkpoint-every 0 --score-every 4000 --log log.csv --resume --out model"""
TRAIN = COMMAND.split()
SAME = (
    "esnlm: warning: the held-out text text is the training text text: what it chooses, and its"
    " perplexity, are of text that was learnt\n"
)
ANEW = "esnlm: there is no checkpoint to resume from: training begins anew\n"
ADVICE = "esnlm: warning: the 5-grams are better on this text: esnlm ngram makes a model of them\n"


def process(*argv: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "esnlm", *argv]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def undisturbed(folder: Path, monkeypatch) -> tuple[dict[str, bytes], list[list[str]], float]:
    """Model and log of one whole run, and the seconds it took."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("text").write_text(TEXT)
    began = time.monotonic()
    done = process(*TRAIN)
    _, err = done.communicate(timeout=300)
    assert (done.returncode, err) == (0, SAME + ANEW + ADVICE)
    assert not Path("model.checkpoints").exists()
    return contents(Path("model")), rows_of(Path("log.csv")), time.monotonic() - began


def kill_and_resume(folder: Path, kills: list[float], monkeypatch) -> list[float]:
    """Kill runs after so many seconds each, then let one end; the seconds of runs that escaped."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("text").write_text(TEXT)
    escaped = []
    for seconds in kills:
        began = time.monotonic()
        running = process(*TRAIN)
        try:
            running.wait(timeout=seconds)
            escaped.append(time.monotonic() - began)
        except subprocess.TimeoutExpired:
            running.kill()
        running.communicate()
    last = process(*TRAIN)
    _, err = last.communicate(timeout=300)
    assert last.returncode == 0
    # No advice where the last one killed had saved its model.
    assert err in {SAME + rest for rest in ("", ADVICE, ANEW + ADVICE)}
    return escaped


@pytest.mark.slow  # a campaign of kills is in test_faults.py
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_killed_runs_end_in_the_same_model(tmp_path: Path, monkeypatch):
    model, log, seconds = undisturbed(tmp_path / "whole", monkeypatch)
    draw = random.Random(0)
    kill_and_resume(tmp_path / "killed", [seconds * draw.uniform(0.6, 0.95)], monkeypatch)
    assert contents(Path("model")) == model
    # Rows of runs that were killed before their first checkpoint stay.
    assert rows_of(Path("log.csv"))[-len(log) :] == log


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_fifty_kills_fifty_identical_models(tmp_path: Path, monkeypatch):
    model, log, seconds = undisturbed(tmp_path / "whole", monkeypatch)
    draw = random.Random(int(os.environ.get("ESNLM_KILL_SEED", "0")))
    n_kills = int(os.environ.get("ESNLM_KILLS", "50"))
    met = trial = 0
    while met < n_kills:
        folder = tmp_path / f"killed {trial}"
        escaped = kill_and_resume(folder, [seconds * draw.uniform(0.3, 1)], monkeypatch)
        assert contents(Path("model")) == model
        assert rows_of(Path("log.csv"))[-len(log) :] == log
        left = ["log.csv", "model", "model.run.json", "text"]
        assert sorted(p.name for p in folder.iterdir()) == left
        trial += 1
        met += not escaped
        seconds = min([seconds, *escaped])
        print(f"{met} kills in {trial} runs of {seconds:.1f} s: {trial} identical models")


PEAK = """
import resource, sys
import numpy as np
from esnlm import LanguageModel, Reservoir, RidgeReadout
from esnlm.text.corpus import TokenStream
from esnlm.training.trainer import Trainer, TrainingPlan
from esnlm.utils.validation import at_fit

tokens = np.load(sys.argv[1], mmap_mode="r")
stream = TokenStream(tokens, np.arange(0, len(tokens), 20), np.array([0, len(tokens)]))
model = LanguageModel(Reservoir(16, random_state=0), RidgeReadout(), n_tokens=50)
model._read_corpus(stream)
Trainer(model, stream, plan=TrainingPlan(chunk_tokens=1 << 14)).run()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes there")
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path):
    peaks = []
    for n in (100_000, 1_000_000):
        path = tmp_path / f"{n}.npy"
        np.save(path, np.random.default_rng(0).integers(0, 50, n, dtype=np.uint16))
        command = [sys.executable, "-c", PEAK, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) / 1024)
    # The tokens that the system maps (2 MB), and some numbers for each of 50 000 sequences.
    assert peaks[1] - peaks[0] < 2 + 6


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_saves_a_checkpoint_and_says_how_to_go_on(name: str, tmp_path, monkeypatch):
    if signal.getsignal(getattr(signal, name)) == signal.SIG_IGN:
        pytest.skip("the tests run under nohup")
    monkeypatch.chdir(tmp_path)
    Path("text").write_text(TEXT)
    argv = [word if word != "6" else "400" for word in TRAIN]
    argv[argv.index("--checkpoint-every") + 1] = "60"
    running = process(*argv)
    while not Path("log.csv").exists() or len(rows_of(Path("log.csv"))) < 2:
        time.sleep(0.05)
        assert running.poll() is None
    running.send_signal(getattr(signal, name))
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert "once more to stop at once" in err
    assert "--resume continues from there" in err
    (folder,) = Path("model.checkpoints").iterdir()
    assert json.loads((folder / "config.json").read_text())["facts"]["tokens"] > 0
    assert not Path("model").exists()


def test_command_line_of_runs(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a b c\nb c a\n\nc a b\n" * 20)
    command = "train text --units 10 --out model --chunk-tokens 50"
    argv = command.split()
    assert main(argv) == 0
    Path("model.checkpoints/.old.7").mkdir(parents=True)  # killed while it removed the last one
    assert main([*argv, "--resume"]) == 0
    assert "nothing to resume" in capsys.readouterr().out
    assert not Path("model.checkpoints").exists()
    assert main([*argv, "--resume", "--seed", "4"]) == 2
    assert "is a model of another run" in capsys.readouterr().err
    Checkpoints(Path("new.checkpoints")).save(1, {}, {"a": np.zeros(1)})
    argv[argv.index("model")] = "new"
    assert main(argv) == 2
    assert "pass --resume to continue it, or --overwrite" in capsys.readouterr().err
    assert main([*argv, "--overwrite"]) == 0
    assert not Path("new.checkpoints").exists()
    logged = ["--held-out", "text", "--log", "text"]
    assert main([*argv, "--overwrite", *logged]) == 2
    assert "text exists and is not a log of training" in capsys.readouterr().err
    assert main([*argv, "--overwrite", "--checkpoint-every", "nan"]) == 2
    assert "--checkpoint-every must be at least 0" in capsys.readouterr().err
    assert main([*argv, "--overwrite", "--readout", "softmax", "--option", "solver=newton-cg"]) == 2
    assert "reads every row at each step" in capsys.readouterr().err


def test_a_model_whose_disk_is_full_is_not_lost(tmp_path: Path, monkeypatch, capsys):
    write = model_folder.write_files

    def full(folder: Path, *args) -> None:
        if folder.parent == tmp_path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "weights"))
        write(folder, *args)

    (tmp_path / "text").write_text("the boy sees the dog\n" * 20)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(model_folder, "write_files", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    command = ["train", str(tmp_path / "text"), "--out", str(tmp_path / "model"), "--units", "20"]
    line = refused(capsys, *command)
    (place,) = (tmp_path / "temporary").glob("*/model")
    assert line.endswith(f"No space left on device; the model is in {place}: move it from there")
    assert load_model(place).n_tokens_ == 7
    assert not (tmp_path / "model").exists()
