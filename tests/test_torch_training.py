"""The training loop: batches, exact resume, accumulation, several processes."""

import csv
import dataclasses
import os
import re
import subprocess
import sys
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from esnlm.storage.checkpoints import CheckpointError, Checkpoints  # noqa: E402
from esnlm.text.corpus import CorpusError, TokenStream  # noqa: E402
from esnlm.torch.networks.esn import EchoStateNetwork, EchoStateNetworkWithEmbedding  # noqa: E402
from esnlm.torch.networks.esn_mlp import EchoStateNetworkWithMLP  # noqa: E402
from esnlm.torch.networks.lstm import LSTM  # noqa: E402
from esnlm.torch.networks.network import Network  # noqa: E402
from esnlm.torch.networks.registry import network_class  # noqa: E402
from esnlm.torch.scoring import log_probabilities  # noqa: E402
from esnlm.torch.training.batches import batches_of  # noqa: E402
from esnlm.torch.training.plan import Plan  # noqa: E402
from esnlm.torch.training.trainer import COLUMNS, NetworkTrainer  # noqa: E402
from esnlm.training.resumable_run import StoppedError  # noqa: E402
from esnlm.training.training_log import TrainingLog  # noqa: E402

pytestmark = pytest.mark.torch

V = 11
RESERVOIR = {"n_units": 24, "degree": 4, "random_state": 0}


