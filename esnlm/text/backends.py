"""Tokenizers of Hugging Face's library: of words and characters, and strangers' files, checked."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from unicodedata import category

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from esnlm.storage.json_files import parsed_json

UNKNOWN = "<unk>"
BEGIN = "<s>"
END = "</s>"
END_OF_TEXT = "<|endoftext|>"
ANY_CHARACTER = r"[\s\S]"
# A word, with what stands inside it; a name in brackets, such as <unk>; or one mark.
WORD_OR_MARK = r"<\w+>|\w+(?:[.,'\u2019-]\w+)*|[^\w\s]"
# One engine counts and cuts: to that of `re` a combining mark is no part of a word.
_WORDS_AND_MARKS = pre_tokenizers.Split(Regex(WORD_OR_MARK), "removed", invert=True)
_WHITE_SPACE = pre_tokenizers.WhitespaceSplit()
# The library has one small letter for each capital, and Greek two at the end of a word.
LOWERCASE = normalizers.Sequence(
    [normalizers.Lowercase(), normalizers.Replace(Regex(r"\B\u03c3\b"), "\u03c2")]
)
# A Gothic letter: no vocabulary but one of bytes is likely to have it.
_RARE = "\U00010348"
_SEPARATOR = re.compile("[\x1c-\x1f]")
# Comma, colon, semicolon, exclamation and question mark, those of Arabic and of Chinese too.
_GLUED = ",:;!?\u060c\u061b\u061f\uff0c\uff1a\uff1b\uff01\uff1f\u3001"
#: Share of words that end in a glued mark up to which text counts as cut up already.
_FEW_GLUED = 0.01
#: Ids of a tokenizer are below this: four million, of three or four bytes each.
MOST_IDS = 1 << 22


class TokenizerError(ValueError):
    """A tokenizer that cannot be made, read or used."""


def word_level(
    texts: Iterable[str], size: int | None, *, lower: bool, boundaries: bool, kind: str
) -> Backend:
    """Return the tokenizer of a text and a kind: "char", "word", "word apart" or "word auto"."""
    special = [UNKNOWN, BEGIN, END] if boundaries else [UNKNOWN]
    if size is not None and size <= len(special):
        raise TokenizerError(
            f"vocab_size must be larger than the {len(special)} special tokens, got {size}"
        )
    counts: Counter[str] = Counter()
    for text in map(checked_text, texts):
        text = LOWERCASE.normalize_str(text) if lower else text
        counts.update(text if kind == "char" else words_of(text))
    if not counts:
        raise TokenizerError("the training text is empty: a vocabulary needs at least a word")
    for mark in special[1:]:  # those around a line are no words, and not to be cut in pieces
        del counts[mark]
    if kind == "word apart" or (kind == "word auto" and is_plain(counts)):
        kind, counts = "word apart", _pieces(counts)
    ranked = sorted(w for w in counts if w not in special)
    if size is not None or kind != "char":  # all characters read better by alphabet
        ranked.sort(key=lambda w: -counts[w])
    words = [*special, *ranked][:size]
    backend = Backend(models.WordLevel({word: i for i, word in enumerate(words)}, UNKNOWN))
    if kind == "char":
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(ANY_CHARACTER), "isolated")
        backend.decoder = decoders.Fuse()
    elif kind == "word apart":
        backend.pre_tokenizer = _WORDS_AND_MARKS
        # Spaces between words, none where print has none.
        tight = [decoders.Replace(f" {mark}", mark) for mark in ",.:;!?)]"]
        backend.decoder = decoders.Sequence([decoders.WordPiece("##", False), *tight])
    else:
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if lower:
        backend.normalizer = LOWERCASE
    if boundaries:
        backend.add_special_tokens([BEGIN, END])
    return backend


def is_plain(counts: Mapping[str, int]) -> bool:
    """Whether marks hang on the words (of given counts), as in prose that nobody has cut up.

    >>> is_plain({"the": 9, "boy,": 1}), is_plain({"the": 9, ",": 1}), is_plain({"U.S.": 1})
    (True, False, False)
    """
    glued = sum(n for word, n in counts.items() if len(word) > 1 and word[-1] in _GLUED)
    return glued > _FEW_GLUED * sum(counts.values())


def _pieces(counts: Mapping[str, int]) -> Counter[str]:
    """Return counts of words, and of the marks around them, cut as `word_level` cuts text."""
    pieces = Counter[str]()
    for word, n in counts.items():
        for piece, _ in _WORDS_AND_MARKS.pre_tokenize_str(word):
            pieces[piece] += n
    return pieces


def adding_nothing(layout: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the step after tokenizing that adds no tokens, if there is one: it trims offsets."""
    post_processor = layout.get("post_processor") or {}
    steps = post_processor.get("processors", [post_processor])
    return next((step for step in steps if step.get("type") == "ByteLevel"), None)


