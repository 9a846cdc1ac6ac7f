"""Corpora: files to documents, documents to streams."""

import bz2
import errno
import gzip
import lzma
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import refused
from hypothesis import given
from hypothesis import strategies as st

from esnlm.text.boundaries import as_documents, framed
from esnlm.text.corpus import CorpusError, TextCorpus, TokenStream, join_sequences
from esnlm.text.prepare import prepare
from esnlm.text.tokenizers import Tokenizer

TEXT = "first line\nsecond line\n\n\n  third \n"


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("blank_line", ["first line\nsecond line", "third"]),
        ("line", ["first line", "second line", "third"]),
        ("file", [TEXT]),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_documents_of_a_file(tmp_path: Path, split: str, expected: list[str], compressed: bool):
    path = tmp_path / ("a.txt.gz" if compressed else "a.txt")
    path.write_bytes(gzip.compress(TEXT.encode()) if compressed else TEXT.encode())
    corpus = TextCorpus(path, split)
    assert list(corpus) == expected
    assert list(corpus) == expected


def test_folders_are_read_in_order_of_names_without_hidden_files(tmp_path: Path):
    for name in ("b.txt", "a/c.txt", ".hidden", "a/.git/d"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    assert list(TextCorpus([tmp_path])) == ["a/c.txt", "b.txt"]


def test_documents_do_not_cross_files(tmp_path: Path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    assert list(TextCorpus([tmp_path / "b", tmp_path / "a"])) == ["b", "a"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("binary", b"text\0more", "holds NUL bytes"),
        ("latin", b"caf\xe9", r"not UTF-8 text \(byte 0xe9\)"),
        ("empty", b"", "the corpus is empty"),
        ("blank", b"\n \n", "the corpus is empty"),
        ("false.gz", b"not gzip", "not a whole gzip file.*take .gz off the name"),
        ("unnamed", gzip.compress(b"text"), "packed by gzip: let its name end in .gz"),
        ("a.txt.bz2", bz2.compress(b"the boy sees the dog"), "packed by bzip2: unpack it"),
        ("a.txt.xz", lzma.compress(b"text"), "packed by xz: unpack it"),
        ("a.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF: extract its text"),
        ("a.parquet", b"PAR1\x15\x04" + bytes(30), "a table of Parquet"),
        ("a.tar.gz", gzip.compress(b"a.txt".ljust(257, b"\0") + b"ustar"), "a tar archive: unpack"),
        ("false.GZ", b"not gzip", "not a whole gzip file"),
        ("latin.gz", gzip.compress(b"caf\xe9")[:-8] + bytes(8), "not a whole gzip file"),
        ("cut.gz", gzip.compress(TEXT.encode() * 99)[:-9], "not a whole gzip file"),
    ],
)
@pytest.mark.parametrize("split", ["blank_line", "line", "file"])
def test_bad_files_are_named(tmp_path: Path, name: str, content: bytes, message: str, split: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message) as caught:
        list(TextCorpus(tmp_path / name, split))
    assert name in str(caught.value)


def test_marks_of_files_put_end_to_end_are_no_text(tmp_path: Path):
    (tmp_path / "a").write_bytes("the dog\n".encode("utf-8-sig") * 2)
    assert list(TextCorpus(tmp_path / "a", "line")) == ["the dog"] * 2


def test_missing_files_are_named_at_once(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"no such file or folder: .*none"):
        TextCorpus(tmp_path / "none")
    with pytest.raises(CorpusError, match=r"folder: https://a\.b/c\.txt; text at a URL is"):
        TextCorpus("https://a.b/c.txt")
    with pytest.raises(CorpusError, match="no files"):
        TextCorpus([])
    with pytest.raises(ValueError, match="split must be one of"):
        TextCorpus(tmp_path, "page")


def test_what_a_folder_holds_is_read_or_told(tmp_path: Path, monkeypatch):
    (tmp_path / "a").write_text("a")
    (tmp_path / "link").symlink_to("a")
    assert list(TextCorpus(tmp_path)) == ["a", "a"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError, match="pipe is a broken link, a pipe or a device"):
        list(TextCorpus(tmp_path))
    (tmp_path / "pipe").unlink()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("none")
    with pytest.raises(CorpusError, match="link is a broken link"):
        list(TextCorpus(tmp_path))

    def refuse(place: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))

    (tmp_path / "link").unlink()
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        list(TextCorpus(tmp_path))


def test_links_to_folders_are_followed_once(tmp_path: Path):
    for name in ("texts", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    (tmp_path / "texts" / "more").symlink_to("../elsewhere")
    (tmp_path / "texts" / "self").symlink_to(".")
    (tmp_path / "texts" / "zoo").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "home").symlink_to(tmp_path)
    assert [name for _, name in TextCorpus(tmp_path / "texts").files()] == [
        "more/elsewhere", "texts",
    ]  # fmt: skip


