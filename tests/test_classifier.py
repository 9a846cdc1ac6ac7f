"""Classifiers of scikit-learn as readouts of a language model."""

import pickle
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from esnlm import ClassifierReadout, LanguageModel, Reservoir, SoftmaxReadout
from esnlm.readouts.sklearn.adam import pass_function
from esnlm.readouts.sklearn.classifier import stopped_early
from esnlm.utils import memory

V = 8
RNG = np.random.default_rng(0)
TOKENS = np.cumsum(RNG.integers(1, 3, 900)) % V


def model(readout: Any, **options: Any) -> LanguageModel:
    reservoir = Reservoir(20, random_state=0)
    return LanguageModel(reservoir, readout, reset="never", n_tokens=V, **options)


def test_one_token_alone_is_certain(tmp_path: Path) -> None:
    for classifier in SAVED:
        fitted = model(classifier).fit([np.full(9, 2)])
        fitted.save(tmp_path / "model")
        loaded = LanguageModel.load(tmp_path / "model")
        for each in (fitted, loaded):
            assert each.predict_proba([2])[2] == pytest.approx(1)
            assert each.score([TOKENS]) == fitted.score([TOKENS])


@pytest.mark.parametrize(
    "classifier",
    [
        LogisticRegression(C=0.1),
        DecisionTreeClassifier(max_depth=4, random_state=0),
        MLPClassifier(20, max_iter=2000, alpha=10.0, tol=1e-3, solver="lbfgs", random_state=0),
    ],
)
def test_probabilities_are_those_of_the_classifier_on_the_states(classifier: Any) -> None:
    readout = ClassifierReadout(classifier=classifier, share=0.0)
    fitted = model(readout, n_streams=1).fit([TOKENS])
    states = fitted.reservoir_.transform(TOKENS)
    alone = classifier.fit(states[:-1], TOKENS[1:])
    expected = alone.predict_proba(states[-1:])[0]
    np.testing.assert_allclose(fitted.predict_proba(TOKENS), expected, rtol=1e-3, atol=1e-5)
    assert fitted.perplexity([TOKENS]) < 3


def test_a_classifier_is_a_readout_without_more_ado() -> None:
    fitted = model(LogisticRegression(C=1.0)).fit([TOKENS])
    softmax = model(SoftmaxReadout(alpha=1.0)).fit([TOKENS])
    assert fitted.score([TOKENS]) == pytest.approx(softmax.score([TOKENS]), abs=0.01)
    assert fitted.n_parameters_ == softmax.n_parameters_
    assert fitted.get_params()["readout__C"] == 1.0


def test_an_unfitted_classifier_has_no_number_of_parameters_yet() -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        assert ClassifierReadout(classifier=LogisticRegression()).n_parameters_


def test_tokens_that_never_occurred_are_possible() -> None:
    some = np.where(TOKENS == 5, 4, TOKENS)
    fitted = model(DecisionTreeClassifier(random_state=0)).fit([some])
    P = fitted.predict_proba(some[:7])
    assert P.sum() == pytest.approx(1)
    assert P[5] == pytest.approx(1e-6 * 0.5 / (len(some) - 1 + V / 2), rel=1e-4)
    assert np.isfinite(fitted.perplexity([TOKENS]))


def test_chunks_give_what_fit_gives() -> None:
    X, y = RNG.normal(size=(90, 4)), RNG.integers(0, 3, 90)
    whole = ClassifierReadout(classifier=LogisticRegression()).fit(X, y)
    parts = ClassifierReadout(classifier=LogisticRegression())
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
    again = model(ClassifierReadout(classifier=tree, share=fitted.readout_.share_)).fit(
        [noise[:400]]
    )
    assert again.score([noise[400:]]) == pytest.approx(fitted.score([noise[400:]]))


def test_held_out_rows_must_be_some_and_come_again() -> None:
    readout, block = ClassifierReadout(classifier=LogisticRegression()), (np.eye(3), np.arange(3))
    with pytest.raises(ValueError, match="held_out has no rows"):
        readout.fit_blocks([block], np.arange(3), held_out=[])
    with pytest.raises(TypeError, match="got a one-shot iterator for blocks or held_out"):
        readout.fit_blocks([block], np.arange(3), held_out=iter([block]))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_held_out_rows_stop_a_network_at_its_best_and_lower_its_rate() -> None:
    noise = RNG.integers(0, 3, 900)  # likely to overfit
    docs, held = [np.stack([TOKENS, noise]).T.ravel()[:500]], [TOKENS[500:]]
    network = MLPClassifier(60, learning_rate_init=0.01, max_iter=60, random_state=0)
    long = model(ClassifierReadout(classifier=network)).fit(docs, held_out=held)
    stopped = model(ClassifierReadout(classifier=network, patience=2)).fit(docs, held_out=held)
    assert stopped.score(held) > long.score(held)
    again = model(ClassifierReadout(classifier=network, patience=2)).fit(docs, held_out=held)
    assert again.score(held) == stopped.score(held)
    assert stopped.readout_.classifier_.get_params() == network.get_params()
    assert network.get_params()["max_iter"] == 60
    with pytest.raises(NotFittedError):
        network.predict_proba(np.zeros((1, 20)))
    alone = model(ClassifierReadout(classifier=network, patience=2)).fit(docs)  # nothing held out
    assert alone.score(held) == model(ClassifierReadout(classifier=network)).fit(docs).score(held)


