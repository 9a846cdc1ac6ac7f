"""Classifiers of scikit-learn as readouts of a language model."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from esnlm import ClassifierReadout, LanguageModel, Reservoir, SoftmaxReadout
from esnlm.utils import memory

V = 8
RNG = np.random.default_rng(0)
TOKENS = np.cumsum(RNG.integers(1, 3, 900)) % V


def model(readout: Any, **options: Any) -> LanguageModel:
    reservoir = Reservoir(20, random_state=0)
    return LanguageModel(reservoir, readout, reset="never", n_tokens=V, **options)


@parametrize_with_checks([ClassifierReadout(GaussianNB())])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(estimator)


@pytest.mark.parametrize(
    "classifier",
    [
        LogisticRegression(C=0.1),
        DecisionTreeClassifier(max_depth=4, random_state=0),
        MLPClassifier(20, max_iter=2000, alpha=10.0, tol=1e-3, solver="lbfgs", random_state=0),
    ],
)
def test_probabilities_are_those_of_the_classifier_on_the_states(classifier: Any) -> None:
    readout = ClassifierReadout(classifier, share=0.0)
    fitted = model(readout, n_streams=1).fit([TOKENS])
    states = fitted.reservoir_.transform(TOKENS)
    alone = classifier.fit(states[:-1], TOKENS[1:])
    expected = alone.predict_proba(states[-1:])[0]
    np.testing.assert_allclose(fitted.predict_proba(TOKENS), expected, rtol=1e-3, atol=1e-5)
    assert fitted.perplexity([TOKENS]) < 3


def test_a_classifier_is_a_readout_without_more_ado() -> None:
    fitted = model(LogisticRegression(C=1.0)).fit([TOKENS])
    softmax = model(SoftmaxReadout(1.0)).fit([TOKENS])
    assert fitted.score([TOKENS]) == pytest.approx(softmax.score([TOKENS]), abs=0.01)
    assert fitted.n_parameters_ == softmax.n_parameters_
    assert fitted.get_params()["readout__C"] == 1.0


def test_tokens_that_never_occurred_are_possible() -> None:
    some = np.where(TOKENS == 5, 4, TOKENS)
    fitted = model(DecisionTreeClassifier(random_state=0)).fit([some])
    P = fitted.predict_proba(some[:7])
    assert P.sum() == pytest.approx(1)
    assert P[5] == pytest.approx(1e-3 * 0.5 / (len(some) - 1 + V / 2), rel=1e-4)
    assert np.isfinite(fitted.perplexity([TOKENS]))


def test_chunks_give_what_fit_gives() -> None:
    X, y = RNG.normal(size=(90, 4)), RNG.integers(0, 3, 90)
    whole = ClassifierReadout(LogisticRegression()).fit(X, y)
    parts = ClassifierReadout(LogisticRegression())
    for at in range(0, 90, 30):
        parts.partial_fit(X[at : at + 30], y[at : at + 30], classes=[0, 1, 2])
        assert parts.predict_proba(X).shape == (90, 3)
    np.testing.assert_array_equal(parts.predict_proba(X), whole.predict_proba(X))


def test_held_out_text_chooses_how_much_frequencies_count() -> None:
    tree = DecisionTreeClassifier(random_state=0)  # certain of whatever it saw
    noise = RNG.integers(0, V, 600)
    fitted = model(tree).fit([noise[:400]], held_out=[noise[400:]])
    assert fitted.readout_.share_ > 0.5
    assert fitted.score([noise[400:]]) > model(tree).fit([noise[:400]]).score([noise[400:]])
    again = model(ClassifierReadout(tree, share=fitted.readout_.share_)).fit([noise[:400]])
    assert again.score([noise[400:]]) == pytest.approx(fitted.score([noise[400:]]))


def test_folders_cannot_hold_it_but_pickles_can(tmp_path: Path) -> None:
    fitted = model(GaussianNB()).fit([TOKENS])
    with pytest.raises(ValueError, match="cannot hold a GaussianNB: keep the model with joblib"):
        fitted.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba([1, 2]), fitted.predict_proba([1, 2]))


@pytest.mark.parametrize("readout", [Perceptron(), "tree", ClassifierReadout(Perceptron())])
def test_what_gives_no_probabilities_is_refused(readout: Any) -> None:
    with pytest.raises(ValueError, match="predict_proba, got"):
        model(readout).fit([TOKENS])


def test_more_rows_than_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 100_000)
    with pytest.raises(MemoryError, match=r"899 rows of 20 states for a classifier.*give fewer"):
        model(GaussianNB()).fit([TOKENS])