def hide_boundaries(backend: Backend, boundaries: Iterable[str], unknown: str) -> None:
    """Let boundary tokens that stand in a text be the unknown token.

    Pairs of bytes never make them. Words, and pieces that are looked up whole, do; words between
    white space only where they are nothing else, as ``<s>`` is within ``<s>struck</s>``.
    """
    layout = json.loads(backend.to_str())
    normalizer, splitter = layout["normalizer"] or {}, layout["pre_tokenizer"] or {}
    steps = normalizer.get("normalizers", [normalizer])
    hidden = [value for step in steps for value in step.get("pattern", {}).values()]
    at_spaces = splitter.get("type") == "WhitespaceSplit"
    new = []
    for token in sorted(boundaries):
        whole = rf"(?<!\S){re.escape(token)}(?!\S)"
        if not {token, whole} & {*hidden}:
            new.append(normalizers.Replace(Regex(whole) if at_spaces else token, unknown))
    if new and not isinstance(backend.model, models.BPE):
        before = [] if backend.normalizer is None else [backend.normalizer]
        backend.normalizer = normalizers.Sequence([*before, *new])


def parsed_backend(data: bytes, name: str) -> Backend:
    """Return the library's tokenizer, without padding and truncation.

    Raise TokenizerError where it is none.
    """
    with library_errors(f"{name} is not a tokenizer.json"):
        n_ids(parsed_json(data))
        backend = Backend.from_str(data.decode("utf-8-sig"))
        backend.no_padding()
        backend.no_truncation()
        return backend


def drops_characters(backend: Backend) -> bool:
    """Return whether characters outside the vocabulary vanish, as in pairs without unk_token."""
    if not isinstance(backend.model, models.BPE):
        return False
    return not backend.encode(_RARE, add_special_tokens=False).ids


def words_of(text: str) -> list[str]:
    """Return what the library finds between white space.

    To `str.split` the separators U+001C to U+001F are white space, to Unicode they are not.

    >>> words_of("a\\u2028b c\\x1cd")
    ['a', 'b', 'c\\x1cd']
    """
    if _SEPARATOR.search(text):
        return [word for word, _ in _WHITE_SPACE.pre_tokenize_str(text)]
    return text.split()


@cache
def is_of_word(character: str) -> bool:
    """Return whether a character is a letter, a digit, or a vowel sign or accent on one.

    To Python's ``re`` and ``str.isalnum`` the signs of Hindi, Thai or Hebrew are no letters. The
    selectors that colour an emoji are marks of the same kind, but never of a word.

    >>> [is_of_word(character) for character in "a\u0940\u0301_,\ufe0f"]
    [True, True, True, False, False, False]
    """
    is_sign = category(character) in ("Mn", "Mc") and not "\ufe00" <= character <= "\ufe0f"
    return character.isalnum() or is_sign


def is_punctuation(text: str) -> bool:
    """Return whether a text has no letter, and no part of a character that may be one.

    >>> is_punctuation(" ..."), is_punctuation("it's"), is_punctuation(" ")
    (True, False, False)
    """
    text = text.strip()
    return bool(text) and not any(is_of_word(c) or c == "\ufffd" for c in text)


