"""``esnlm train --model``: from text to a folder that scores, continues and judges."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("torch")

from esnlm import LanguageModel
from esnlm.__main__ import main
from esnlm.loading import load_model

pytestmark = pytest.mark.torch

LINES = ["the boy sees the dog .", "the dogs see a boy .", "a girl chases the cats .",
         "the cats chase the girl ."]  # fmt: skip
#: Small settings of every network.
SMALL = {
    "esn": "--units 30 --rank 8",
    "esn+i": "--units 20",
    "esn+mlp": "--units 20 --option width=12 --option n_hidden=8 --batch-size 32",
    "lstm": "--units 12",
    "awd-lstm": "--units 12 --option n_dims=8",
    "gpt2": "--units 8 --option n_layers=1 --option n_heads=2 --option context=32",
    "char-esn": "--units 20 --option context=6",
    "mts-lstm": "--units 12 --option n_dims=8",
    "aerc": "--units 12 --option n_hidden=4 --option context=6",
    "laerc": "--option n_dims=8 --option n_layers=1 --length 16 --batch-size 4 --accumulate 1",
    "transformer": "--option n_hidden=8 --option n_layers=1 --option context=6",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("\n".join(LINES * 12) + "\n")
    Path("pairs").mkdir()
    pairs = [("the boy sees .", "the boy see ."), ("the dogs see a boy .", "the dogs sees a boy .")]
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad}) for good, bad in pairs]
    Path("pairs/agreement.jsonl").write_text("\n".join(lines))
    return tmp_path


def train(name: str, *options: str) -> int:
    command = ["train", "text", "--model", name, "--out", "model", *SMALL[name].split()]
    return main([*command, "--learning-rate", "0.02", "--held-out", "text", *options])


def failure(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(command.split()) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("esnlm: error: ")
    assert shown.count("\n") == 1
    return shown


@pytest.mark.parametrize("name", SMALL)
def test_every_network_trains_scores_judges_and_continues(name: str, capsys) -> None:
    if name == "gpt2":
        pytest.importorskip("transformers")
    assert train(name, "--log", "log.csv", "--passes", "4") == 0
    assert "held-out loss" in capsys.readouterr().out
    rows = list(csv.DictReader(Path("log.csv").read_text().splitlines()))
    assert float(rows[-1]["held_out_nll"]) < float(rows[0]["held_out_nll"])
    assert int(rows[-1]["trainable_parameters"]) <= int(rows[-1]["nonzero_parameters"])
    assert float(rows[-1]["tokens_per_second"]) > 0
    assert main(["evaluate", "model", "text"]) == 0
    assert main(["blimp", "model", "--data", "pairs", "--csv", "blimp.csv"]) == 0
    assert "overall" in Path("blimp.csv").read_text()
    assert main(["generate", "model", "--prompt", "the boy", "--tokens", "5", "--seed", "0"]) == 0


@pytest.mark.parametrize("options", [
    "lstm --units 10000000", "gpt2 --option n_units=12000000", "mts-lstm --units 10000000",
    "char-esn --units 10000000", "laerc --option n_dims=10000000", "esn --units 2000000000",
    "esn+i --units 10000000", "transformer --option n_hidden=1000000000000",
])  # fmt: skip
def test_a_network_beyond_memory_is_refused_before_it_is_made(options: str, capsys) -> None:
    if options.startswith("gpt2"):
        pytest.importorskip("transformers")
    shown = failure(f"train text --out model --model {options}", capsys)
    assert "GiB of memory, and " in shown
    assert not Path("model").exists()


def test_training_beyond_memory_is_refused(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esnlm.utils.memory.available_memory", lambda: 4 << 20)
    shown = failure("train text --out model --model lstm --units 300", capsys)
    assert "the gradients of 731415 trained parameters would take at least " in shown
    assert not Path("model").exists()


def test_the_model_of_a_reservoir_is_the_cores() -> None:
    for name in ("esn", "esn+i"):
        assert train(name) == 0
        Path("model").rename(name)
        assert isinstance(load_model(name), LanguageModel)
    code = (
        "import sys; from esnlm.__main__ import main\n"
        "for name in ('esn', 'esn+i'):\n"
        "    assert main(['blimp', name, '--data', 'pairs']) == 0\n"
        "    assert main(['evaluate', name, 'text']) == 0\n"
        "    assert main(['generate', name, '--prompt', 'the', '--tokens', '3']) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_scores_on_a_device_are_those_of_the_core(capsys) -> None:
    assert train("esn") == 0
    tables = []
    for options in ([], ["--device", "cpu"]):
        name = f"pairs{len(tables)}.csv"
        command = ["blimp", "model", "--data", "pairs", "--pairs-csv", name]
        assert main([*command, *options]) == 0
        tables.append(list(csv.DictReader(Path(name).read_text().splitlines())))
    for ours, theirs in zip(*tables, strict=True):
        for key in ("good", "bad"):
            assert float(ours[key]) == pytest.approx(float(theirs[key]), abs=1e-4)
    capsys.readouterr()
    assert "device must be" in failure("blimp model --data pairs --device tpu", capsys)
    assert main(["evaluate", "model", "text", "--device", "cpu"]) == 0


def test_held_out_losses_come_after_so_many_tokens() -> None:
    assert train("esn", "--score-every", "100", "--log", "log.csv", "--batch-size", "2") == 0
    rows = list(csv.DictReader(Path("log.csv").read_text().splitlines()))
    tokens = [int(row["tokens"]) for row in rows]
    assert max(b - a for a, b in pairwise([0, *tokens])) <= 120
    assert main(["blimp", "model", "--data", "pairs", "--interpolate", "model"]) == 0


def test_characters_are_read_as_streams() -> None:
    assert train("lstm", "--tokenizer", "char", "--batch-size", "4") == 0
    assert load_model("model").reset_ == "never"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--rank 3", "--rank needs --model NAME"),
        ("--model esm", "--model must be one of esn"),
        ("--model lstm --readout ridge", "networks have their own readout: drop --readout"),
        ("--model lstm --degree 3", "--degree is only valid with a reservoir, got --model lstm"),
        ("--model lstm --rank 3", "--rank is no setting of lstm, which has"),
        ("--model lstm --option wings=2", "--option wings is no setting of lstm, which has"),
        ("--model esn --option a=2 --option a.b=2", "--option has both a and a.b, one inside"),
        ("--model lstm --plan wings=2", "--plan wings is no setting of a plan, which has"),
        ("--model lstm --batch-size 0", "--batch-size must be at least 1"),
        ("--model lstm --device gpu", "device must be auto, cpu, cuda"),
        ("--model lstm --device cuda:99", "CUDA devices"),
        ("--model esn --units 0", "--units must be at least 1"),
    ],
)
def test_bad_options_are_shown_in_one_line(options: str, message: str, capsys) -> None:
    assert message in failure(f"train text --out model {options}", capsys)
    assert not Path("model").exists()


def test_a_full_device_is_shown_in_one_line(monkeypatch, capsys) -> None:
    import torch

    def fails(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")

    monkeypatch.setattr("esnlm.torch.training.trainer.NetworkTrainer.run", fails)
    shown = failure("train text --out model --model lstm", capsys)
    assert "out of memory on the device: lower --batch-size, or --units" in shown


def test_without_torch_it_says_so(monkeypatch, capsys) -> None:
    monkeypatch.setattr("esnlm.torch.find_spec", lambda name: None)
    shown = failure("train text --out model --model lstm", capsys)
    assert "--model lstm needs torch: pip install 'esnlm[torch]'" in shown


def test_a_killed_run_ends_in_the_same_bytes() -> None:
    options = ["--model", "lstm", "--units", "12", "--batch-size", "2"]
    often = ["--checkpoint-every", "0"]
    command = [sys.executable, "-m", "esnlm", "train", "text", *options, *often, "--out"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    running = subprocess.Popen([*command, "killed"], env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(Path().glob("killed.checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not Path("killed").exists()
    assert list(Path().glob("killed.checkpoints/step-*"))
    assert main(["train", "text", *options, "--out", "killed", "--resume"]) == 0
    assert main(["train", "text", *options, "--out", "whole"]) == 0
    for name in ("config.json", "weights.safetensors"):
        assert Path("killed", name).read_bytes() == Path("whole", name).read_bytes()
    assert not Path("killed.checkpoints").exists()
    assert main(["train", "text", *options, "--out", "killed", "--resume"]) == 0
