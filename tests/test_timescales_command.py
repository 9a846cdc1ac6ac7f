"""esnlm timescales on small LSTMs."""

import csv

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from esnlm import LanguageModel, Reservoir, RidgeReadout  # noqa: E402
from esnlm.__main__ import main  # noqa: E402
from esnlm.reservoir.timescales import inverse_gamma_timescales, ks_inverse_gamma  # noqa: E402
from esnlm.text.tokenizers import Tokenizer  # noqa: E402
from esnlm.torch.language_model import TorchLanguageModel  # noqa: E402
from esnlm.torch.networks.lstm import LSTM  # noqa: E402
from esnlm.torch.networks.multi_timescale_lstm import (  # noqa: E402
    MultiTimescaleLSTM,
    measured_timescales,
)

pytestmark = pytest.mark.torch

TEXT = ["the boy sees the dog", "the dog sees the boy", "a girl walks"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(TEXT))
    return path


def saved(folder, make, reset="sentence"):
    torch.manual_seed(0)
    tokenizer = Tokenizer.train_words(TEXT, boundaries=True)
    model = TorchLanguageModel(make(len(tokenizer)), tokenizer, reset)
    model.save(folder)
    return model


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("reset", ["sentence", "never"])
def test_rows_of_layers_and_units(tmp_path, text, capsys, reset):
    folder = tmp_path / "model"
    model = saved(folder, lambda v: MultiTimescaleLSTM(v, n_units=12, n_dims=5), reset)
    files = {name: tmp_path / name for name in ("layers.csv", "units.csv", "plot.png")}
    options = ["--csv", "layers.csv", "--units-csv", "units.csv", "--plot", "plot.png"]
    named = [str(files.get(option, option)) for option in options]
    assert main(["timescales", str(folder), str(text), *named]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("layer") for line in lines) == 4
    layers, units = read(files["layers.csv"]), read(files["units.csv"])
    assert [row["layer"] for row in layers] == ["1", "2", "3", "all"]
    assert [row["fixed"] for row in layers] == ["True", "True", "False", "False"]
    assert [int(row["n_units"]) for row in layers] == [12, 12, 5, 29]
    assert len(units) == 29
    assert files["plot.png"].stat().st_size > 10_000
    stream = model.tokenize(TEXT)
    starts = [] if stream.starts is None else stream.starts[1:]
    expected = measured_timescales(model.network, np.split(stream.tokens, starts))
    found = [float(row["measured"]) for row in units]
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-6)
    second = [float(row["assigned"]) for row in units if row["layer"] == "2"]
    np.testing.assert_allclose(second, inverse_gamma_timescales(0.56, 12))
    alpha, distance = (float(layers[-1][name]) for name in ("closest_alpha", "ks_closest_alpha"))
    assert ks_inverse_gamma(found, alpha) == pytest.approx(distance)


def test_a_model_of_the_markov_copy_stands_beside(tmp_path, text):
    saved(tmp_path / "model", lambda v: MultiTimescaleLSTM(v, n_units=12, n_dims=5), "never")
    saved(tmp_path / "other", lambda v: LSTM(v, n_units=6), "never")
    text.write_text("\n".join(TEXT * 30))
    files = [str(tmp_path / name) for name in ("copy.txt", "nats.csv", "plot.png", "gates.png")]
    options = ["--markov-copy", files[0], "--information", files[1], "--plot", files[2]]
    options += ["--gates", files[3], "--markov-model", str(tmp_path / "other")]
    assert main(["timescales", str(tmp_path / "model"), str(text), *options]) == 0
    words = (tmp_path / "copy.txt").read_text().replace("\n", " \n ").split(" ")
    source = text.read_text().split() + [""] * 90
    assert len([w for w in words if w]) == len(source)  # ends of lines are words of the chain
    rows = read(tmp_path / "nats.csv")
    assert {row["text"] for row in rows} == {"text", "Markov copy"}
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("plot.png", "gates.png"))


def test_routing_is_the_loss_without_the_outputs_of_a_group(tmp_path, text):
    model = saved(tmp_path / "model", lambda v: MultiTimescaleLSTM(v, n_units=12, n_dims=5))
    out = tmp_path / "routing.csv"
    options = ["--group", "4", "--routing", str(out), "--counts", str(text), "--context", "1"]
    argv = ["ablation", str(tmp_path / "model"), str(text), *options, "--lags", "1"]
    assert main(argv) == 0
    rows = read(out)
    assert [(row["layer"], row["n_units"], row["bin"]) for row in rows] == [("2", "4", "<100")] * 3
    scores = np.concatenate(model.log_likelihood(TEXT))
    assert float(rows[0]["nats"]) == pytest.approx(-scores.mean(), rel=1e-5)
    # The next layer no longer hears the units with the shortest timescales.
    model.network.layers[2].weight_ih.data[:, :4] = 0
    scores = np.concatenate(model.log_likelihood(TEXT))
    assert float(rows[0]["silenced"]) == pytest.approx(-scores.mean(), rel=1e-5)
    assert out.with_suffix(".png").stat().st_size > 10_000


