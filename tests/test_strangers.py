"""Files that strangers wrote are refused in one line, before memory is taken or code crashes."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from benchmark_cases import BENCHMARKS
from safetensors.numpy import load_file, save_file

from esnlm import LanguageModel, Reservoir, RidgeReadout
from esnlm.__main__ import main
from esnlm.storage.model_folder import CONFIG, MODEL, TOKENIZER, WEIGHTS, write_files
from esnlm.storage.tensor_file import file_digest, read_tensors
from esnlm.text.corpus import LARGEST_ARCHIVE
from esnlm.text.shards import FORMAT, MANIFEST, Shards
from esnlm.text.tokenizers import Tokenizer, TokenizerError

NAMES = (
    "ridge", "low_rank", "low_rank_direct", "factored_separate_moe", "characters", "ngrams",
    "network_esn",
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """Folder of a model of each of these kinds, and of shards."""
    root = tmp_path_factory.mktemp("folders")
    names = [name for name in NAMES if name != "network_esn" or find_spec("torch")]
    command = [sys.executable, BENCHMARKS / "_fault_folders.py", root, *names]
    subprocess.run(command, check=True, capture_output=True)
    return root


def refused(capsys, *arguments: object) -> str:
    """The one line of an error with status 2."""
    assert main([str(argument) for argument in arguments]) == 2
    said = capsys.readouterr().err.splitlines()
    (line,) = [line for line in said if line.startswith("esnlm: error: ")]
    assert all(line.startswith("esnlm: ") for line in said)
    return line


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("boys see the dog\nthe dog sees\n")
    return path


def altered(source: Path, place: Path, change) -> Path:
    """A folder of a model whose contents were changed and sealed anew."""
    config = json.loads((source / CONFIG).read_text())
    for key in ("format", "version", "config_sha256", "sha256"):
        del config[key]
    arrays = load_file(source / WEIGHTS)
    texts = {TOKENIZER: (source / TOKENIZER).read_text()}
    change(config, arrays)
    place.mkdir()
    write_files(place, MODEL, config, {WEIGHTS: load_file(source / WEIGHTS)}, texts)
    save_file(arrays, place / WEIGHTS)
    resealed(place)
    return place


def resealed(place: Path) -> None:
    """Make the checksums of a model folder right."""
    config = json.loads((place / CONFIG).read_text())
    del config["config_sha256"]
    config["sha256"] = {name: file_digest(place / name) for name in config["sha256"]}
    (place / CONFIG).write_bytes(MODEL.sealed(config))


@pytest.mark.parametrize(
    ("model", "name", "change", "message"),
    [
        ("ridge", "reservoir.W.indptr", lambda a: np.r_[a[:-1], -1], "W.indptr must rise from 0"),
        ("ridge", "reservoir.W.indptr", lambda a: np.r_[a[:-1], 0], "W.indptr must rise from 0"),
        ("ridge", "reservoir.W.indptr", lambda a: np.r_[a[:-1], -(2**31)], "must rise from 0"),
        pytest.param(
            "network_esn",
            "reservoir.W_in.indptr",
            lambda a: np.r_[a[:-1], -1],
            "must rise from 0",
            marks=[pytest.mark.torch, pytest.mark.skipif(not find_spec("torch"), reason="torch")],
        ),
        ("ridge", "reservoir.leak_rate", lambda a: a > 0, "must be of one type"),
        ("ridge", "readout.coef_", lambda a: a[:, :-1].copy(), "coef_ must have shape"),
        ("ridge", "readout.coef_", lambda a: a * np.nan, "finite numbers"),
        ("ridge", "readout.classes_", lambda a: a[::-1].copy(), "tokens as its classes"),
        ("low_rank", "readout.word_class_", lambda a: a + 2**53, "integers of at most"),
        ("low_rank", "readout.word_class_", lambda a: a + 2**40, "numbered from 0"),
        ("low_rank_direct", "readout.pairs_", lambda a: a[:-1], "pair_coef_ must have shape"),
        ("ngrams", "tokens.2", lambda a: a + 27, "tokens.2 must lie in"),
        ("ngrams", "tokens.2", lambda a: a[::-1].copy(), "tokens.2 must rise"),
        ("ngrams", "children.3", lambda a: a + 1, "children.3 must add up"),
        ("ngrams", "discounts", lambda a: a - 5, "discounts must lie"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    model, name, change, message, tmp_path, text, capsys, folders
):
    def changed(config, arrays):
        arrays[name] = np.ascontiguousarray(change(arrays[name]))

    place = altered(folders / model, tmp_path / "model", changed)
    assert message in refused(capsys, "evaluate", place, text)


@pytest.mark.parametrize(
    "value", [10**12, -1, "x", None, [], {"class": "os", "params": {}}, 2.5, {"x": 1}]
)
@pytest.mark.parametrize("key", ["n_tokens", "settings", "reservoir", "readout", "tokenizer"])
def test_settings_that_make_no_model_are_refused(key, value, tmp_path, text, capsys, folders):
    place = altered(
        folders / "ridge", tmp_path / "model", lambda config, _: config.update({key: value})
    )
    refused(capsys, "evaluate", place, text)


def test_experts_that_are_not_there_are_refused(tmp_path, text, capsys, folders):
    def change(config, arrays):
        config["readout"]["params"]["class_readout"]["params"]["n_experts"] = 1 << 53

    folder = altered(folders / "factored_separate_moe", tmp_path / "m", change)
    assert "expert_coef_ must have shape" in refused(capsys, "evaluate", folder, text)


def test_a_text_without_tokens_has_no_scores(tmp_path, text, capsys, folders):
    place = altered(folders / "characters", tmp_path / "m", lambda config, arrays: None)
    layout = json.loads((place / TOKENIZER).read_text())
    layout["pre_tokenizer"] = {
        "type": "Split", "pattern": {"Regex": "never"}, "behavior": "Isolated", "invert": True,
    }  # fmt: skip
    (place / TOKENIZER).write_text(json.dumps(layout))
    resealed(place)
    assert "holds no token to predict" in refused(capsys, "evaluate", place, text)


def test_scores_that_are_no_probabilities_are_refused():
    model = LanguageModel(Reservoir(5, random_state=0), RidgeReadout(), tokenizer="word")
    model.fit(["the boy sees the dog"] * 3)
    model.readout_.coef_[:] = np.nan
    with pytest.raises(ValueError, match="NaN or more than 1"):
        model.score(["the boy"])


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b"[1]",
        b'{"a":1}',
        b'{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[99999999999],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}',
    ],
)
def test_headers_of_no_arrays_are_refused(header, tmp_path, text, capsys, folders):
    place = altered(folders / "ridge", tmp_path / "model", lambda *_: None)
    data = (place / WEIGHTS).read_bytes()
    rest = data[8 + int.from_bytes(data[:8], "little") :]
    (place / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + rest)
    resealed(place)
    assert "is not a safetensors file" in refused(capsys, "evaluate", place, text)


def test_arrays_of_a_type_that_numpy_lacks_are_refused(tmp_path):
    header = b'{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"0000")
    with pytest.raises(ValueError, match=r"a of .* has type 'BF16', expected F64"):
        read_tensors(path)


@pytest.mark.parametrize("name", [CONFIG, MANIFEST])
def test_json_that_is_nested_deep_is_refused(name, tmp_path, text, capsys):
    place = tmp_path / "folder"
    place.mkdir()
    (place / name).write_text("[" * 100_000)
    read = (
        ["evaluate", place, text] if name == CONFIG else ["train", place, "--out", tmp_path / "o"]
    )
    assert "nested too deep" in refused(capsys, *read)


def test_shards_without_totals_are_refused(tmp_path, capsys, folders):
    place = tmp_path / "shards"
    place.mkdir()
    for path in (folders / "shards").iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    manifest = json.loads((place / MANIFEST).read_text())
    for key in ("totals", "manifest_sha256", "format", "version"):
        del manifest[key]
    (place / MANIFEST).write_bytes(FORMAT.sealed(manifest))
    line = refused(capsys, "train", place, "--units", "4", "--out", tmp_path / "out")
    assert "does not describe whole shards" in line


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_pipe_as_a_configuration_is_not_waited_for(tmp_path, text, capsys, folders):
    os.mkfifo(tmp_path / CONFIG)
    assert "a pipe or a device" in refused(capsys, "evaluate", tmp_path, text)
    pairs = "blimp", folders / "ngrams", "--data", tmp_path / CONFIG
    assert "a pipe or a device" in refused(capsys, *pairs)


@pytest.mark.parametrize(
    "arguments", [("ngram", "--out"), ("prepare", "--tokenizer=word", "--out")]
)
def test_a_link_to_itself_is_no_output(arguments, tmp_path, text, capsys):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    command, *options = arguments
    line = refused(capsys, command, text, *options, loop)
    assert "Symlink loop" in line or "symbolic links" in line


PAIR = {"sentence_good": "the dog walks", "sentence_bad": "the dog walk"}


@pytest.mark.parametrize("damage", ["lzma", "encrypted", "claims"])
def test_a_zip_that_cannot_be_unpacked_is_refused(damage, tmp_path, capsys, folders):
    path = tmp_path / "pairs.zip"
    method = zipfile.ZIP_LZMA if damage == "lzma" else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("data/a.jsonl", json.dumps(PAIR) * 9)
    data = bytearray(path.read_bytes())
    local, central = data.find(b"PK\x03\x04"), data.find(b"PK\x01\x02")
    if damage == "lzma":
        data[local + 30 + len("data/a.jsonl") + 9] ^= 0xFF
    elif damage == "encrypted":
        data[local + 6] |= 1
        data[central + 8] |= 1
    else:
        data[central + 24 : central + 28] = (2**31).to_bytes(4, "little")
    path.write_bytes(data)
    line = refused(capsys, "blimp", folders / "ngrams", "--data", path)
    assert str(path) in line
    assert damage != "claims" or str(LARGEST_ARCHIVE) in line


def test_a_tar_that_claims_too_much_is_refused(tmp_path, capsys, folders):
    path = tmp_path / "pairs.tar"
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("a.jsonl")
        member.size = 2**40
        archive.addfile(member)
    assert str(LARGEST_ARCHIVE) in refused(capsys, "blimp", folders / "ngrams", "--data", path)


def layout(**vocab: int) -> dict:
    tokenizer = json.loads(Tokenizer.train_words(["a b"], boundaries=False).to_json())
    tokenizer["model"]["vocab"] = {"<unk>": 0, "a": 1, "b": 2} | vocab
    return tokenizer


def broken_merges(parts: str) -> dict:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [parts]}
    return layout() | {"model": model}


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (layout(c=10**9), "id of 'c' must lie in"),
        (layout(c=-1), "id of 'c' must lie in"),
        (layout(c=2), "the same id, 2"),
        (broken_merges("a c"), "needs 'c'"),
        (broken_merges("b a"), "needs 'ba'"),
        (broken_merges("ab"), "of two parts"),
        (layout() | {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}}, "'?'"),
        ([], "no model"),
        (layout() | {"added_tokens": [{"content": "a", "id": 2}]}, "'a' has two ids, 1 and 2"),
        (layout(c=5) | {"added_tokens": [{"content": "c", "id": 3}]}, "'c' has two ids, 5 and 3"),
        (layout() | {"added_tokens": [{"id": 3}]}, "objects with a content"),
        (layout() | {"added_tokens": [{"content": "c", "id": 3}, "d"]}, "objects with a content"),
        (layout() | {"added_tokens": {"content": "c"}}, "objects with a content"),
    ],
)
def test_tokenizers_that_the_library_trusts_are_refused(tokenizer, message, tmp_path, text, capsys):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tokenizer))
    out = tmp_path / "out"
    assert message in refused(capsys, "prepare", text, "--tokenizer", path, "--out", out)
    assert not out.exists()


def test_padding_takes_no_memory(tmp_path):
    path = tmp_path / "tokenizer.json"
    padding = {"strategy": {"Fixed": 10**8}, "direction": "Right", "pad_to_multiple_of": None,
               "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}  # fmt: skip
    path.write_text(json.dumps(layout() | {"padding": padding}))
    for tokenizer in (
        Tokenizer.from_file(path),
        Tokenizer.from_json(path.read_text(), bos=None, eos=None),
    ):
        assert tokenizer.encode("a b").tolist() == [1, 2]


def test_the_type_of_tokens_follows_the_largest_id(tmp_path):
    path, out = tmp_path / "tokenizer.json", tmp_path / "shards"
    path.write_text(json.dumps(layout(dog=65_539)))
    (tmp_path / "text.txt").write_text("a dog\n")
    command = ["prepare", str(tmp_path / "text.txt"), "--tokenizer", str(path), "--out", str(out)]
    assert main(command) == 0
    shards = Shards(out)
    assert shards.stream().tokens.tolist() == [1, 65_539]
    assert shards.n_tokens_vocab == len(shards.tokenizer) == 65_540
    assert shards.tokenizer.vocabulary[65_538:] == ["", "dog"]


def test_text_that_a_tokenizer_cannot_read_says_so():
    tokenizer = Tokenizer.train_words(["a b"])
    with pytest.raises(TokenizerError, match="cannot read the text"):
        tokenizer.encode(1)  # type: ignore[arg-type]


@pytest.mark.parametrize("split", ["line", "file", "blank_line"])
def test_a_line_without_end_is_refused(split, tmp_path, capsys, folders):
    path = tmp_path / "text.txt"
    path.write_text("ab" * (1 << 21))
    line = refused(capsys, "evaluate", folders / "ngrams", path, "--documents", split)
    assert "Break it in lines" in line


def test_tokens_that_change_while_they_are_read_are_refused():
    reservoir = Reservoir(10, random_state=0).fit(n_inputs=5)
    tokens = np.zeros(10_000, dtype=np.int64)
    blocks = reservoir.harvest(tokens, block_size=100)
    tokens[:] = 10**9
    with pytest.raises(ValueError, match="changed while they were read"):
        for _ in blocks:
            pass


def ran(*arguments: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = " ".join([sys.executable, "-m", "esnlm", *arguments, shell])
    return subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False,
        env=os.environ | environment,
    )  # fmt: skip


@pytest.mark.parametrize("shell", [">&-", "2>&-"])
def test_a_closed_output_is_refused(shell, text, folders):
    done = ran("evaluate", str(folders / "ngrams"), str(text), shell=shell)
    assert done.returncode == 2
    (line,) = (done.stdout + done.stderr).splitlines()
    assert "is closed" in line


def test_without_compiled_code_a_reservoir_is_refused(text, folders):
    done = ran("evaluate", str(folders / "ridge"), str(text), NUMBA_DISABLE_JIT="1")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line == "esnlm: error: reservoirs are compiled: unset NUMBA_DISABLE_JIT"
