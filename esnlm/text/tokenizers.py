"""Text to tokens and back: words, characters, or any ``tokenizer.json`` of Hugging Face.

A standard ``tokenizer.json`` is saved. Where a tokenizer has a beginning-of-sentence token, its
own post-processor prepends it, which outside scorers rely on; the end-of-sentence token is
appended by `esnlm.text.boundaries`, so that a scored prefix does not end by itself.
"""

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend
from tokenizers import normalizers, processors

from esnlm.storage.json_files import read_bytes, read_json
from esnlm.text.backends import (
    ANY_CHARACTER,
    BEGIN,
    END,
    END_OF_TEXT,
    LOWERCASE,
    WORD_OR_MARK,
    TokenizerError,
    adding_nothing,
    checked_text,
    drops_characters,
    hide_boundaries,
    is_punctuation,
    library_errors,
    n_ids,
    parsed_backend,
    unknown_id,
    word_level,
)
from esnlm.utils.arrays import Bools, Tokens

Ids = NDArray[np.int32]

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
        """Look up the ids of boundaries and of the unknown token in ``backend``."""
        if not isinstance(backend, Backend):
            raise TokenizerError(
                f"backend must be a tokenizers.Tokenizer, got {backend!r:.80}: Tokenizer.from_file"
                " reads a file, Tokenizer.train_words learns one from texts"
            )
        self.backend = backend
        self.bos = bos
        self.eos = eos
        self.bos_id = self._known(bos, "bos")
        self.eos_id = self._known(eos, "eos")
        # What stands in a text is text: "<s>" in HTML begins no sentence.
        backend.encode_special_tokens = True
        if getattr(backend.model, "dropout", None):  # else the same text has other ids each time
            backend.model.dropout = None
        self._layout = json.loads(backend.to_str())
        self._size = n_ids(self._layout)
        self.unk_id = unknown_id(self._layout)
        self._characters: Any = self._character_table()
        #: Whether a line end is itself a token, so that text need not be cut in lines.
        self.keeps_newlines = len(self.encode("\n")) > 0

    @classmethod
    def train_words(
        cls,
        texts: Iterable[str],
        *,
        vocab_size: int | None = None,
        lower: bool = False,
        boundaries: bool = True,
        punctuation: Literal["glued", "apart", "auto"] = "glued",
    ) -> Self:
        """Take words between white space, the most frequent first; ``texts`` are read once.

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
        *,
        vocab_size: int | None = None,
        lower: bool = False,
        boundaries: bool = False,
    ) -> Self:
        """Take Unicode characters, line ends among them; parameters as `train_words`.

        >>> tokenizer = Tokenizer.train_characters(["To be"], lower=True)
        >>> tokenizer.vocabulary
        ['<unk>', ' ', 'b', 'e', 'o', 't']
        """
        return cls._trained(texts, vocab_size, lower, boundaries, "char")

    @classmethod
    def _trained(
        cls, texts: Iterable[str], size: int | None, lower: bool, boundaries: bool, kind: str
    ) -> Self:
        backend = word_level(texts, size, lower=lower, boundaries=boundaries, kind=kind)
        return cls(backend, bos=BEGIN, eos=END).prepend_bos() if boundaries else cls(backend)

    @classmethod
    def from_file(cls, path: str | Path, *, bos: str | None = None, eos: str | None = None) -> Self:
        """Read a ``tokenizer.json``; ``bos`` and ``eos`` default to those of its folder.

        They are named in ``tokenizer_config.json`` or ``special_tokens_map.json``, where an EOS
        alone, as T5's, is BOS as well. Otherwise ``<s>`` and ``</s>``, ``[CLS]`` and ``[SEP]``, or
        ``<|endoftext|>`` for both are known.
        Raises TokenizerError where the file is not a tokenizer, or lacks a token that was named.
        Warns where it drops characters that its vocabulary does not have.
        """
        backend = parsed_backend(read_bytes(Path(path)), str(path))
        if drops_characters(backend):
            warnings.warn(
                f"{path} has neither an unknown token nor bytes: it drops characters that are not"
                " in its vocabulary, and surprisals do not show it; set unk_token in its model",
                stacklevel=2,
            )
        names = _boundaries_beside(Path(path))
        bos, eos = bos or names.get("bos_token"), eos or names.get("eos_token")
        for pair in ((BEGIN, END), ("[CLS]", "[SEP]"), (END_OF_TEXT,) * 2):
            if all(backend.token_to_id(token) is not None for token in pair):
                bos, eos = bos or pair[0], eos or pair[1]
                break
        bos = bos or names.get("eos_token")  # else nothing would predict the first word
        with library_errors(f"{path} cannot be used"):
            tokenizer = cls(backend, bos=bos, eos=eos)
            return tokenizer.prepend_bos() if bos else tokenizer

    def prepend_bos(self) -> Self:
        """Let the saved tokenizer prepend BOS, and add nothing else, as outside scorers need.

        Where the model's vocabulary would find BOS and EOS in a text, they are unknown words there.
        """
        if self.unk_id is not None and not self.has_characters:
            boundaries = [token for token in (self.bos, self.eos) if token is not None]
            hide_boundaries(self.backend, boundaries, self.spelling(self.unk_id))
            self._layout = json.loads(self.backend.to_str())
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
        """Return a copy that lower-cases text first."""
        backend = Backend.from_str(self.backend.to_str())
        steps = [] if backend.normalizer is None else [backend.normalizer]
        backend.normalizer = normalizers.Sequence([LOWERCASE, *steps])
        return type(self)(backend, bos=self.bos, eos=self.eos)

    def fingerprint(self) -> str:
        """Return the SHA-256 of all that decides the ids of a text; equal for equal tokenizers."""
        return hashlib.sha256(f"{self.bos}\n{self.eos}\n{self.to_json()}".encode()).hexdigest()

    def encode(self, text: str) -> Ids:
        """Return the ids (n,) int32 of a text, without boundary tokens."""
        if self._characters is not None:
            return self._encode_characters(text)
        with library_errors("cannot read the text", [text]):
            ids = self.backend.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=np.int32)

    def encode_batches(self, texts: Iterable[str]) -> Iterator[Ids]:
        """Yield the ids (n,) int32 of each text, without boundary tokens, on all cores."""
        if self._characters is not None:
            yield from map(self._encode_characters, texts)
            return
        for batch in in_batches(texts):
            with library_errors("cannot read the text", batch):
                encodings = self.backend.encode_batch_fast(batch, add_special_tokens=False)
            for encoding in encodings:
                yield np.array(encoding.ids, dtype=np.int32)

    def decode(self, ids: Sequence[int] | Tokens) -> str:
        """Return the text of ids (n,), without boundary tokens."""
        try:
            ids = [index(token) for token in ids]
        except TypeError as error:
            raise TokenizerError(f"token ids must be integers, got {ids!r:.80}") from error
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
        """Return a token as the backend spells it; "" for an id of none."""
        return str(self.backend.id_to_token(token) or "")

    @property
    def parts_punctuation(self) -> bool:
        """Whether words and the marks around them are tokens apart."""
        splitter = self._layout.get("pre_tokenizer") or {}
        return splitter.get("pattern") == {"Regex": WORD_OR_MARK}

    @property
    def has_characters(self) -> bool:
        """Whether every character is a token."""
        return self._characters is not None

    @property
    def has_words(self) -> bool:
        """Whether tokens are words or marks, never parts of words."""
        return self._layout["model"].get("type") == "WordLevel" and not self.has_characters

    @cached_property
    def begins_word(self) -> Bools | None:
        """Whether each token (V,) ends the word before it; None where words end by themselves.

        They do where tokens are words or marks, or the last token of a word is spelled as such, as
        ``dog</w>`` is. Otherwise a token ends the word before it if white space comes before it in
        decoded text, as with ``Ġdog``, ``▁dog`` and WordPiece's ``dog`` (but not ``##s``), and so
        do BOS and EOS.
        """
        if self.has_words or self._layout["model"].get("end_of_word_suffix"):
            return None

        def decoded(*ids: int) -> str:
            return str(self.backend.decode(ids, skip_special_tokens=False))

        first = next((i for i in range(len(self)) if decoded(i).strip().isalnum()), None)
        if first is None:
            return None
        n_before = len(decoded(first))
        boundaries = (self.bos_id, self.eos_id)
        return np.array(
            [
                i in boundaries or decoded(first, i)[n_before:][:1].isspace()
                for i in range(len(self))
            ]
        )

    @cached_property
    def is_mark(self) -> Bools:
        """Whether each token (V,) is of punctuation alone: no letter, no digit, no boundary.

        A part of a character may be of a letter, unless all that begin with it are marks, as with
        the first two bytes of curly quotes.
        """

        def decoded(*ids: int) -> str:
            return str(self.backend.decode(ids, skip_special_tokens=False)).strip()

        texts = [decoded(token) for token in range(len(self))]
        parts = [token for token, text in enumerate(texts) if text.endswith("\ufffd")]
        last_bytes = [token for token in parts if len(self.spelling(token)) == 1]
        for token in parts:
            wholes = (decoded(token, last) for last in last_bytes)
            texts[token] = "".join(each for each in wholes if "\ufffd" not in each) or "\ufffd"
        special = (self.bos_id, self.eos_id, self.unk_id)
        return np.array(
            [token not in special and is_punctuation(text) for token, text in enumerate(texts)]
        )

    def to_json(self) -> str:
        """Return the standard ``tokenizer.json``."""
        return str(self.backend.to_str(pretty=True))

    @classmethod
    def from_json(cls, text: str, *, bos: str | None, eos: str | None) -> Self:
        """Return the tokenizer that `to_json` wrote."""
        return cls(parsed_backend(text.encode(), "this text"), bos=bos, eos=eos)

    def __getstate__(self) -> dict[str, Any]:
        return {"json": self.to_json(), "bos": self.bos, "eos": self.eos}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(Backend.from_str(state["json"]), bos=state["bos"], eos=state["eos"])  # type: ignore[misc]

    def _known(self, token: str | None, role: str) -> int | None:
        if token is None:
            return None
        number = self.backend.token_to_id(token)
        if number is None:
            raise TokenizerError(f"{role}={token!r} is not in the vocabulary of the tokenizer")
        return int(number)

    def _character_table(self) -> Ids | None:
        """Ids by code point (n,), where every character is a token; otherwise None."""
        splitter = self._layout.get("pre_tokenizer") or {}
        if splitter.get("pattern") != {"Regex": ANY_CHARACTER} or self.unk_id is None:
            return None
        codes = {
            ord(token): i for token, i in self._layout["model"]["vocab"].items() if len(token) == 1
        }
        table = np.full(max(codes, default=0) + 2, self.unk_id, dtype=np.int32)
        table[list(codes)] = list(codes.values())
        return table

    def _encode_characters(self, text: str) -> Ids:
        text = checked_text(text)
        if self.backend.normalizer is not None:
            text = self.backend.normalizer.normalize_str(text)
        codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        return self._characters[np.minimum(codes, len(self._characters) - 1)]


def _boundaries_beside(path: Path) -> dict[str, str]:
    """Return the boundary tokens, by role, that the files beside a ``tokenizer.json`` name."""
    names: dict[str, str] = {}
    for file in map(path.with_name, ("special_tokens_map.json", "tokenizer_config.json")):
        if path.name == "tokenizer.json" and file.is_file():
            with library_errors(f"{file} cannot be read"):
                for role in ("bos_token", "eos_token"):
                    if token := read_json(file).get(role):
                        names[role] = token if isinstance(token, str) else token["content"]
    return names


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
