"""Spectral word features: counts, canonical correlations, seeds, and what is refused."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from esnlm import LanguageModel, Reservoir, RidgeReadout, SpectralWordFeatures
from esnlm.features.spectral import pair_counts


@pytest.fixture
def tokens():
    random = np.random.default_rng(0)
    return random.choice(40, 3000, p=random.dirichlet(np.full(40, 3.0))).astype(np.uint16)


STARTS = np.array([0, 700, 701, 2500])


def test_pairs_are_counted_as_by_hand_whatever_the_pieces(tokens, monkeypatch):
    expected = np.zeros((41, 41))
    for t, (u, v) in enumerate(pairwise(tokens.tolist())):
        if t + 1 not in STARTS:
            expected[u, v] += 1
    np.testing.assert_array_equal(pair_counts(tokens, 41, STARTS).toarray(), expected)
    monkeypatch.setattr("esnlm.features.spectral._PIECE", 7)
    np.testing.assert_array_equal(pair_counts(tokens, 41, STARTS).toarray(), expected)


@pytest.mark.parametrize("distance", [2, 5, 4000])
def test_pairs_further_apart_are_those_of_one_sequence(tokens, distance, monkeypatch):
    expected = np.zeros((41, 41))
    for t in range(distance, len(tokens)):
        if not np.isin(np.arange(t - distance + 1, t + 1), STARTS).any():
            expected[tokens[t - distance], tokens[t]] += 1
    for piece in (1 << 22, 7):
        monkeypatch.setattr("esnlm.features.spectral._PIECE", piece)
        found = pair_counts(tokens, 41, STARTS, distance)
        np.testing.assert_array_equal(found.toarray(), expected)


def test_a_window_counts_all_words_in_it(tokens):
    counts = sum(pair_counts(tokens, 40, STARTS, k).toarray() for k in (1, 2, 3))
    before, after = counts.sum(axis=1) + 1, counts.sum(axis=0) + 1
    scaled = np.sqrt(counts) / (before[:, None] * after) ** 0.25
    values = np.linalg.svd(np.hstack([scaled, scaled.T]), compute_uv=False)
    words = SpectralWordFeatures(n_features=2, window=3, random_state=0)
    words.fit(tokens, n_tokens=40, starts=STARTS)
    np.testing.assert_allclose(words.singular_values_, values[:2], rtol=1e-3)


def test_features_are_the_leading_singular_directions(tokens, monkeypatch):
    monkeypatch.setattr("esnlm.features.spectral._ITERATIONS", 30)
    counts = pair_counts(tokens, 40, STARTS).toarray()
    before, after = counts.sum(axis=1) + 1, counts.sum(axis=0) + 1
    scaled = np.sqrt(counts) / (before[:, None] * after) ** 0.25
    left, values, _ = np.linalg.svd(np.hstack([scaled, scaled.T]))
    words = SpectralWordFeatures(n_features=2, random_state=0).fit(
        tokens, n_tokens=40, starts=STARTS
    )
    np.testing.assert_allclose(words.singular_values_, values[:2], rtol=1e-6)
    rows = left[:, :2] * np.sqrt(values[:2])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    agreement = (words.embedding_ @ words.embedding_.T) - rows @ rows.T
    assert np.abs(agreement).max() < 1e-3
    np.testing.assert_allclose(np.linalg.norm(words.embedding_, axis=1), 1, rtol=1e-5)


def test_words_with_the_same_neighbours_get_the_same_features():
    random = np.random.default_rng(1)
    noun, verb = random.integers(0, 5, 4000), random.integers(5, 10, 4000)
    tokens = np.column_stack([noun, verb]).ravel()
    rows = SpectralWordFeatures(n_features=2, random_state=0).fit(tokens).embedding_
    likeness = rows @ rows.T
    assert likeness[:5, :5].min() > 0.95
    assert likeness[5:, 5:].min() > 0.95
    assert np.abs(likeness[:5, 5:]).max() < 0.3


def test_a_seed_gives_the_same_bytes_on_any_number_of_threads(tokens):
    made = []
    for n in (1, 2):
        with threadpool_limits(n):
            made.append(SpectralWordFeatures(n_features=8, random_state=3).fit(tokens).embedding_)
    assert made[0].tobytes() == made[1].tobytes()


def test_words_that_never_occur_have_no_features(tokens):
    words = SpectralWordFeatures(n_features=5, random_state=0).fit(tokens, n_tokens=60)
    assert words.embedding_.shape == (60, 5)
    assert not words.embedding_[40:].any()
    assert np.isfinite(words.embedding_).all()


def test_features_drive_a_language_model_and_are_saved_with_it(tokens, tmp_path):
    docs = np.split(tokens, range(20, len(tokens), 20))
    model = LanguageModel(
        Reservoir(20, random_state=0),
        RidgeReadout(),
        features=SpectralWordFeatures(n_features=6, random_state=0),
    ).fit(docs)
    assert model.reservoir_.n_inputs_ == 6
    model.save(tmp_path / "model")
    again = LanguageModel.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_proba([3, 4]), again.predict_proba([3, 4]))
    assert clone(again.features_).get_params() == {
        "n_features": 6,
        "random_state": 0,
        "window": 1,
    }


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        ([0, 1, 2], {"n_features": 4}, "at most the 3 words of the vocabulary, got 4"),
        ([0, 1], {"n_features": 0}, "n_features must be"),
        ([0, 1], {"window": 0}, "window must be"),
        ([1], {"n_features": 1}, "no token follows another"),
        ([], {"n_features": 1, "n_tokens": 3}, "no token follows another"),
        ([0, 5], {"n_features": 1, "n_tokens": 3}, "5"),
        ([0.5, 1], {"n_features": 1}, "integer"),
        ([0, 1], {"n_features": 1, "n_tokens": "3"}, "n_tokens must be .* got '3'"),
    ],
)
def test_bad_input_is_named(tokens, options, message):
    n_tokens = options.pop("n_tokens", None)
    with pytest.raises(ValueError, match=message):
        SpectralWordFeatures(**options).fit(tokens, n_tokens=n_tokens)