def checked_text(text: str) -> str:
    """Return a text; raise TokenizerError for half a character, as cut emojis in JSON have."""
    if not isinstance(text, str):
        raise TokenizerError(f"a text must be a string, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = error.start
        raise TokenizerError(
            f"the text holds half a character, U+{ord(text[place]):04X}, at place {place}:"
            f" {text[max(0, place - 20) : place + 20]!r}; leave it out"
        ) from None
    return text


@contextmanager
def library_errors(what: str, texts: Iterable[str] = ()) -> Iterator[None]:
    """Let any error of the block, which reads ``texts``, begin with ``what`` is wrong.

    The library raises bare Exception, and where it panics what is none.
    """
    try:
        yield
    except (MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        for text in texts:
            checked_text(text)
        raise TokenizerError(
            f"{what}: {error}; expected a whole tokenizer.json, as save_pretrained of transformers'"
            " AutoTokenizer writes it"
        ) from error


def n_ids(layout: Any) -> int:
    """Return the largest id of a ``tokenizer.json`` and one, gaps among them.

    Raises TokenizerError where an id stands for two tokens, or is `MOST_IDS` or more, and where
    the unknown token or a part of a merge is not in the vocabulary.

    >>> n_ids({"model": {"vocab": {"<unk>": 0, "a": 7}, "unk_token": "<unk>"}})
    8
    """
    model = layout.get("model") if isinstance(layout, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise TokenizerError("it has no model with a vocabulary")
    vocabulary = _vocabulary(model["vocab"])
    tokens = vocabulary | _added(layout.get("added_tokens") or [])
    for token, number in tokens.items():
        if type(number) is not int or not 0 <= number < MOST_IDS:
            raise TokenizerError(f"the id of {token!r} must lie in [0, {MOST_IDS}), got {number!r}")
        if vocabulary.get(token, number) != number:
            raise TokenizerError(f"{token!r} has two ids, {vocabulary[token]} and {number}")
    if len(set(tokens.values())) < len(tokens):
        by_number: dict[int, str] = {}
        one, other, number = next(
            (by_number[i], token, i)
            for token, i in tokens.items()
            if by_number.setdefault(i, token) != token
        )
        raise TokenizerError(f"the tokens {one!r} and {other!r} have the same id, {number}")
    unknown = model.get("unk_token")
    if unknown and unknown not in tokens:
        raise TokenizerError(f"its unknown token {unknown!r} is not in the vocabulary")
    number = model.get("unk_id")
    if model.get("type") == "Unigram" and number is None and not model.get("byte_fallback"):
        raise TokenizerError(
            "its model has no unk_id, so text with an unknown character cannot be read: set it to"
            " the place of the unknown token in the vocabulary"
        )
    if number is not None and number not in range(len(vocabulary)):
        raise TokenizerError(f"its unknown token {number!r} is not in the vocabulary")
    _check_merges(model, vocabulary)
    return max(tokens.values(), default=-1) + 1


def unknown_id(layout: Any) -> int | None:
    """Return the id of the unknown token, which Unigram models name by number; None without one."""
    model = layout["model"]
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    tokens = _vocabulary(model["vocab"]) | _added(layout.get("added_tokens") or [])
    return tokens.get(model.get("unk_token"))


def _vocabulary(vocab: Any) -> dict[str, Any]:
    """Token -> id; a list has tokens with scores, in the order of their ids."""
    if isinstance(vocab, dict):
        return vocab
    pairs = [pair for pair in vocab if isinstance(pair, list) and len(pair) == 2]
    if len(pairs) < len(vocab) or not all(isinstance(token, str) for token, _ in pairs):
        raise TokenizerError("its vocabulary must be pairs of a token and a score")
    return {token: i for i, (token, _) in enumerate(pairs)}


def _added(tokens: Any) -> dict[str, Any]:
    if not isinstance(tokens, list) or not all(
        isinstance(token, dict) and isinstance(token.get("content"), str) for token in tokens
    ):
        raise TokenizerError("its added tokens must be objects with a content")
    return {token["content"]: token.get("id") for token in tokens}


def _check_merges(model: Mapping[str, Any], vocabulary: Mapping[str, Any]) -> None:
    """Raise TokenizerError unless merges are pairs in the vocabulary, as are their results."""
    merges = model.get("merges") or []
    skipped = len(model.get("continuing_subword_prefix") or "")
    if not isinstance(merges, list):
        raise TokenizerError("its merges must be a list")
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2:
            raise TokenizerError(f"a merge must be of two parts, got {merge!r}")
        left, right = parts
        for token in (left, right, f"{left}{right[skipped:]}" if isinstance(right, str) else ""):
            if not isinstance(token, str) or token not in vocabulary:
                raise TokenizerError(f"the merge {merge!r} needs {token!r}, not in the vocabulary")
