"""Token shards: text to tokens exactly, whatever interrupts it; every altered byte is noticed."""

import errno
import gzip
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest
from command_line import refused
from hypothesis import given
from hypothesis import strategies as st

from esnlm import NgramLanguageModel
from esnlm.__main__ import main
from esnlm.storage.atomic import BusyError, locked
from esnlm.storage.json_files import sealed, unsealed
from esnlm.storage.tensor_file import GrowingFile
from esnlm.text import prepare as preparation
from esnlm.text.boundaries import framed
from esnlm.text.corpus import CorpusError
from esnlm.text.named_tokenizers import byte_pairs
from esnlm.text.prepare import prepare
from esnlm.text.sentences import SentenceRules
from esnlm.text.shards import FORMAT, MANIFEST, Shards, ShardsError
from esnlm.text.source import open_source
from esnlm.text.tokenizers import Tokenizer

TEXT = "the boy sees the dog\nthe dog sees Mary\n\nMary walks\n\n\nthe boy\n"
WORDS = Tokenizer.train_words([TEXT])
TOKENIZERS = {
    "words": WORDS,
    "characters": Tokenizer.train_characters(["abc dé"], boundaries=True),
    "bytes": byte_pairs([TEXT], 270),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def sentences_of(shards: Shards) -> list[list[int]]:
    stream = shards.stream()
    return [part.tolist() for part in np.split(stream.tokens, stream.starts)[1:]]


def documents_of(shards: Shards) -> list[list[int]]:
    stream = shards.stream()
    return [part.tolist() for part in np.split(stream.tokens, stream.bounds[1:-1])]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    return path


def test_sentences_documents_and_counts(text: Path, tmp_path: Path):
    shards = prepare(text, tmp_path / "out", WORDS)
    expected = [
        line.tolist() for (line,) in framed(filter(None, TEXT.split("\n")), WORDS, "sentence")
    ]
    assert sentences_of(shards) == expected
    assert documents_of(shards) == [expected[0] + expected[1], expected[2], expected[3]]
    assert shards.manifest["totals"] == {
        "tokens": 21, "sentences": 4, "documents": 3, "words": 13, "characters": 54, "unknown": 0,
        "sentences_left_out": 0, "sentences_cut": 0, "tokens_cut": 0,
    }  # fmt: skip
    assert (len(shards), shards.n_tokens, shards.n_documents) == (4, 21, 3)
    assert shards.n_tokens_vocab == len(WORDS)
    assert shards.stream().tokens.dtype == np.uint16
    assert shards.tokenizer.encode("Mary walks").tolist() == WORDS.encode("Mary walks").tolist()
    assert not shards.stream().tokens.flags.writeable


def test_outside_clients_get_the_same_ids_from_the_saved_tokenizer(text: Path, tmp_path: Path):
    from tokenizers import Tokenizer as Outside

    shards = prepare(text, tmp_path / "out", "bpe:270")
    outside = Outside.from_file(str(tmp_path / "out" / "tokenizer.json"))
    bos, eos = shards.tokenizer.bos_id, shards.tokenizer.eos_id
    lines = [line for line in TEXT.split("\n") if line]
    assert [[*outside.encode(line).ids, eos] for line in lines] == sentences_of(shards)
    assert all(sentence.count(bos) == 1 for sentence in sentences_of(shards))


_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_TEXTS = st.lists(st.text(_CHARACTERS, max_size=40), max_size=12).map("\n".join)


def split_plainly(text: str) -> list[list[str]]:
    """Documents of sentences, by the definition: no streams, no batches."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    documents: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip():
            documents[-1].append(line.strip())
        else:
            documents.append([])
    return [document for document in documents if document]


@given(_TEXTS, st.integers(1, 60), st.sampled_from(["bytes", "words", "characters"]))
def test_any_text_has_the_tokens_of_the_tokenizer(content: str, checkpoint: int, kind: str):
    tokenizer = TOKENIZERS[kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.txt")
        path.write_bytes(content.encode())
        documents = split_plainly(content)
        arguments = (path, Path(folder, "out"), tokenizer)
        if not documents:
            with pytest.raises(CorpusError, match="the corpus is empty"):
                prepare(*arguments, checkpoint_characters=checkpoint)
            return
        shards = prepare(*arguments, checkpoint_characters=checkpoint)
        lines = [line for document in documents for line in document]
        bare = [tokenizer.encode(line).tolist() for line in lines]
        expected = [[tokenizer.bos_id, *ids, tokenizer.eos_id] for ids in bare]
        assert sentences_of(shards) == expected
        left = iter(expected)
        expected = [list(chain(*islice(left, len(document)))) for document in documents]
        assert documents_of(shards) == expected
        totals = shards.manifest["totals"]
        assert totals["characters"] == sum(map(len, lines))
        assert totals["words"] == sum(len(line.split()) for line in lines)
        if kind == "bytes":
            assert [tokenizer.decode(ids) for ids in sentences_of(shards)] == lines


@given(st.lists(st.lists(st.integers(0, 70000), max_size=4), max_size=6), st.integers(0, 30))
def test_a_growing_file_goes_back_to_its_checkpoint(pieces: list[list[int]], extra: int):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        dtype = np.dtype("<u4")
        state = None
        for piece in pieces:
            with GrowingFile(path, dtype, state) as file:
                file.append(np.array(piece, dtype=int))
                state = file.state()
                file.append(np.arange(extra))
        with GrowingFile(path, dtype, state):
            pass
        assert np.fromfile(path, dtype).tolist() == list(chain(*pieces))


@pytest.mark.parametrize(("documents", "expected"), [("blank_line", 3), ("line", 4), ("file", 1)])
def test_what_a_document_is(text: Path, tmp_path: Path, documents: str, expected: int):
    shards = prepare(text, tmp_path / "out", WORDS, rules=SentenceRules(documents=documents))
    assert shards.n_documents == expected
    assert len(shards) == 4


def test_short_sentences_are_left_out_and_long_ones_cut(text: Path, tmp_path: Path):
    rules = SentenceRules(min_length=5, max_length=6)
    shards = prepare(text, tmp_path / "out", WORDS, rules=rules)
    lines = framed(filter(None, TEXT.split("\n")), WORDS, "sentence")
    first, second, _, _ = (ids.tolist() for (ids,) in lines)
    # The first has 7 tokens with its boundaries, the second 6, the others 4.
    assert sentences_of(shards) == [first[:6], second]
    totals = shards.manifest["totals"]
    assert totals["documents"] == 1
    assert (totals["sentences_left_out"], totals["sentences_cut"], totals["tokens_cut"]) == (
        2,
        1,
        1,
    )
    assert totals["words"] == 9


def test_a_sentence_may_be_one_token(tmp_path: Path):
    (tmp_path / "text").write_text("a\nab\n")
    tokenizer = Tokenizer.train_characters(["ab"], boundaries=False)
    shards = prepare(tmp_path / "text", tmp_path / "out", tokenizer)
    assert [len(sentence) for sentence in sentences_of(shards)] == [1, 2]


def test_marks_around_nothing_are_no_sentence(tmp_path: Path):
    (tmp_path / "text").write_text("<s> the boy </s>\n<s> </s>\n<s> Mary </s>\n")
    shards = prepare(tmp_path / "text", tmp_path / "out", WORDS)
    assert [WORDS.decode(x) for x in sentences_of(shards)] == ["the boy", "Mary"]


def test_folders_and_compressed_files_in_order_of_names(tmp_path: Path):
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    (folder / "b.txt.gz").write_bytes(gzip.compress(b"the dog\n"))
    (folder / "a.txt").write_text("the boy")
    (folder / "sub" / "c.txt").write_text("Mary\n")
    (folder / ".hidden").write_text("walks")
    shards = prepare(folder, tmp_path / "out", WORDS)
    assert [WORDS.decode(x) for x in sentences_of(shards)] == ["the boy", "the dog", "Mary"]
    assert shards.n_documents == 3
    sources = shards.manifest["made_from"]["sources"]
    assert [source["name"] for source in sources] == ["a.txt", "b.txt.gz", "sub/c.txt"]


def test_lower_case_is_in_the_tokenizer(text: Path, tmp_path: Path):
    given_one = prepare(text, tmp_path / "a", WORDS, lower=True)
    assert given_one.manifest["totals"]["unknown"] == 2
    trained = prepare(text, tmp_path / "b", "word", lower=True)
    assert trained.manifest["totals"]["unknown"] == 0
    assert trained.tokenizer.encode("MARY").tolist() == trained.tokenizer.encode("mary").tolist()


def test_large_vocabularies_take_four_bytes(tmp_path: Path):
    words = [f"w{i}" for i in range(70_000)]
    (tmp_path / "a").write_text("\n".join(words))
    shards = prepare(tmp_path / "a", tmp_path / "out", "word")
    assert shards.stream().tokens.dtype == np.uint32
    assert int(shards.stream().tokens.max()) == 70_002
    assert shards.tokenizer.decode(sentences_of(shards)[-1]) in words


@pytest.mark.parametrize("name", ["bpe:300", "word:6", "word", "char"])
def test_trained_tokenizers_are_the_same_each_time(text: Path, tmp_path: Path, name: str):
    for out in ("a", "b"):
        prepare(text, tmp_path / out, name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


class Crash(BaseException):
    """What nothing catches."""


def crash_at(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop at the given one of all calls that touch the disk, before or in the midst of it."""
    left = [call]

    def counted(name: str, function):
        def wrapped(*arguments, **options):
            left[0] -= 1
            if left[0] == 0:
                if name == "append" and len(arguments[1]) > 1:
                    function(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise Crash
            return function(*arguments, **options)

        return wrapped

    monkeypatch.setattr(GrowingFile, "append", counted("append", GrowingFile.append))
    monkeypatch.setattr(os, "fsync", counted("fsync", os.fsync))
    monkeypatch.setattr(os, "replace", counted("replace", os.replace))


@pytest.mark.parametrize("overwrite", [False, True])
def test_stopped_at_any_point_and_begun_again_the_bytes_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
):
    (tmp_path / "texts").mkdir()
    for name in ("a", "b.gz"):
        data = (TEXT + name).encode()
        (tmp_path / "texts" / name).write_bytes(gzip.compress(data) if "gz" in name else data)
    out = tmp_path / "out"

    def prepared(target: Path) -> Shards:
        return prepare(
            tmp_path / "texts", target, "bpe:270", overwrite=overwrite, checkpoint_characters=70
        )

    expected = contents(prepared(tmp_path / "undisturbed").folder)
    stops = 0
    for call in range(1, 1000):
        if overwrite:
            prepare(tmp_path / "texts" / "a", out, "char", overwrite=True)
        with monkeypatch.context() as patch:
            crash_at(call, patch)
            try:
                prepared(out)
            except Crash:
                stops += 1
                assert overwrite or not out.exists() or contents(out) == expected
        if stops < call:
            break
        assert contents(prepared(out).folder) == expected
        assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "texts", "undisturbed"]
        shutil.rmtree(out)
    assert stops > 25