def corpus(n_sequences: int = 60, seed: int = 0, starts: bool = True) -> TokenStream:
    """Counting modulo ten from a random start, ended by 10."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, 12, size=n_sequences)
    parts = [np.append((rng.integers(10) + np.arange(n - 1)) % 10, 10) for n in lengths]
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    tokens = np.concatenate(parts).astype(np.uint16)
    return TokenStream(tokens, bounds[:-1] if starts else None, bounds[[0, -1]])


def made(name: str) -> Network:
    torch.manual_seed(5)
    if name == "esn":
        return EchoStateNetwork(V, reservoir=RESERVOIR, rank=6, dropout=0.1)
    if name == "esn+i":
        return EchoStateNetworkWithEmbedding(V, reservoir=RESERVOIR)
    if name == "esn+mlp":
        return EchoStateNetworkWithMLP(V, reservoir=RESERVOIR, width=12, n_hidden=6, n_pairs=5)
    return LSTM(V, n_units=8, dropout=0.1)


def without_dropout(network: Network) -> Network:
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return network


PLANS = {
    "sentences": Plan(batch_size=8, pool=2, n_passes=2, score_every=3, learning_rate=0.01),
    "accumulated": Plan(batch_size=4, accumulate=3, clip=1.0, schedule="cosine"),
    "streams": Plan(batching="streams", batch_size=4, length=20, n_passes=2, learning_rate=0.01),
    "varied": Plan(batching="streams", batch_size=4, length=15, vary_length=True, n_passes=2),
    "windows": Plan(batching="windows", batch_size=32, length=6, stride=3, last_only=True,
                    schedule="warmup-hold-cosine", warmup=0.2, hold=0.2),
    "averaged": Plan(batch_size=8, n_passes=2, optimizer="sgd", learning_rate=30.0, clip=1.0,
                     score_every=1, patience=1),
    "steps": Plan(batch_size=4, accumulate=2, steps=11, schedule="cosine", score_every=2),
    "steps of streams": Plan(batching="streams", batch_size=4, length=15, vary_length=True,
                             steps=9),
}  # fmt: skip


def weights(network: Network) -> dict[str, Any]:
    return {name: p.detach().clone() for name, p in network.named_parameters()}


def trainer_of(name: str, plan: Plan) -> NetworkTrainer:
    starts = plan.batching == "sentences"
    held_out = corpus(10, seed=1, starts=starts)
    return NetworkTrainer(made(name), corpus(starts=starts), held_out, plan)


@pytest.mark.parametrize(
    ("name", "plan"),
    [("lstm", plan) for plan in PLANS]
    + [(name, plan) for name in ("esn", "esn+i", "esn+mlp") for plan in ("sentences", "streams")],
)
def test_a_run_stopped_at_every_step_ends_in_the_same_bits(
    name: str, plan: str, tmp_path: Path
) -> None:
    whole = trainer_of(name, PLANS[plan])
    whole.run(log=TrainingLog(tmp_path / "whole.csv", further=COLUMNS))
    assert whole.step == whole.n_steps > 4
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for runs in range(1, whole.n_steps + 1):
        part = trainer_of(name, PLANS[plan])
        log = TrainingLog(tmp_path / "parts.csv", further=COLUMNS)
        try:
            part.run(checkpoints, resume=True, log=log, stop=lambda: True)
            break
        except StoppedError:
            assert part.step == runs
    assert part.digest() == whole.digest()
    for key, value in weights(whole.network).items():
        assert torch.equal(weights(part.network)[key], value), key
    assert part.last_score == whole.last_score
    rows, others = (
        list(csv.DictReader((tmp_path / name).read_text().splitlines()))
        for name in ("whole.csv", "parts.csv")
    )
    assert len(rows) == len(others) > 1
    same = ("pass", "tokens", "share", "held_out_nll", "training_nll", "learning_rate")
    for row, other in zip(rows, others, strict=True):
        assert [row[key] for key in same] == [other[key] for key in same]
        assert float(row["tokens_per_second"]) > 0
        assert int(row["peak_memory_bytes"]) > 1 << 20


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 8, "pool": 2},
        {"batch_size": 4, "accumulate": 3},
        {"batching": "streams", "batch_size": 4, "length": 15, "vary_length": True},
        {"batching": "windows", "batch_size": 8, "length": 6, "last_only": True},
    ],
)
def test_a_run_of_steps_is_the_beginning_of_a_longer_one(
    options: dict[str, Any], tmp_path: Path
) -> None:
    whole = trainer_of("lstm", Plan(n_passes=3, **options))
    assert trainer_of("lstm", Plan(steps=whole.n_steps, **options)).n_steps == whole.n_steps
    after: list[dict[str, Any]] = []
    whole.run(stop=lambda: bool(after.append(weights(whole.network))))
    for steps in (1, whole.steps_a_pass, whole.steps_a_pass + 2):
        log = TrainingLog(tmp_path / f"{steps}.csv", further=COLUMNS)
        part = trainer_of("lstm", Plan(steps=steps, **options))
        part.run(log=log)
        assert part.step == part.n_steps == steps
        for key, value in weights(part.network).items():
            assert torch.equal(after[steps - 1][key], value), key
        last = list(csv.DictReader((tmp_path / f"{steps}.csv").read_text().splitlines()))[-1]
        assert float(last["share"]) == 1.0
        assert int(last["tokens"]) == part.tokens


def test_the_schedule_of_a_run_of_steps_ends_with_it(tmp_path: Path) -> None:
    plan = Plan(batch_size=8, steps=11, schedule="cosine", score_every=1)
    log = TrainingLog(tmp_path / "log.csv", further=COLUMNS)
    trainer_of("lstm", plan).run(log=log)
    rows = csv.DictReader((tmp_path / "log.csv").read_text().splitlines())
    rates = [float(row["learning_rate"]) for row in rows]
    expected = [5e-4 * (1 + np.cos(np.pi * step / 11)) for step in range(11)]
    np.testing.assert_allclose(rates, expected, rtol=1e-3)


def test_a_number_of_steps_is_positive() -> None:
    with pytest.raises(ValueError, match=r"steps must be None or an integer of at least 1, got 0"):
        Plan(steps=0)


def test_pieces_of_drawn_lengths_are_the_whole_text_in_each_pass() -> None:
    stream = TokenStream(np.arange(200_001), None, np.array([0, 200_001]))
    batches = batches_of(
        stream, Plan(batching="streams", batch_size=2, vary_length=True, length=70)
    )
    passes = [list(batches.of_pass(number)) for number in (0, 1)]
    lengths = [[batch.tokens.shape[1] for batch in made] for made in passes]
    assert lengths[0] != lengths[1]
    assert sorted(lengths[0]) == sorted(lengths[1])
    assert len(lengths[0]) == batches.n_batches
    for made in passes:
        read = np.concatenate([batch.tokens for batch in made], axis=1)
        np.testing.assert_array_equal(read.ravel(), np.arange(200_000))
        assert [batch.continues for batch in made] == [False] + [True] * (len(made) - 1)
    # Merity et al.: one piece in twenty about half as long, each with a deviation of 5.
    drawn = np.array(lengths[0])
    short = drawn < 52
    assert 0.03 < short.mean() < 0.07
    assert abs(drawn[~short].mean() - 70) < 1
    assert abs(drawn[short].mean() - 35) < 2
    assert 4 < drawn[~short].std() < 6


@pytest.mark.parametrize("n_tokens", [2, 6, 40])
def test_a_short_text_is_one_piece_or_some(n_tokens: int) -> None:
    stream = TokenStream(np.arange(n_tokens), None, np.array([0, n_tokens]))
    plan = Plan(batching="streams", batch_size=1, vary_length=True, length=15)
    read = [batch.tokens.ravel() for batch in batches_of(stream, plan).of_pass(3)]
    np.testing.assert_array_equal(np.concatenate(read), np.arange(n_tokens - 1))


def test_rates_are_in_proportion_to_drawn_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of("lstm", PLANS["varied"])
    step, rates = trainer.optimizer.step, []

    def noted(number: int, rate: float, clip: float | None) -> None:
        rates.append(rate)
        step(number, rate, clip)

    monkeypatch.setattr(trainer.optimizer, "step", noted)
    trainer.run()
    lengths = [b.tokens.shape[1] for number in (0, 1) for b in trainer.batches.of_pass(number)]
    assert len(set(lengths)) > 1
    np.testing.assert_allclose(rates, [1e-3 * length / 15 for length in lengths])


@pytest.mark.parametrize("plan", ["sentences", "accumulated", "windows"])
def test_groups_that_are_read_ahead_change_nothing(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for values, reads in ((1, True), (1 << 24, True), (1 << 24, False), (10_000, True)):
        monkeypatch.setattr("esnlm.torch.training.batches._VALUES", values)
        monkeypatch.setattr(EchoStateNetwork, "reads_ahead", reads)
        trainer = trainer_of("esn", PLANS[plan])
        without_dropout(trainer.network)
        trainer.run()
        found.append(weights(trainer.network))
        for key, value in found[0].items():
            torch.testing.assert_close(found[-1][key], value, atol=1e-4, rtol=1e-3)
    checkpoints = Checkpoints(tmp_path / "checkpoints")  # in groups of several, stopped within them
    while True:
        part = trainer_of("esn", PLANS[plan])
        without_dropout(part.network)
        try:
            part.run(checkpoints, resume=True, stop=lambda: True)
            break
        except StoppedError:
            continue
    for key, value in weights(part.network).items():
        assert torch.equal(found[-1][key], value)


@pytest.mark.parametrize("patience", [1, 2])
def test_weights_are_averaged_from_where_the_loss_rises(
    patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = dataclasses.replace(PLANS["averaged"], patience=patience, n_passes=4)
    trainer = trainer_of("lstm", plan)
    after: list[dict[str, Any]] = []
    step = trainer.optimizer.step

    def noted(*args: Any) -> None:
        step(*args)
        after.append(weights(trainer.network))

    monkeypatch.setattr(trainer.optimizer, "step", noted)
    held = trainer.held_out
    assert held is not None

    def loss(network: Network) -> float:
        scores = log_probabilities(network.eval(), held.tokens, held.starts)
        return -float(scores[held.predicted()].mean())

    trainer.run()
    assert len(after) == trainer.n_steps
    losses, begun = [], None
    other = made("lstm")
    for number, found in enumerate(after, 1):
        other.load_state_dict(found, strict=False)
        losses.append(loss(other))
        if any(before < losses[-1] for before in losses[: -patience - 1]):
            begun = number
            break
    assert begun is not None
    assert begun < trainer.n_steps - 2
    assert trainer.averaging.n_steps == trainer.n_steps - begun
    for key, value in weights(trainer.network).items():
        mean = torch.stack([found[key] for found in after[begun:]]).mean(dim=0)
        torch.testing.assert_close(value, mean, atol=1e-5, rtol=1e-4)
    assert trainer.last_score == pytest.approx(loss(trainer.network), abs=1e-6)
    assert trainer.last_score < losses[-1]


def test_accumulated_batches_are_one_batch() -> None:
    found = []
    for options in ({"batch_size": 10}, {"batch_size": 5, "accumulate": 2}):
        trainer = trainer_of("esn", Plan(learning_rate=0.01, **options))
        without_dropout(trainer.network)
        trainer.run()
        found.append(weights(trainer.network))
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, atol=1e-5, rtol=1e-4)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    with pytest.raises(StoppedError):
        trainer_of("esn", Plan(batch_size=8)).run(checkpoints, stop=lambda: True)
    with pytest.raises(CheckpointError, match="batch_size is 9, but was 8"):
        trainer_of("esn", Plan(batch_size=9)).run(checkpoints, resume=True)
    other = trainer_of("esn", Plan(batch_size=8))
    other.settings["network"] = other.settings["network"] | {"rank": 7}
    with pytest.raises(CheckpointError, match="rank of the network is 7, but was 6"):
        other.run(checkpoints, resume=True)
    seeded = trainer_of("esn", Plan(batch_size=8, random_state=3))
    seeded.settings["first weights"] = "those of that seed"
    with pytest.raises(CheckpointError, match="random_state is 3, but was 0"):
        seeded.run(checkpoints, resume=True)
    with pytest.raises(CheckpointError, match="model is 'lstm', but was 'esn'"):
        trainer_of("lstm", Plan(batch_size=8)).run(checkpoints, resume=True)


def test_half_precision_is_near_full() -> None:
    scores = []
    for bf16 in (False, True):
        trainer = trainer_of("esn", Plan(batch_size=8, n_passes=4, learning_rate=0.02, bf16=bf16))
        trainer.run()
        scores.append(trainer.last_score)
        assert all(p.dtype == torch.float32 for p in trainer.network.parameters())
    assert scores[1] == pytest.approx(scores[0], abs=0.05)


@pytest.mark.skipif(not hasattr(torch.cpu, "get_capabilities"), reason="an older torch")
def test_half_precision_that_costs_time_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for found in ("", "avx512_bf16", "amx_bf16"):
        has = {"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": False} | {found: True}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has=has: has)
        caplog.clear()
        for bf16 in (True, False):
            trainer_of("esn", Plan(batch_size=8, bf16=bf16)).run()
        told = "this processor has no bfloat16 instructions: training without bf16 is faster"
        assert caplog.messages == ([] if found else [told])


_IN_BF16 = """
import numpy as np, torch
from esnlm.text.corpus import TokenStream
from esnlm.torch.device import peak_memory
from esnlm.torch.networks.esn import EchoStateNetwork
from esnlm.torch.training.plan import Plan
from esnlm.torch.training.trainer import NetworkTrainer
torch.set_num_threads(1)
rng = np.random.default_rng(0)
starts = np.append(0, np.cumsum(rng.integers(4, 60, size=1200)))
tokens = rng.integers(0, 4096, size=starts[-1])
stream = TokenStream(tokens, starts[:-1], starts[[0, -1]])
network = EchoStateNetwork(4096, reservoir={"n_units": 256, "random_state": 0}, rank=None)
peaks = []
stop = lambda: peaks.append(peak_memory(torch.device("cpu")))
NetworkTrainer(network, stream, None, Plan(bf16=True, batch_size=8, score_every=0)).run(stop=stop)
print(peaks[29], peaks[-1])
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_sizes_of_batches_in_half_precision() -> None:
    ran = subprocess.run([sys.executable, "-c", _IN_BF16], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    before, after = map(int, ran.stdout.split())
    assert after < before + (200 << 20), "a kernel is kept for each number of rows"


RECURRENT = {
    "esn": {"reservoir": RESERVOIR},
    "esn+i": {"reservoir": RESERVOIR},
    "lstm": {"n_units": 8},
    "mts-lstm": {"n_units": 8, "n_dims": 6},
    "char-esn": {"n_units": 10, "context": 6},
    "laerc": {"n_dims": 8, "n_layers": 2},
}


@pytest.mark.parametrize("name", RECURRENT)
def test_states_are_in_full_precision_whatever_the_rest_is(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = network_class(name)(V, **RECURRENT[name]).eval()
    found = []
    for enabled in (False, True):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            hidden, state = network.encode(torch.arange(10)[None])
        found.append(state[0] if name == "laerc" else hidden)
    torch.testing.assert_close(found[1], found[0])
    plan = Plan(batching="streams", batch_size=4, length=20, bf16=True)
    trainer = NetworkTrainer(network, corpus(starts=False), None, plan)
    with pytest.raises(StoppedError):
        trainer.run(Checkpoints(tmp_path / "checkpoints"), stop=lambda: True)


def test_what_attention_remembers_is_in_a_checkpoint_of_half_precision(tmp_path: Path) -> None:
    plan = Plan(batching="streams", batch_size=4, length=20, bf16=True)
    whole = trainer_of("esn+mlp", plan)
    assert whole.network.attention
    whole.run()
    part = trainer_of("esn+mlp", plan)
    with pytest.raises(StoppedError):
        part.run(Checkpoints(tmp_path / "checkpoints"), stop=lambda: True)
    part = trainer_of("esn+mlp", plan)
    part.run(Checkpoints(tmp_path / "checkpoints"), resume=True)
    for key, value in weights(whole.network).items():
        assert torch.equal(weights(part.network)[key], value), key


@pytest.mark.parametrize("name", ["esn", "esn+i", "lstm"])
@pytest.mark.parametrize("plan", ["accumulated", "streams"])
def test_logits_in_parts_change_nothing(
    name: str, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for at_once in (1 << 26, 3 * V):
        monkeypatch.setattr("esnlm.torch.networks.network._LOGITS_AT_ONCE", at_once)
        trainer = trainer_of(name, PLANS[plan])
        without_dropout(trainer.network)
        trainer.run()
        found.append((weights(trainer.network), trainer.last_score))
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-4)


def test_hidden_vectors_of_a_step_are_not_all_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esnlm.torch.training.batches._VALUES", 1)  # each batch is read for itself
    alive: list[Any] = []
    harvest = EchoStateNetwork.harvest

    def harvested(self: Any, *args: Any) -> Any:
        assert all(ref() is None for ref in alive)
        hidden = harvest(self, *args)
        alive.append(weakref.ref(hidden))
        return hidden

    monkeypatch.setattr(EchoStateNetwork, "harvest", harvested)
    trainer_of("esn", Plan(batch_size=4, accumulate=3)).run()
    assert len(alive) == 1 + 15  # one of a single token, for the width of a row


@pytest.mark.parametrize("longest", [None, 4])
def test_batched_scores_are_those_of_each_sequence(longest: Any, monkeypatch: Any) -> None:
    network = made("lstm").eval()
    if longest is not None:
        network.longest, network.stride = longest, 2
    stream = corpus(20)
    scores = log_probabilities(network, stream.tokens, stream.starts)
    bounds = [*stream.starts, len(stream.tokens)]
    for first, last in pairwise(bounds):
        for place in range(first + 1, last):
            done = place - first
            begin = first
            if longest is not None and done > longest:
                begin += min(-(-(done - longest) // 2) * 2, last - 1 - first - longest)
            ids = torch.from_numpy(stream.tokens[begin:place].astype(np.int64))[None]
            with torch.no_grad():
                logits = network.head(network.encode(ids)[0][0, -1])
            expected = torch.log_softmax(logits, -1)[int(stream.tokens[place])]
            assert scores[place] == pytest.approx(float(expected), abs=1e-5)


SHORT = {
    "lstm": {"n_units": 4},
    "esn": {"reservoir": {"n_units": 9, "degree": 3, "random_state": 0}, "rank": 3},
    "transformer": {"n_hidden": 8, "n_layers": 1, "context": 4},
}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=8), min_size=1, max_size=12),
    st.sampled_from(list(SHORT)),
    st.booleans(),
)
def test_what_sentences_begin_with_alike_is_scored_as_in_each_alone(
    sentences: list[list[int]], name: str, ordered: bool
) -> None:
    if ordered:
        sentences = sorted(sentences)
    torch.manual_seed(0)
    network = network_class(name)(2, **SHORT[name])
    alone = [log_probabilities(network, np.array(s), np.zeros(1, dtype=int)) for s in sentences]
    starts = np.cumsum([0, *map(len, sentences[:-1])])
    together = log_probabilities(network, np.concatenate(sentences), starts)
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-5)


