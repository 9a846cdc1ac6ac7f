"""Lines of text files to sentences, and those to framed tokens: a stream that starts anywhere."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from esnlm.text.corpus import CorpusError, TextCorpus, numbered_lines, opened_text
from esnlm.text.tokenizers import Tokenizer

SENTENCES = ("line", "splitter")
Splitter = Callable[[str], list[str]]


class Position(NamedTuple):
    """So many files have been read, and so many lines of the next one."""

    file: int
    line: int


BEGINNING = Position(0, 0)


@dataclass(frozen=True)
class Rules:
    """How text becomes sentences.

    Parameters
    ----------
    documents : {"blank_line", "line", "file"}
        What a document is; see `esnlm.text.corpus.TextCorpus`.
    sentences : {"line", "splitter"}
        What a sentence is; see `SentenceStream`.
    min_length, max_length : int, optional
        In tokens, the boundary tokens included. Shorter sentences are left out; of longer ones
        the end is, and then they do not end with EOS. Paper 000 has 6 and 512.
    """

    documents: str = "blank_line"
    sentences: str = "line"
    min_length: int | None = None
    max_length: int | None = None

    def __post_init__(self) -> None:
        low, high = self.min_length, self.max_length
        for name, value in (("min_length", low), ("max_length", high)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1 token, got {value}")
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_length must not exceed max_length, got {low} and {high}")


#: One sentence a line, all of them whole.
AS_IT_IS = Rules()


@dataclass
class SentenceBatch:
    """Sentences, and after how many of them documents end; where the stream stands after them."""

    texts: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    position: Position = BEGINNING
    bytes_read: int = 0


class SentenceStream:
    """Sentences of a corpus in batches of about ``n_characters``, never held as a whole.

    Parameters
    ----------
    corpus : TextCorpus
        Its ``split`` says what a document is.
    sentences : {"line", "splitter"}
        A sentence is a line that is not blank, or what the splitter finds in a line.
    n_characters : int
        A batch ends with the line that brings it to so many.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a"
    >>> _ = path.write_text("One.\\nTwo.\\n\\nThree.\\n")
    >>> stream = SentenceStream(TextCorpus(path), n_characters=8)
    >>> [(batch.texts, batch.ends, tuple(batch.position)) for batch in stream.batches()]
    [(['One.', 'Two.'], [], (0, 2)), (['Three.'], [0], (0, 4)), ([], [0], (1, 0))]
    """

    def __init__(
        self, corpus: TextCorpus, sentences: str = "line", n_characters: int = 1 << 20
    ) -> None:
        if sentences not in SENTENCES:
            raise ValueError(f"sentences must be one of {', '.join(SENTENCES)}, got {sentences!r}")
        self.corpus = corpus
        self.files = corpus.files()
        self.n_bytes = sum(path.stat().st_size for path in self.files)
        self.n_characters = n_characters
        self._split = sentence_splitter() if sentences == "splitter" else _as_it_is

    def __iter__(self) -> Iterator[str]:
        for batch in self.batches():
            yield from batch.texts

    def batches(self, position: Position = BEGINNING) -> Iterator[SentenceBatch]:
        """The batches after a position."""
        batch = SentenceBatch(position=position)
        read = sum(path.stat().st_size for path in self.files[: position.file])
        size = 0
        for index in range(position.file, len(self.files)):
            path = self.files[index]
            skip = position.line if index == position.file else 0
            before = _identity(path)
            with opened_text(path) as (text, raw):
                for number, line in numbered_lines(text, path, skip=skip):
                    self._absorb(line, batch)
                    size += len(line) + 1
                    if size >= self.n_characters:
                        batch.position = Position(index, number)
                        batch.bytes_read = read + raw.tell()
                        yield batch
                        batch, size = SentenceBatch(), 0
            if _identity(path) != before:
                raise CorpusError(f"{path} changed while it was read: begin anew")
            read += before[0]
            batch.ends.append(len(batch.texts))
            batch.position, batch.bytes_read = Position(index + 1, 0), read
        yield batch

    def _absorb(self, line: str, batch: SentenceBatch) -> None:
        # A line of a file can hold what ends a line elsewhere, such as a form feed.
        for part in line.splitlines():
            if stripped := part.strip():
                batch.texts += self._split(stripped)
        if self.corpus.split == "line" or (self.corpus.split == "blank_line" and not line):
            batch.ends.append(len(batch.texts))


class Framing:
    """Texts -> BOS ... EOS of the lengths that the rules allow, and counts of them."""

    def __init__(self, tokenizer: Tokenizer, rules: Rules) -> None:
        self.tokenizer = tokenizer
        self.least = rules.min_length or 1
        self.most = rules.max_length
        self.counts: dict[str, Any] = {}

    def framed(self, texts: list[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Texts (n) -> tokens (T,) end to end, and lengths (n,), 0 for what is left out."""
        bos, eos = self.tokenizer.bos_id, self.tokenizer.eos_id
        parts: list[NDArray[Any]] = []
        lengths = np.zeros(len(texts), dtype=np.int64)
        before = np.array([] if bos is None else [bos], dtype=np.int32)
        after = np.array([] if eos is None else [eos], dtype=np.int32)
        words = characters = cut = cut_tokens = 0
        for i, ids in enumerate(self.tokenizer.encode_batches(texts)):
            length = len(before) + len(ids) + len(after)
            if length < self.least:
                continue
            text = texts[i]
            kept = [before, ids, after]
            if self.most is not None and length > self.most:
                kept = [np.concatenate(kept)[: self.most]]
                text = self.tokenizer.decode(kept[0])
                cut, cut_tokens = cut + 1, cut_tokens + length - self.most
                length = self.most
            parts += kept
            lengths[i] = length
            words, characters = words + len(text.split()), characters + len(text)
        tokens = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)
        unk = self.tokenizer.unk_id
        unknown = 0 if unk is None else np.count_nonzero(tokens == unk)
        sentences = np.count_nonzero(lengths)
        self.counts = {
            "tokens": len(tokens), "sentences": sentences, "words": words,
            "characters": characters, "unknown": unknown, "sentences_cut": cut,
            "tokens_cut": cut_tokens, "sentences_left_out": len(texts) - sentences,
        }  # fmt: skip
        return tokens, lengths


def sentence_splitter() -> Splitter:
    """English text (one line) -> its sentences, by the rules of the library pysbd.

    Where the library would drop some of the text, as it does of strings of signs, the text is one
    sentence.

    Raises
    ------
    ValueError
        The library is not installed.
    """
    try:
        with warnings.catch_warnings():  # of its source, where it is compiled for the first time
            warnings.simplefilter("ignore")
            from pysbd import Segmenter
    except ImportError as error:
        raise ValueError(
            "splitting sentences needs the library pysbd: pip install 'esnlm[sentences]', or have"
            " one sentence a line"
        ) from error
    segmenter = Segmenter(language="en", clean=False)

    def split(text: str) -> list[str]:
        found = [part.strip() for part in segmenter.segment(text)]
        whole = _letters("".join(found)) == _letters(text)
        return [part for part in found if part] if whole else [text]

    return split


def _letters(text: str) -> str:
    return "".join(text.split())


def _as_it_is(text: str) -> list[str]:
    return [text]


def _identity(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns
