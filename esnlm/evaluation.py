"""How well a model predicts text, in units that compare across tokenizers."""

import csv
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.corpus import TextCorpus
from esnlm.language_model import LanguageModel

COLUMNS = (
    "model",
    "text",
    "n_tokens",
    "n_words",
    "n_characters",
    "nll_per_token",
    "perplexity",
    "nll_per_word",
    "bits_per_character",
    "unknown_share",
)


def evaluate_texts(model: LanguageModel, paths: Sequence[str], split: str) -> list[dict[str, Any]]:
    """One row of `evaluate` for each path, and one for all where there are several."""
    rows = [{"text": path} | evaluate(model, TextCorpus(path, split)) for path in paths]
    if len(paths) > 1:
        rows.append({"text": "all"} | _together(rows))
    return rows


def evaluate(model: LanguageModel, docs: TextCorpus) -> dict[str, Any]:
    """Measures of text under a model with a tokenizer.

    ``nll_per_token`` and ``nll_per_word`` are in nats, ``bits_per_character`` in bits: the
    negative log-likelihood of all predicted tokens over the number of predicted tokens, of
    white-space-separated words, and of characters, line ends among them. ``unknown_share`` is the
    part of predicted tokens that are the unknown token: the tokenizers compare fairly only where
    it is small.
    """
    counted = _Counted(docs)
    stream = model.tokenize(counted)
    nll = -float(np.sum([scores.sum() for scores in model.log_likelihood(stream)]))
    predicted = stream.tokens[stream.predicted()]
    unknown = None if model.tokenizer_ is None else model.tokenizer_.unk_id
    n_unknown = 0 if unknown is None else int(np.count_nonzero(predicted == unknown))
    return _measures(nll, len(predicted), counted.n_words, counted.n_characters, n_unknown)


def check_csv(path: Path) -> None:
    """Refuse a file that rows could not be written to, before the work is done.

    Raises
    ------
    ValueError
        It is a folder, or the folder that would hold it is missing or cannot be written.
    """
    if path.is_dir():
        raise ValueError(f"cannot write the CSV {path}: it is a folder, name a file")
    try:
        handle, probe = tempfile.mkstemp(dir=path.parent)
        os.close(handle)
        os.unlink(probe)
    except OSError as error:
        raise ValueError(
            f"cannot write the CSV {path}: {error.strerror}; name a file in a folder that can be"
            " written"
        ) from error


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of `COLUMNS` as a CSV that appears whole or not at all."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        Path(name).chmod(0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class _Counted:
    """Documents, counting words and characters as they pass."""

    def __init__(self, docs: TextCorpus) -> None:
        self.docs = docs
        self.n_words = self.n_characters = 0

    def __iter__(self) -> Iterator[str]:
        self.n_words = self.n_characters = 0
        # A line end was cut off each document that is not a whole file.
        cut = 0 if self.docs.split == "file" else 1
        for doc in self.docs:
            self.n_words += len(doc.split())
            self.n_characters += len(doc) + cut
            yield doc


def _together(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    n_tokens, n_words, n_characters = (
        sum(row[name] for row in rows) for name in ("n_tokens", "n_words", "n_characters")
    )
    nll = sum(row["nll_per_token"] * row["n_tokens"] for row in rows)
    n_unknown = sum(row["unknown_share"] * row["n_tokens"] for row in rows)
    return _measures(nll, n_tokens, n_words, n_characters, n_unknown)


def _measures(
    nll: float, n_tokens: int, n_words: int, n_characters: int, n_unknown: float
) -> dict[str, Any]:
    per_token = nll / n_tokens if n_tokens else math.nan
    return {
        "n_tokens": n_tokens,
        "n_words": n_words,
        "n_characters": n_characters,
        "nll_per_token": per_token,
        "perplexity": math.exp(per_token),
        "nll_per_word": nll / n_words if n_words else math.nan,
        "bits_per_character": nll / n_characters / math.log(2),
        "unknown_share": n_unknown / n_tokens if n_tokens else math.nan,
    }
