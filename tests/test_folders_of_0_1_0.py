"""Folders that version 0.1.0 wrote are read, and give the scores they gave then."""

import csv
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import esnlm
from esnlm import LanguageModel, NgramLanguageModel
from esnlm.__main__ import main

FOLDERS = Path(__file__).parent / "folders_of_0_1_0"
SCORES: dict[str, dict[str, Any]] = json.loads((FOLDERS / "scores.json").read_text())


def names(*kinds: str) -> list[str]:
    return [name for name, expected in SCORES.items() if expected["kind"] in kinds]


def asked(expected: dict[str, Any], name: str) -> list[Any]:
    """Texts, or tokens, that log-likelihoods were taken of."""
    return [text if isinstance(text, str) else np.array(text) for text in expected[name]]


def assert_alike(found: Any, expected: list[list[float]], atol: float = 1e-6) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=atol)


def surprisals(model: Path, texts: list[str], folder: Path, *options: str) -> list[float]:
    """Bits of each sentence, as the command tells them."""
    text, expected = folder / "asked.txt", folder / "expected.csv"
    text.write_text("\n".join(texts) + "\n")
    command = ["evaluate", str(model), str(text), "--documents", "line", "--unit", "sentence"]
    assert main([*command, "--surprisal-csv", str(expected), *options]) == 0
    with expected.open(newline="") as file:
        return [float(row["surprisal_bits"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("name", names("model", "ngrams"))
def test_a_model_gives_the_scores_it_gave(name: str, tmp_path: Path) -> None:
    expected = SCORES[name]
    kind = NgramLanguageModel if expected["kind"] == "ngrams" else LanguageModel
    model = kind.load(FOLDERS / name)
    if "log_likelihoods" not in expected:
        bits = surprisals(FOLDERS / name, expected["texts"], tmp_path)
        np.testing.assert_allclose(bits, expected["surprisal_bits"], rtol=1e-6)
        return
    texts = asked(expected, "texts")
    assert_alike(model.log_likelihood(texts), expected["log_likelihoods"])
    model.save(tmp_path / "again")
    assert_alike(kind.load(tmp_path / "again").log_likelihood(texts), expected["log_likelihoods"])


@pytest.mark.parametrize("name", [name for name in names("model") if "then" in SCORES[name]])
def test_a_model_learns_on_as_it_did(name: str) -> None:
    expected = SCORES[name]
    model = LanguageModel.load(FOLDERS / name).partial_fit(expected["then"])
    found = model.log_likelihood(asked(expected, "texts"))
    # Softmaxes take other steps than they did: what those of today give.
    today = json.loads((FOLDERS / "learned_on.json").read_text()).get(name)
    if today is not None:
        assert_alike(found, today, atol=1e-5)
    assert_alike(found, expected["then_log_likelihoods"], 1e-6 if today is None else 0.5)


@pytest.mark.torch
@pytest.mark.parametrize("name", names("network"))
def test_a_network_gives_the_scores_it_gave(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    expected = SCORES[name]
    bits = surprisals(FOLDERS / name, expected["texts"], tmp_path, "--device", "cpu")
    np.testing.assert_allclose(bits, expected["surprisal_bits"], rtol=1e-6)


def assert_goes_on(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It ends in the model of a run that was not stopped; another version may refuse it."""
    expected, model = SCORES[name], folder / "model"
    place = Path(f"{model}.checkpoints")
    shutil.copytree(FOLDERS / name, place)
    command = [
        "train",
        str(FOLDERS / "shards"),
        *expected["train"],
        "--out",
        str(model),
        "--resume",
    ]
    status = main(command)
    if status != 0 and esnlm.__version__ != "0.1.0":
        wrong = capsys.readouterr().err.splitlines()[-1]
        assert status == 2
        assert "esnlm" in wrong
        assert any(place.glob("step-*"))
        return
    assert status == 0
    assert not place.exists()
    options = ("--device", "cpu") if "--model" in expected["train"] else ()
    bits = surprisals(model, expected["texts"], folder, *options)
    np.testing.assert_allclose(bits, expected["surprisal_bits"], rtol=1e-6)


@pytest.mark.parametrize("name", names("checkpoint"))
def test_a_stopped_run_continues(name: str, tmp_path: Path, capsys) -> None:
    assert_goes_on(name, tmp_path, capsys)


@pytest.mark.torch
@pytest.mark.parametrize("name", names("network checkpoint"))
def test_a_stopped_run_of_a_network_goes_on(
    name: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")

    def whole(parameters: Iterable[Any], weight_decay: float) -> list[dict[str, Any]]:
        return [{"params": list(parameters), "weight_decay": weight_decay}]

    # Biases decayed then.
    monkeypatch.setattr("esnlm.torch.networks.network.decaying", whole)
    assert_goes_on(name, tmp_path, capsys)
