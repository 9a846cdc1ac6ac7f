"""Word ablation: windows, decays that are known, the command."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esnlm import LanguageModel, Reservoir, RidgeReadout
from esnlm.__main__ import main
from esnlm.studies.timescales.ablation import Decay, ablation_windows, word_ablation
from esnlm.text.corpus import TokenStream

TEXT = ["the boy sees the dog and the girl sees the cat", "a girl walks and the boy sees a dog"]
LEAKS = np.linspace(0.1, 1.0, 30)


def fitted(**settings):
    reservoir = Reservoir(30, random_state=0, **settings)
    return LanguageModel(reservoir, RidgeReadout(), tokenizer="word").fit(TEXT * 5)


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=9),
    context=st.integers(1, 3),
    n_lags=st.integers(1, 3),
    n_windows=st.integers(1, 20),
)
def test_windows_lie_in_one_sequence_and_do_not_overlap(lengths, context, n_lags, n_windows):
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    n_tokens, length = sum(lengths), context + 1 + n_lags
    stream = TokenStream(np.arange(n_tokens), starts, np.array([0, n_tokens]))
    possible = sum(n // length for n in lengths)
    if not possible:
        with pytest.raises(ValueError, match=f"has {length} tokens.*has {max(lengths)}"):
            ablation_windows(stream, context, n_lags, n_windows)
        return
    found = ablation_windows(stream, context, n_lags, n_windows)
    assert 1 <= len(found) <= min(possible, n_windows)
    assert len(found) >= min(possible, n_windows) / 2
    np.testing.assert_array_equal(np.diff(found, axis=1), 1)
    sequence = np.searchsorted(starts, found, side="right")
    np.testing.assert_array_equal(sequence, sequence[:, :1].repeat(length, axis=1))
    assert len(np.unique(found)) == found.size


def test_a_reservoir_is_read_with_and_without_the_word():
    model = fitted(leak_rate=("uniform", 0.2, 1.0), degree=5)
    stream = model.tokenize(TEXT)
    (layer,) = word_ablation(model, stream, context=3, n_lags=4)
    norms, apart = [], []
    for window in ablation_windows(stream, 3, 4, 1000):
        whole = model.reservoir_.transform(window)[3:]
        without = model.reservoir_.transform(np.delete(window, 3))[2:]
        apart.append(np.abs(whole - without))
        norm = np.linalg.norm(whole - without, axis=1)
        norms.append(norm / norm[0])
    assert len(norms) >= 2
    np.testing.assert_allclose(layer.share, np.mean(norms, axis=0), rtol=1e-5)
    np.testing.assert_allclose(layer.by_unit, np.mean(apart, axis=0), atol=1e-6)
    assert layer.share[0] == 1


def test_units_without_recurrence_forget_at_their_leak_rate():
    model = fitted(leak_rate=LEAKS, spectral_radius=0.0, dtype="float64")
    (layer,) = word_ablation(model, model.tokenize(TEXT), context=2, n_lags=6)
    expected = -1 / np.log1p(-LEAKS[:-1])
    np.testing.assert_allclose(layer.timescales()[:-1], expected, rtol=1e-6)
    # Without leak nothing is left at the next token.
    assert layer.by_unit[1, -1] == 0
    assert layer.timescales()[-1] < 0.2


def test_timescales_of_units_that_do_not_decay():
    lags = np.arange(5)
    still, growing, dead = np.ones(5), np.exp(lags), np.zeros(5)
    noisy = np.where(lags < 3, np.exp(-lags / 0.25), [0, 0, 0, 5e-5, 0.5])
    times = Decay(still, np.stack([still, growing, dead, noisy], axis=1)).timescales()
    np.testing.assert_allclose(times, [np.inf, np.inf, np.nan, 0.25])


def test_the_command_on_a_reservoir(tmp_path, capsys):
    model = fitted(leak_rate=LEAKS, degree=5)
    model.save(tmp_path / "model")
    (tmp_path / "text").write_text("\n".join(TEXT))
    files = {name: tmp_path / name for name in ("lags.csv", "units.csv", "plot.png")}
    options = ["--csv", "lags.csv", "--units-csv", "units.csv", "--plot", "plot.png"]
    named = [str(files.get(option, option)) for option in options]
    named += ["--context", "2", "--lags", "3", "--group", "10"]
    assert main(["ablation", str(tmp_path / "model"), str(tmp_path / "text"), *named]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("layer 1: 30 units  left ")
    rows = read(files["lags.csv"])
    assert [(row["group"], row["lag"]) for row in rows] == [
        (group, lag) for group in ("all", "1", "2", "3") for lag in "0123"
    ]
    (layer,) = word_ablation(model, model.tokenize(TEXT), context=2, n_lags=3)
    shares = [float(row["share"]) for row in rows[:4]]
    np.testing.assert_allclose(shares, layer.share, rtol=1e-6)
    # Groups are of units by timescale; the first are those of the largest leak rates.
    first = layer.by_unit[:, np.argsort(-LEAKS)[:10]].sum(axis=1)
    found = [float(row["share"]) for row in rows[4:8]]
    np.testing.assert_allclose(found, first / first[0], rtol=1e-6)
    last = {row["group"]: float(row["share"]) for row in rows if row["lag"] == "3"}
    assert last["1"] < last["2"] < last["3"]
    units = read(files["units.csv"])
    np.testing.assert_allclose([float(row["ablation"]) for row in units], layer.timescales())
    assert files["plot.png"].stat().st_size > 10_000


def test_models_stand_beside_each_other(tmp_path, capsys):
    """Figure 6 of Mahto et al. has two models; every row is that of the model alone."""
    (tmp_path / "text").write_text("\n".join(TEXT))
    fitted(leak_rate=LEAKS, degree=5).save(tmp_path / "many")
    fitted(degree=5).save(tmp_path / "one")
    small = [str(tmp_path / "text"), "--context", "2", "--lags", "3", "--group", "10"]

    def rows(name, *options):
        out = tmp_path / f"{name}.csv"
        argv = ["ablation", str(tmp_path / name), *small, "--csv", str(out), *options]
        assert main(argv) == 0, capsys.readouterr().err
        return read(out)

    expected = rows("many") + rows("one")
    (tmp_path / "many.csv").unlink()
    plot = tmp_path / "plot.png"
    assert rows("many", "--beside", str(tmp_path / "one"), "--plot", str(plot)) == expected
    assert plot.stat().st_size > 10_000


def test_routing_through_a_reservoir_is_the_loss_with_the_mean_of_the_units(tmp_path):
    model = fitted(leak_rate=LEAKS, degree=5)
    model.save(tmp_path / "model")
    text = tmp_path / "text"
    text.write_text("\n".join(TEXT))
    out = tmp_path / "routing.csv"
    options = ["--context", "2", "--lags", "3", "--group", "10", "--counts", str(text)]
    argv = ["ablation", str(tmp_path / "model"), str(text), *options, "--routing", str(out)]
    assert main([*argv, "--classes", "english"]) == 0
    first = next(row for row in read(out) if row["by"] == "frequency")
    scores = np.concatenate(model.log_likelihood(["\n".join(TEXT)]))
    assert float(first["nats"]) == pytest.approx(-scores.mean(), rel=1e-5)
    stream = model.tokenize(["\n".join(TEXT)])
    sentences = np.split(stream.tokens, stream.starts[1:])
    states = np.concatenate([model.reservoir_.transform(each)[:-1] for each in sentences])
    units, readout = np.argsort(-LEAKS)[:10], model.readout_
    readout.intercept_ += readout.coef_[:, units] @ states[:, units].mean(axis=0)
    readout.coef_[:, units] = 0
    scores = np.concatenate(model.log_likelihood(["\n".join(TEXT)]))
    assert float(first["silenced"]) == pytest.approx(-scores.mean(), rel=1e-5)
    assert out.with_suffix(".png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lags", "0"], "--lags must be at least 1, got 0"),
        (["--lags", "30"], "no sequence of the text has 33 tokens"),
        (["--csv", "{text}"], "it is read"),
    ],
)
def test_what_the_command_refuses(tmp_path, capsys, options, message):
    fitted().save(tmp_path / "model")
    text = tmp_path / "text"
    text.write_text("\n".join(TEXT))
    options = [option.format(text=text) for option in options]
    out = tmp_path / "out.csv"
    command = ["ablation", str(tmp_path / "model"), str(text), "--units-csv", str(out)]
    assert main([*command, "--context", "2", *options]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not out.exists()


def test_models_without_states(tmp_path, capsys):
    (tmp_path / "text").write_text("\n".join(TEXT))
    assert main(["ngram", str(tmp_path / "text"), "--out", str(tmp_path / "kn")]) == 0
    assert main(["ablation", str(tmp_path / "kn"), str(tmp_path / "text")]) == 2
    assert "word ablation needs a reservoir or an LSTM" in capsys.readouterr().err


@pytest.mark.torch
class TestLSTM:
    """Cells of LSTMs."""

    @pytest.fixture(autouse=True)
    def needs_torch(self):
        pytest.importorskip("torch")

    def test_cells_are_those_of_torch(self):
        import torch

        from esnlm.torch.networks.lstm import LSTM
        from esnlm.torch.networks.multi_timescale_lstm import cell_states

        torch.manual_seed(0)
        network = LSTM(9, n_units=5, n_layers=2).eval()
        tokens = np.random.default_rng(0).integers(9, size=(3, 6))
        found = cell_states(network, tokens)
        assert [layer.shape for layer in found] == [(3, 6, 5)] * 2
        for length in range(1, 7):
            _, state = network.encode(torch.from_numpy(tokens[:, :length]))
            for layer, (_, cell) in zip(found, state, strict=True):
                np.testing.assert_allclose(
                    layer[:, length - 1], cell.detach().numpy(), rtol=1e-5, atol=1e-6
                )

    def test_fixed_forget_gates_decide_what_is_left(self):
        import torch

        from esnlm.text.tokenizers import Tokenizer
        from esnlm.torch.language_model import TorchLanguageModel
        from esnlm.torch.networks.multi_timescale_lstm import MultiTimescaleLSTM

        torch.manual_seed(0)
        tokenizer = Tokenizer.train_words(TEXT)
        network = MultiTimescaleLSTM(len(tokenizer), n_units=8, n_dims=5)
        with torch.no_grad():
            for layer in network.layers:
                layer.weight_hh.zero_()
                layer.weight_ih[:16].zero_()  # input and forget gates, of 8 units each
        model = TorchLanguageModel(network, tokenizer)
        layers = word_ablation(model, model.tokenize(TEXT), context=2, n_lags=5)
        times = network.assigned_timescales(0)
        np.testing.assert_allclose(layers[0].timescales(), times, rtol=1e-3)
        np.testing.assert_allclose(layers[0].by_unit[5], layers[0].by_unit[0] * np.exp(-5 / times),
                                   rtol=1e-3)  # fmt: skip

    def test_the_network_esn_is_read_as_the_reservoir_that_it_is(self, tmp_path):
        from esnlm.loading import load_model
        from esnlm.torch.language_model import TorchLanguageModel
        from esnlm.torch.networks.esn import EchoStateNetwork

        model = fitted(leak_rate=LEAKS, degree=5)
        network = EchoStateNetwork(model.n_tokens_, reservoir=model.reservoir_, rank=3)
        TorchLanguageModel(network, model.tokenizer_).save(tmp_path / "model")
        stream, windows = model.tokenize(TEXT), {"context": 2, "n_lags": 4}
        (layer,) = word_ablation(load_model(tmp_path / "model"), stream, **windows)
        (expected,) = word_ablation(model, stream, **windows)
        np.testing.assert_array_equal(layer.by_unit, expected.by_unit)

    def test_the_command(self, tmp_path, capsys):
        import torch

        from esnlm.text.tokenizers import Tokenizer
        from esnlm.torch.language_model import TorchLanguageModel
        from esnlm.torch.networks.multi_timescale_lstm import MultiTimescaleLSTM

        torch.manual_seed(0)
        tokenizer = Tokenizer.train_words(TEXT)
        network = MultiTimescaleLSTM(len(tokenizer), n_units=8, n_dims=5)
        TorchLanguageModel(network, tokenizer).save(tmp_path / "model")
        (tmp_path / "text").write_text("\n".join(TEXT))
        out = tmp_path / "lags.csv"
        options = ["--context", "2", "--lags", "3", "--group", "4", "--csv", str(out)]
        options += ["--plot", str(tmp_path / "plot.png")]
        assert main(["ablation", str(tmp_path / "model"), str(tmp_path / "text"), *options]) == 0
        assert capsys.readouterr().out.count("layer") == 3
        groups = [(row["layer"], row["group"]) for row in read(out) if row["lag"] == "0"]
        assert groups == [
            ("1", "all"), ("1", "1"), ("1", "2"), ("2", "all"), ("2", "1"), ("2", "2"), ("3", "all")
        ]  # fmt: skip
        assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_the_plot_has_a_title_and_a_tick_at_each_lag(tmp_path, monkeypatch):
    from esnlm.studies.timescales import plots

    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    for n_lags in (3, 50):
        rows = [
            {"model": "some/where", "layer": 1, "group": group, "assigned": times, "lag": lag,
             "share": 0.5**lag}
            for group, times in (("all", ""), ("1", 2.0), ("2", 9.0))
            for lag in range(n_lags + 1)
        ]  # fmt: skip
        plots.plot_ablation(rows, tmp_path / "a.png")
    short, long = figures
    left, right = short.axes
    assert left.get_title("left") == "What is left of a word in the states of where"
    assert right.get_title("left") == "layer 1, units by timescale"
    for axis in short.axes:
        assert axis.get_xticks().tolist() == [0, 1, 2, 3]
    assert len(long.axes[0].get_xticks()) <= 21
