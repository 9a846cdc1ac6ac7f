"""Text files as a stream of sentences that can start at any line, and sentences as tokens."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from esnlm.text.boundaries import framed, without_marks
from esnlm.text.corpus import SPLITS, CorpusError, TextCorpus, numbered_lines, opened_text
from esnlm.text.tokenizers import Ids, Tokenizer
from esnlm.utils.arrays import Ints64
from esnlm.utils.validation import Count, OneOf, check_parameters, limited

SENTENCES = ("line", "splitter")
#: Number of files that have been read, and of lines of the next one.
Position = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class SentenceRules:
    """Settings of splitting text into sentences.

    ``documents`` is the ``split`` of `esnlm.text.corpus.TextCorpus`, ``sentences`` that of
    `SentenceStream`. ``min_length`` and ``max_length`` are in tokens, the boundary tokens
    included: shorter sentences are left out; longer ones are cut, and then do not end with EOS.
    Ueda et al. (2025) have 6 and 512.
    """

    documents: str = limited("blank_line", OneOf(SPLITS))
    sentences: str = limited("line", OneOf(SENTENCES))
    min_length: int | None = None
    max_length: int | None = None

    def __post_init__(self) -> None:
        check_parameters(self)
        low, high = self.min_length, self.max_length
        for name, value, least in (("min_length", low, 1), ("max_length", high, 2)):
            if value is not None:
                Count(least).check(name, value)
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_length must not exceed max_length, got {low} and {high}")


#: One sentence a line, all of them whole.
AS_IT_IS = SentenceRules()


@dataclass
class SentenceBatch:
    """Sentences, how many of them come before each end of a document, and the place after them."""

    texts: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    position: Position = (0, 0)
    bytes_read: int = 0


class SentenceStream:
    """Sentences of a corpus in batches of about ``n_characters``, never held as a whole.

    The ``split`` of the corpus says what a document is. A sentence is a line that is not blank
    ("line"), or what the splitter finds in a line ("splitter"). A batch ends with the line that
    brings it to ``n_characters``.
    """

    def __init__(
        self, corpus: TextCorpus, sentences: str = "line", n_characters: int = 1 << 20
    ) -> None:
        if sentences not in SENTENCES:
            raise ValueError(f"sentences must be one of {', '.join(SENTENCES)}, got {sentences!r}")
        self.corpus = corpus
        self.files = [path for path, _ in corpus.files()]
        self.n_bytes = sum(path.stat().st_size for path in self.files)
        self.n_characters = n_characters
        self._split = sentence_splitter() if sentences == "splitter" else lambda text: [text]

    def batches(self, position: Position = (0, 0)) -> Iterator[SentenceBatch]:
        """Yield the batches after a position."""
        first, skip = position
        batch, size = SentenceBatch(position=position), 0
        read = sum(path.stat().st_size for path in self.files[:first])
        for index, path in enumerate(self.files[first:], start=first):
            before = path.stat()
            layout = self.corpus.layout
            with opened_text(path, layout.encoding) as (text, raw):
                for number, line in numbered_lines(text, path, skip=skip, layout=layout):
                    self._absorb(line, batch)
                    size += len(line) + 1
                    if size >= self.n_characters:
                        batch.position, batch.bytes_read = (index, number), read + raw.tell()
                        yield batch
                        batch, size = SentenceBatch(), 0
            after = path.stat()
            if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                raise CorpusError(f"{path} changed while it was read: begin anew")
            skip = 0
            read += before.st_size
            batch.ends.append(len(batch.texts))
            batch.position, batch.bytes_read = (index + 1, 0), read
        yield batch

    def _absorb(self, line: str, batch: SentenceBatch) -> None:
        if line:
            batch.texts += self._split(line)
        if self.corpus.split == "line" or (self.corpus.split == "blank_line" and not line):
            batch.ends.append(len(batch.texts))


def tokenize_sentences(
    texts: list[str], tokenizer: Tokenizer, rules: SentenceRules
) -> tuple[Ids, Ints64, Counter[str]]:
    """Sentences (n) -> BOS ... EOS of the lengths that the rules allow.

    Returns tokens (T,) end to end, lengths (n,) of the sentences, 0 for what is left out, counts.
    """
    parts = [np.zeros(0, dtype=np.int32)]
    lengths = np.zeros(len(texts), dtype=np.int64)
    counts: Counter[str] = Counter()
    for i, (text, pieces) in enumerate(
        zip(texts, framed(texts, tokenizer, "sentence"), strict=True)
    ):
        tokens_of_text = pieces[0] if pieces else parts[0]  # nothing between <s> and </s>
        if len(tokens_of_text) < (rules.min_length or 1):
            continue
        if rules.max_length is not None and len(tokens_of_text) > rules.max_length:
            counts.update(sentences_cut=1, tokens_cut=len(tokens_of_text) - rules.max_length)
            tokens_of_text = tokens_of_text[: rules.max_length]
            text = tokenizer.decode(tokens_of_text)
        text = without_marks(text, tokenizer, "sentence")
        parts.append(tokens_of_text)
        lengths[i] = len(tokens_of_text)
        counts["words"] += len(text.split())
        counts["characters"] += len(text)
    tokens = np.concatenate(parts)
    n_kept = int(np.count_nonzero(lengths))
    counts.update(tokens=len(tokens), sentences=n_kept)
    counts.update(sentences_left_out=len(texts) - n_kept)
    if tokenizer.unk_id is not None:
        counts.update(unknown=int(np.count_nonzero(tokens == tokenizer.unk_id)))
    return tokens, lengths, counts


def sentence_splitter() -> Callable[[str], list[str]]:
    """English text (one line) -> its sentences, by the rules of the library pysbd.

    Where the library would drop some of the text, as it does of strings of signs, the text is one
    sentence. Raises ValueError where the library is not installed.
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
        parts = [part.strip() for part in segmenter.segment(text)]
        whole = "".join("".join(parts).split()) == "".join(text.split())
        return [part for part in parts if part] if whole else [text]

    return split
