"""Tokenizers by name: those that are trained on a text, and GPT-2's."""

import hashlib
import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from esnlm.storage.json_files import read_json, read_text
from esnlm.text.backends import (
    BEGIN,
    END,
    END_OF_TEXT,
    LOWERCASE,
    TokenizerError,
    checked_text,
)
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.memory import check_memory

#: SHA-256 of GPT-2's files as published: the vocabulary, and the merges.
GPT2_VOCABULARY = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
GPT2_MERGES = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
_LEAST_BPE = 256 + 2
# What becomes of punctuation, by the name of a tokenizer of words.
_PUNCTUATION: dict[str, Literal["glued", "apart", "auto"]] = {
    "word": "glued", "wordpunct": "apart", "auto": "auto",
}  # fmt: skip


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
            f"bpe needs a size of at least {_LEAST_BPE}, the bytes and two boundary tokens, got"
            f" {name}: write bpe:8000"
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
        return Tokenizer.train_characters(
            sentences, vocab_size=size, lower=lower, boundaries=boundaries
        )
    return Tokenizer.train_words(
        sentences,
        vocab_size=size,
        lower=lower,
        boundaries=boundaries,
        punctuation=_PUNCTUATION[kind],
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
        backend.normalizer = LOWERCASE
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[BEGIN, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    source = map(checked_text, sentences)
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
    if not _are_gpt2s(ordered, merges):
        raise TokenizerError(
            f"{place} does not hold the vocabulary and merges of GPT-2: give its published"
            " files, or the tokenizer.json by its name"
        )
    backend = _byte_level(models.BPE(ordered, merges))
    backend.add_special_tokens([END_OF_TEXT])
    return Tokenizer(backend, bos=END_OF_TEXT, eos=END_OF_TEXT).prepend_bos()


def is_gpt2(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer cuts text in the tokens that GPT-2's does, with the same ids."""
    layout = json.loads(tokenizer.to_json())
    model, splitter = layout["model"], layout.get("pre_tokenizer") or {}
    if model["type"] != "BPE" or layout.get("normalizer") or splitter.get("type") != "ByteLevel":
        return False
    ordered = dict(sorted(model["vocab"].items(), key=lambda entry: entry[1]))
    return not splitter.get("add_prefix_space") and _are_gpt2s(ordered, _pairs(model["merges"]))


def _are_gpt2s(ordered: dict[str, int], merges: Iterable[tuple[str, str]]) -> bool:
    """Whether vocabulary, in the order of the ids, and merges have GPT-2's published bytes."""
    lines = "".join(f"{left} {right}\n" for left, right in merges)
    # ASCII escapes in the one, a line of version above the other.
    contents = json.dumps(ordered).encode(), f"#version: 0.2\n{lines}".encode()
    digests = [hashlib.sha256(data).hexdigest() for data in contents]
    return digests == [GPT2_VOCABULARY, GPT2_MERGES]


def _byte_level(model: models.BPE) -> Backend:
    backend = Backend(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return backend


def _gpt2_files(place: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return vocabulary and merges from ``tokenizer.json`` or from GPT-2's pair of files."""
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
