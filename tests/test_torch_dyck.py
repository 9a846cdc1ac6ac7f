"""The Dyck-2 pair and its experiment."""

import csv
import json

import numpy as np
import pytest
import scipy.special

torch = pytest.importorskip("torch")

from esnlm.__main__ import main  # noqa: E402
from esnlm.grammars.dyck import DyckGrammar  # noqa: E402
from esnlm.reservoir.timescales import inverse_gamma_timescales  # noqa: E402
from esnlm.studies.dyck.reservoirs import Drive  # noqa: E402
from esnlm.torch.networks.dyck_attention import (  # noqa: E402
    DyckAttention,
    Sequences,
    predict,
)
from esnlm.torch.networks.dyck_lstm import (  # noqa: E402
    Brackets,
    DyckLSTM,
    mean_squared_error,
    measured_timescales,
    right_sequences,
    train,
)

pytestmark = pytest.mark.torch

SEQUENCES = DyckGrammar(max_length=14).sample(60, random_state=0, distinct=True)
ALPHAS = [None, 1.5]


def network_of(alpha=None, n_units=16):
    torch.manual_seed(0)
    return DyckLSTM(n_units, alpha)


def test_sizes_are_those_of_the_paper():
    count = sum(p.numel() for p in DyckLSTM().parameters())
    layer = torch.nn.LSTM(4, 256)
    assert count == sum(p.numel() for p in layer.parameters()) + 2 * 257


def test_timescales_are_fixed_to_the_law():
    network = network_of(1.5)
    np.testing.assert_allclose(network.timescales, inverse_gamma_timescales(1.5, 16))
    assert not network.layer.gate_bias.requires_grad
    assert network_of().timescales is None


def test_sequences_as_tensors():
    data = Brackets.of(["([])", "()"])
    assert data.tokens.tolist() == [[0, 2, 3, 1], [0, 1, 0, 0]]
    assert data.inside.tolist() == [[True] * 4, [True, True, False, False]]
    expected = [[[1, 0], [0, 1], [1, 0], [0, 0]], [[1, 0], [0, 0], [0, 0], [0, 0]]]
    assert data.allowed.int().tolist() == expected
    assert next(data.batches(torch.tensor([1]))).tokens.tolist() == [[0, 1]]


@torch.no_grad()
def alone(network, sequence):
    """Scores and targets (T, 2) of one sequence."""
    one = Brackets.of([sequence])
    return network(one.tokens)[0].numpy(), one.allowed[0].numpy()


def test_error_and_judgement_are_those_of_sequences_alone():
    network = network_of()
    pairs = [alone(network, sequence) for sequence in SEQUENCES]
    errors = np.concatenate([(scores - allowed) ** 2 for scores, allowed in pairs])
    data = Brackets.of(SEQUENCES)
    assert mean_squared_error(network, data) == pytest.approx(errors.mean(), rel=1e-5)
    expected = [((scores > 0.5) == allowed).all() for scores, allowed in pairs]
    np.testing.assert_array_equal(right_sequences(network, data), expected)


def test_a_sequence_is_right_when_every_step_is():
    class Sure(DyckLSTM):
        """Says what is allowed, but for one step of the second sequence."""

        def forward(self, tokens):
            scores = next(data.batches(torch.arange(3))).allowed.float()
            scores[1, 2, 0] = 0.4
            return scores[: len(tokens), : tokens.shape[1]]

    data = Brackets.of(["([])", "(())", "[[]]"])
    assert right_sequences(Sure(4), data).tolist() == [True, False, True]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_it_learns_short_sequences(alpha):
    network = network_of(alpha)
    data = Brackets.of(SEQUENCES)
    before = mean_squared_error(network, data)
    reported = []
    options = {"n_passes": 40, "batch_size": 8, "learning_rate": 0.01}
    train(network, data, data, **options, report=lambda *seen: reported.append(seen))
    assert [epoch for epoch, *_ in reported] == list(range(1, 41))
    assert reported[-1][2] == mean_squared_error(network, data) < 0.2 * before
    assert right_sequences(network, data).mean() > 0.6


def test_training_ends_once_it_has_converged():
    network = network_of()
    data = Brackets.of(["()", "[]"])
    n_passes = train(network, data, data, n_passes=2000, learning_rate=0.03)
    assert n_passes < 2000
    assert right_sequences(network, data).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_measured_timescales_are_equation_3(alpha):
    network = network_of(alpha)
    with torch.no_grad():
        drives = [network.forget_drives(Brackets.of([s]).tokens)[0].numpy() for s in SEQUENCES]
    expected = -1 / np.log(scipy.special.expit(np.concatenate(drives)).mean(axis=0))
    np.testing.assert_allclose(
        measured_timescales(network, Brackets.of(SEQUENCES)), expected, rtol=1e-3
    )


