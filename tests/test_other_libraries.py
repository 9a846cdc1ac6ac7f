"""What users of pandas, scikit-learn, notebooks and tokenizers of their own expect."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import reservoirpy.nodes
from tqdm import auto

from esnlm import LanguageModel, NgramLanguageModel, Reservoir, RidgeReadout, SoftmaxReadout
from esnlm.utils.messages import progress_bar
from esnlm.utils.reservoirpy import ReadoutNode, ReservoirNode

DOCS = ["the boy sees the dog", "the dog sees the boy"] * 5
MODELS = [
    lambda: LanguageModel(Reservoir(20, degree=3, random_state=0), random_state=0),
    NgramLanguageModel,
]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("table", [pd.DataFrame({"text": DOCS, "year": 1990}), {"text": DOCS}])
def test_a_table_is_refused_and_a_column_is_taken(make: Any, table: Any):
    with pytest.raises(ValueError, match=r"a table of text.*: pass one of its columns"):
        make().fit(table)
    assert make().fit(table["text"]).n_tokens_ == make().fit(DOCS).n_tokens_


@pytest.mark.parametrize("make", MODELS)
def test_labels_are_refused(make: Any):
    with pytest.raises(ValueError, match="takes no labels y"):
        make().fit(DOCS, np.arange(10))
    with pytest.raises(ValueError, match="takes no labels y"):
        make().fit(DOCS).score(DOCS, np.arange(10))


def test_labels_are_refused_in_steps():
    with pytest.raises(ValueError, match="takes no labels y"):
        MODELS[0]().partial_fit(DOCS, np.arange(10))


def test_a_model_of_no_arguments_reads_text_as_words():
    model = LanguageModel(random_state=0).fit(DOCS)
    assert (model.reservoir_.n_units, model.reservoir_.topology) == (1000, "offsets")
    assert isinstance(model.readout_, RidgeReadout)
    assert model.perplexity(DOCS) < 2
    assert "boy" in model.tokenizer_.vocabulary
    integers = LanguageModel(Reservoir(10, degree=2)).fit([[0, 1, 2], [0, 2, 1]])
    assert integers.tokenizer_ is None


def test_a_readout_by_its_name():
    softmax = LanguageModel(Reservoir(10, degree=2), "softmax").fit(DOCS)
    assert isinstance(softmax.readout_, SoftmaxReadout)
    with pytest.raises(ValueError, match=r"readout must be .* or ridge, softmax, .* got 'tree'"):
        LanguageModel(Reservoir(10), "tree").fit(DOCS)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
@pytest.mark.parametrize("make", MODELS)
def test_words_in_lists_are_the_text_of_them(make: Any, kind: Any):
    words = [kind(doc.split()) for doc in DOCS]
    model, expected = make().fit(words), make().fit(DOCS)
    assert model.tokenizer_.vocabulary == expected.tokenizer_.vocabulary
    assert model.perplexity(words) == expected.perplexity(DOCS)
    (prefix,) = model.predict_proba([kind(["the", "boy"])])
    np.testing.assert_array_equal(prefix, expected.predict_proba("the boy"))
    several = model.predict_proba(kind(["the", "boy"]))  # strings in a list are a prefix each
    np.testing.assert_allclose(several[1], expected.predict_proba("boy"), atol=1e-6)
    with pytest.raises(ValueError, match="a token must hold no white space"):
        make().fit([["New York", "is"]])


def test_unknown_text_is_scored_with_a_warning():
    model = LanguageModel(Reservoir(20, degree=3, random_state=0), tokenizer="word").fit(DOCS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.perplexity(DOCS)
    for method in (model.score, model.perplexity, model.partial_fit):
        with pytest.warns(UserWarning, match=r"66\.7% of the tokens are not in the vocabulary"):
            method(["a cat saw her cats"] * 3 + ["cat"])
        # BOS, five words, EOS
    with pytest.warns(UserWarning, match="are not in the vocabulary"):
        NgramLanguageModel(order=2, tokenizer="word").fit(DOCS).perplexity(["a cat"])


def test_bars_are_shown_in_notebooks(monkeypatch):
    asked: list[Any] = []

    class Bar:
        def __init__(self, steps: Any, disable: Any, **options: Any) -> None:
            asked.append(disable)

    monkeypatch.setattr(auto, "tqdm", Bar)
    monkeypatch.setattr(auto, "notebook_tqdm", Bar)
    progress_bar(True)
    progress_bar(False)
    assert asked == [False, True]


def test_coefficients_of_ridge_are_there_after_partial_fit():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 4)), rng.integers(3, size=60)
    assert not hasattr(RidgeReadout(), "coef_")
    readout = RidgeReadout().partial_fit(X[:30], y[:30], classes=[0, 1, 2])
    for rows in (30, 60):
        whole = RidgeReadout().fit(X[:rows], y[:rows])
        for name in ("coef_", "intercept_", "alpha_"):
            np.testing.assert_allclose(getattr(readout, name), getattr(whole, name), rtol=1e-9)
        readout.partial_fit(X[30:], y[30:])


def drawn_once() -> Reservoir:
    return Reservoir(20, degree=3, random_state=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: drawn_once() >> RidgeReadout() >> reservoirpy.nodes.Output(),
        lambda: drawn_once() >> (RidgeReadout() >> reservoirpy.nodes.Output()),
        lambda: ReservoirNode(drawn_once()) >> ReadoutNode(RidgeReadout()),
    ],
)
def test_labels_of_one_axis_wherever_the_readout_stands_in_a_reservoirpy_model(make: Any):
    tokens = np.random.default_rng(0).integers(0, 4, 100)
    rows, labels = np.eye(4)[tokens[:-1]], tokens[1:]
    expected = make().fit(rows, np.eye(4)[labels]).run(rows)
    np.testing.assert_allclose(make().fit(rows, labels).run(rows), expected)