def test_passes_are_bounded_and_the_best_is_kept() -> None:
    scores, seen = iter([-3.0, -2.0, -2.5, -2.4, -1.0, -1.5, -1.2, -4.0, -5.0]), []

    def score(network: Any) -> float:
        seen.append((round(network.learning_rate_init, 6), network.coefs_[0].copy()))
        return next(scores)

    X, y = RNG.normal(size=(50, 3)), np.arange(50) % 3
    network = MLPClassifier(4, learning_rate_init=0.1, random_state=0)
    kept = stopped_early(clone(network), X, y, score, patience=2)
    assert [rate for rate, _ in seen] == [0.1] * 4 + [0.03] * 3 + [0.009] * 2
    np.testing.assert_array_equal(kept.coefs_[0], seen[4][1])
    fewer = stopped_early(clone(network).set_params(max_iter=3), X, y, lambda _: 0.0, patience=9)
    assert fewer.n_iter_ == 1  # counts those of the first pass alone


@pytest.mark.parametrize(
    "classifier",
    [GaussianNB(), MLPClassifier(solver="lbfgs"), MLPClassifier(early_stopping=True)],
)
def test_patience_wants_a_network(classifier: Any) -> None:
    with pytest.raises(ValueError, match="patience is for an MLPClassifier of solver adam or sgd"):
        ClassifierReadout(classifier=classifier, patience=2).fit(np.eye(4), np.arange(4))


SAVED = [
    MLPClassifier((9, 7), max_iter=30, random_state=0),
    MLPClassifier(6, activation="tanh", solver="lbfgs", max_iter=15, random_state=0),
    LogisticRegression(C=0.5),
]


@pytest.mark.parametrize("classifier", SAVED, ids=repr)
@pytest.mark.parametrize("n_classes", [2, 7])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_network_is_saved_as_arrays_and_loads(
    classifier: Any, n_classes: int, tmp_path: Path
) -> None:
    fitted = model(classifier).fit([TOKENS % n_classes])  # not every token occurs
    fitted.save(tmp_path / "model")
    assert {path.suffix for path in (tmp_path / "model").iterdir()} == {".json", ".safetensors"}
    loaded = LanguageModel.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.score([TOKENS]), fitted.score([TOKENS]))
    assert loaded.n_parameters_ == fitted.n_parameters_
    states = fitted.reservoir_.transform(TOKENS)
    parts = [each.readout_.classifier_.predict(states) for each in (loaded, fitted)]
    np.testing.assert_array_equal(*parts)
    with pytest.raises(ValueError, match="cannot learn more rows"):
        loaded.partial_fit([TOKENS])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_model_saved_to_learn_learns_as_the_one_that_was_saved(tmp_path: Path) -> None:
    fitted = model(SAVED[0]).fit([TOKENS[:400]])
    fitted.save(tmp_path / "model", training=True)
    loaded = LanguageModel.load(tmp_path / "model")
    for each in (loaded, fitted):
        each.partial_fit([TOKENS[400:]])
    np.testing.assert_array_equal(loaded.predict_proba([1, 2]), fitted.predict_proba([1, 2]))
    assert fitted.score([TOKENS]) > LanguageModel.load(tmp_path / "model").score([TOKENS])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("coefs_.1", lambda a: a[:, :-1], "must have shape"),
        ("intercepts_.0", lambda a: a[1:], "must have shape"),
        ("classes_", lambda a: a + 5, "codes of classifier must lie in 0 .. 7"),
        ("classes_", lambda a: a / 2, "classifier must be integers"),
        ("coefs_.0", lambda a: a.astype(np.float16), "must be float32 or float64"),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_arrays_that_do_not_fit_are_refused(name: str, change: Any, message: str) -> None:
    readout = ClassifierReadout(classifier=SAVED[0]).fit(
        RNG.normal(size=(60, 3)), np.arange(60) % V
    )
    arrays = readout.state_dict()
    arrays[f"classifier.{name}"] = change(arrays[f"classifier.{name}"])
    with pytest.raises(ValueError, match=message):
        ClassifierReadout(classifier=SAVED[0]).load_state_dict(arrays)


