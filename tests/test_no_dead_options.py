"""No dead option: another value changes what ``esnlm train`` saves, or it is refused."""

import importlib.util
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import esnlm.commands.syntaxgym  # noqa: F401, equal annotations of all commands are one object
from esnlm import ElmanGrammar
from esnlm.__main__ import main
from esnlm.loading import load_model
from esnlm.options.common import option_name
from esnlm.options.recipes import _app
from esnlm.options.train import NetworkOptions
from esnlm.storage.tensor_file import read_tensors

NETWORK = {option_name(field.name) for field in fields(NetworkOptions)}
NAMES = sorted(
    names[0]
    for argument in _app().assemble_argument_collection()
    if (names := [n for n in argument.names if n.startswith("--") and not n.startswith("--no-")])
)
SMALL = "--units 20 --features 0 --readout ridge"
_SOFTMAX = "--units 20 --features 0 --readout softmax"
_PASSES = f"{_SOFTMAX} --checkpoint-every 9"
_FACTORED = "--units 20 --features 0 --readout factored"
_LOWRANK = "--units 20 --features 0 --readout lowrank"
_LSTM = "--model lstm --units 6 --batch-size 16 --learning-rate 0.02"
_WORDS = f"{SMALL} --tokenizer word"
_BOOK = f"book {_WORDS}"
#: By option: words of the command beside which it counts (a text first, where it is another one
#: than ``text``), and two values; None: the option is left out.
CHANGES: dict[str, tuple[str, str | None, str | None]] = {
    "--recipe": ("--units 20 --readout ridge", None, "rachez2012"),
    "--held-out": (SMALL, None, "held"),
    "--features": ("--units 20 --readout ridge", "0", "spectral:3"),
    "--seed": (SMALL, None, "1"),
    "--encoding": (_WORDS, None, "latin-1"),
    "--strip-gutenberg": (_BOOK, None, ""),
    "--unwrap": (_BOOK, None, ""),
    "--tokenizer": (SMALL, "word", "char"),
    "--vocab-size": (_WORDS, None, "8"),
    "--lower": (_WORDS, None, ""),
    "--documents": (f"{_BOOK} --reset document", None, "line"),
    "--reset": (SMALL, None, "never"),
    "--topology": (SMALL, "random", "ring"),
    "--spectral-radius": (SMALL, "0.9", "0.5"),
    "--input-scaling": (SMALL, "0.9", "0.5"),
    "--bias-scaling": (SMALL, "0.9", "0.5"),
    "--activation": (SMALL, "tanh", "relu"),
    "--units": ("--features 0 --readout ridge", "20", "21"),
    "--degree": (SMALL, "4", "5"),
    "--leak-rate": (SMALL, "0.9", "0.5"),
    "--input-degree": (SMALL, "4", "5"),
    "--readout": ("--units 20 --features 0", "ridge", "softmax"),
    "--factors": (_FACTORED, "softmax", "ridge"),
    "--direct": (_LOWRANK, "0", "2"),
    "--alpha": (SMALL, "0.1", "1"),
    "--passes": (_SOFTMAX, "2", "3"),
    "--experts": ("--units 9 --features 0 --readout moe --passes 2", "2", "3"),
    "--classes": (_FACTORED, "3", "4"),
    "--option": (SMALL, None, "floor=0.03"),
    "--held-out-tokens": (f"{_LOWRANK} --alpha 9 --held-out noise", "9", "400"),
    "--chunk-tokens": (_SOFTMAX, "100", "200"),
    "--parts": (f"shards {_SOFTMAX} --chunk-tokens 100", "2", "3"),
    "--model": ("--units 6", "lstm", "esn+i"),
    "--rank": ("--model esn --units 20 --learning-rate 0.02", "3", "4"),
    "--dropout": (_LSTM, "0", "0.5"),
    "--batch-size": ("--model lstm --units 6", "8", "9"),
    "--learning-rate": ("--model lstm --units 6", "0.02", "0.03"),
    "--weight-decay": (_LSTM, "0.01", "0.5"),
    "--schedule": (_LSTM, "constant", "cosine"),
    "--clip": (_LSTM, "0.001", "1"),
    "--accumulate": (_LSTM, "1", "2"),
    "--bf16": (_LSTM, None, ""),
    "--batching": (f"{_LSTM} --reset never", "streams", "windows"),
    "--length": (_LSTM, "3", "4"),
    "--pool": (_LSTM, "1", "3"),
    "--plan": (_LSTM, None, "optimizer=sgd"),
}
#: Options on whose value the model must not depend, and the reason.
NOT_OF_THE_MODEL: dict[str, tuple[str, tuple[str, ...], str]] = {
    "--out": (SMALL, (), "where the model is written: every case here has a folder of its own"),
    "--cluster": (
        SMALL,
        (),
        "who works on the parts: tests/test_parts_trainer.py compares the bytes",
    ),
    "--overwrite": (SMALL, ("--overwrite",), "what becomes of files that are there"),
    "--resume": (_PASSES, ("--resume",), "where an interrupted run continues"),
    "--checkpoint-every": (_SOFTMAX, ("--checkpoint-every=9", "--checkpoint-every=0"), "files"),
    "--log": (f"{_PASSES} --held-out held", ("--log=log.csv",), "files"),
    "--score-every": (f"{_PASSES} --held-out held", ("--score-every=300",), "messages"),
    "--device": (_LSTM, ("--device=cpu",), "the machine; here no GPU is chosen by itself"),
}
#: Commands with an option that has no effect there, which must be refused by its name.
REFUSED = [
    *(
        f"{SMALL} {option} {value}".strip()
        for option, value in (
            ("--rank", "3"), ("--dropout", "0.1"), ("--batch-size", "4"),
            ("--learning-rate", "0.1"), ("--weight-decay", "0.1"), ("--schedule", "cosine"),
            ("--clip", "1"), ("--accumulate", "2"), ("--bf16", ""), ("--batching", "streams"),
            ("--length", "9"), ("--pool", "2"), ("--device", "cpu"),
        )
    ),
    *(f"{SMALL} --topology {name} --degree 4" for name in ("ring", "orthogonal", "diagonal")),
    f"{SMALL} --topology delay_line --degree 32",
    f"{SMALL} --plan plan=2",
    f"{SMALL} --factors ridge",
    f"{SMALL} --passes 3",
    f"{SMALL} --experts 3",
    f"{SMALL} --classes 3",
    f"{SMALL} --direct 1",
    f"{_SOFTMAX} --direct 1",
    f"{_FACTORED} --factors ridge --passes 3",
    f"{_FACTORED} --factors softmax --experts 3",
    f"{_SOFTMAX} --passes 3 --option solver=newton-cg",
    f"{_SOFTMAX} --option solver=incremental --option tol=0.1",
    "--units 9 --readout lowrank --direct 0 --option direct_rate=0.2",
    f"{SMALL} --documents line",
    f"{SMALL} --tokenizer FILE --vocab-size 9",
    f"{SMALL} --tokenizer FILE --lower",
    f"{SMALL} --parts 2",
    f"{SMALL} --held-out-tokens 9",
    f"{SMALL} --score-every 9",
    f"{SMALL} --log log.csv",
    *(
        f"shards {SMALL} {option}"
        for option in (
            "--tokenizer word", "--vocab-size 9", "--lower", "--documents line", "--unwrap",
            "--encoding latin-1", "--strip-gutenberg", "--reset never",
        )
    ),
]  # fmt: skip
REFUSED_BY_NETWORKS = [
    *(
        f"{_LSTM} {option}"
        for option in (
            "--readout ridge", "--features 3", "--factors ridge", "--direct 1", "--alpha 1",
            "--experts 2", "--classes 2", "--chunk-tokens 9", "--parts 2",
            "--topology ring", "--spectral-radius 0.5", "--input-scaling 0.5", "--degree 3",
            "--bias-scaling 0.5", "--activation relu", "--leak-rate 0.5", "--input-degree 3",
            "--rank 3", "--held-out-tokens 9", "--documents line", "--option degree=2",
            "--batching streams --pool 2", "--plan stride=2", "--plan last_only=true",
            "--plan vary_length=true", "--plan warmup=0.1", "--plan patience=2",
            "--plan steps=3 --passes 2",
        )
    ),
    "--model esn --units 9 --topology ring --degree 3",
    "--model esn --units 9 --readout ridge",
]  # fmt: skip


