"""Presets of train: the papers' numbers, options that win, the same model as by hand."""

from pathlib import Path
from typing import Any

import pytest

from esnlm import Reservoir
from esnlm.__main__ import main
from esnlm.models.saving import describe
from esnlm.options.common import set_options
from esnlm.options.recipes import train_options, with_recipe
from esnlm.options.train import TrainOptions
from esnlm.text.tokenizers import Tokenizer

TEXT = "the boy sees the dog\nthe dogs see the boy who walks\n\nMary walks\n" * 20


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text(TEXT)


def resolved(name: str, **settings: Any) -> TrainOptions:
    return with_recipe(
        TrainOptions(**vars(train_options(settings)) | {"recipe": name, "out": Path("m")})
    )


def parts(options: TrainOptions) -> list[Any]:
    tokenizer = Tokenizer.train_words([TEXT])
    model = options.make_model(len(tokenizer), tokenizer, str(options.corpus.reset))
    return [describe(each) for each in (model.reservoir, model.readout, model.features) if each] + [
        model.reset_
    ]


def same_weights(a: str, b: str) -> bool:
    return (
        Path(a, "weights.safetensors").read_bytes() == Path(b, "weights.safetensors").read_bytes()
    )


def test_rachez_is_section_4_of_the_paper():
    options = resolved("rachez2012")
    reservoir, readout, features, reset = parts(options)
    wanted = {
        "n_units": 100, "spectral_radius": 0.97, "input_scaling": 1.0, "leak_rate": 1.0,
        "bias_scaling": 0.0, "topology": "random", "activation": "tanh",
    }  # fmt: skip
    assert wanted.items() <= reservoir["params"].items()
    assert readout["class"].endswith("MixtureOfExpertsReadout")
    assert readout["params"]["n_experts"] == 10
    assert features["class"].endswith("WordFeatures")
    assert features["params"]["n_features"] == 2
    assert features["params"]["n_passes"] == 10
    assert reset == "never"
    assert options.corpus.tokenizer == "word"


@pytest.mark.parametrize(
    ("readout", "name", "parameters"),
    [
        ("ridge", "RidgeReadout", {}),
        ("softmax", "SoftmaxReadout", {}),
        ("factored", "ClassFactoredReadout", {"n_classes": 10}),
    ],
)
def test_another_readout_brings_its_own_settings(readout: str, name: str, parameters: dict):
    found = parts(resolved("rachez2012", readout=readout))[1]
    assert found["class"].endswith(name)
    assert parameters.items() <= found["params"].items()


def test_options_beside_a_preset_win():
    options = resolved("rachez2012", units=7, features=0, **{"leak-rate": 0.5, "experts": 3})
    assert (options.reservoir.n_units, options.reservoir.leak_rate) == (7, 0.5)
    assert (options.features, options.readout.experts) == (("", 0), 3)
    assert options.reservoir.spectral_radius == 0.97
    Path("file.toml").write_text("alpha = 3\nlower = true\n[option]\na = 1\nb = 2\n")
    options = resolved("file.toml", alpha=0, option={"b": 4})
    assert options.readout.alpha == 0
    assert dict(options.readout.option) == {"a": 1, "b": 4}
    assert options.corpus.lower