def test_a_prediction_that_sentences_share_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network, made_for = made("lstm").eval(), []
    loss = Network.loss
    monkeypatch.setattr(
        Network, "loss", lambda self, h, y: made_for.append(len(y)) or loss(self, h, y)
    )
    sentences = [[1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 4, 4]]
    starts = np.cumsum([0, *map(len, sentences[:-1])])
    log_probabilities(network, np.concatenate(sentences), starts)
    assert sum(made_for) == 3 + 1 + 0 + 2


def test_long_text_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    network = made("lstm").eval()
    stream = corpus(20, starts=False)
    whole = log_probabilities(network, stream.tokens, None)
    monkeypatch.setattr("esnlm.torch.scoring._LONGEST", 7)
    np.testing.assert_allclose(log_probabilities(network, stream.tokens, None), whole, atol=1e-6)


def test_every_token_is_predicted_once_a_pass() -> None:
    stream = corpus()
    for plan in (Plan(batch_size=7), Plan(batch_size=7, pool=3), Plan(batch_size=7, length=3)):
        batches = batches_of(stream, plan)
        pairs = [
            (a, b)
            for batch in batches.of_pass(3)
            for a, b in zip(
                batch.tokens[batch.counted], batch.following[batch.counted], strict=True
            )
        ]
        expected = np.flatnonzero(stream.predicted())
        assert len(pairs) == batches.n_predicted == len(expected)
        tokens = stream.tokens
        assert sorted(pairs) == sorted(zip(tokens[expected - 1], tokens[expected], strict=True))


