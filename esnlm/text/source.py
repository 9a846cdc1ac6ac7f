"""What a text argument names: files of text or shards, and what is wrong with them at a glance.

A file named twice, lines wrapped at a column and licences are reported before the text is read.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

from esnlm.storage.atomic import is_aside
from esnlm.storage.tensor_file import file_digest
from esnlm.text.backends import UNKNOWN
from esnlm.text.corpus import CorpusError, TextCorpus, opened_text
from esnlm.text.layout import AS_WRITTEN, TextLayout, is_gutenberg, is_wrapped
from esnlm.text.shard_parts import PartedCorpus
from esnlm.text.shards import MANIFEST, Shards, ShardsError
from esnlm.text.tokenizers import Tokenizer

_HEAD = 1 << 16
# What dashes and quotes of cp1252 become where it is read as latin-1.
_CONTROL = re.compile("[\x80-\x84\x86-\x9f]")
_MARKUP = re.compile(r'\s*(\{\\rtf|<!doctype|<html|<\?xml|(\[\s*)?\{\s*"\w+" *:)', re.IGNORECASE)
#: Of a folder of very many files, so many are looked into.
_MOST_FILES = 100


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
        if self.shards.tokenizer.__getstate__() != tokenizer.__getstate__():
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


def inspected(corpus: TextCorpus, held_out: TextCorpus | None = None) -> list[str]:
    """Warnings about the files of a corpus and of held-out text, a line each; cheap.

    The heads of at most 100 files are read, and the whole of files that have the same size.
    Raises CorpusError where a file is given twice: nobody means that, and its text would count
    twice. Files that are alike under two names are only warned of, as both may be meant.
    """
    files = [path for path, _ in corpus.files()]
    held_out_files = [] if held_out is None else [path for path, _ in held_out.files()]
    for several in (files, held_out_files):
        check_twice(several)
    return [
        *_alike(files, held_out_files),
        *_laid_out_otherwise([*files, *held_out_files][:_MOST_FILES], corpus.layout),
    ]


def shared_sources(train: Shards, held_out: Shards) -> Iterator[str]:
    """Yield a warning where shards were made of a text that held-out shards were made of, too."""
    named = {
        source["sha256"]: source["name"]
        for source in train.manifest["made_from"]["sources"]
        if source["bytes"]
    }
    for source in held_out.manifest["made_from"]["sources"]:
        if source["sha256"] in named:
            yield (
                f"{held_out.folder} holds {source['name']}, which is the text"
                f" {named[source['sha256']]} of {train.folder}: what it chooses, and its"
                " perplexity, are of text that was learnt"
            )
            return


def spaced(corpus: TextCorpus, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield a warning of the first line where white space is a token of its own between two words.

    Of characters it always is: nothing is said of them.
    """
    apart = len(tokenizer.encode("a  a")) > len(tokenizer.encode("a a"))
    marks = {tokenizer.bos, tokenizer.eos, UNKNOWN}
    if not apart or all(len(token) == 1 for token in set(tokenizer.vocabulary) - marks):
        return
    for path, _ in list(corpus.files())[:_MOST_FILES]:
        for number, line in enumerate(_head(path, corpus.layout.encoding), start=1):
            if re.search(r"\S(\s{2,}|\t)\S", line):
                yield (
                    f"{path}, line {number}: a tab or several spaces between words are tokens of"
                    " their own, and change the surprisal of the next word: leave one space"
                )
                return


def check_twice(files: Iterable[Path]) -> None:
    """Raise CorpusError where a file or folder is named twice, whatever its names."""
    by_place: dict[Path, Path] = {}
    for path in files:
        before = by_place.setdefault(path.resolve(), path)
        if before is not path:
            names = str(path) if str(path) == str(before) else f"{before}, as {path},"
            raise CorpusError(
                f"{names} is given twice, so its text would count twice: name it once"
            )


def _alike(files: list[Path], held_out: list[Path]) -> Iterator[str]:
    """Of training text with the same bytes twice, and of held-out text that is in it."""
    by_size = defaultdict(list)
    for path in (*files, *held_out):
        if size := path.stat().st_size:
            by_size[size].append(path)
    by_digest: dict[str, Path] = {}
    copies = []
    same_size = {path for same in by_size.values() if len(same) > 1 for path in same}
    for path in (path for path in files if path in same_size):
        first = by_digest.setdefault(file_digest(path), path)
        if first is not path:
            copies.append((first, path))
    if copies:
        first, path = copies[0]
        more = f", and {len(copies) - 1} more are copies" if len(copies) > 1 else ""
        yield f"{first} and {path} hold the same text{more}: it counts as often as it is given"
    for path in (path for path in held_out if path in same_size):
        if (digest := file_digest(path)) in by_digest:
            yield (
                f"the held-out text {path} is the training text {by_digest[digest]}: what it"
                " chooses, and its perplexity, are of text that was learnt"
            )
            return


def _laid_out_otherwise(files: list[Path], layout: TextLayout) -> Iterator[str]:
    """Of licences that are not cut, and of lines that are not joined, at most a line each."""
    by_fault: dict[str, list[Path]] = {"licence": [], "wrapped": [], "control": [], "markup": []}
    for path in files:
        raw = _head(path, layout.encoding)
        lines = [line for _, line in layout.lines(enumerate(raw, start=1))]
        if not layout.strip_gutenberg and is_gutenberg(lines):
            by_fault["licence"].append(path)
            body = replace(layout, strip_gutenberg=True)
            lines = [line for _, line in body.lines(enumerate(raw, start=1))]
        if not layout.unwrap and is_wrapped(lines):
            by_fault["wrapped"].append(path)
        if any(_CONTROL.search(line) for line in raw):
            by_fault["control"].append(path)
        if _MARKUP.match("".join(raw[:3])):
            by_fault["markup"].append(path)
    for those, what in (
        (by_fault["licence"], "Project Gutenberg's licence, which strip_gutenberg=True leaves out"),
        (by_fault["wrapped"], "lines that look broken at a column: unwrap=True joins them"),
        (
            by_fault["control"],
            "control characters where cp1252 has dashes and quotes: is it encoding='cp1252'?",
        ),
        (by_fault["markup"], "markup, which is read as words: extract its text"),
    ):
        if those:
            more = f" and {len(those) - 1} more" if len(those) > 1 else ""
            yield f"{those[0]}{more} {'have' if more else 'has'} {what}"


def _head(path: Path, encoding: str) -> list[str]:
    """Return the lines that begin a file, without the last one, which may be cut."""
    with opened_text(path, encoding) as (file, _):
        text = file.read(_HEAD).removeprefix("\ufeff")
        whole = len(text) < _HEAD
    lines = list(StringIO(text, newline="\n"))
    return lines if whole else lines[:-1]