def lines(n: int, seed: int) -> list[str]:
    return [" ".join(words) for words in ElmanGrammar().sample(n, seed)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("texts")
    book = ["Licence", "*** START OF THE PROJECT GUTENBERG EBOOK A ***", *[""] * 2]
    paragraphs = [lines(4, seed) for seed in range(30)]
    book += [line for each in paragraphs for line in (*each, "")]
    book += ["*** END OF THE PROJECT GUTENBERG EBOOK A ***", "Licence"]
    Path(place, "book").write_text("\n".join(book))
    Path(place, "text").write_text("\n".join([*lines(150, 0), "the café sees"] * 2) + "\n")
    Path(place, "held").write_text("\n".join(lines(100, 1)) + "\n")
    noise = np.random.default_rng(0).permutation(" ".join(lines(100, 2)).split())
    Path(place, "noise").write_text("\n".join(map(" ".join, np.array_split(noise, 100))) + "\n")
    shards, text = str(place / "shards"), str(place / "text")
    assert main(["prepare", text, "--tokenizer", "word", "--out", shards]) == 0
    return place


@pytest.fixture(autouse=True)
def _in_folder(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for each in texts.iterdir():
        Path(each.name).symlink_to(each)


def command(words: str, *options: str) -> list[str]:
    found = words.replace("FILE", "shards/tokenizer.json").split()
    text = found.pop(0) if not found[0].startswith("--") else "text"
    return ["train", text, *found, *options]


def saved(words: str, *options: str) -> dict[str, Any]:
    """Return what the model of a command learned and predicts, as arrays and bytes."""
    folder = Path(f"model{len(list(Path().iterdir()))}")
    assert main([*command(words, *options), "--out", str(folder)]) == 0
    model = load_model(folder)
    found = {
        name: np.asarray(a) for name, a in read_tensors(folder / "weights.safetensors").items()
    }
    found["tokenizer"] = np.frombuffer((folder / "tokenizer.json").read_bytes(), np.uint8)
    return found | {"scores": np.concatenate(model.log_likelihood(lines(20, 2)))}


def are_equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def skip_without_torch(words: str) -> None:
    if "--model" in words and importlib.util.find_spec("torch") is None:
        pytest.skip("needs the torch extra")


def set_to(name: str, value: str | None) -> list[str]:
    return [] if value is None else [name] if value == "" else [f"{name}={value}"]


@pytest.mark.parametrize("name", NAMES)
def test_another_value_changes_what_is_saved_unless_it_must_not(name: str):
    if name in NOT_OF_THE_MODEL:
        words, options, _ = NOT_OF_THE_MODEL[name]
        skip_without_torch(words)
        first = options[:-1]
        assert not options or are_equal(saved(words, *first), saved(words, *options[-1:]))
        return
    if name not in CHANGES:
        pytest.fail(f"{name}: add it to CHANGES or NOT_OF_THE_MODEL of this file")
    words, one, other = CHANGES[name]
    skip_without_torch(f"{words} {name}")
    assert not are_equal(saved(words, *set_to(name, one)), saved(words, *set_to(name, other)))


def test_the_tables_name_options_that_there_are():
    assert {*CHANGES, *NOT_OF_THE_MODEL} == {*NAMES}
    assert {*NAMES} > NETWORK


def refusal(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*command(words), "--out", "model"]) == 2
    assert not Path("model").exists()
    return capsys.readouterr().err


@pytest.mark.parametrize("words", REFUSED)
def test_an_option_without_effect_is_refused(words: str, capsys):
    name = next(word for word in reversed(words.split()) if word.startswith("--"))
    said = refusal(words, capsys)
    if name in ("--option", "--plan"):
        name = words.rpartition(" ")[2].partition("=")[0]
    assert name.removeprefix("--") in said.replace("_", "-") or name in said


@pytest.mark.torch
@pytest.mark.parametrize("words", REFUSED_BY_NETWORKS)
def test_an_option_that_a_network_does_not_have_is_refused(words: str, capsys):
    pytest.importorskip("torch")
    test_an_option_without_effect_is_refused(words, capsys)


_SHAKESPEARE = "shakespeare texts"
#: Commands of which nothing reads the last option, and what is to be done.
_OF_OTHERS = [
    ("evaluate model text --surprisal-csv s.csv --unit token --uncorrected", "--unit token"),
    ("report model --out page --resamples 9", "--held-out TEXT or --blimp FOLDER"),
    ("report model --out page --documents line", "--held-out TEXT"),
    ("export model model.arpa --format arpa --license cc-by-4.0", "leave it out"),
    ("reading scores.csv --corpus words.csv --out r --context document", "a MODEL that reads"),
    ("elman --cluster local:1 --jobs 2", "--cluster to be left out"),
    ("dyck --models baseline --readouts softmax", "esn or stack among --models"),
    ("dyck --models mts --leaks 0.5", "esn or stack among --models"),
    ("natural a --held-out b --out r --no-plots --baseline KN=4.4", "--no-plots to be left out"),
    (
        "controls a --held-out b --out r --topologies offsets ring --topology ring",
        "--topologies to be left out",
    ),
    (
        "controls a --held-out b --out r --controls last_token --topologies offsets ring",
        "full or no_direct among --controls",
    ),
    (f"{_SHAKESPEARE} --units 50 --parameters 20000", "--units to be left out"),
    (f"{_SHAKESPEARE} --models carried --orders 3", "--models kneser-ney"),
    (f"{_SHAKESPEARE} --models kneser-ney --passes 2", "a reservoir among --models"),
    (f"{_SHAKESPEARE} --models windows --degree 3", "--models carried, gated or direct"),
    (f"{_SHAKESPEARE} --models gated --direct 2", "--models direct"),
]


@pytest.mark.parametrize(("words", "advice"), _OF_OTHERS)
def test_other_commands_refuse_an_option_that_nothing_reads(words: str, advice: str, capsys):
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    name = next(word for word in reversed(words.split()) if word.startswith("--"))
    assert f"{name} " in said
    assert advice in said


@pytest.mark.torch
def test_sizes_beside_each_networks_own_are_refused(capsys):
    pytest.importorskip("torch")
    words = "compare a --held-out b --models lstm --default-size --sizes 9000"
    test_other_commands_refuse_an_option_that_nothing_reads(
        words, "--default-size to be left out", capsys
    )


def test_options_that_say_nothing_to_a_model_are_refused(capsys):
    for kind, name in (("word", "word"), ("bpe:300", "bpe")):
        assert main([*command(f"{SMALL} --tokenizer {kind}"), "--out", name]) == 0
    drawn = "--tokens 3 --unknown"
    for words, said in (
        ("ablation word text --documents line", "--documents has no effect"),
        ("interpolate word word --held-out text --out both --documents line", "no effect"),
        (f"generate bpe {drawn}", "has no token of unknown words: leave it out"),
    ):
        assert main(words.split()) == 2
        assert said in capsys.readouterr().err
    assert main(["generate", "word", *drawn.split()]) == 0


def test_a_run_is_resumed_or_replaced(capsys):
    assert "give one of them" in refusal(f"{_PASSES} --resume --overwrite", capsys)