def test_files_are_named_within_what_was_given(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    for name in ("b", "sub/c"):
        (tmp_path / name).write_text(name)
    corpus = TextCorpus([tmp_path / "b", tmp_path])
    assert [name for _, name in corpus.files()] == ["b", "b", "sub/c"]


def sequences(reset: bool) -> TokenStream:
    documents = [[np.array([1, 2]), np.array([3])], [], [np.array([], int), np.array([4, 5, 6])]]
    return join_sequences(documents, n_tokens=7, reset=reset)


def test_stream_of_sequences():
    stream = sequences(reset=True)
    assert stream.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert stream.tokens.dtype == np.uint16
    assert stream.starts.tolist() == [0, 2, 3]
    assert stream.bounds.tolist() == [0, 3, 3, 6]
    assert stream.n_predicted == 3
    assert [part.tolist() for part in stream.by_document(stream.tokens)] == [[2], [], [5, 6]]


def test_stream_without_resets_predicts_all_but_the_first():
    stream = sequences(reset=False)
    assert stream.starts is None
    assert [part.tolist() for part in stream.by_document(stream.tokens)] == [[2, 3], [], [4, 5, 6]]


def test_tokens_take_four_bytes_where_two_do_not_do():
    assert join_sequences([[np.array([70000])]], n_tokens=70001, reset=True).tokens[0] == 70000
    assert join_sequences([], n_tokens=None, reset=True).n_predicted == 0


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=8), st.integers(0, 5))
def test_shuffling_keeps_the_sequences(lists, seed):
    stream = join_sequences([[np.array(x, int)] for x in lists], n_tokens=10, reset=True)
    mixed = stream.shuffled(np.random.default_rng(seed))
    parts = [tuple(x) for x in np.split(mixed.tokens, mixed.starts)[1:]]
    assert sorted(parts) == sorted(tuple(x) for x in lists if x)


@pytest.mark.parametrize(
    ("reset", "words", "characters"),
    [
        ("sentence", [[[1, 3, 2], [1, 4, 3, 2]], [[1, 4, 2]]], [["<ab>", "<b ab>"], ["<b>"]]),
        ("document", [[[1, 3, 2, 4, 3, 2]], [[1, 4, 2]]], [["<ab\n\nb ab>"], ["<b>"]]),
        ("never", [[[3, 2, 4, 3, 2]], [[4, 2]]], [["ab\n\nb ab"], ["b"]]),
    ],
)
def test_framing(reset: str, words: list, characters: list):
    texts = ["ab\n\nb ab", "b"]
    by_word = Tokenizer.train_words(["ab ab b"])
    assert [[x.tolist() for x in doc] for doc in framed(texts, by_word, reset)] == words
    by_character = Tokenizer.train_characters(texts, boundaries=True)
    letters = dict(enumerate(by_character.vocabulary)) | {1: "<", 2: ">"}
    found = [
        ["".join(letters[int(i)] for i in x) for x in doc]
        for doc in framed(texts, by_character, reset)
    ]
    assert found == characters


@pytest.mark.parametrize("reset", ["sentence", "document", "never"])
def test_integer_documents_are_taken_as_they_are(reset: str):
    assert [[x.tolist() for x in d] for d in framed([[3, 4], [5]], None, reset)] == [
        [[3, 4]],
        [[5]],
    ]


@pytest.mark.parametrize("docs", [[[0.5, 1.0]], [[np.nan]], [[[1, 2]]], [[True]], [["a", 1]]])
def test_documents_that_are_no_integers(docs):
    with pytest.raises(ValueError, match="must be text or a 1-D array of integers"):
        list(framed(docs, None, "never"))


def test_documents_are_all_text_or_all_integers():
    with pytest.raises(ValueError, match="got list, str: leave out"):
        list(framed(["a", [1]], Tokenizer.train_words(["a"]), "never"))
    with pytest.raises(ValueError, match="set a tokenizer"):
        list(framed(["a"], None, "never"))
    for number in (3, np.array(3)):  # an array of no axis is what it holds
        with pytest.raises(ValueError, match="iterable of documents, got int"):
            as_documents(number)
    assert as_documents(np.array("a b")) == ["a b"]


def test_one_document_alone_and_one_shot_iterators():
    assert as_documents(np.array([1, 2]))[0].tolist() == [1, 2]
    assert as_documents(pd.Series([1, 2], index=[5, 3]))[0].tolist() == [1, 2]
    assert list(as_documents(pd.Series(["a", "b"], index=[5, 3]))) == ["a", "b"]
    assert as_documents([1, 2])[0].tolist() == [1, 2]
    assert as_documents(iter(["a"])) == ["a"]
    corpus = ["a", "b"]
    assert as_documents(corpus) is corpus


def test_a_folder_of_shards_is_no_text(tmp_path: Path):
    (tmp_path / "text").write_text(TEXT)
    prepare(tmp_path / "text", tmp_path / "sub" / "train", "word")
    with pytest.raises(CorpusError, match=r"sub holds shards, not text: name .*train itself"):
        list(TextCorpus(tmp_path / "sub", "line"))
    with pytest.raises(CorpusError, match=r"train holds shards, not text: name text$"):
        list(TextCorpus(tmp_path / "sub" / "train", "line"))


@pytest.mark.parametrize("split", ["line", "file", "blank_line"])
def test_a_line_without_end_is_refused(split, tmp_path, capsys, folders):
    path = tmp_path / "text.txt"
    path.write_text("ab" * (1 << 21))
    line = refused(capsys, "evaluate", folders / "ngrams", path, "--documents", split)
    assert "Break it in lines" in line