def test_parts_of_a_text_are_learned_one_after_another() -> None:
    """Köster & Uchida, section II.6: all passes over a part come before the next part."""
    text = TokenStream(np.arange(50), None, np.array([0, 50]))  # a token is its place
    common = {"batching": "windows", "length": 4, "stride": 1, "last_only": True, "batch_size": 4}
    plan = Plan(**common, parts=3, n_passes=2)
    batches = batches_of(text, plan)
    passes = [list(batches.of_pass(number)) for number in range(2)]
    firsts = [[batch.tokens[:, 0] for batch in each] for each in passes]
    read = np.concatenate([np.concatenate(each) for each in firsts])
    assert len(read) == 2 * batches.n_predicted == 2 * 45  # of 46 windows
    for part, places in enumerate(read.reshape(3, 2, 15)):
        for one_pass in places:
            assert sorted(one_pass) == list(range(15 * part, 15 * part + 15))
        assert (places[0] != places[1]).any()
    assert [len(each) for each in passes] == [batches.n_batches] * 2 == [12, 12]
    with pytest.raises(CorpusError, match=r"50 tokens .* windows of 4, parts=47: take shorter"):
        batches_of(text, Plan(**common, parts=47))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(2, 40), min_size=1, max_size=60), st.integers(1, 5), st.integers(2, 9))
