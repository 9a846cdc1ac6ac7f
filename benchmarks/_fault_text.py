"""Untrusted text and archives: what a command reads that is not one of our folders."""

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from _fault_files import altered_json
from _fault_folders import folders
from _fault_runner import Case, command_failure
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from esnlm.text.shards import Shards

_TEXT = "boys see the dog\nthe dog that sees cats walks\n\n" * 3
_PAIR = {
    "sentence_good": "the dog walks",
    "sentence_bad": "the dog walk",
    "UID": "a",
    "pairID": "1",
}
_LONG = 17 << 20


def untrusted_text(rng: np.random.Generator, folder: Path) -> Case:
    """A text, a tokenizer, pairs or an archive of them, altered, and a command that reads it."""
    return (_tokenizer, _tokenizer, _text, _pairs, _archive, _archive)[rng.integers(6)](rng, folder)


def _tokenizer(rng: np.random.Generator, folder: Path) -> Case:
    kind = str(rng.choice(list(_MODELS)))
    layout, path, text, out = json.loads(_made(kind)), *(folder / n for n in ("t.json", "t", "out"))
    what = altered_json(rng, layout)
    if rng.random() < 0.3:
        what += f", {altered_json(rng, layout)}"
    path.write_text("[" * 100_000 if rng.random() < 0.02 else json.dumps(layout))
    text.write_text(_TEXT + "unheard words, \u00e9\n")

    def run() -> str:
        arguments = "prepare", str(text), "--tokenizer", str(path), "--out", str(out)
        if (wrong := command_failure(*arguments)) or not out.exists():
            return wrong
        Shards(out)
        return ""

    return Case(f"{kind}: {what}", run)


def _made_of(model: Any, trainer: Any) -> str:
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.train_from_iterator([_TEXT], trainer)
    backend.add_special_tokens(["<s>", "</s>"])
    return str(backend.to_str())


_MODELS: dict[str, Callable[[], str]] = {
    "BPE": lambda: _made_of(
        models.BPE(unk_token="<unk>"),
        trainers.BpeTrainer(vocab_size=40, special_tokens=["<unk>"], show_progress=False),
    ),
    "WordPiece": lambda: _made_of(
        models.WordPiece(unk_token="<unk>"),
        trainers.WordPieceTrainer(vocab_size=40, special_tokens=["<unk>"], show_progress=False),
    ),
    "Unigram": lambda: _made_of(
        models.Unigram(),
        trainers.UnigramTrainer(
            vocab_size=40, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
        ),
    ),
    "WordLevel": lambda: _made_of(
        models.WordLevel(unk_token="<unk>"),
        trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False),
    ),
}


@cache
def _made(kind: str) -> str:
    return _MODELS[kind]()


def _text(rng: np.random.Generator, folder: Path) -> Case:
    """Text that is none, for a command that reads text."""
    path = folder / str(rng.choice(["a.txt", "a.txt.gz"]))
    what, data = _BYTES[rng.integers(len(_BYTES))](rng, _TEXT.encode())
    if path.suffix == ".gz":
        data = gzip.compress(data)
        more, data = _BYTES[rng.integers(len(_BYTES) - 1)](rng, data)
        what = f"gzip of text that {what}, which {more}"
    path.write_bytes(data)
    out, split = str(folder / "out"), str(rng.choice(["line", "file", "blank_line"]))
    commands = (
        ("evaluate", str(folders() / "ngrams"), str(path), "--documents", split),
        ("prepare", str(path), "--tokenizer", "word", "--out", out),
        ("ngram", str(path), "--out", out),
    )
    command = commands[rng.integers(len(commands))]
    return Case(f"{command[0]} of text that {what}", lambda: command_failure(*command))


Change = Callable[[np.random.Generator, bytes], tuple[str, bytes]]


def _flipped(rng: np.random.Generator, data: bytes) -> tuple[str, bytes]:
    place, value = int(rng.integers(len(data))), int(rng.integers(256))
    return f"has byte {value} at {place}", data[:place] + bytes([value]) + data[place + 1 :]