def test_folders_hold_no_pickle_and_so_no_other_classifier(tmp_path: Path) -> None:
    fitted = model(GaussianNB()).fit([TOKENS])
    with pytest.raises(ValueError, match=r"no pickle, and cannot hold a GaussianNB.*joblib\.dump"):
        fitted.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba([1, 2]), fitted.predict_proba([1, 2]))


def test_a_class_that_only_has_the_name_is_not_saved(tmp_path: Path) -> None:
    class MLPClassifier(GaussianNB):
        pass

    with pytest.raises(ValueError, match="cannot hold a MLPClassifier"):
        model(MLPClassifier()).fit([TOKENS]).save(tmp_path / "model")


@pytest.mark.parametrize("classifier", [LogisticRegression(), GaussianNB()])
def test_a_fitted_classifier_is_taken_as_it_is(classifier: Any, tmp_path: Path) -> None:
    reservoir = Reservoir(20, random_state=0).fit(n_inputs=V)
    states, some = reservoir.transform(TOKENS), np.where(TOKENS == 5, 4, TOKENS)
    classifier.fit(states[:-1], some[1:])
    fitted = LanguageModel(reservoir, classifier, reset="never")
    truth = classifier.predict_proba(states[3:4])[0]
    np.testing.assert_allclose(
        fitted.predict_proba(TOKENS[:4])[[0, 1, 2, 3, 4, 6, 7]], truth, atol=1e-30
    )
    assert fitted.predict_proba(TOKENS[:4])[5] == 0
    parts = LanguageModel.of_parts(reservoir, classifier, reset="never")
    assert parts.score([some]) == fitted.score([some])
    if isinstance(classifier, LogisticRegression):
        parts.save(tmp_path / "model")
        loaded = LanguageModel.load(tmp_path / "model")
        assert loaded.score([some]) == fitted.score([some])
    frozen = LanguageModel(reservoir, FrozenEstimator(classifier), reset="never", n_tokens=V)
    refitted = frozen.fit([TOKENS[:50]]).predict_proba(TOKENS[:4])
    np.testing.assert_allclose(refitted[[0, 1, 2, 3, 4, 6, 7]], truth, rtol=1e-4, atol=1e-6)


def test_a_classifier_fitted_on_other_labels_is_refused() -> None:
    reservoir = Reservoir(20, random_state=0).fit(n_inputs=V)
    words = GaussianNB().fit(reservoir.transform(TOKENS), np.array(list("abcdefgh"))[TOKENS])
    with pytest.raises(ValueError, match="must be tokens, integers from 0 to 7, got"):
        LanguageModel(reservoir, words).predict_proba(TOKENS[:4])
    labels = np.array(["a", "b"])[np.arange(20) % 2]
    by_label = FrozenEstimator(LogisticRegression().fit(np.eye(20), labels))
    with pytest.raises(ValueError, match=r"must be tokens, integers from 0 to 1, got \['a', 'b'\]"):
        ClassifierReadout(classifier=by_label).fit(np.eye(20), labels)


def test_parts_that_are_fitted_predict_at_once_and_others_do_not() -> None:
    whole = model(SoftmaxReadout()).fit([TOKENS])
    again = LanguageModel(whole.reservoir_, whole.readout_, reset="never")
    assert again.score([TOKENS]) == whole.score([TOKENS])
    for unfitted in (Reservoir(20), SoftmaxReadout()), (whole.reservoir_, SoftmaxReadout()):
        with pytest.raises(NotFittedError, match="call fit"):
            LanguageModel(*unfitted).predict_proba([1])


@pytest.mark.parametrize(
    "readout", [Perceptron(), "tree", ClassifierReadout(classifier=Perceptron())]
)
def test_what_gives_no_probabilities_is_refused(readout: Any) -> None:
    with pytest.raises(ValueError, match="predict_proba, got"):
        model(readout).fit([TOKENS])


def test_more_rows_than_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 100_000)
    with pytest.raises(MemoryError, match=r"899 rows of 20 states for a classifier.*give fewer"):
        model(GaussianNB()).fit([TOKENS])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [250, 410])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_pass_of_adam_is_the_one_of_scikit_learn(dtype: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, 5)).astype(dtype), 2 * rng.integers(0, 3, n)  # codes 0, 2, 4
    first = MLPClassifier(
        (7, 6), alpha=0.3, max_iter=1, shuffle=False, warm_start=True, random_state=0
    )
    ours = deepcopy(first.fit(X, y))
    theirs = deepcopy(first).fit(X, y)  # begins with new moments
    learn = pass_function(ours)
    learn(X, y)
    for mine, known in zip(ours.coefs_, theirs.coefs_, strict=True):
        np.testing.assert_allclose(mine, known, atol=1e-5 if dtype is np.float32 else 1e-9)
    learn(X, y)
    np.testing.assert_allclose(
        ours.predict_proba(X), theirs.partial_fit(X, y).predict_proba(X), atol=1e-4
    )