OPTIONS = ["--units", "8", "--passes", "2", "--train", "40", "--validation", "10", "--test", "20"]
OPTIONS += ["--max-length", "12", "--device", "cpu"]


def dyck(out, *more):
    return main(["dyck", "--out", str(out), *OPTIONS, *more])


def rows_of(out):
    with (out / "dyck.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_experiment_writes_rows_and_goes_on(tmp_path):
    assert dyck(tmp_path, "--seeds", "1", "--no-plots") == 0
    first = rows_of(tmp_path)
    assert [row["model"] for row in first] == ["baseline", "mts", "esn"]
    assert dyck(tmp_path, "--seeds", "2") == 0
    rows = rows_of(tmp_path)
    assert rows[:3] == first
    assert [row["seed"] for row in rows] == ["0"] * 3 + ["1"] * 3
    assert (tmp_path / "dyck.png").stat().st_size > 10_000
    for row in rows:
        for column in ("right_by_length", "right_by_distance"):
            bins = json.loads(row[column])
            assert sum(n for _, _, n, _ in bins) == 20
            assert sum(right for *_, right in bins) == round(20 * float(row["right"]))
        assert 0 < float(row["ks_closest_alpha"]) <= float(row["ks_alpha"]) + 0.01


def test_runs_are_repeatable(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        dyck(tmp_path / name, "--seeds", "1", "--no-plots")
    same = ("right", "train_loss", "validation_loss", "ks_alpha", "timescale_quantiles")
    a, b = (
        [{name: row[name] for name in same} for row in rows_of(tmp_path / name)] for name in "ab"
    )
    assert a == b


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--models", "gru"], '"gru" for --models. Choose from: "baseline", "mts", "esn"'),
        (["--max-length", "4"], "--max-length must be more than 4, which allows 10 sequences"),
        (["--alpha", "0"], "--alpha must be positive and finite, got 0.0"),
        (["--device", "abacus"], "device must be auto, cpu, cuda or cuda:NUMBER, got 'abacus'"),
        (["--passes", "0"], "--passes must be at least 1, got 0"),
        (["--leaks", "0"], "leak_rate must lie in (0, 1], got 0"),
        (["--models", "mts", "stack", "--units", "8", "7"], "units must be even for a stack"),
        (["--learning-rate", "1e39"], "--learning-rate must lie in (0, 1e+30], got 1e+39"),
    ],
)
def test_options_that_make_no_experiment(tmp_path, capsys, options, message):
    assert dyck(tmp_path / "out", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [["esn", "--readouts", "attention"], ["mts"], ["baseline"]])
def test_a_network_that_diverges_is_no_row(tmp_path, capsys, options):
    options = ["--models", *options, "--learning-rate", "1e30"]
    assert dyck(tmp_path, *options, "--seeds", "1") == 2
    assert "--learning-rate must be lower: training diverged" in capsys.readouterr().err
    assert not (tmp_path / "dyck.csv").exists()


def test_attention_reads_earlier_states_alone():
    states = Drive("esn", 8, "0.3", 0, SEQUENCES).fit(SEQUENCES)
    sequences = Sequences.of(*states)
    assert torch.cat([sequence.y for sequence in sequences]).tolist() == states.y.tolist()
    torch.manual_seed(0)
    network = DyckAttention(8)
    batch = Sequences.together(sequences, torch.device("cpu"))
    together = network(batch.X, batch.tokens)
    alone = [network(*Sequences.together([one], batch.X.device)[:2])[0] for one in sequences]
    inside = batch.y != -100
    torch.testing.assert_close(together[inside], torch.cat(alone), atol=1e-5, rtol=1e-5)
    assert predict(network, sequences).tolist() == torch.cat(alone).argmax(dim=1).tolist()
    later = batch.X.clone()
    later[:, 3:] += 1
    changed = network(later, batch.tokens) - together
    assert changed[:, :3].abs().max() == 0
    assert changed[:, 3:].abs().min() > 0


def test_attention_beats_what_reads_the_last_state_alone(tmp_path):
    options = "--models esn --readouts softmax attention --leaks 0.3 --units 16 --passes 20"
    sizes = "--seeds 1 --train 400 --validation 50 --test 200 --max-length 14"
    plan = "--learning-rate 0.003 --device cpu --out"
    assert main(["dyck", *options.split(), *sizes.split(), *plan.split(), str(tmp_path)]) == 0
    with (tmp_path / "dyck.csv").open(newline="") as file:
        rows = {row["readout"]: row for row in csv.DictReader(file)}
    assert float(rows["attention"]["right"]) > float(rows["softmax"]["right"]) + 0.2
    assert int(rows["attention"]["passes_run"]) == 20
    assert (tmp_path / "dyck.png").exists()