def test_a_preset_trains_the_model_of_the_same_options(capsys):
    by_hand = (
        "--tokenizer word --reset never --units 20 --topology random --spectral-radius 0.97"
        " --input-scaling 1 --leak-rate 1 --features 2 --readout ridge"
    )
    small = "--units", "20", "--readout", "ridge"
    assert main(["train", "text", "--recipe", "rachez2012", *small, "--out", "a"]) == 0
    assert main(["train", "text", *by_hand.split(), "--out", "b"]) == 0
    assert same_weights("a", "b")
    assert Path("a/config.json").read_text() == Path("b/config.json").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            None,
            "must be characters, grammar, koster2025, rachez2012, ueda2025, words or a file",
        ),
        ("unit = 3", "that make a model, got unit: did you mean units?"),
        ("out = 'x'", "p.toml: settings must be options of esnlm train that make a model, got out"),
        ("units = {low = 1, high = 3}", "p.toml: units must have one value, got"),
        ('units = "a"', "--units: expected an integer, got 'a'"),
        ("units = 0", "must be an integer of at least 1, got 0"),
        ("experts = 3\nreadout = 'ridge'", "experts is not valid with the readout ridge"),
        ("", "p.toml is empty"),
    ],
)
def test_bad_presets_are_one_line(text: str | None, message: str, capsys):
    if text is not None:
        Path("p.toml").write_text(text)
    assert main(["train", "text", "--recipe", "p.toml", "--out", "m"]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert (out, err.count("\n")) == ("", 1)
    assert not Path("m").exists()


def test_ueda_is_the_paper_in_every_setting():
    """Sections 2.1 and 4.1; its offsets, word features and direct tokens are none."""
    options = resolved("ueda2025")
    assert options.corpus.tokenizer == "gpt2"
    assert set_options(options.reservoir) == {
        "n_units": 4096, "topology": "bernoulli", "degree": 32, "input_degree": 32,
        "spectral_radius": 0.99, "input_scaling": 1.0, "bias_scaling": 0.0, "activation": "tanh",
        "leak_rate": ("uniform", 0.0, 1.0),
    }  # fmt: skip
    assert options.features is None
    assert set_options(options.readout) == {"passes": 1}
    network = set_options(options.network)
    assert network == {
        "model": "esn", "rank": 512, "dropout": 0.0, "batching": "sentences", "batch_size": 32,
        "length": 512, "learning_rate": 1e-3, "weight_decay": 1e-2, "schedule": "constant",
    }  # fmt: skip


@pytest.mark.torch
def test_ueda_is_what_compare_trains():
    """By default, so that no command of the tables has to repeat it."""
    pytest.importorskip("torch")
    from esnlm.options.network_training import _plan, _settings_of
    from esnlm.torch.networks.registry import network_class
    from esnlm.torch.training.plan import Plan

    options, kind = resolved("ueda2025"), network_class("esn")
    settings = _settings_of(options)
    assert _plan(options, settings, one_text=False) == Plan(random_state=0)
    reservoir = {**settings.pop("reservoir")}
    del reservoir["random_state"]
    assert all(kind.arguments()[name] == value for name, value in settings.items())
    network = kind(9, reservoir={"n_units": 4})
    described = Reservoir(**kind.RESERVOIR).get_params()
    assert network.reservoir.topology == "bernoulli"
    assert {name: described[name] for name in reservoir} == reservoir


def test_koster_is_the_authors_code():
    options = resolved("koster2025")
    assert (options.corpus.tokenizer, options.corpus.lower) == ("char", True)
    assert options.reservoir.n_units == 750
    assert dict(options.readout.option) == {"n_dims": 16, "context": 32}
    network = set_options(options.network)
    assert (network["model"], network["batching"], network["length"]) == ("char-esn", "windows", 32)
    assert (network["batch_size"], network["learning_rate"]) == (1024, 1e-4)
    assert options.readout.passes == 5
    assert (network["weight_decay"], dict(network["plan"])) == (0, {"stride": 1, "last_only": True})
    attention = resolved("koster2025", model="aerc")
    assert attention.reservoir.n_units == 160
    assert dict(attention.readout.option)["n_hidden"] == 30


@pytest.mark.torch
@pytest.mark.parametrize(
    ("preset", "small", "by_hand"),
    [
        (
            "ueda2025",
            "--units 16 --degree 4 --rank 4 --input-degree 4 --tokenizer word",
            "--model esn",
        ),
        ("koster2025", "--units 9 --passes 1", "--model char-esn --tokenizer char --lower"),
        ("koster2025", "--model aerc --units 9 --option n_hidden=3 --passes 1", "--tokenizer char"
         " --lower"),
    ],
)  # fmt: skip
def test_a_preset_of_a_network_is_its_recipe(preset: str, small: str, by_hand: str, capsys):
    pytest.importorskip("torch")
    common = ["train", "text", *small.split(), "--device", "cpu"]
    assert main([*common, "--recipe", preset, "--out", "a"]) == 0
    assert main([*common, *by_hand.split(), "--out", "b"]) == 0
    assert same_weights("a", "b")