PROGRAM = """
import sys
from esnlm.text.prepare import prepare
prepare(sys.argv[1], sys.argv[2], "bpe:400", checkpoint_characters=1 << 14)
"""


def test_killed_at_random_moments_the_bytes_are_the_same(tmp_path: Path):
    kill_often(tmp_path, 3)


@pytest.mark.slow
def test_killed_many_times_the_bytes_are_the_same(tmp_path: Path):
    kill_often(tmp_path, int(os.environ.get("ESNLM_KILLS", "50")))


def kill_often(tmp_path: Path, times: int) -> None:
    rng = random.Random(times)
    words = [f"{rng.choice('abcdef')}{rng.randrange(999)}" for _ in range(999)]
    lines = (" ".join(rng.choices(words, k=8)) for _ in range(15_000))
    (tmp_path / "a").write_text("\n".join(lines))
    begin = time.perf_counter()
    run = [sys.executable, "-c", PROGRAM, str(tmp_path / "a")]
    subprocess.run([*run, str(tmp_path / "undisturbed")], check=True)
    took = time.perf_counter() - begin
    expected = contents(tmp_path / "undisturbed")
    kills = made = 0
    while kills < times:
        out = tmp_path / f"out{made}"
        process = subprocess.Popen([*run, str(out)])
        try:
            process.wait(rng.uniform(0.3, 1.0) * took)
            made += 1
            assert contents(out) == expected
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            assert not out.exists() or contents(out) == expected
    subprocess.run([*run, str(out)], check=True)
    assert contents(out) == expected


