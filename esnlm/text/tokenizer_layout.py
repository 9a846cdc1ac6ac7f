"""A stranger's ``tokenizer.json``, checked before the library reads it, which trusts its ids."""

from collections.abc import Mapping
from typing import Any

#: Ids of a tokenizer are below this: four million, of three or four bytes each.
MOST_IDS = 1 << 22


class TokenizerError(ValueError):
    """A tokenizer that cannot be made, read or used."""


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
        seen: dict[int, str] = {}
        one, other, number = next(
            (seen[i], token, i) for token, i in tokens.items() if seen.setdefault(i, token) != token
        )
        raise TokenizerError(f"the tokens {one!r} and {other!r} have the same id, {number}")
    unknown = model.get("unk_token")
    if unknown and unknown not in tokens:
        raise TokenizerError(f"its unknown token {unknown!r} is not in the vocabulary")
    _check_merges(model, vocabulary)
    return max(tokens.values(), default=-1) + 1


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