def test_sorted_sentences_are_in_batches_of_about_as_many_tokens(
    lengths: list[int], rows: int, pool: int
) -> None:
    starts = np.cumsum([0, *lengths])
    stream = TokenStream(np.zeros(starts[-1], dtype=np.int64), starts[:-1], starts[[0, -1]])
    batches = batches_of(stream, Plan(batch_size=rows, pool=pool))
    found = [batch.counted for batch in batches.of_pass(0)]
    assert len(found) == batches.n_batches == -(-len(lengths) // rows)
    read = np.concatenate([counted.sum(1) for counted in found])
    assert sorted(read + 1) == sorted(lengths)
    if len(lengths) == rows * pool:  # one pool: none has more than a piece over its share
        share = batches.n_predicted / len(found)
        assert all(counted.sum() < share + counted.sum(1).max() for counted in found[:-1])


def test_order_differs_by_pass_and_seed_and_starts_anywhere() -> None:
    batches = batches_of(corpus(), Plan(batch_size=8))
    first = [batch.tokens.tolist() for batch in batches.of_pass(0)]
    assert first == [batch.tokens.tolist() for batch in batches.of_pass(0)]
    assert first[3:] == [batch.tokens.tolist() for batch in batches.of_pass(0, 3)]
    assert first != [batch.tokens.tolist() for batch in batches.of_pass(1)]
    other = batches_of(corpus(), Plan(batch_size=8, random_state=1))
    assert first != [batch.tokens.tolist() for batch in other.of_pass(0)]


def test_a_loss_far_above_that_of_equal_probabilities_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trainer_of("esn", Plan(batch_size=8))
    trainer.run()
    assert not caplog.messages
    trainer = trainer_of("esn", Plan(batch_size=8))
    with torch.no_grad():
        trainer.network.output[1].weight.fill_(0)
        trainer.network.output[1].weight[0] = 1e4
    trainer.run(log=TrainingLog(tmp_path / "log.csv", further=COLUMNS))
    (message,) = caplog.messages
    assert re.match(r"the training loss is \S+ nats a token, that of equal prob.*: lower", message)


def test_a_loss_that_is_no_number_is_an_error() -> None:
    trainer = trainer_of("esn", Plan(batch_size=8))
    with torch.no_grad():
        trainer.network.output[1].weight.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="the loss is not finite after step"):
        trainer.run()