def _cut(rng: np.random.Generator, data: bytes) -> tuple[str, bytes]:
    length = int(rng.integers(len(data)))
    return f"is cut after {length} bytes", data[:length]


def _same(rng: np.random.Generator, data: bytes) -> tuple[str, bytes]:
    return "is as it was", data


def _random(rng: np.random.Generator, data: bytes) -> tuple[str, bytes]:
    return "is random bytes", rng.bytes(200)


def _odd_signs(rng: np.random.Generator, data: bytes) -> tuple[str, bytes]:
    signs = "\u2028\u200b\ufeff\x0b\x0c\x1c\x85\U0010ffff\u0301\r\t e"
    text = "".join(rng.choice(list(signs), 200))
    return "has odd signs", text.encode()


def _long_line(rng: np.random.Generator, data: bytes) -> tuple[str, bytes]:
    return "has a line of 17 MB without a space", b"ab" * (_LONG // 2)


_BYTES: tuple[Change, ...] = (_flipped, _cut, _same, _random, _odd_signs, _long_line)


def _pairs(rng: np.random.Generator, folder: Path) -> Case:
    path, pair = folder / "a.jsonl", dict(_PAIR)
    what = altered_json(rng, pair)
    data = json.dumps(pair).encode() + b"\n"
    more, data = _BYTES[rng.choice(4, p=[0.2, 0.1, 0.6, 0.1])](rng, data)
    path.write_bytes(data)
    return Case(f"pairs: {what}, {more}", lambda: _judged(path))


def _judged(path: Path) -> str:
    return command_failure("blimp", str(folders() / "ngrams"), "--data", str(path))


def _archive(rng: np.random.Generator, folder: Path) -> Case:
    """An archive of pairs, altered before or after it was packed."""
    name = str(rng.choice(["a.zip", "a.tar", "a.tar.gz", "a.tgz"]))
    path, what = folder / name, ""
    bomb = rng.random() < 0.05
    data = bytes(300 << 20) if bomb else (json.dumps(_PAIR) + "\n").encode()
    packed = io.BytesIO()
    if name == "a.zip":
        methods = {"stored": 0, "deflate": 8, "bzip2": 12, "lzma": 14}
        kind = "deflate" if bomb else str(rng.choice(list(methods)))
        with zipfile.ZipFile(packed, "w", methods[kind]) as archive:
            archive.writestr("data/a.jsonl", data)
        what = f"{kind} zip"
    else:
        mode = "w" if name == "a.tar" else "w:gz"
        with tarfile.open(fileobj=packed, mode=mode) as tar:  # type: ignore[call-overload]
            info = tarfile.TarInfo("data/a.jsonl")
            info.size = int(rng.choice([len(data), len(data), 2**40]))
            info.type = bytes(
                rng.choice([tarfile.REGTYPE, tarfile.REGTYPE, *tarfile.SUPPORTED_TYPES])
            )
            info.linkname = "data/a.jsonl"
            if info.size == len(data):
                tar.addfile(info, io.BytesIO(data))
            else:  # without its bytes, which addfile refuses
                tar.fileobj.write(info.tobuf())
        what = f"{mode} tar, member of type {info.type!r} and {info.size} bytes"
    more, data = _BYTES[0 if bomb else rng.choice(4, p=[0.6, 0.2, 0.1, 0.1])](
        rng, packed.getvalue()
    )
    if name == "a.zip" and rng.random() < 0.3:
        places = [data.find(mark) + skip for mark, skip in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8))]
        data = bytearray(data)  # type: ignore[assignment]
        for place in (place for place in places if place < len(data)):
            data[place] |= 1  # type: ignore[index]
        more += ", marked as encrypted"
    path.write_bytes(data)
    what += ", of 300 MB" if bomb else ""
    return Case(f"{what} that {more}", lambda: _judged(path))
