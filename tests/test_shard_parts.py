"""Parts of shards, in a folder and at a URL."""

import hashlib
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_in_parts import trained

from esnlm.__main__ import main
from esnlm.storage.model_folder import WEIGHTS
from esnlm.text.shard_parts import Part, PartedCorpus, Place
from esnlm.text.shards import FORMAT, Shards, ShardsError


@pytest.mark.parametrize("n", [1, 2, 7, 64, 5000])
def test_parts_hold_every_sentence_once(shards: Path, n: int) -> None:
    corpus, whole = PartedCorpus(shards), Shards(shards).stream()
    parts = corpus.parts(n)
    streams = [part.stream() for part in parts]
    assert len(parts) == min(n, corpus.n_sentences) or n == 64
    assert np.array_equal(np.concatenate([each.tokens for each in streams]), whole.tokens)
    starts = [each.starts + part.begin for each, part in zip(streams, parts, strict=True)]
    assert np.array_equal(np.concatenate(starts), whole.starts)
    assert sum(part.n_rows for part in parts) == corpus.n_rows == whole.n_predicted


def test_damage_of_the_bytes_of_a_part_is_found(shards: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    parts = PartedCorpus(shards).parts(3)
    for file, size in (("tokens.bin", 2), ("starts.bin", 8)):
        for place in (0, shards.joinpath(file).stat().st_size - size):
            shutil.copytree(shards, here, dirs_exist_ok=True)
            data = bytearray((here / file).read_bytes())
            data[place] ^= 1
            (here / file).write_bytes(data)
            part = replaced(parts[0 if place == 0 else -1], here)
            with pytest.raises(ShardsError, match=f"{file} of .* is damaged, or of other shards"):
                part.stream()
            (here / file).write_bytes(data[:-size])
            with pytest.raises(ShardsError, match=f"{file} of .* is damaged, or of other shards"):
                replaced(parts[-1], here).stream()


def replaced(part: Any, place: Path) -> Any:
    """The part where the shards lie elsewhere."""
    slices = (replace(each, place=Place(str(place))) for each in (part.tokens, part.starts))
    return Part(part.number, Place(str(place)), *slices)


def test_shards_without_digests_of_blocks_are_read_and_checked(
    shards: Path, tmp_path: Path
) -> None:
    here = tmp_path / "shards"
    shutil.copytree(shards, here)
    manifest = FORMAT.read(shards)
    digests = manifest.pop("blocks")
    (here / "manifest.json").write_bytes(FORMAT.sealed(manifest))
    assert PartedCorpus(here)._digests == digests
    data = (shards / "tokens.bin").read_bytes()
    assert digests["tokens.bin"][:16] == hashlib.sha256(data[: 1 << 16]).hexdigest()[:16]
    assert trained(here, n_parts=3) == trained(shards, n_parts=3)
    (here / "tokens.bin").write_bytes(data[::-1])
    with pytest.raises(ShardsError, match=r"tokens\.bin of .* is altered"):
        PartedCorpus(here).parts(3)


@pytest.fixture
def server(shards: Path) -> Iterator[str]:
    """A web server of the shards, which knows no ranges."""
    handler = partial(_Quiet, directory=str(shards.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}/shards"
        made.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


def test_shards_at_a_url_are_those_of_the_folder(
    shards: Path, server: str, cluster: Any, tmp_path: Path
) -> None:
    pytest.importorskip("aiohttp")
    from esnlm.runs.workers import workers

    expected = trained(shards, n_parts=3)
    assert trained(server, n_parts=3) == expected
    with workers(cluster.scheduler_address) as reduce:
        assert trained(server, n_parts=3, reduce=reduce) == expected
    with pytest.raises(ShardsError, match=r"manifest\.json is missing; text at a URL is not"):
        PartedCorpus(server + "/nowhere")
    with pytest.raises(ShardsError, match=r"cannot read nowhere://x/manifest\.json"):
        PartedCorpus("nowhere://x")
    for name, place in (("a", str(shards)), ("b", server)):
        words = f"train {place} --out {tmp_path / name} --units 20 --readout ridge --parts 3"
        assert main(words.split()) == 0
    assert main(f"ngram {server} --out {tmp_path / 'c'}".split()) == 0
    assert main(f"ngram {server} --unwrap --out {tmp_path / 'd'}".split()) == 2
    weights = [(tmp_path / name / WEIGHTS).read_bytes() for name in "ab"]
    assert weights[0] == weights[1]


def test_a_server_with_ranges_is_asked_for_them(shards: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    for path in shards.iterdir():
        files.pipe_file(f"/scale/{path.name}", path.read_bytes())
    assert trained("memory://scale", n_parts=3) == trained(shards, n_parts=3)