def test_routing_by_class_divides_the_same_losses(tmp_path, text):
    model = saved(tmp_path / "model", lambda v: MultiTimescaleLSTM(v, n_units=12, n_dims=5))
    files = out, classes = tmp_path / "routing.csv", tmp_path / "classes.csv"
    classes.write_text("word,class\nboy,noun\ndog,noun\nsees,verb\n")
    options = ["--group", "12", "--counts", str(text), "--context", "1", "--lags", "1"]
    argv = ["ablation", str(tmp_path / "model"), str(text), *options]
    assert main([*argv, *(f"--{f.stem}={f}" for f in files)]) == 0
    rows = {row["bin"]: row for row in read(out) if row["by"] == "class"}
    stream = model.tokenize(TEXT)
    parts = [part[1:] for part in np.split(stream.tokens, stream.starts[1:])]
    words = [model.tokenizer_.spelling(token) for token in np.concatenate(parts)]
    scores = np.concatenate(model.log_likelihood(TEXT))
    for name, members in (("noun", ["boy", "dog"]), ("verb", ["sees"])):
        inside = np.isin(words, members)
        assert int(rows[name]["n_tokens"]) == inside.sum()
        assert float(rows[name]["nats"]) == pytest.approx(-scores[inside].mean(), rel=1e-5)
    assert sum(int(row["n_tokens"]) for row in rows.values()) == len(words)


def test_routing_needs_counts_and_assigned_timescales(tmp_path, text, capsys):
    saved(tmp_path / "model", lambda v: LSTM(v, n_units=6))
    argv = ["ablation", str(tmp_path / "model"), str(text), "--routing", str(tmp_path / "r.csv")]
    assert main(argv) == 2
    assert "--routing FILE and --counts TRAIN go together" in capsys.readouterr().err
    assert main([*argv[:3], "--classes", "english"]) == 2
    assert "--classes is only valid with --routing FILE" in capsys.readouterr().err
    options = ["--counts", str(text), "--context", "1", "--lags", "1"]
    assert main([*argv, *options, "--classes", str(text)]) == 2
    assert "has no column 'word'" in capsys.readouterr().err
    assert main([*argv, *options, "--classes", "absent.csv"]) == 2
    assert "--classes absent.csv: no such file" in capsys.readouterr().err
    csvs = ["--csv", str(tmp_path / "lags.csv"), "--units-csv", str(tmp_path / "units.csv")]
    assert main([*argv, *options, *csvs]) == 2
    assert "routing needs units of different assigned timescales" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.csv"))  # or a second try would add the rows twice


def test_a_late_error_leaves_no_rows(tmp_path, text, capsys):
    saved(tmp_path / "model", lambda v: LSTM(v, n_units=6), "never")
    reservoir = Reservoir(20, random_state=0)
    LanguageModel(reservoir, RidgeReadout(), tokenizer="word").fit(TEXT).save(tmp_path / "other")
    options = [f"--{name}={tmp_path / name}.csv" for name in ("csv", "units-csv", "information")]
    options.append(f"--plot={tmp_path / 'plot.png'}")
    argv = ["timescales", str(tmp_path / "model"), str(text), *options]
    assert main([*argv, "--markov-model", str(tmp_path / "other")]) == 2
    assert "other holds no LSTM" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "other", text.name]


def test_a_markov_model_needs_a_plot(tmp_path, text, capsys):
    argv = ["timescales", str(tmp_path / "m"), str(text), "--markov-model", str(tmp_path / "m")]
    assert main(argv) == 2
    assert "--markov-model needs --plot PNG" in capsys.readouterr().err
    assert main([*argv[:3], "--shapes", "0.5"]) == 2
    assert "--shapes needs --plot PNG" in capsys.readouterr().err


def test_an_lstm_of_one_layer_has_one_row(tmp_path, text):
    saved(tmp_path / "model", lambda v: LSTM(v, n_units=6))
    out = tmp_path / "layers.csv"
    assert main(["timescales", str(tmp_path / "model"), str(text), "--csv", str(out)]) == 0
    (row,) = read(out)
    assert (row["layer"], row["fixed"], row["correlation"]) == ("1", "False", "")


def test_the_information_of_a_text_of_two_words_is_drawn(tmp_path, text):
    saved(tmp_path / "model", lambda v: LSTM(v, n_units=6))
    text.write_text("hello")  # the word and its line's end, which say nothing of each other
    out, plot = tmp_path / "information.csv", tmp_path / "plot.png"
    options = ["--information", str(out), "--plot", str(plot)]
    assert main(["timescales", str(tmp_path / "model"), str(text), *options]) == 0
    assert [(row["text"], float(row["nats"])) for row in read(out)] == [
        ("text", 0.0), ("Markov copy", 0.0)
    ]  # fmt: skip
    assert plot.is_file()


def test_models_without_forget_gates(tmp_path, text, capsys):
    reservoir = Reservoir(20, random_state=0)
    LanguageModel(reservoir, RidgeReadout(), tokenizer="word").fit(TEXT).save(tmp_path / "model")
    assert main(["timescales", str(tmp_path / "model"), str(text)]) == 2
    assert "holds no LSTM: train one with --model lstm" in capsys.readouterr().err


def test_bins_of_training_frequency_for_networks(tmp_path, text, capsys):
    """`evaluate --bins` scores every kind of model, networks among them."""
    model = saved(tmp_path / "model", lambda v: LSTM(v, n_units=6))
    out = tmp_path / "bins.csv"
    options = ["--bins", str(text), "--bins-csv", str(out)]
    assert main(["evaluate", str(tmp_path / "model"), str(text), *options]) == 0
    assert "<100" in capsys.readouterr().out
    rows = {row["bin"]: row for row in read(out)}
    scores = np.concatenate(model.log_likelihood(TEXT))
    assert int(rows["all"]["n_tokens"]) == len(scores)
    assert float(rows["all"]["perplexity"]) == pytest.approx(np.exp(-scores.mean()), rel=1e-6)
