"""Loaders of public texts, against local files and a local server."""

import gzip
import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from esnlm import datasets
from esnlm.corpus import CorpusError
from esnlm.datasets import Source, load

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


def sources(url: str = "", digest: str = DIGEST) -> dict[str, Source]:
    return {"a": Source(url, "a.txt", digest)}


def test_downloads_once_and_checks(server: str, tmp_path: Path):
    assert load("a", sources=sources(server)) == TEXT.decode()
    assert (tmp_path / "cache" / "a.txt").read_bytes() == TEXT
    (tmp_path / "served" / "a.txt").unlink()
    assert load("a", sources=sources(server)) == TEXT.decode()


def test_a_download_of_another_text_is_refused(server: str, tmp_path: Path):
    with pytest.raises(CorpusError, match="is not the published text"):
        load("a", sources=sources(server, "0" * 64))
    assert not list((tmp_path / "cache").glob("*.txt"))


def test_a_missing_download_is_an_os_error(server: str):
    with pytest.raises(OSError, match="404"):
        load("a", sources={"a": Source(server, "none.txt", DIGEST)})


@pytest.mark.parametrize("compressed", [False, True])
def test_local_files_and_folders(tmp_path: Path, compressed: bool):
    path = tmp_path / ("a.txt.gz" if compressed else "a.txt")
    path.write_bytes(gzip.compress(TEXT) if compressed else TEXT)
    assert load("a", path, sources=sources()) == load("a", tmp_path, sources=sources())


def test_local_files_that_are_not_the_text(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"holds none of a\.txt"):
        load("a", tmp_path, sources=sources())
    (tmp_path / "a.txt.gz").write_bytes(b"not gzip")
    with pytest.raises(CorpusError, match="not a whole gzip file"):
        load("a", tmp_path, sources=sources())
    (tmp_path / "a.txt").write_bytes(TEXT + b" ")
    with pytest.raises(CorpusError, match="expected " + DIGEST):
        load("a", tmp_path, sources=sources())


def test_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(datasets, "load", lambda name, place=None, also=(): f"{name} Aa" * 10)
    parts = datasets.tiny_shakespeare(test_share=0.2)
    assert parts["train"] + parts["test"] == "tiny_shakespeare aa" * 10
    assert len(parts["test"]) == 38
    assert sorted(datasets.penn_treebank()) == ["test", "train", "valid"]
