"""What every language model does: prefixes, next words, tables, words in lists."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_models import MODELS, PREFIXES, ngrams, of_bytes, reservoir_model

from esnlm import LanguageModel, NgramLanguageModel, Reservoir


@pytest.mark.parametrize("make", MODELS)
def test_a_list_of_prefixes_has_a_row_for_each(make):
    model = make()
    several = model.predict_proba(PREFIXES)
    assert several.shape == (len(PREFIXES), model.n_tokens_)
    for prefix, row in zip(PREFIXES, several, strict=True):
        np.testing.assert_allclose(row, model.predict_proba(prefix), atol=1e-6)
    np.testing.assert_array_equal(several, model.predict_proba(pd.Series(PREFIXES)))
    ids = [[1, 3], [1, 4, 5], np.array([], dtype=int)]
    rows = model.predict_proba(ids)
    for one, row in zip(ids, rows, strict=True):
        np.testing.assert_allclose(row, model.predict_proba(one), atol=1e-6)
    assert model.predict_proba(np.array([[1, 3], [1, 4]])).shape == (2, model.n_tokens_)
    assert model.predict_proba([1, 3]).shape == (model.n_tokens_,)
    assert model.predict_proba([]).shape == (model.n_tokens_,)


def test_prefixes_that_are_wrong_are_refused():
    model = reservoir_model()
    with pytest.raises(ValueError, match="1-D array of integers"):
        model.predict_proba([[0.5]])
    with pytest.raises(ValueError, match=r"got text, expected integer arrays"):
        NgramLanguageModel(order=2).fit([[0, 1, 2]]).predict_proba(["the"])
    with pytest.raises(ValueError, match="k must"):
        model.next_words("the", k=0)


@pytest.mark.parametrize("make", MODELS)
def test_next_words_are_the_most_probable(make):
    model = make()
    found = model.next_words("the boy", 4)
    expected = model.predict_proba("the boy")
    assert [word for word, _ in found] == [
        model.tokenizer_.vocabulary[i] for i in np.argsort(-expected, kind="stable")[:4]
    ]
    assert [p for _, p in found] == pytest.approx(sorted(expected)[:-5:-1], abs=1e-6)
    everything = model.next_words("the boy", k=1000)
    assert sum(p for _, p in everything) == pytest.approx(1, abs=1e-5)
    assert pd.DataFrame(found).columns.tolist() == ["word", "probability"]


def test_next_words_without_tokenizer_are_numbers_and_sub_words_are_text():
    model = NgramLanguageModel(order=2).fit([[0, 1, 2, 1, 2]])
    assert model.next_words([1], k=1)[0].word == 2
    words = [word for word, _ in ngrams(tokenizer=of_bytes()).next_words("the", k=300)]
    assert words[0] == " "
    assert "</s>" in words
    assert "Ã" in words  # the first byte of two is no text


SENTENCES = ["the boy sees the dog", "the dog sees the boy"] * 5


UNFITTED = [
    lambda: LanguageModel(Reservoir(20, degree=3, random_state=0), random_state=0),
    NgramLanguageModel,
]


@pytest.mark.parametrize("make", UNFITTED)
@pytest.mark.parametrize("kind", [pd.DataFrame, dict])
def test_a_table_is_refused_and_a_column_is_taken(make: Any, kind: Any):
    table = kind({"text": SENTENCES})
    with pytest.raises(ValueError, match=r"a table of text.*: pass one of its columns"):
        make().fit(table)
    assert make().fit(table["text"]).n_tokens_ == make().fit(SENTENCES).n_tokens_


@pytest.mark.parametrize("make", UNFITTED)
def test_labels_are_refused(make: Any):
    with pytest.raises(ValueError, match="takes no labels y"):
        make().fit(SENTENCES, np.arange(10))
    with pytest.raises(ValueError, match="takes no labels y"):
        make().fit(SENTENCES).score(SENTENCES, np.arange(10))


@pytest.mark.parametrize("kind", [list, tuple, np.array])
@pytest.mark.parametrize("make", UNFITTED)
def test_words_in_lists_are_the_text_of_them(make: Any, kind: Any):
    words = [kind(doc.split()) for doc in SENTENCES]
    model, expected = make().fit(words), make().fit(SENTENCES)
    assert model.tokenizer_.vocabulary == expected.tokenizer_.vocabulary
    assert model.perplexity(words) == expected.perplexity(SENTENCES)
    (prefix,) = model.predict_proba([kind(["the", "boy"])])
    np.testing.assert_array_equal(prefix, expected.predict_proba("the boy"))
    several = model.predict_proba(kind(["the", "boy"]))  # strings in a list are a prefix each
    np.testing.assert_allclose(several[1], expected.predict_proba("boy"), atol=1e-6)
    with pytest.raises(ValueError, match=r"must hold words.*join sentences by line ends"):
        make().fit([["New York", "is"]])
