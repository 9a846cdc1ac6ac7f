"""What a text argument names: files of text, a folder of shards, or shards at a URL."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from esnlm.storage.atomic import is_aside
from esnlm.text.corpus import TextCorpus
from esnlm.text.inspection import inspected, shared_sources
from esnlm.text.layout import AS_WRITTEN, TextLayout
from esnlm.text.shard_parts import PartedCorpus
from esnlm.text.shards import MANIFEST, Shards, ShardsError
from esnlm.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Source:
    """A text argument; `open_source` makes it. Files are read when they are asked for.

    ``names`` are the paths or the URL as they were given. Shards are cut in tokens already, text
    is not. Shards at a URL are read in parts alone.
    """

    names: tuple[str, ...]
    is_shards: bool
    is_url: bool

    @cached_property
    def shards(self) -> Shards:
        """The shards of the folder, with every byte checked; ShardsError for a URL."""
        if self.is_url:
            raise ShardsError(
                f"shards at a URL are read in parts alone, got {self.names[0]}: copy the folder"
                " here"
            )
        return Shards(self.names[0])

    @cached_property
    def parts(self) -> PartedCorpus:
        """The shards to read in parts; those of a folder with every byte checked."""
        if self.is_url:
            return PartedCorpus(self.names[0])
        return PartedCorpus(self.shards.folder.absolute())

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer that cut the shards; None of text."""
        if not self.is_shards:
            return None
        return self.parts.tokenizer if self.is_url else self.shards.tokenizer

    def documents(self, split: str, layout: TextLayout = AS_WRITTEN) -> TextCorpus:
        """Return the documents of text files."""
        return TextCorpus(self.names, split, layout)

    def stream(self, tokenizer: Tokenizer) -> Any:
        """Return the tokens of shards; raise ValueError where another tokenizer cut them."""
        if self.shards.tokenizer.to_json() != tokenizer.to_json():
            raise ValueError(
                f"the tokenizer of {self.names[0]} is not the one of the training text"
            )
        return self.shards.stream()

    def warnings(self, held_out: "Source | None", layout: TextLayout = AS_WRITTEN) -> list[str]:
        """Return what looks as if an option was forgotten; raise for a file given twice."""
        if self.is_url:
            return []
        if self.is_shards:
            if held_out is None or not held_out.is_shards:
                return []
            return list(shared_sources(self.shards, held_out.shards))
        others = None if held_out is None or held_out.is_shards else TextCorpus(held_out.names)
        return list(inspected(TextCorpus(self.names, layout=layout), others))


def open_source(names: Sequence[str]) -> Source:
    """Return what the names stand for; nothing is written, and no text is read.

    Raises ValueError for more than one folder of shards, or one beside text.
    """
    is_url = len(names) == 1 and "://" in names[0]
    folders = [name for name in names if name and not is_url and holds_shards(name)]
    if folders and len(folders) < len(names):
        raise ValueError(f"{folders[0]} is a folder of shards, the rest is text: give one of them")
    if len(folders) > 1:
        raise ValueError(f"expected one folder of shards, got {len(folders)}")
    return Source(tuple(names), bool(folders) or is_url, is_url)


def holds_shards(path: str | Path) -> bool:
    """Return whether a path names a folder that `esnlm prepare` wrote, rather than text.

    So does one that a killed process was about to replace: its reader puts it back.
    """
    return (Path(path) / MANIFEST).is_file() or is_aside(Path(path), MANIFEST)
