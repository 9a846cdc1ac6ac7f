"""Documents of callers: texts, and what is no text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import DOCS, ngrams

from esnlm import LanguageModel, NgramLanguageModel
from esnlm.text.boundaries import as_documents


@pytest.mark.parametrize("name", ["corpus", "corpus.txt", "none.txt.gz", Path("x"), ["corpus"]])
def test_the_name_of_a_file_is_no_text(name: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("corpus", "corpus.txt"):
        Path(file).write_text("the boy\n")
    model = ngrams()
    methods = (
        NgramLanguageModel(order=2).fit, LanguageModel().fit, model.score, model.perplexity,
        model.log_likelihood, model.surprisal, model.tokenize,
    )  # fmt: skip
    for method in methods:
        with pytest.raises(ValueError, match="docs must be texts, got the name of a file"):
            method(name)


@pytest.mark.parametrize("docs", [b"the boy", [b"the boy"], (b"the boy",), np.array([b"the boy"])])
def test_bytes_are_no_text(docs: Any) -> None:
    for method in (NgramLanguageModel(order=2, tokenizer="word").fit, ngrams().perplexity):
        with pytest.raises(ValueError, match="docs must be texts, got bytes, b'the boy': decode"):
            method(docs)


@pytest.mark.parametrize("text", ["Hello.", "a/b", "a\0b", "x" * 5000, "corpus.txt is a file"])
def test_a_word_with_a_stop_is_a_text(text: str) -> None:
    assert as_documents(text) == [text]
    assert as_documents(DOCS) is DOCS


def test_an_array_of_no_axis_is_what_it_holds() -> None:
    model = ngrams()
    for method in (model.predict_proba, model.next_words):
        np.testing.assert_equal(method(np.array("the boy")), method("the boy"))
        for number in (3, np.int64(3), np.array(3)):
            with pytest.raises(ValueError, match=r"must be text or a 1-D array .* of shape \(\)"):
                method(number)


def test_lists_of_several_lengths_are_no_document() -> None:
    model, ragged = ngrams(), [[1, 2], [3]]
    for refused in (
        lambda: model.next_words(ragged),
        lambda: model.predict_proba([ragged]),
        lambda: model.score([ragged]),
    ):
        with pytest.raises(ValueError, match=r"1-D array of integers, got object of shape \(2,\)"):
            refused()
    assert len(model.predict_proba(ragged)) == 2  # two prefixes


def test_a_byte_order_mark_is_no_text() -> None:
    model = ngrams()
    for marked in ("\ufeffthe boy sees", ["\ufeffthe", "boy", "sees"]):
        tokens = model.tokenize([marked]).tokens.tolist()
        assert tokens == model.tokenize(["the boy sees"]).tokens.tolist()
    table = model.surprisal("\ufeffthe boy sees")
    assert table.equals(model.surprisal("the boy sees"))
    vocabularies = [
        LanguageModel(random_state=0).fit([mark + DOCS[0], *DOCS[1:]]).tokenizer_.vocabulary
        for mark in ("\ufeff", "")
    ]
    assert vocabularies[0] == vocabularies[1]
