"""Text to tokens and back: words, characters, or any ``tokenizer.json`` of Hugging Face.

A standard ``tokenizer.json`` is saved. Where a tokenizer has a beginning-of-sentence token, its
own post-processor prepends it, which outside scorers rely on; the end-of-sentence token is
appended by `esnlm.text.boundaries`, so that a scored prefix does not end by itself.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from esnlm.storage.reading import parsed_json, read_bytes, read_json, read_text
from esnlm.text.tokenizer_layout import TokenizerError, n_ids
from esnlm.utils.arrays import Tokens
from esnlm.utils.memory import check_memory

Ids = NDArray[np.int32]

UNKNOWN = "<unk>"
BEGIN = "<s>"
END = "</s>"
END_OF_TEXT = "<|endoftext|>"
#: SHA-256 of GPT-2's files as published: the vocabulary, and the merges.
GPT2_VOCABULARY = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
GPT2_MERGES = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
_LEAST_BPE = 256 + 2
_ANY_CHARACTER = r"[\s\S]"
# A word, with what stands inside it; a name in brackets, such as <unk>; or one mark.
_WORD_OR_MARK = r"<\w+>|\w+(?:[.,'\u2019-]\w+)*|[^\w\s]"
# What becomes of punctuation, by the name of a tokenizer of words.
_PUNCTUATION: dict[str, Literal["glued", "apart", "auto"]] = {
    "word": "glued", "wordpunct": "apart", "auto": "auto",
}  # fmt: skip
#: Share of words that end in a glued mark up to which text counts as cut up already.
_FEW_GLUED = 0.01
_BATCH_CHARACTERS = 1 << 20


class Tokenizer:
    """Text (str) <-> token ids (int32), on a Hugging Face tokenizer, the ``backend``.

    ``bos`` and ``eos`` are the tokens that begin and end a sentence; both must be in the
    vocabulary. The same token may serve as both (GPT-2's ``<|endoftext|>``).

    >>> tokenizer = Tokenizer.train_words(["the boy sees the dog", "the dog sees"])
    >>> len(tokenizer), tokenizer.encode("the cat sees")
    (7, array([3, 0, 5], dtype=int32))
    >>> tokenizer.decode([3, 4])
    'the dog'
    """

    def __init__(self, backend: Backend, *, bos: str | None = None, eos: str | None = None) -> None:
        self.backend = backend
        self.bos = bos
        self.eos = eos
        self.bos_id = self._known(bos, "bos")
        self.eos_id = self._known(eos, "eos")
        self._layout = json.loads(backend.to_str())
        self._size = n_ids(self._layout)
        unknown = self._layout["model"].get("unk_token")
        self.unk_id = None if unknown is None else backend.token_to_id(unknown)
        self._characters: Any = self._character_table()
        #: Whether a line end is itself a token, so that text need not be cut in lines.
        self.keeps_newlines = len(self.encode("\n")) > 0

    @classmethod
    def train_words(
        cls,
        texts: Iterable[str],
        vocab_size: int | None = None,
        *,
        lower: bool = False,
        boundaries: bool = True,
        punctuation: Literal["glued", "apart", "auto"] = "glued",
    ) -> Self:
        """Words between white space, the most frequent first; ``texts`` are read once.

        ``vocab_size`` counts ``<unk>`` and the boundary tokens; None: all words. Words past it
        become ``<unk>``. Ties are broken by alphabet. ``lower``: lower-case the text first.
        ``boundaries``: have ``<s>`` and ``</s>`` around each sentence.

        ``punctuation``: "apart" makes each mark a token of its own, but apostrophes, hyphens and
        points within a word stay; "auto" does so where the text is plain, that is where more than
        one word in a hundred ends in a comma, colon, semicolon, exclamation or question mark, and
        leaves text as it is whose marks stand apart already.

        >>> plain = Tokenizer.train_words(["Well, don't!"] * 9, punctuation="auto")
        >>> plain.vocabulary[3:], plain.decode(plain.encode("Well, don't!"))
        (['!', ',', 'Well', "don't"], "Well, don't!")
        """
        kind = "word" if punctuation == "glued" else f"word {punctuation}"
        return cls._trained(texts, vocab_size, lower, boundaries, kind)

    @classmethod
    def train_characters(
        cls,
        texts: Iterable[str],
        vocab_size: int | None = None,
        *,
        lower: bool = False,
        boundaries: bool = False,
    ) -> Self:
        """Unicode characters, line ends among them; parameters as `train_words`.

        >>> tokenizer = Tokenizer.train_characters(["To be"], lower=True)
        >>> tokenizer.vocabulary
        ['<unk>', ' ', 'b', 'e', 'o', 't']
        """
        return cls._trained(texts, vocab_size, lower, boundaries, "char")

    @classmethod
    def _trained(
        cls, texts: Iterable[str], size: int | None, lower: bool, boundaries: bool, kind: str
    ) -> Self:
        """Of a kind: "char", "word", "word apart" or "word auto"."""
        special = [UNKNOWN, BEGIN, END] if boundaries else [UNKNOWN]
        if size is not None and size <= len(special):
            raise TokenizerError(
                f"vocab_size must be larger than the {len(special)} special tokens, got {size}"
            )
        lowercase = normalizers.Lowercase()
        counts: Counter[str] = Counter()
        for text in texts:
            text = lowercase.normalize_str(text) if lower else text
            counts.update(text if kind == "char" else text.split())
        if not counts:
            raise TokenizerError("the training text is empty: a vocabulary needs at least a word")
        if kind == "word apart" or (kind == "word auto" and is_plain(counts)):
            kind, counts = "word apart", _pieces(counts)
        ranked = sorted(w for w in counts if w not in special)
        if size is not None or kind != "char":  # all characters read better by alphabet
            ranked.sort(key=lambda w: -counts[w])
        kept = ranked if size is None else ranked[: size - len(special)]
        backend = _word_level([*special, *kept], kind)
        if lower:
            backend.normalizer = lowercase
        if not boundaries:
            return cls(backend)
        backend.add_special_tokens([BEGIN, END])
        return cls(backend, bos=BEGIN, eos=END).prepend_bos()

    @classmethod
    def from_file(cls, path: str | Path, *, bos: str | None = None, eos: str | None = None) -> Self:
        """Read a ``tokenizer.json``; ``bos`` and ``eos`` default to the pair that it has.

        Known are ``<s>`` and ``</s>``, ``[CLS]`` and ``[SEP]``, and ``<|endoftext|>`` for both.
        Raises TokenizerError where the file is not a tokenizer, or lacks a token that was named.
        """
        backend = _backend_of(read_bytes(Path(path)), str(path))
        for pair in ((BEGIN, END), ("[CLS]", "[SEP]"), (END_OF_TEXT,) * 2):
            if all(backend.token_to_id(token) is not None for token in pair):
                bos, eos = bos or pair[0], eos or pair[1]
                break
        tokenizer = cls(backend, bos=bos, eos=eos)
        return tokenizer.prepend_bos() if bos else tokenizer

    def prepend_bos(self) -> Self:
        """Let the saved tokenizer prepend BOS, and add nothing else, as outside scorers need."""
        bare = self.encode("a").tolist()
        if bare and self.backend.encode("a").ids == [self.bos_id, *bare]:
            return self
        template: Any = processors.TemplateProcessing(
            single=f"{self.bos} $A",
            pair=f"{self.bos} $A {self.bos} $B",
            special_tokens=[(self.bos, self.bos_id)],
        )
        if step := adding_nothing(self._layout):
            names = ("add_prefix_space", "trim_offsets", "use_regex")
            trimming = processors.ByteLevel(**{n: step[n] for n in names if n in step})
            template = processors.Sequence([trimming, template])
        self.backend.post_processor = template
        self._layout = json.loads(self.backend.to_str())
        return self

    def lowered(self) -> Self:
        """A copy that lower-cases text first."""
        backend = Backend.from_str(self.backend.to_str())
        steps = [] if backend.normalizer is None else [backend.normalizer]
        backend.normalizer = normalizers.Sequence([*steps, normalizers.Lowercase()])
        return type(self)(backend, bos=self.bos, eos=self.eos)

    def fingerprint(self) -> str:
        """SHA-256 of all that decides which ids a text has; equal for equal tokenizers."""
        return hashlib.sha256(f"{self.bos}\n{self.eos}\n{self.to_json()}".encode()).hexdigest()

    def encode(self, text: str) -> Ids:
        """Text -> ids (n,) int32, without boundary tokens."""
        if self._characters is not None:
            return self._encode_characters(text)
        with _of_library("cannot read the text"):
            ids = self.backend.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=np.int32)

    def encode_batches(self, texts: Iterable[str]) -> Iterator[Ids]:
        """Each text -> ids (n,) int32 without boundary tokens, on all cores, as a stream."""
        if self._characters is not None:
            yield from map(self._encode_characters, texts)
            return
        for batch in in_batches(texts):
            with _of_library("cannot read the text"):
                encodings = self.backend.encode_batch_fast(batch, add_special_tokens=False)
            for encoding in encodings:
                yield np.array(encoding.ids, dtype=np.int32)

    def decode(self, ids: Sequence[int] | Tokens) -> str:
        """Ids (n,) -> text; boundary tokens are left out."""
        ids = [int(token) for token in ids]
        if ids and not 0 <= min(ids) <= max(ids) < len(self):
            raise TokenizerError(
                f"token ids must lie in [0, {len(self)}), got {min(ids)}, {max(ids)}"
            )
        return str(self.backend.decode(ids, skip_special_tokens=True))

    def __len__(self) -> int:
        """Entries of the vocabulary: the largest id and one."""
        return self._size

    @property
    def vocabulary(self) -> list[str]:
        """Every token as the backend spells it, in the order of the ids; "" for an id of none."""
        return [self.spelling(token) for token in range(len(self))]

    def spelling(self, token: int) -> str:
        """A token as the backend spells it; "" for an id of none."""
        return str(self.backend.id_to_token(token) or "")

    @property
    def parts_punctuation(self) -> bool:
        """Whether words and the marks around them are tokens apart."""
        splitter = self._layout.get("pre_tokenizer") or {}
        return splitter.get("pattern") == {"Regex": _WORD_OR_MARK}

    @property
    def has_words(self) -> bool:
        """Whether tokens are words or marks, never parts of words."""
        return self._layout["model"].get("type") == "WordLevel" and self._characters is None

    def to_json(self) -> str:
        """The standard ``tokenizer.json``."""
        return str(self.backend.to_str(pretty=True))

    @classmethod
    def from_json(cls, text: str, *, bos: str | None, eos: str | None) -> Self:
        """The tokenizer that `to_json` wrote."""
        return cls(_backend_of(text.encode(), "this text"), bos=bos, eos=eos)

    def __getstate__(self) -> dict[str, Any]:
        return {"json": self.to_json(), "bos": self.bos, "eos": self.eos}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(Backend.from_str(state["json"]), bos=state["bos"], eos=state["eos"])  # type: ignore[misc]

    def _known(self, token: str | None, role: str) -> int | None:
        if token is None:
            return None
        found = self.backend.token_to_id(token)
        if found is None:
            raise TokenizerError(f"{role}={token!r} is not in the vocabulary of the tokenizer")
        return int(found)

    def _character_table(self) -> Ids | None:
        """Ids by code point (n,), where every character is a token; otherwise None."""
        splitter = self._layout.get("pre_tokenizer") or {}
        if splitter.get("pattern") != {"Regex": _ANY_CHARACTER} or self.unk_id is None:
            return None
        codes = {
            ord(token): i for token, i in self._layout["model"]["vocab"].items() if len(token) == 1
        }
        table = np.full(max(codes, default=0) + 2, self.unk_id, dtype=np.int32)
        table[list(codes)] = list(codes.values())
        return table

    def _encode_characters(self, text: str) -> Ids:
        if self.backend.normalizer is not None:
            text = self.backend.normalizer.normalize_str(text)
        codes = np.frombuffer(text.encode("utf-32-le", "replace"), dtype=np.uint32)
        return self._characters[np.minimum(codes, len(self._characters) - 1)]


def is_plain(counts: Mapping[str, int]) -> bool:
    """Whether marks hang on the words (of given counts), as in prose that nobody has cut up.

    >>> is_plain({"the": 9, "boy,": 1}), is_plain({"the": 9, ",": 1}), is_plain({"U.S.": 1})
    (True, False, False)
    """
    glued = sum(n for word, n in counts.items() if len(word) > 1 and word[-1] in ",:;!?")
    return glued > _FEW_GLUED * sum(counts.values())


def _pieces(counts: Mapping[str, int]) -> Counter[str]:
    """Counts of words, and of the marks around them."""
    found = Counter[str]()
    for word, n in counts.items():
        for piece in re.findall(_WORD_OR_MARK, word):
            found[piece] += n
    return found


def _word_level(vocabulary: Sequence[str], kind: str) -> Backend:
    """A tokenizer of characters, of words between white space, or of words and marks."""
    entries = {word: i for i, word in enumerate(vocabulary)}
    backend = Backend(models.WordLevel(entries, UNKNOWN))
    if kind == "char":
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(_ANY_CHARACTER), "isolated")
        backend.decoder = decoders.Fuse()
    elif kind == "word apart":
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(_WORD_OR_MARK), "removed", invert=True)
        # Spaces between words, none where print has none.
        tight = [decoders.Replace(f" {mark}", mark) for mark in ",.:;!?)]"]
        backend.decoder = decoders.Sequence([decoders.WordPiece("##", False), *tight])
    else:
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return backend


def adding_nothing(layout: Mapping[str, Any]) -> dict[str, Any] | None:
    """The step after tokenizing that adds no tokens, if there is one: it trims offsets."""
    found = layout.get("post_processor") or {}
    steps = found.get("processors", [found])
    return next((step for step in steps if step.get("type") == "ByteLevel"), None)


def _backend_of(data: bytes, name: str) -> Backend:
    """The library's tokenizer, without padding and truncation; TokenizerError where it is none."""
    with _of_library(f"{name} is not a tokenizer.json"):
        n_ids(parsed_json(data))
        backend = Backend.from_str(data.decode())
        backend.no_padding()
        backend.no_truncation()
        return backend


@contextmanager
def _of_library(what: str) -> Iterator[None]:
    """Let any error of the block begin with ``what`` is wrong.

    The library raises bare Exception, and where it panics what is none.
    """
    try:
        yield
    except (MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise TokenizerError(f"{what}: {error}; expected a whole tokenizer.json") from error


def in_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in lists of about a million characters."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def parsed(name: str) -> tuple[str, int | None]:
    """Kind and size in ``bpe:N``; in ``word``, ``wordpunct``, ``auto``, ``char``, with :N or not.

    >>> parsed("bpe:8192"), parsed("char")
    (('bpe', 8192), ('char', None))
    """
    kind, colon, size = name.partition(":")
    if kind not in ("bpe", *_PUNCTUATION, "char") or (colon and not size.isdecimal()):
        raise TokenizerError(
            "the tokenizer must be bpe:N, or word, wordpunct, auto or char, with :N or not, got"
            f" {name!r}"
        )
    if kind == "bpe" and (not colon or int(size) < _LEAST_BPE):
        raise TokenizerError(
            f"bpe:N needs N of at least {_LEAST_BPE}, the bytes and two boundary tokens, got {name}"
        )
    if colon:
        check_memory(f"a vocabulary of {size}", 200 * int(size), "ask for fewer entries")
    return kind, int(size) if colon else None


def trained(
    name: str, sentences: Iterable[str], *, lower: bool = False, boundaries: bool = True
) -> Tokenizer:
    """Train the tokenizer of a name, see `parsed`, with ``<s>`` and ``</s>`` if asked for.

    ``word`` is what stands between white space; ``wordpunct`` parts words and marks; ``auto`` does
    so where the text is plain, see `Tokenizer.train_words`.
    """
    kind, size = parsed(name)
    if kind == "bpe":
        return byte_pairs(sentences, size or 0, lower=lower)
    if kind == "char":
        return Tokenizer.train_characters(sentences, size, lower=lower, boundaries=boundaries)
    return Tokenizer.train_words(
        sentences, size, lower=lower, boundaries=boundaries, punctuation=_PUNCTUATION[kind]
    )


def byte_pairs(sentences: Iterable[str], vocab_size: int, *, lower: bool = False) -> Tokenizer:
    """Byte-level byte-pair encoding as GPT-2's, learned from sentences read once.

    Any text has tokens, and decoding inverts encoding. The same sentences give the same tokenizer.
    The vocabulary is smaller than ``vocab_size`` where no pair is left that occurs twice.

    >>> tokenizer = byte_pairs(["the boy", "the dog"], 262)
    >>> tokenizer.vocabulary[-2:], tokenizer.decode(tokenizer.encode("the cow"))
    (['he', 'the'], 'the cow')
    """
    backend = _byte_level(models.BPE())
    if lower:
        backend.normalizer = normalizers.Lowercase()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[BEGIN, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    source = iter(sentences)
    first = next(source, None)
    if first is None:
        raise TokenizerError("the training text is empty: a vocabulary needs at least a word")
    backend.train_from_iterator(chain([first], source), trainer)
    return Tokenizer(backend, bos=BEGIN, eos=END).prepend_bos()


def gpt2(folder: str | Path) -> Tokenizer:
    """GPT-2's tokenizer of 50 257 entries from local files, checked to be the published ones.

    ``folder`` holds ``tokenizer.json``, or ``vocab.json`` and ``merges.txt``, or these two by
    their first names ``encoder.json`` and ``vocab.bpe``; or is a ``tokenizer.json`` itself.
    """
    place = Path(folder)
    vocabulary, merges = _gpt2_files(place)
    ordered = dict(sorted(vocabulary.items(), key=lambda entry: entry[1]))
    lines = "".join(f"{left} {right}\n" for left, right in merges)
    # The published bytes: ASCII escapes in the one, a line of version above the other.
    found = json.dumps(ordered).encode(), f"#version: 0.2\n{lines}".encode()
    for data, digest in zip(found, (GPT2_VOCABULARY, GPT2_MERGES), strict=True):
        if hashlib.sha256(data).hexdigest() != digest:
            raise TokenizerError(
                f"{place} does not hold the vocabulary and merges of GPT-2: give its published"
                " files, or the tokenizer.json by its name"
            )
    backend = _byte_level(models.BPE(ordered, merges))
    backend.add_special_tokens([END_OF_TEXT])
    return Tokenizer(backend, bos=END_OF_TEXT, eos=END_OF_TEXT).prepend_bos()


def _byte_level(model: models.BPE) -> Backend:
    backend = Backend(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return backend


def _gpt2_files(place: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    try:
        whole = place if place.is_file() else place / "tokenizer.json"
        if whole.is_file():
            model = read_json(whole)["model"]
            return model["vocab"], _pairs(model["merges"])
        for names in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")):
            first, second = (place / name for name in names)
            if first.is_file() and second.is_file():
                lines = read_text(second).split("\n")[1:]
                return read_json(first), _pairs(filter(None, lines))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TokenizerError(f"{place} does not hold readable tokenizer files: {error}") from error
    raise TokenizerError(
        f"{place} holds neither tokenizer.json, nor vocab.json and merges.txt, nor encoder.json"
        " and vocab.bpe"
    )


def _pairs(merges: Iterable[Any]) -> list[tuple[str, str]]:
    split = (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)
    return [(left, right) for left, right in split]