def test_bad_plans_and_corpora_are_named() -> None:
    for options, message in (
        ({"batching": "lines"}, "batching must be one of"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"bf16": "no"}, "bf16 must be true or false, got 'no'"),
        ({"vary_length": True}, "leave out vary_length, or change batching"),
        ({"learning_rate": "fast"}, "learning_rate must be a finite number, got 'fast'"),
        ({"clip": float("nan")}, "clip must be a finite number"),
        ({"weight_decay": -1.0}, "weight_decay must not be negative, got -1.0"),
        ({"clip": 0.0}, "clip must be positive"),
        (
            {"schedule": "warmup-hold-cosine", "warmup": 0.6, "hold": 0.6},
            "warmup and hold must add",
        ),
        ({"final": 2.0}, "final must lie in"),
        ({"optimizer": "adam"}, "optimizer must be one of adamw, muon, sgd, got 'adam'"),
        ({"patience": 5}, "leave out patience, or change optimizer"),
    ):
        with pytest.raises(ValueError, match=message):
            Plan(**options)
    averaged = Plan(optimizer="sgd", patience=5)
    with pytest.raises(ValueError, match="patience needs a held-out text"):
        NetworkTrainer(made("esn"), corpus(), None, averaged)
    windows = Plan(batching="windows", length=4000)
    with pytest.raises(CorpusError, match="none to predict in windows of 4000, parts=1"):
        batches_of(corpus(starts=False), windows)