@pytest.fixture
def made(text: Path, tmp_path: Path) -> Path:
    return prepare(text, tmp_path / "out", WORDS).folder


def test_shards_are_no_documents_but_their_stream_is(made: Path):
    with pytest.raises(ValueError, match=r"got Shards: pass its stream\(\)"):
        NgramLanguageModel(2).fit(Shards(made))
    with pytest.raises(ValueError, match=r"got 'bpe:9': .* Shards\(folder\).tokenizer"):
        NgramLanguageModel(2, "bpe:9").fit(["a b"])


def test_every_flipped_byte_is_noticed(made: Path):
    for path in sorted(made.iterdir()):
        whole = path.read_bytes()
        for place in range(0, len(whole), 5):
            altered = bytearray(whole)
            altered[place] ^= 1 << (place // 5 % 8)
            path.write_bytes(altered)
            with pytest.raises(ShardsError):
                Shards(made)
        path.write_bytes(whole)
    Shards(made)


def test_truncated_lengthened_and_missing_files_are_named(made: Path):
    for path in sorted(made.iterdir()):
        whole = path.read_bytes()
        for data in (whole[:-1], b"", whole + b"\0"):
            path.write_bytes(data)
            message = rf"it has {len(data)} bytes, expected {len(whole)}"
            if path.name == "manifest.json":
                message = r"altered|not JSON"
            for verify in (True, False):
                with pytest.raises(ShardsError, match=message):
                    Shards(made, verify=verify)
        path.unlink()
        with pytest.raises(ShardsError, match=f"{path.name} is missing"):
            Shards(made)
        path.write_bytes(whole)


def forge(folder: Path, **changes: object) -> None:
    """A manifest with other entries whose checksum is right."""
    manifest = FORMAT.read(folder) | changes
    (folder / MANIFEST).write_bytes(FORMAT.sealed(manifest))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_tokens_vocab": 70_000}, "a vocabulary of 70000 entries, more than uint16"),
        ({"n_tokens_vocab": 10}, "the tokenizer of 9 entries does not belong"),
        ({"dtype": "int8"}, "expected uint16, uint32"),
        ({"dtype": "uint32"}, "expected 21 items of uint32"),
        ({"version": 2}, "version 2 of the shards format, expected 1"),
        ({"format": "other"}, "does not describe a shards folder"),
        ({"files": {}}, "does not describe whole shards"),
        ({"totals": 3}, "does not describe whole shards"),
        ({"n_tokens_vocab": None}, "does not describe whole shards"),
    ],
)
def test_manifests_that_do_not_fit(made: Path, changes: dict, message: str):
    forge(made, **changes)
    with pytest.raises(ShardsError, match=message):
        Shards(made)


