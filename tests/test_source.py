"""What a text argument names: files, a folder of shards, a URL; and that asking writes nothing."""

from pathlib import Path

import pytest
from command_line import refused

from esnlm import NgramLanguageModel
from esnlm.__main__ import main
from esnlm.storage.atomic import put_back
from esnlm.text.shards import ShardsError
from esnlm.text.source import holds_shards, open_source

TEXT = "the boy sees the dog\nthe dog sees the boy\n"


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT)
    folder = tmp_path / "shards"
    words = ["prepare", tmp_path / "text.txt", "--tokenizer", "word", "--out", folder]
    assert main([*map(str, words)]) == 0
    return folder


def test_files_of_text_are_no_shards(shards: Path) -> None:
    source = open_source([str(shards.parent / "text.txt")])
    assert (source.is_shards, source.is_url, source.tokenizer) == (False, False, None)
    assert list(source.documents("line")) == TEXT.splitlines()


def test_a_folder_of_shards_gives_its_tokenizer_and_its_tokens(shards: Path) -> None:
    source = open_source([str(shards)])
    assert source.is_shards
    assert not source.is_url
    tokenizer = source.tokenizer
    assert tokenizer is not None
    stream = source.stream(tokenizer)
    words = " ".join(tokenizer.decode(stream.tokens[s : s + n]) for s, n in
                     zip(stream.starts, stream.lengths, strict=True))  # fmt: skip
    assert words.split() == TEXT.split()
    assert source.parts.n_tokens == len(stream.tokens)
    assert source.shards is source.shards  # every byte is checked once


def test_a_url_is_read_in_parts_alone(shards: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for file in shards.iterdir():
        memory.pipe_file(f"/source/{file.name}", file.read_bytes())
    source = open_source(["memory://source"])
    assert source.is_shards
    assert source.is_url
    assert not source.warnings(None)
    here = open_source([str(shards)])
    assert source.tokenizer is not None
    assert here.tokenizer is not None
    assert source.tokenizer.to_json() == here.tokenizer.to_json()
    with pytest.raises(ShardsError, match="read in parts alone, got memory://source: copy"):
        _ = source.shards


def test_more_than_one_folder_or_text_beside_one_is_refused(shards: Path) -> None:
    with pytest.raises(ValueError, match="is a folder of shards, the rest is text: give one"):
        open_source([str(shards), str(shards.parent / "text.txt")])
    with pytest.raises(ValueError, match="expected one folder of shards, got 2"):
        open_source([str(shards), str(shards)])


def test_shards_of_another_tokenizer_are_refused(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("a cat\n")
    words = ["prepare", tmp_path / "other.txt", "--tokenizer", "word", "--out", tmp_path / "other"]
    assert main([*map(str, words)]) == 0
    tokenizer = open_source([str(tmp_path / "other")]).tokenizer
    assert tokenizer is not None
    with pytest.raises(ValueError, match="is not the one of the training text"):
        open_source([str(shards)]).stream(tokenizer)


def test_asking_writes_nothing_and_the_reader_puts_a_folder_back(shards: Path) -> None:
    aside = shards.with_name(f".{shards.name}.esnlm-old")
    shards.rename(aside)  # as a process that is killed while it replaces the folder leaves it
    before = sorted(shards.parent.iterdir())
    assert holds_shards(shards)
    assert open_source([str(shards)]).is_shards
    assert sorted(shards.parent.iterdir()) == before
    assert len(open_source([str(shards)]).shards) == 2
    assert shards.is_dir()
    assert not aside.exists()
    put_back(shards)  # there is nothing left to do
    assert not holds_shards(shards.parent)


@pytest.mark.skipif(
    not Path("/proc/self/mem").exists(), reason="needs a file that fails to be read"
)
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("text.txt", "ngram {} --out other"),
        ("table.csv", "evaluate model {} --column text"),
        ("tokenizer.json", "ngram text --tokenizer {} --out other"),
        ("pairs.jsonl", "blimp model --data {}"),
        ("pairs.jsonl.gz", "blimp model --data {}"),
        ("rows.csv", "report {} --out page.html"),
        ("model/config.json", "evaluate model text"),
        ("model/weights.safetensors", "evaluate model text"),
    ],
)
def test_a_drive_that_fails_names_the_file(
    name: str, command: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    """The system's error of a read, here of a page that is not mapped, has no name."""
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("the dog saw the cat\n" * 9)
    NgramLanguageModel(1).fit(["the dog saw the cat"] * 9).save("model")
    Path(name).unlink(missing_ok=True)
    Path(name).symlink_to("/proc/self/mem")
    assert refused(capsys, *command.format(name).split()).endswith(f"{name}: Input/output error")
