"""Shards in parts: runs of sentences that whoever learns from them reads by itself."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from esnlm.storage.json_files import LONGEST_TEXT
from esnlm.text.corpus import TokenStream
from esnlm.text.shards import (
    BLOCK,
    DIGITS,
    FORMAT,
    MANIFEST,
    PLACE,
    STARTS,
    TOKENIZER,
    TOKENS,
    ShardsError,
    block_digests,
)
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Array, Ints64

# Bytes that are read at a time: whole blocks.
_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Place:
    """A folder of shards: a path, or a URL that fsspec reads (http, s3, gs, hf, memory, ...)."""

    name: str

    @property
    def is_url(self) -> bool:
        """Return whether the name is a URL."""
        return "://" in self.name

    def manifest(self) -> dict[str, Any]:
        """Return the content of the manifest; ShardsError where it is missing or altered."""
        if not self.is_url:
            return FORMAT.read(Path(self.name))
        data = self.read(MANIFEST, 0, None)
        with TemporaryDirectory() as folder:
            Path(folder, MANIFEST).write_bytes(data)
            try:
                return FORMAT.read(Path(folder))
            except ShardsError as error:
                raise ShardsError(str(error).replace(folder, self.name)) from None

    def read(self, file: str, begin: int, end: int | None) -> bytes:
        """Bytes ``begin`` to ``end`` of a file, None: all of it."""
        if end is not None and end <= begin:
            return b""
        try:
            if not self.is_url:
                with Path(self.name, file).open("rb") as opened:
                    opened.seek(begin)
                    return opened.read(-1 if end is None else end - begin)
            return self._fetched(file, begin, end)
        except FileNotFoundError as error:
            advice = "; text at a URL is not read, download it" if self.is_url else ""
            raise ShardsError(
                f"{self.name} is not a whole set of shards: {file} is missing{advice}"
            ) from error
        except OSError as error:
            raise ShardsError(f"cannot read {file} of {self.name}: {error}") from error

    def _fetched(self, file: str, begin: int, end: int | None) -> bytes:
        """Return bytes ``begin`` to ``end`` of a file at a URL, read by fsspec."""
        url = f"{self.name.rstrip('/')}/{file}"
        try:
            from fsspec.core import url_to_fs

            files, path = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ShardsError(f"cannot read {url}: {error}") from error
        limits = {} if end is None else {"start": begin, "end": end}
        data = bytes(files.cat_file(path, **limits))
        if end is not None and len(data) > end - begin:  # a server that knows no ranges
            data = data[begin:end]
        if len(data) > LONGEST_TEXT and file in (MANIFEST, TOKENIZER):
            raise ShardsError(f"{url} has {len(data)} bytes, expected at most {LONGEST_TEXT}")
        return data


@dataclass(frozen=True)
class Slice:
    """Items ``first`` to ``last`` of an array of shards, which has ``n_bytes``.

    ``digests`` are those of the blocks of the file that they lie in.
    """

    place: Place
    file: str
    dtype: str
    first: int
    last: int
    n_bytes: int
    digests: str

    def read(self) -> Array:
        """Return the items; ShardsError unless they are what the digests say."""
        size = np.dtype(self.dtype).itemsize
        blocks = _blocks(self.first * size, self.last * size)
        begin, end = blocks.start * BLOCK, min(blocks.stop * BLOCK, self.n_bytes)
        data = self.place.read(self.file, begin, end)
        if block_digests(data) != self.digests:
            raise ShardsError(
                f"{self.file} of {self.place.name} is damaged, or of other shards than where the"
                " run began: copy the shards again"
            )
        return np.frombuffer(data, self.dtype)[self.first - begin // size :][: len(self)]

    def __len__(self) -> int:
        """Return the number of items."""
        return self.last - self.first


def _blocks(begin: int, end: int) -> range:
    """Return the numbers of the blocks that hold some bytes of a file."""
    return range(begin // BLOCK, -(-end // BLOCK))


def read_digests(place: Place, file: str, about: Mapping[str, Any]) -> str:
    """Return the digests of the blocks of a file; ShardsError unless it is as the manifest says."""
    whole, digests = hashlib.sha256(), list[str]()
    for begin in range(0, about["bytes"], _AT_ONCE):
        data = place.read(file, begin, min(begin + _AT_ONCE, about["bytes"]))
        whole.update(data)
        digests.append(block_digests(data))
    if whole.hexdigest() != about["sha256"]:
        raise ShardsError(f"{file} of {place.name} is altered: copy or prepare the shards again")
    return "".join(digests)


@dataclass(frozen=True)
class Part:
    """Sentences ``first`` to ``last`` of shards, their tokens ``begin`` to ``end``."""

    number: int
    place: Place
    tokens: Slice
    starts: Slice

    @property
    def begin(self) -> int:
        """Where the tokens begin."""
        return self.tokens.first

    @property
    def end(self) -> int:
        """Where the tokens end."""
        return self.tokens.last

    @property
    def n_rows(self) -> int:
        """Number of predicted tokens."""
        return len(self.tokens) - len(self.starts)

    def stream(self) -> TokenStream:
        """Return the tokens, read and checked here; each sentence begins with the state at zero."""
        tokens, starts = self.tokens.read(), self.starts.read() - self.begin
        whole = np.append(starts, len(tokens))
        if whole[0] != 0 or (np.diff(whole) <= 0).any():
            raise ShardsError(f"{STARTS} of {self.place.name} does not fit its tokens")
        return TokenStream(tokens, starts, np.array([0, len(tokens)]))


class PartedCorpus:
    """Shards at a path or URL, of which only the places of sentences are read here.

    Their files are as `esnlm.text.shards.Shards` says. Whoever reads a part checks its bytes by
    digests of the manifest. Shards of before there were any are read here once, and checked.
    """

    def __init__(self, place: str | Path) -> None:
        self.place = Place(str(place))
        self.manifest = self.place.manifest()
        totals = self.manifest["totals"]
        self.n_tokens, self.n_sentences = int(totals["tokens"]), int(totals["sentences"])
        if self.n_tokens <= self.n_sentences:
            raise ShardsError(f"{place} holds no token to predict")
        self.n_rows = self.n_tokens - self.n_sentences

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that cut the text."""
        text = self.place.read(TOKENIZER, 0, None).decode()
        tokenizer = Tokenizer.from_json(text, bos=self.manifest["bos"], eos=self.manifest["eos"])
        if len(tokenizer) != self.manifest["n_tokens_vocab"]:
            raise ShardsError(f"the tokenizer in {self.place.name} does not belong to its tokens")
        return tokenizer

    @cached_property
    def starts(self) -> Ints64:
        """Where sentences begin (n_sentences,)."""
        return self._slice(STARTS, PLACE.str, 0, self.n_sentences).read()

    @cached_property
    def _digests(self) -> dict[str, str]:
        """Digests of the blocks of tokens and starts."""
        return self.manifest.get("blocks") or {
            file: read_digests(self.place, file, self.manifest["files"][file])
            for file in (TOKENS, STARTS)
        }

    def _slice(self, file: str, dtype: str, first: int, last: int) -> Slice:
        """Return items ``first`` to ``last`` of a file, with their digests."""
        size = np.dtype(dtype).itemsize
        blocks = _blocks(first * size, last * size)
        digests = self._digests[file][blocks.start * DIGITS : blocks.stop * DIGITS]
        n_bytes = self.manifest["files"][file]["bytes"]
        return Slice(self.place, file, dtype, first, last, n_bytes, digests)

    def parts(self, n: int) -> list[Part]:
        """About ``n`` parts of as many tokens each, in the order of the text.

        They depend on the corpus and on n alone; a part begins where a sentence does.
        """
        targets = self.n_tokens * np.arange(n, dtype=np.int64) // n
        firsts = np.unique(np.searchsorted(self.starts, targets))
        firsts = firsts[firsts < self.n_sentences]
        bounds = np.append(firsts, self.n_sentences)
        places = np.append(self.starts[firsts], self.n_tokens)
        dtype = np.dtype(self.manifest["dtype"]).newbyteorder("<").str
        return [
            Part(
                number,
                self.place,
                self._slice(TOKENS, dtype, int(places[number]), int(places[number + 1])),
                self._slice(STARTS, PLACE.str, int(bounds[number]), int(bounds[number + 1])),
            )
            for number in range(len(firsts))
        ]

    def stream(self, most_tokens: int) -> TokenStream | None:
        """Return the whole corpus, in memory, if it has no more tokens than these."""
        return self.parts(1)[0].stream() if self.n_tokens <= most_tokens else None

    def described(self) -> str:
        """Return what the tokens are, wherever they lie, for the settings of a run."""
        return json.dumps(self.manifest["files"][TOKENS], sort_keys=True)
