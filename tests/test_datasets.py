"""Loaders of public texts, against local files and a local server."""

import errno
import gzip
import hashlib
import io
import os
import socket
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from esnlm import datasets
from esnlm.datasets import (
    DIGESTS,
    URLS,
    load,
    load_babylm,
    load_blimp,
    load_shakespeare,
    load_wikitext2,
)
from esnlm.text.archives import unpacked
from esnlm.text.corpus import CorpusError

TEXT = b"To be, or not to be\n"
DIGEST = hashlib.sha256(TEXT).hexdigest()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "a.txt").write_bytes(TEXT)
    monkeypatch.setenv("ESNLM_DATA", str(tmp_path / "cache"))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def a_text_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIGESTS, "a.txt", DIGEST)


@pytest.fixture
def offered(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(URLS, "a.txt", f"{server}/a.txt")


def test_downloads_once_and_checks(offered, tmp_path: Path):
    assert load("a.txt") == TEXT.decode()
    assert (tmp_path / "cache" / "a.txt").read_bytes() == TEXT
    (tmp_path / "served" / "a.txt").unlink()
    assert load("a.txt") == TEXT.decode()


def test_a_download_of_another_text_is_refused(offered, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(DIGESTS, "a.txt", "0" * 64)
    with pytest.raises(CorpusError, match="is not the published text"):
        load("a.txt")
    assert not list((tmp_path / "cache").glob("*.txt"))


def test_a_missing_download_is_an_os_error(offered, tmp_path: Path):
    (tmp_path / "served" / "a.txt").unlink()
    with pytest.raises(OSError, match="404"):
        load("a.txt")


@pytest.mark.parametrize("compressed", [False, True])
def test_local_files_and_folders(tmp_path: Path, compressed: bool):
    path = tmp_path / ("a.txt.gz" if compressed else "a.txt")
    path.write_bytes(gzip.compress(TEXT) if compressed else TEXT)
    assert load("a.txt", path) == load("a.txt", tmp_path) == TEXT.decode()


def test_local_files_that_are_not_the_text(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"holds none of a\.txt"):
        load("a.txt", tmp_path)
    (tmp_path / "a.txt.gz").write_bytes(b"not gzip")
    with pytest.raises(CorpusError, match="not a whole gzip file"):
        load("a.txt", tmp_path)
    (tmp_path / "a.txt").write_bytes(TEXT + b" ")
    with pytest.raises(CorpusError, match="expected " + DIGEST):
        load("a.txt", tmp_path)


def test_a_packed_text_has_bytes_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(TEXT))
    monkeypatch.setattr(datasets, "LARGEST_ARCHIVE", len(TEXT))
    assert load("a.txt", tmp_path) == TEXT.decode()
    monkeypatch.setattr(datasets, "LARGEST_ARCHIVE", len(TEXT) - 1)
    with pytest.raises(CorpusError, match=f"holds more than {len(TEXT) - 1} bytes"):
        load("a.txt", tmp_path)


@pytest.mark.parametrize("first", [0, 1])
def test_an_archive_may_say_that_it_holds_256_mebibytes(tmp_path: Path, first: int):
    path = tmp_path / "a.tar"
    for total, message in ((2**28, "not a whole archive"), (2**28 + 1, "at most 268435456: unp")):
        with tarfile.open(path, "w") as tar:
            for name, size in (("a", first), ("b", total - first)):
                member = tarfile.TarInfo(name)
                member.size = size
                if name == "a":
                    tar.addfile(member, io.BytesIO(b"x"))
                else:  # without its bytes, which addfile refuses
                    tar.fileobj.write(member.tobuf())
        with pytest.raises(CorpusError, match=message):
            list(unpacked(path))


def test_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(datasets, "load", lambda name, place=None, also=(): f"{name} Aa" * 10)
    parts = datasets.load_tiny_shakespeare()
    kept = datasets.load_tiny_shakespeare(lower=False)
    assert {part: text.lower() for part, text in kept.items()} == parts
    assert kept != parts
    assert parts["train"] + parts["test"] == "input.txt aa" * 10
    assert len(parts["test"]) == 12
    assert sorted(datasets.load_penn_treebank()) == ["test", "train", "valid"]


def zipped(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("folder/", b"")
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def test_downloads_a_zip_and_reads_a_file_of_it(server: str, tmp_path: Path, monkeypatch):
    data = zipped({"folder/a.txt": TEXT})
    (tmp_path / "served" / "a.zip").write_bytes(data)
    monkeypatch.setitem(URLS, "a.txt", f"{server}/a.zip")
    monkeypatch.setitem(URLS, "b.txt", f"{server}/a.zip")
    monkeypatch.setitem(DIGESTS, "a.zip", hashlib.sha256(data).hexdigest())
    monkeypatch.setitem(DIGESTS, "a.txt", "sha1:" + hashlib.sha1(TEXT).hexdigest())
    assert load("a.txt") == TEXT.decode()
    assert load("a.txt", tmp_path / "served" / "a.zip") == TEXT.decode()
    with pytest.raises(CorpusError, match=r"holds no b\.txt"):
        load("b.txt")
    monkeypatch.setitem(DIGESTS, "a.txt", "sha1:" + "0" * 40)
    with pytest.raises(CorpusError, match="its sha1 is"):
        load("a.txt")
    monkeypatch.setitem(DIGESTS, "a.zip", "1" * 64)
    with pytest.raises(CorpusError, match="is not the published text"):
        load("a.txt")


def test_a_text_without_download_says_so():
    with pytest.raises(CorpusError, match=r"no download of a\.txt: give the file or its folder"):
        load("a.txt")


def test_wikitext_and_shakespeare_from_local_files(tmp_path: Path, monkeypatch):
    for name in ("wiki.valid.tokens", "wiki.test.tokens", "shakespeare-first-folio.txt"):
        monkeypatch.setitem(DIGESTS, name, DIGEST)
    (tmp_path / "wiki.valid.txt.gz").write_bytes(gzip.compress(TEXT))
    (tmp_path / "wiki.test.tokens").write_bytes(TEXT)
    (tmp_path / "shakespeare-first-folio.txt").write_bytes(TEXT)
    found = load_wikitext2(tmp_path, ("valid", "test"))
    assert found == {"valid": TEXT.decode(), "test": TEXT.decode()}
    assert load_shakespeare(tmp_path, "first_folio") == TEXT.decode()
    with pytest.raises(ValueError, match="edition must be modern or first_folio"):
        load_shakespeare(tmp_path, "quarto")


PAIRS = {f"paradigm_{i}.jsonl": b'{"sentence_good": "a", "sentence_bad": "b"}\n' for i in (1, 2)}


@pytest.fixture
def pairs_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small files stand for the published ones."""
    lines = "".join(f"{n} {hashlib.sha256(data).hexdigest()}\n" for n, data in PAIRS.items())
    monkeypatch.setattr(datasets, "BLIMP_DIGEST", hashlib.sha256(lines.encode()).hexdigest())


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_blimp_is_downloaded_once_and_checked(server: str, tmp_path: Path, pairs_digest):
    whole = {f"blimp-1/data/{name}": data for name, data in PAIRS.items()}
    served = tmp_path / "served" / "b.zip"
    served.write_bytes(zipped({**whole, "blimp-1/summary.jsonl": b"{}", "blimp-1/README": b""}))
    for _ in range(2):
        folder = load_blimp(url=f"{server}/b.zip")
        assert folder == tmp_path / "cache" / "blimp"
        assert names_in(folder) == sorted(PAIRS)
        served.unlink(missing_ok=True)


@pytest.mark.parametrize("content", [zipped({"data/a.jsonl": b"{}"}), b"PK not a zip"])
def test_another_blimp_is_not_kept(server: str, tmp_path: Path, pairs_digest, content: bytes):
    (tmp_path / "served" / "b.zip").write_bytes(content)
    for _ in range(2):
        with pytest.raises(CorpusError, match=r"published files of BLiMP|not a whole archive"):
            load_blimp(url=f"{server}/b.zip")
        assert names_in(tmp_path / "cache") == []


def test_blimp_from_folders_and_archives(tmp_path: Path, pairs_digest, monkeypatch):
    monkeypatch.setenv("ESNLM_DATA", str(tmp_path / "cache"))
    (tmp_path / "clone" / "data").mkdir(parents=True)
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as tar:
        for name, data in PAIRS.items():
            (tmp_path / "clone" / "data" / name).write_bytes(data)
            tar.add(tmp_path / "clone" / "data" / name, f"blimp/data/{name}")
    (tmp_path / "b.zip").write_bytes(zipped(PAIRS))
    assert load_blimp(tmp_path / "clone") == load_blimp(tmp_path / "clone" / "data")
    assert load_blimp(tmp_path / "b.tar.gz") == load_blimp(tmp_path / "b.zip")
    assert names_in(load_blimp(tmp_path / "b.zip")) == sorted(PAIRS)
    (tmp_path / "clone" / "data" / "paradigm_1.jsonl").write_bytes(b"{}")
    with pytest.raises(CorpusError, match="does not hold the 67 published files"):
        load_blimp(tmp_path / "clone")
    (tmp_path / "b.tar.gz").write_bytes((tmp_path / "b.tar.gz").read_bytes()[:99])
    with pytest.raises(CorpusError, match="not a whole archive"):
        load_blimp(tmp_path / "b.tar.gz")
    assert (tmp_path / "b.tar.gz").exists()
    assert len(list(unpacked(tmp_path / "b.zip"))) == 2


@pytest.mark.parametrize(("year", "home"), [("2023", "babylm_10M"), ("2024", "train_10M")])
def test_babylm_in_the_layouts_of_its_years(tmp_path: Path, year: str, home: str):
    (tmp_path / home).mkdir()
    for name in datasets.BABYLM_FILES[year]:
        (tmp_path / home / f"{name}.train").write_text("text\n")
        (tmp_path / home / f"._{name}.train").write_bytes(b"\x00\x05\x16\x07")
    files = load_babylm(tmp_path)
    assert [path.name for path in files] == sorted(
        f"{name}.train" for name in datasets.BABYLM_FILES[year]
    )
    assert load_babylm(tmp_path / home) == files
    (tmp_path / home / "gutenberg.train").unlink()
    with pytest.raises(CorpusError, match=r"gutenberg\.train is missing"):
        load_babylm(tmp_path)


def test_babylm_that_is_not_there(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"neither babylm_dev nor dev, nor files \*\.dev"):
        load_babylm(tmp_path, "dev")
    with pytest.raises(ValueError, match="part must be one of 10M"):
        load_babylm(tmp_path, "1M")


@pytest.mark.parametrize("load_folder", [load_babylm, load_blimp])
def test_a_folder_that_may_not_be_read_is_not_said_to_be_empty(load_folder, tmp_path, monkeypatch):
    def refuse(place: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, refuse)
    with pytest.raises(PermissionError, match=tmp_path.name):
        load_folder(tmp_path)


def test_gpt2_is_downloaded_and_checked(server: str, tmp_path: Path, monkeypatch):
    for name in ("encoder.json", "vocab.bpe"):
        (tmp_path / "served" / name).write_bytes(TEXT)
        monkeypatch.setitem(URLS, name, f"{server}/{name}")
        monkeypatch.setitem(DIGESTS, name, DIGEST)
    assert names_in(datasets.gpt2_files()) == ["encoder.json", "vocab.bpe"]
    (datasets.gpt2_files() / "vocab.bpe").unlink()
    (tmp_path / "served" / "vocab.bpe").unlink()
    with pytest.raises(OSError, match=r"cannot download .*/vocab\.bpe.* local file or folder"):
        datasets.gpt2_files()


def test_why_there_is_no_download_is_said(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("ESNLM_DATA", str(tmp_path))
    with socket.socket() as closed:  # it does not listen
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/a.txt"
        with pytest.raises(OSError, match=rf"^cannot download {url}: .*refused.*; give a local"):
            datasets._retrieved(url, None, "a.txt")


def test_downloads_have_checksums():
    for name, url in URLS.items():
        assert name in DIGESTS
        assert url.rpartition("/")[2] in DIGESTS
        assert url.startswith("https://")
    assert {len(digest.removeprefix("sha1:")) for digest in DIGESTS.values()} == {40, 64}


def test_the_folder_of_downloads_in_a_container(tmp_path: Path, monkeypatch):
    """No shell expands ``~`` there, a variable may be empty, and a user may have no home."""
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "user" / name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("ESNLM_DATA", "~/data")
    assert datasets.cache() == tmp_path / "data"
    monkeypatch.setenv("ESNLM_DATA", "")
    assert datasets.cache() == tmp_path / "user" / "esnlm"

    def refuse(_: str) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pooch.os_cache", refuse)
    with pytest.raises(CorpusError, match="no home for downloads: set ESNLM_DATA to a folder"):
        datasets.cache()
    monkeypatch.setenv("ESNLM_DATA", str(tmp_path))
    assert datasets.cache() == tmp_path