def test_tokens_and_places_out_of_range(made: Path):
    files = FORMAT.read(made)["files"]
    for name, values in (
        ("tokens.bin", np.full(21, 9, "<u2")),
        ("starts.bin", np.array([0, 9, 8, 20], "<i8")),
        ("starts.bin", np.array([1, 7, 13, 17], "<i8")),
        ("bounds.bin", np.array([0, 13, 17, 20], "<i8")),
    ):
        whole = (made / name).read_bytes()
        (made / name).write_bytes(values.tobytes())
        digest = hashlib.sha256(values.tobytes()).hexdigest()
        forge(made, files=files | {name: {"bytes": values.nbytes, "sha256": digest}})
        with pytest.raises(ShardsError, match=r"must rise from 0|holds the token 9"):
            Shards(made)
        (made / name).write_bytes(whole)


def test_folders_that_are_no_shards(tmp_path: Path):
    with pytest.raises(ShardsError, match="no such shards folder"):
        Shards(tmp_path / "none")
    with pytest.raises(ShardsError, match=r"manifest\.json is missing"):
        Shards(tmp_path)


def test_a_full_disk_keeps_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a").write_text(TEXT * 9)
    calls = [0]
    append = GrowingFile.append

    def full(self: GrowingFile, values: np.ndarray) -> None:
        calls[0] += 1
        if calls[0] == 12:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        append(self, values)

    monkeypatch.setattr(GrowingFile, "append", full)
    arguments = (tmp_path / "a", tmp_path / "out", WORDS)
    with pytest.raises(OSError, match="No space left on device"):
        prepare(*arguments, checkpoint_characters=70)
    assert not (tmp_path / "out").exists()
    progress = unsealed(tmp_path / "out.partial" / "progress.json")
    assert progress["counts"]["tokens"] > 0
    prepare(*arguments, checkpoint_characters=70)
    prepare(tmp_path / "a", tmp_path / "undisturbed", WORDS)
    assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")


