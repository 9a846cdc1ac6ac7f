"""Shards in parts: runs of sentences that whoever learns from them reads by itself."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from esnlm.storage.json_files import LONGEST_TEXT
from esnlm.text.corpus import TokenStream
from esnlm.text.shards import FORMAT, MANIFEST, PLACE, STARTS, TOKENIZER, TOKENS, ShardsError
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Array, Ints64


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
            raise ShardsError(
                f"{self.name} is not a whole set of shards: {file} is missing"
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
class Part:
    """Sentences ``first`` to ``last`` of shards, their tokens ``begin`` to ``end``.

    ``digest`` is the SHA-256 of all tokens that the manifest must name where the part is read.
    """

    number: int
    place: Place
    digest: str
    dtype: str
    first: int
    last: int
    begin: int
    end: int

    @property
    def n_rows(self) -> int:
        """Number of predicted tokens."""
        return self.end - self.begin - (self.last - self.first)

    def stream(self) -> TokenStream:
        """Return the tokens, read here; each of its sentences begins with the state at zero."""
        if (checksum := self.place.manifest()["files"][TOKENS]["sha256"]) != self.digest:
            raise ShardsError(
                f"{self.place.name} holds other shards here than where the run began: their tokens"
                f" have the checksum {checksum[:12]}, expected {self.digest[:12]}"
            )
        tokens = self._array(TOKENS, self.begin, self.end, np.dtype(self.dtype).newbyteorder("<"))
        starts = self._array(STARTS, self.first, self.last, PLACE) - self.begin
        whole = np.append(starts, len(tokens))
        if whole[0] != 0 or (np.diff(whole) <= 0).any():
            raise ShardsError(f"{STARTS} of {self.place.name} does not fit its tokens")
        return TokenStream(tokens, starts, np.array([0, len(tokens)]))

    def _array(self, file: str, first: int, last: int, dtype: np.dtype[Any]) -> Array:
        size = dtype.itemsize
        data = self.place.read(file, first * size, last * size)
        if len(data) != (last - first) * size:
            raise ShardsError(f"{file} of {self.place.name} is truncated: copy the shards again")
        return np.frombuffer(data, dtype=dtype)


class PartedCorpus:
    """Shards at a path or URL, of which only the places of sentences are read here.

    Their files are as `esnlm.text.shards.Shards` says; nothing but the manifest, the tokenizer and
    the sizes is checked: ``Shards(folder)`` checks every byte of a folder.
    """

    def __init__(self, place: str | Path) -> None:
        self.place = Place(str(place))
        self.manifest = self.place.manifest()
        totals = self.manifest["totals"]
        self.n_tokens, self.n_sentences = int(totals["tokens"]), int(totals["sentences"])
        if self.n_tokens <= self.n_sentences:
            raise ShardsError(f"{place} holds no token to predict")
        self.n_rows = self.n_tokens - self.n_sentences
        self.digest: str = self.manifest["files"][TOKENS]["sha256"]

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
        size = PLACE.itemsize * self.n_sentences
        data = self.place.read(STARTS, 0, size)
        if len(data) != size:
            raise ShardsError(f"{STARTS} of {self.place.name} is truncated: copy the shards again")
        return np.frombuffer(data, dtype=PLACE)

    def parts(self, n: int) -> list[Part]:
        """About ``n`` parts of as many tokens each, in the order of the text.

        They depend on the corpus and on n alone; a part begins where a sentence does.
        """
        targets = self.n_tokens * np.arange(n, dtype=np.int64) // n
        firsts = np.unique(np.searchsorted(self.starts, targets))
        firsts = firsts[firsts < self.n_sentences]
        bounds = np.append(firsts, self.n_sentences)
        places = np.append(self.starts[firsts], self.n_tokens)
        shared = self.place, self.digest, str(self.manifest["dtype"])
        return [
            Part(number, *shared, *map(int, (bounds[number], bounds[number + 1])),
                 *map(int, (places[number], places[number + 1])))
            for number in range(len(firsts))
        ]  # fmt: skip

    def stream(self, most_tokens: int) -> TokenStream | None:
        """Return the whole corpus, in memory, if it has no more tokens than these."""
        return self.parts(1)[0].stream() if self.n_tokens <= most_tokens else None

    def described(self) -> str:
        """Return what the tokens are, wherever they lie, for the settings of a run."""
        return json.dumps(self.manifest["files"][TOKENS], sort_keys=True)
