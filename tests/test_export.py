"""What ``esnlm export`` writes and refuses, without the libraries that read it."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from interop_cases import fitted
from safetensors.numpy import load_file
from scipy.sparse import csr_matrix

from esnlm import LanguageModel, Reservoir, RidgeReadout
from esnlm.__main__ import main
from esnlm.interop import huggingface
from esnlm.interop.huggingface import export_model
from esnlm.interop.model_card import model_card

FILES = {
    "README.md",
    "config.json",
    "encoders_esnlm.py",
    "generation_config.json",
    "model.safetensors",
    "modeling_esnlm.py",
    "readouts_esnlm.py",
    "tokenizer.json",
    "tokenizer_config.json",
}


def test_the_command_writes_a_whole_folder(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    ours = fitted("softmax")
    ours.save(tmp_path / "model")
    assert main(["export", str(tmp_path / "model"), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'out'}\n"
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    assert {path.name for path in tmp_path.iterdir()} == {"model", "out"}
    arrays = load_file(tmp_path / "out" / "model.safetensors")
    parts = [arrays[f"model.encoder.recurrent.{name}"] for name in ("data", "indices", "indptr")]
    assert abs(csr_matrix(tuple(parts), shape=(40, 40)) - ours.reservoir_.W_).max() == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["encoder"]["input_nnz"] == len(arrays["model.encoder.input.data"])


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        export_model(fitted("ridge"), tmp_path / name)
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    export_model(fitted("ridge"), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES


@pytest.mark.parametrize("taken", ["file", "folder", "model", "export"])
def test_nothing_is_replaced(taken: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    ours = fitted("ridge")
    ours.save(tmp_path / "model")
    target = tmp_path / "out"
    if taken == "file":
        target.write_text("mine")
    elif taken == "folder":
        target.mkdir()
        (target / "mine").write_text("mine")
    elif taken == "model":
        ours.save(target)
    else:
        export_model(ours, target)
    before = sorted(target.iterdir()) if target.is_dir() else target.read_text()
    assert main(["export", str(tmp_path / "model"), str(target)]) == 2
    error = capsys.readouterr().err
    assert error == f"esnlm: error: {target} exists: choose another folder, or remove it\n"
    assert before == (sorted(target.iterdir()) if target.is_dir() else target.read_text())


def test_a_missing_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["export", str(tmp_path / "none"), str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error == f"esnlm: error: no such model folder: {tmp_path / 'none'}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_model_of_integers_has_no_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model = LanguageModel(Reservoir(10, random_state=0), RidgeReadout())
    model.fit([np.array([0, 1, 2, 1])] * 3).save(tmp_path / "model")
    assert main(["export", str(tmp_path / "model"), str(tmp_path / "out")]) == 0
    assert "no tokenizer" in capsys.readouterr().err
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {name for name in FILES if not name.startswith("tokenizer")}


def test_an_error_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(huggingface, "save_file", full)
    with pytest.raises(OSError, match="No space"):
        export_model(fitted("ridge"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_other_readouts_and_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot export a int: expected one of RidgeReadout"):
        huggingface.describe_readout(3)
    with pytest.raises(ValueError, match="only a fitted model can be exported, got str"):
        export_model("model", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_card_says_what_training_recorded(tmp_path: Path) -> None:
    text, held, model = (tmp_path / name for name in ("te_xt", "held", "model"))
    text.write_text("the boy sees the dog\nthe dog sees the boy\n" * 30)
    held.write_text("the boy sees the boy\n" * 9)
    train = ["train", str(text), "--held-out", str(held), "--units", "20", "--out", str(model)]
    assert main(train) == 0
    export = ["export", str(model), str(tmp_path / "out"), "--license", "cc-by-4.0"]
    assert main(export) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    record = json.loads((tmp_path / "model.run.json").read_text())
    assert f"    {record['command']}\n" in card
    assert (
        f"| {record['held_out']['model']:.4f} | {np.exp(record['held_out']['model']):.2f} |" in card
    )
    assert hashlib.sha256(text.read_bytes()).hexdigest() in card
    assert "te\\_xt" in card  # no emphasis
    head = yaml.safe_load(card.split("---\n")[1])
    assert head == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "license": "cc-by-4.0",
        "tags": ["esnlm", "reservoir-computing", "echo-state-network"],
    }
    # The record of another model is not shown.
    fitted("ridge").save(tmp_path / "other")
    (tmp_path / "other.run.json").write_bytes((tmp_path / "model.run.json").read_bytes())
    assert main(["export", str(tmp_path / "other"), str(tmp_path / "bare")]) == 0
    bare = (tmp_path / "bare" / "README.md").read_text()
    assert "## Data" not in bare
    assert 'license: "unknown"' in bare


@pytest.mark.parametrize("license", ["a: b", "x\ny: z", "#", "null # "])
def test_a_licence_adds_nothing_to_the_metadata(license: str) -> None:
    head = yaml.safe_load(model_card(fitted("ridge"), license=license).split("---\n")[1])
    assert (len(head), head["license"]) == (4, license)