def test_a_limit_on_the_size_of_files_is_told_with_the_name(tmp_path: Path, capsys):
    (tmp_path / "a").write_text(TEXT * 900)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    command = ["prepare", str(tmp_path / "a"), "--tokenizer", "word", "--out"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, hard))
    try:
        assert main([*command, str(tmp_path / "out")]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    message = capsys.readouterr().err
    assert message.startswith("esnlm: error: ")
    assert message.count("\n") == 1
    assert "tokens.bin: File too large" in message
    assert main([*command, str(tmp_path / "out")]) == 0
    assert Shards(tmp_path / "out").n_tokens == 21 * 900


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("latin", b"caf\xe9", "not UTF-8 text"),
        ("binary", b"a\0b", "NUL bytes"),
        ("cut.gz", gzip.compress(TEXT.encode() * 99)[:-9], "not a whole gzip file"),
        ("manifest.CSV.gz", gzip.compress(b"id,words\n1,2\n"), "is a table, not text"),
    ],
)
def test_a_bad_file_in_a_folder_leaves_nothing(tmp_path: Path, name, content, message):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a").write_text(TEXT)
    (folder / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message) as caught:
        prepare(folder, tmp_path / "out", WORDS)
    assert name in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]
    (folder / name).unlink()
    assert len(prepare(folder, tmp_path / "out", WORDS)) == 4


def test_broken_links_and_unreadable_files_are_told(tmp_path: Path, monkeypatch):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a").write_text(TEXT)
    (folder / "b").symlink_to(folder / "none")
    with pytest.raises(CorpusError, match="b is a broken link"):
        prepare(folder, tmp_path / "out", WORDS)
    (folder / "b").unlink()
    refused = PermissionError(errno.EACCES, "Permission denied", str(folder / "a"))
    monkeypatch.setattr(preparation, "file_digest", lambda path: (_ for _ in ()).throw(refused))
    with pytest.raises(PermissionError):
        prepare(folder, tmp_path / "out", WORDS)
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