SHARED = {
    "esn+i": {"batch_size": 4, "learning_rate": 0.01, "clip": 0.5},
    "esn+mlp": {"batch_size": 4, "learning_rate": 0.01, "clip": 0.5},
    "lstm": {"batching": "streams", "batch_size": 2, "length": 20, "learning_rate": 0.01},
}
WORKER = """
import sys
import torch
from safetensors.torch import save_file
from esnlm.torch.device import joined
sys.path.insert(0, {tests!r})
from test_torch_training import SHARED, shared_run
with joined(torch.device("cpu")) as processes:
    for name in SHARED:
        trained = shared_run(name, SHARED[name], processes)
        if processes.first:
            save_file(trained, {folder!r} + "/" + name)
"""


def shared_run(name: str, options: dict[str, Any], processes: Any = None) -> dict[str, Any]:
    plan = Plan(**options)
    stream = corpus(starts=plan.batching == "sentences")
    trainer = NetworkTrainer(without_dropout(made(name)), stream, None, plan, processes)
    trainer.run()
    return weights(trainer.network)


def test_two_processes_are_one_with_the_doubled_batch(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(tests=str(Path(__file__).parent), folder=str(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         str(script)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name, options in SHARED.items():
        alone = shared_run(name, options | {"batch_size": 2 * options["batch_size"]})
        together = load_file(tmp_path / name)
        for key, value in alone.items():
            torch.testing.assert_close(together[key], value, atol=1e-5, rtol=1e-4)
