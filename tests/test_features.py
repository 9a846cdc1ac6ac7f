"""Word features: the truncated gradient, what is learned, and what is refused."""

from itertools import pairwise

import numpy as np
import pytest
from features_truth import one_step_gradient
from sklearn.base import clone

from esnlm import Reservoir, WordFeatures

SINGULAR, PLURAL, STOP = range(0, 4), range(4, 8), 16


def agreement_corpus(n_sentences, seed=0):
    """Tokens of 'noun verb stop': nouns 0-3 take verbs 8-11, nouns 4-7 take verbs 12-15."""
    random = np.random.default_rng(seed)
    plural = random.integers(0, 2, n_sentences)
    noun = random.integers(0, 4, n_sentences) + 4 * plural
    verb = random.integers(8, 12, n_sentences) + 4 * plural
    return np.column_stack([noun, verb, np.full(n_sentences, STOP)]).ravel()


@pytest.fixture(scope="module")
def corpus():
    return agreement_corpus(3000)


@pytest.fixture(scope="module")
def reservoir():
    return Reservoir(30, random_state=0).fit(n_inputs=2)


@pytest.fixture(scope="module")
def words(corpus, reservoir):
    return WordFeatures(n_features=2, random_state=0).fit(corpus, reservoir=reservoir)


@pytest.mark.parametrize("activation", ["tanh", "relu", "identity"])
@pytest.mark.parametrize("leak_rate", [1.0, ("uniform", 0.2, 0.9)])
def test_gradient_agrees_with_finite_differences(activation, leak_rate):
    reservoir = Reservoir(
        12,
        activation=activation,
        leak_rate=leak_rate,
        bias_scaling=0.3,
        dtype="float64",
        random_state=3,
    ).fit(n_inputs=3)
    random = np.random.default_rng(4)
    embedding, coef = random.standard_normal((5, 3)), random.standard_normal((5, 12))
    state = random.uniform(-0.5, 0.5, 12)

    def loss(embedding, coef):
        return one_step_gradient(embedding, coef, reservoir, state, 2, 1)[0]

    def slope(moved):
        h = 1e-6
        values = []
        for array, index in moved:
            around = []
            for sign in (1, -1):
                array[index] += sign * h
                around.append(loss(embedding, coef))
                array[index] -= sign * h
            values.append((around[0] - around[1]) / (2 * h))
        return np.array(values)

    value, by_feature, by_coef = one_step_gradient(embedding, coef, reservoir, state, 2, 1)
    after = reservoir.advance(state, 2, features=embedding)
    assert value == pytest.approx(0.5 * np.sum((coef @ after - np.eye(5)[1]) ** 2), rel=1e-10)
    np.testing.assert_allclose(
        by_feature, slope([(embedding, (2, k)) for k in range(3)]), rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(
        by_coef.ravel(), slope([(coef, at) for at in np.ndindex(5, 12)]), rtol=1e-6, atol=1e-8
    )


def test_one_pass_applies_the_gradient_word_by_word(reservoir):
    tokens = np.array([0, 2, 1, 2, 0])
    words = WordFeatures(n_features=2, n_passes=1, learning_rate=0.05, random_state=5)
    words.fit(tokens, reservoir=reservoir)
    embedding = 0.1 * np.random.RandomState(5).standard_normal((3, 2))
    coef, state, losses = np.zeros((3, 30)), np.zeros(30), []
    for token, target in pairwise(tokens):
        loss, by_feature, by_coef = one_step_gradient(
            embedding, coef, reservoir, state, token, target
        )
        state = reservoir.advance(state, token, features=embedding)
        rate = min(0.01, 0.1 / np.sum(state**2))
        embedding[token] -= 0.05 * by_feature
        coef -= rate * by_coef
        losses.append(loss)
    np.testing.assert_allclose(words.embedding_, embedding, atol=1e-6)
    np.testing.assert_allclose(words.coef_, coef, atol=1e-6)
    np.testing.assert_allclose(words.loss_history_, [np.mean(losses)], rtol=1e-5)


def test_words_of_one_kind_gather(words):
    groups = [words.embedding_[4 * k : 4 * k + 4] for k in range(2)]
    between = np.linalg.norm(groups[0].mean(0) - groups[1].mean(0))
    within = max(np.linalg.norm(g - g.mean(0), axis=1).max() for g in groups)
    assert within < 0.5 * between


def test_loss_falls(words, corpus):
    assert len(words.loss_history_) == 10
    assert words.loss_history_[-1] < words.loss_history_[0]
    assert words.n_predictions_ == len(corpus) - 1


def test_seed_decides_everything(words, corpus, reservoir):
    again = clone(words).fit(corpus, reservoir=reservoir)
    np.testing.assert_array_equal(again.embedding_, words.embedding_)
    other = clone(words).set_params(random_state=1).fit(corpus, reservoir=reservoir)
    assert not np.allclose(other.embedding_, words.embedding_)


def test_the_reservoir_is_not_changed(corpus, reservoir):
    before = reservoir.W_.toarray(), np.array(reservoir.W_in_)
    WordFeatures(n_features=2, n_passes=1, random_state=0).fit(corpus, reservoir=reservoir)
    np.testing.assert_array_equal(reservoir.W_.toarray(), before[0])
    np.testing.assert_array_equal(reservoir.W_in_, before[1])


def test_a_reservoir_without_weights_is_fitted(corpus):
    reservoir = Reservoir(20, random_state=0)
    words = WordFeatures(n_features=3, n_passes=1, random_state=0).fit(corpus, reservoir=reservoir)
    assert reservoir.n_inputs_ == 3
    assert words.embedding_.shape == (17, 3)
    assert words.coef_.shape == (17, 20)


@pytest.mark.parametrize("n_units", [9, 90])
def test_what_is_set_after_the_reservoirs_fit_says_nothing_of_its_weights(corpus, n_units, words):
    changed = Reservoir(30, random_state=0).fit(n_inputs=2)
    changed.set_params(n_units=n_units, activation="identity")
    again = clone(words).fit(corpus, reservoir=changed)
    np.testing.assert_array_equal(again.coef_, words.coef_)


def test_starts_end_predictions_and_clear_the_state(reservoir):
    tokens = np.array([0, 1, 2, 0, 1, 2])
    cut = WordFeatures(n_features=2, n_passes=1, random_state=0).fit(
        tokens, reservoir=reservoir, starts=[3]
    )
    assert cut.n_predictions_ == 4
    # Two equal sentences from a zero state: the second begins where the first did.
    alone = WordFeatures(n_features=2, n_passes=2, random_state=0).fit(
        tokens[:3], reservoir=reservoir
    )
    np.testing.assert_allclose(cut.embedding_, alone.embedding_, rtol=1e-12)


def test_unread_words_keep_their_first_features(reservoir):
    words = WordFeatures(n_features=2, random_state=0).fit(
        [0, 1, 0, 1], reservoir=reservoir, n_tokens=6
    )
    first = 0.1 * np.random.RandomState(0).standard_normal((6, 2))
    np.testing.assert_array_equal(words.embedding_[2:], first[2:])
    assert not np.allclose(words.embedding_[:2], first[:2])


@pytest.mark.parametrize("n_units", [5, 100, 400])
def test_stable_at_every_size(n_units):
    reservoir = Reservoir(n_units, random_state=1).fit(n_inputs=5)
    words = WordFeatures(n_features=5, n_passes=3, random_state=0)
    words.fit(agreement_corpus(600), reservoir=reservoir)
    assert words.loss_history_[-1] < 0.45
    assert np.abs(words.embedding_).max() < 10


def test_transform_and_arrays(words):
    np.testing.assert_array_equal(words.transform([3, 3, 16]), words.embedding_[[3, 3, 16]])
    again = clone(words).load_state_dict(words.state_dict())
    np.testing.assert_array_equal(again.transform(range(17)), words.embedding_)
    np.testing.assert_array_equal(again.loss_history_, words.loss_history_)


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        ([0.5, 1.0], {}, "tokens must be integers, got float64"),
        ([[0, 1]], {}, "1-D array of integers"),
        ([0, -1], {}, "at least 0, got -1"),
        ([0, 7], {"n_tokens": 5}, "below 5"),
        ([0, 3], {"n_tokens": 3.5}, "n_tokens must be .* got 3.5"),
        ([0], {}, "at least two tokens, got 1"),
        ([], {}, "at least two tokens, got 0"),
        ([0, 1], {"starts": [1]}, "nothing to predict"),
        ([0, 1], {"starts": [9]}, r"starts .* lie in \[0, 2\)"),
    ],
)
def test_bad_tokens_are_named(reservoir, tokens, options, message):
    with pytest.raises(ValueError, match=message):
        WordFeatures(n_features=2).fit(tokens, reservoir=reservoir, **options)


@pytest.mark.parametrize(
    "params",
    [{"n_features": 0}, {"n_passes": 0}, {"learning_rate": 0.0}, {"readout_learning_rate": -1.0}],
)
def test_bad_parameters_are_named(reservoir, params):
    with pytest.raises(ValueError, match=next(iter(params))):
        WordFeatures(**params).fit([0, 1], reservoir=reservoir)


def test_another_input_size_is_refused(reservoir):
    with pytest.raises(ValueError, match="2 inputs for 3 features"):
        WordFeatures(n_features=3).fit([0, 1, 0], reservoir=reservoir)


def test_divergence_is_named(corpus, reservoir):
    with (
        np.errstate(all="ignore"),
        pytest.raises(ValueError, match=r"diverged in pass 1: .*\(got 1e\+200\)"),
    ):
        WordFeatures(n_features=2, learning_rate=1e200, random_state=0).fit(
            corpus, reservoir=Reservoir(10, activation="relu", random_state=0).fit(n_inputs=2)
        )


def test_transform_refuses_unknown_tokens(words):
    with pytest.raises(ValueError, match="below 17"):
        words.transform([17])