def test_a_file_that_changes_meanwhile_is_told(text: Path, tmp_path: Path):
    def append(*_: int) -> None:
        text.write_text(text.read_text() + "more\n")

    with pytest.raises(CorpusError, match="changed while it was read"):
        prepare(text, tmp_path / "out", WORDS, progress=append, checkpoint_characters=9)


def test_shards_that_are_there(text: Path, made: Path):
    before = made.stat().st_mtime_ns, contents(made)
    again = prepare(text, made, WORDS)
    assert len(again) == 4
    assert (made.stat().st_mtime_ns, contents(made)) == before
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        prepare(text, made, "char")
    assert contents(made) == before[1]
    assert prepare(text, made, "char", overwrite=True).n_tokens_vocab != len(WORDS)


def test_other_folders_are_left_alone(text: Path, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("draft")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="holds other files than shards"):
            prepare(text, tmp_path / "mine", WORDS, overwrite=overwrite)
    assert (tmp_path / "mine" / "thesis").read_text() == "draft"


def test_files_beside_shards_and_manifests_of_others_are_left_alone(text, made, tmp_path):
    (made / "notes").write_text("mine")
    (tmp_path / "site").mkdir()
    for name in ("manifest.json", "index.html"):
        (tmp_path / "site" / name).write_text("{}")
    for out in (made, tmp_path / "site"):
        with pytest.raises(FileExistsError, match="holds other files than shards"):
            prepare(text, out, "char", overwrite=True)
    assert (made / "notes").read_text() == "mine"


def test_damaged_shards_are_made_again_if_asked(text: Path, made: Path):
    whole = contents(made)
    for name in ("tokens.bin", "manifest.json"):
        (made / name).write_bytes(b"x" + whole[name][1:])
        with pytest.raises(FileExistsError, match="or pass overwrite=True"):
            prepare(text, made, WORDS)
        prepare(text, made, WORDS, overwrite=True)
        assert contents(made) == whole


def test_a_folder_of_the_name_of_ours_is_left_alone(text: Path, tmp_path: Path):
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "thesis").write_text("draft")
    with pytest.raises(FileExistsError, match="thesis"):
        prepare(text, tmp_path / "out", WORDS, overwrite=True)
    assert (tmp_path / "out.partial" / "thesis").read_text() == "draft"


def test_shards_do_not_become_text(text: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="choose a folder outside it"):
        prepare(tmp_path, tmp_path / "out", WORDS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"tokenizer": Path("tokenizer.json")},
            "tokenizer must be .* Tokenizer.from_file reads, got",
        ),
        ({"rules": "line"}, "rules must be a SentenceRules, got 'line'"),
        ({"layout": "utf-8"}, "layout must be a TextLayout, got 'utf-8'"),
    ],
)
def test_settings_of_other_types_are_named(
    text: Path, tmp_path: Path, settings: dict, message: str
):
    with pytest.raises(ValueError, match=message):
        prepare(text, tmp_path / "out", **({"tokenizer": "word"} | settings))
    assert not list(tmp_path.glob("out*"))


def test_two_at_once_do_not_mix(text: Path, tmp_path: Path):
    with locked(tmp_path / "out"), ThreadPoolExecutor() as pool:
        second = pool.submit(prepare, text, tmp_path / "out", WORDS)
        with pytest.raises(BusyError, match=f"is being written by process {os.getpid()} "):
            second.result()
    assert len(prepare(text, tmp_path / "out", WORDS)) == 4


def test_an_altered_checkpoint_is_refused(tmp_path: Path, monkeypatch):
    (tmp_path / "a").write_text(TEXT * 9)
    arguments = (tmp_path / "a", tmp_path / "out", WORDS)
    with monkeypatch.context() as patch:
        crash_at(40, patch)
        with pytest.raises(Crash):
            prepare(*arguments, checkpoint_characters=70)
    tokens = tmp_path / "out.partial" / "shards" / "tokens.bin"
    tokens.write_bytes(b"x" + tokens.read_bytes()[1:])
    with pytest.raises(ValueError, match="truncated or altered since it was written"):
        prepare(*arguments)


