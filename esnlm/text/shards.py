"""Token shards: a prepared corpus as a folder of memory-mapped arrays, every byte checked.

The folder holds ``manifest.json`` (counts, settings, the SHA-256 of every file and of itself, and
16 digits of that of each 64 KiB of tokens and of starts), ``tokenizer.json``, and three
little-endian arrays: ``tokens.bin`` (T,) of uint16, or uint32 where the vocabulary needs it,
``starts.bin`` (n_sentences,) int64, the places where sentences begin, and ``bounds.bin``
(n_documents + 1,) int64, those where documents begin, and T.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.storage.json_files import FolderFormat, read_text
from esnlm.storage.model_folder import MISFITS
from esnlm.storage.tensor_file import file_digest
from esnlm.text.corpus import TokenStream
from esnlm.text.tokenizers import Tokenizer

MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
TOKENS, STARTS, BOUNDS = "tokens.bin", "starts.bin", "bounds.bin"
FILES = {MANIFEST, TOKENIZER, TOKENS, STARTS, BOUNDS}
#: Type of a place in the tokens, on disk.
PLACE = np.dtype("<i8")
_CHECKED = 1 << 24
#: Bytes of a file that are checked by themselves, and digits of the digest of each.
BLOCK, DIGITS = 1 << 16, 16


class ShardsError(ValueError):
    """A folder that is not a whole, unaltered set of shards."""


FORMAT = FolderFormat("esnlm-shards", MANIFEST, ShardsError, "prepare the text again")


def block_digests(data: bytes) -> str:
    """Return the first digits of the SHA-256 of each block of a file, one after the other."""
    blocks = (data[begin : begin + BLOCK] for begin in range(0, len(data), BLOCK))
    return "".join(hashlib.sha256(block).hexdigest()[:DIGITS] for block in blocks)


class Shards:
    """A corpus that ``esnlm prepare`` made, its tokens left on the disk.

    ``verify`` compares the SHA-256 of every file with the manifest's, and checks that tokens and
    places are in range; otherwise only the manifest, the tokenizer and the sizes are checked.
    Raises ShardsError where a file is missing, truncated or altered, or the format is another.

    ``tokenizer`` has ``n_tokens_vocab`` entries; the corpus has ``n_tokens`` and ``n_documents``,
    and ``len()`` is the number of sentences. ``manifest`` (dict) is all of ``manifest.json``;
    ``manifest["totals"]`` has further counts.
    """

    def __init__(self, folder: str | Path, *, verify: bool = True) -> None:
        self.folder = Path(folder)
        self.manifest = FORMAT.read(self.folder)
        try:
            self._open(verify)
        except (*MISFITS, ValueError) as error:
            if isinstance(error, ShardsError):
                raise
            raise ShardsError(
                f"{self.folder / MANIFEST} does not describe whole shards: {error!r}"
            ) from error

    def _open(self, verify: bool) -> None:
        """Check and map what the manifest names."""
        for name in (TOKENIZER, TOKENS, STARTS, BOUNDS):
            self._check_file(name, verify)
        self.tokenizer = Tokenizer.from_json(
            read_text(self.folder / TOKENIZER), bos=self.manifest["bos"], eos=self.manifest["eos"]
        )
        totals = self.manifest["totals"]
        self.n_tokens_vocab = int(self.manifest["n_tokens_vocab"])
        self.n_tokens, self.n_documents = totals["tokens"], totals["documents"]
        arrays = []
        for name, dtype, length in (
            (TOKENS, self._token_type(), self.n_tokens),
            (STARTS, PLACE, totals["sentences"]),
            (BOUNDS, PLACE, self.n_documents + 1),
        ):
            path = self.folder / name
            if (size := path.stat().st_size) != length * dtype.itemsize:
                raise ShardsError(
                    f"{path} has {size} bytes, expected {length} items of {dtype.name}"
                )
            arrays.append(np.memmap(path, dtype=dtype, mode="r", shape=(length,)))
        self._stream = TokenStream(*arrays)
        if verify:
            self._check_values(*arrays)

    def __len__(self) -> int:
        """Return number of sentences."""
        return int(self.manifest["totals"]["sentences"])

    def __repr__(self) -> str:
        return (
            f"Shards({str(self.folder)!r}): {self.n_tokens} tokens, {len(self)} sentences,"
            f" {self.n_documents} documents, vocabulary of {self.n_tokens_vocab}"
        )

    def stream(self) -> TokenStream:
        """Return the whole corpus, memory-mapped and read-only; every sentence begins anew."""
        return self._stream

    def _check_file(self, name: str, verify: bool) -> None:
        """Raise ShardsError where a file is missing, or differs from the manifest."""
        path, about = self.folder / name, self.manifest["files"][name]
        if not path.is_file():
            raise ShardsError(f"{self.folder} is not a whole set of shards: {name} is missing")
        size = path.stat().st_size
        if size != about["bytes"]:
            what = "truncated" if size < about["bytes"] else "altered"
            raise ShardsError(
                f"{path} is {what}: it has {size} bytes, expected {about['bytes']}; copy or"
                " prepare the shards again"
            )
        if (verify or name == TOKENIZER) and file_digest(path) != about["sha256"]:
            raise ShardsError(
                f"{path} is altered, or does not belong to these shards: its checksum differs from"
                f" the one in {MANIFEST}; copy or prepare the shards again"
            )

    def _token_type(self) -> np.dtype[Any]:
        """Return the dtype of tokens, or raise ShardsError where the vocabulary does not fit."""
        name, size = self.manifest["dtype"], self.n_tokens_vocab
        if name not in ("uint16", "uint32"):
            raise ShardsError(f"{self.folder} has tokens of type {name!r}, expected uint16, uint32")
        dtype = np.dtype(name).newbyteorder("<")
        if size > np.iinfo(dtype).max + 1:
            raise ShardsError(
                f"{self.folder} has a vocabulary of {size} entries, more than {name} can number:"
                " prepare the shards again"
            )
        if len(self.tokenizer) != size:
            raise ShardsError(
                f"the tokenizer of {len(self.tokenizer)} entries does not belong to the shards in"
                f" {self.folder}, whose vocabulary has {size}"
            )
        return dtype

    def _check_values(self, tokens: Any, starts: Any, bounds: Any) -> None:
        """Checksums show altered bytes; this shows shards that were written wrongly."""
        for first in range(0, len(tokens), _CHECKED):
            largest = int(tokens[first : first + _CHECKED].max())
            if largest >= self.n_tokens_vocab:
                raise ShardsError(
                    f"{self.folder} holds the token {largest}, expected less than the vocabulary's"
                    f" {self.n_tokens_vocab}"
                )
        for name, places in ((STARTS, np.append(starts, len(tokens))), (BOUNDS, bounds)):
            if places[0] != 0 or places[-1] != len(tokens) or (np.diff(places) <= 0).any():
                raise ShardsError(
                    f"{self.folder / name} must rise from 0 to the {len(tokens)} tokens"
                )