def test_json_with_its_checksum(tmp_path: Path):
    (tmp_path / "a").write_bytes(sealed({"b": [np.int64(1)]}))
    assert unsealed(tmp_path / "a") == {"b": [1]}
    (tmp_path / "a").write_text((tmp_path / "a").read_text().replace("1\n", "2\n"))
    assert unsealed(tmp_path / "a") is None
    assert unsealed(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tokenizer", "bpe:5"], "bpe needs a size of at least 258"),
        (["--tokenizer", "bpe"], "got bpe: write bpe:8000"),
        (["--tokenizer", "word:0"], "vocab_size must be larger"),
        (["--tokenizer", "char", "--vocab", "x"], "--vocab goes with --tokenizer gpt2"),
        (["--tokenizer", "char", "--min-length", "0"], "--min-length must be at least 1"),
        (
            ["--tokenizer", "char", "--min-length", "9", "--max-length", "5"],
            "--min-length must not exceed max_length",
        ),
        (["--tokenizer", "char", "--min-length", "99"], "no sentence of 99 tokens or more"),
    ],
)
def test_the_command_refuses_in_one_line(text: Path, tmp_path: Path, capsys, options, message):
    assert main(["prepare", str(text), "--out", str(tmp_path / "out"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [text.name]


def test_the_command_tells_what_it_made(text: Path, tmp_path: Path, capsys):
    out = tmp_path / "out"
    options = ["--tokenizer", "char", "--documents", "line", "--max-length", "9"]
    assert main(["prepare", str(text), "--out", str(out), *options]) == 0
    captured = capsys.readouterr()
    assert "4 sentences, 4 documents" in captured.out
    assert not captured.err
    assert Shards(out).manifest["totals"]["sentences_cut"] == 3


def test_the_command_takes_the_tokenizer_of_other_shards(text: Path, made: Path, tmp_path: Path):
    out = tmp_path / "again"
    options = ["--tokenizer", str(made / "tokenizer.json"), "--min-length", "5"]
    assert main(["prepare", str(text), "--out", str(out), *options]) == 0
    again = Shards(out)
    assert again.tokenizer.fingerprint() == Shards(made).tokenizer.fingerprint()
    assert sentences_of(again) == [x for x in sentences_of(Shards(made)) if len(x) >= 5]


def test_the_command_takes_a_models_tokenizer_with_its_boundaries(text: Path, tmp_path: Path):
    backend = Tokenizer.from_json(WORDS.to_json(), bos=None, eos=None).backend
    backend.add_special_tokens(["<e>"])
    docs = text.read_text().splitlines()
    model = NgramLanguageModel(2, Tokenizer(backend, bos="<e>", eos="<e>")).fit(docs)
    model.save(tmp_path / "model")
    for folder, again in (("model", "shards"), ("shards", "again")):
        options = ["--tokenizer", str(tmp_path / folder), "--out", str(tmp_path / again)]
        assert main(["prepare", str(text), *options]) == 0
        tokenizer = Shards(tmp_path / again).tokenizer
        assert tokenizer.fingerprint() == model.tokenizer_.fingerprint()
    source = open_source([str(tmp_path / "again")])
    with pytest.raises(ValueError, match="is not the one of the training text"):
        source.stream(Tokenizer(backend, bos=None, eos="<e>"))


def test_interrupted_says_how_to_go_on(text: Path, tmp_path: Path, capsys, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(preparation, "tokenize_sentences", interrupt)
    assert main(["prepare", str(text), "--tokenizer", "char", "--out", str(tmp_path / "o")]) == 130
    assert "the same command continues from here" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["prepare", str(text), "--tokenizer", "char", "--out", str(tmp_path / "o")]) == 0


def test_manifest_has_no_place_or_time_of_its_making(made: Path):
    assert str(made.parent) not in json.dumps(FORMAT.read(made))


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
