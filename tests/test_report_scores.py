"""What a report computes from text, against brute force and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.calibration import calibration_curve

from esnlm import LanguageModel, Reservoir, RidgeReadout
from esnlm.evaluation.calibration import calibration
from esnlm.evaluation.token_groups import by_frequency, by_position, by_seen, judged_tokens
from esnlm.models.ngram import NgramLanguageModel
from esnlm.ngrams.kneser_ney import KneserNey, longest_seen
from esnlm.reporting.scoring import _mixed
from esnlm.text.corpus import TokenStream


def sequences(seed: int, n: int = 60, n_tokens: int = 9) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(n_tokens, size=rng.integers(2, 12)) for _ in range(n)]


def streamed(docs: list[np.ndarray]) -> TokenStream:
    starts = np.cumsum([0, *map(len, docs)])
    return TokenStream(np.concatenate(docs), starts[:-1], starts)


documents = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=7), min_size=1, max_size=6)


@given(train=documents, held=documents, order=st.integers(1, 5))
def test_longest_seen_n_gram(train: list[list[int]], held: list[list[int]], order: int):
    train = [*train, [0, 1]]  # something to predict
    one, two = (streamed([np.array(doc) for doc in docs]) for docs in (train, held))
    model = KneserNey(order=order, n_tokens=4).fit(one.tokens, starts=one.starts)
    known = {
        tuple(doc[end - length : end])
        for doc in train
        for length in range(1, order + 1)
        for end in range(max(length, 2), len(doc) + 1)
    }
    expected = []
    for doc in held:
        for place in range(len(doc)):
            lengths = [n for n in range(1, min(order, place + 1) + 1)
                       if tuple(doc[place + 1 - n : place + 1]) in known]  # fmt: skip
            expected.append(max(lengths, default=0))
    assert longest_seen(model, two.tokens, two.starts).tolist() == expected


def test_losses_of_groups_are_means_over_their_tokens():
    rng = np.random.default_rng(0)
    n = 500
    scores = [-rng.exponential(size=n), -rng.exponential(size=n)]
    sentence, counts = rng.integers(40, size=n), 10 ** rng.uniform(0, 5, n)
    position, longest = rng.integers(1, 30, n), rng.integers(0, 4, n)
    groupings = by_frequency(counts), by_position(position), by_seen(longest, 5)
    judged = judged_tokens(scores, sentence, groupings, n_resamples=400, random_state=0)
    found = dict(zip(judged.groups, judged.values.T, strict=True))
    assert found["all", "all"] == pytest.approx([-s.mean() for s in scores])
    for key, member in {
        ("frequency", "<100"): counts < 100,
        ("frequency", "1k-10k"): (counts >= 1000) & (counts < 10_000),
        ("position", "3-4"): (position == 3) | (position == 4),
        ("position", "17+"): position >= 17,
        ("seen n-gram", "token not seen"): longest == 0,
        ("seen n-gram", "2 seen"): longest == 2,
    }.items():
        assert found[key] == pytest.approx([-s[member].mean() for s in scores])
    assert ("seen n-gram", "5 seen") not in found  # no token falls there
    low, high = judged.intervals()[0, 0]
    assert low < found["all", "all"][0] < high
    # Of independent tokens the interval is about that of a normal mean.
    assert (high - low) / 2 == pytest.approx(1.96 * scores[0].std() / np.sqrt(n), rel=0.35)


@pytest.fixture(scope="module", params=["reservoir", "ngrams", "never"])
def fitted(request: pytest.FixtureRequest):
    docs = sequences(0, n=120)
    if request.param == "ngrams":
        return NgramLanguageModel(order=3, n_tokens=9).fit(docs)
    reset = "never" if request.param == "never" else "sentence"
    reservoir = Reservoir(30, random_state=0)
    return LanguageModel(reservoir, RidgeReadout(), reset=reset, n_tokens=9).fit(docs)


def test_calibration_against_every_prefix(fitted):
    docs = sequences(1, n=30)
    if fitted.reset_ == "never":
        docs = [np.concatenate(docs)]
    stream = fitted.tokenize(docs)
    found = calibration(fitted, stream)
    given_, came = [], []
    for doc in docs:
        for place in range(1, len(doc)):
            given_.append(fitted.predict_proba(doc[:place]))
            came.append(doc[place])
    probabilities, came = np.array(given_), np.array(came)
    best = probabilities.argmax(axis=1)
    confidence, right = probabilities.max(axis=1), best == came
    assert found.n_tokens == len(came)
    assert found.accuracy == pytest.approx(right.mean())
    assert found.confidence == pytest.approx(confidence.mean(), abs=1e-6)
    known = [each for each in found.most_probable if each.n]
    true, predicted = calibration_curve(right, confidence, n_bins=15)
    assert [each.came for each in known] == pytest.approx(true)
    assert [each.probability for each in known] == pytest.approx(predicted, abs=1e-6)
    error = sum(each.n * abs(each.came - each.probability) for each in known) / len(came)
    assert found.error == pytest.approx(error)
    assert sum(each.n for each in found.all_words) == probabilities.size
    mass = sum(each.n * each.probability for each in found.all_words if each.n)
    assert mass == pytest.approx(len(came), rel=1e-6)  # distributions sum to one
    assert sum(each.n * each.came for each in found.all_words if each.n) == pytest.approx(len(came))


def test_a_model_that_is_right_by_its_probabilities_has_no_error():
    # Tokens drawn from the model itself: the error is that of the sample.
    rng = np.random.default_rng(0)
    model = NgramLanguageModel(order=2, n_tokens=5).fit(sequences(3, 400, 5))
    docs = []
    for _ in range(400):
        doc = [0]
        for _ in range(12):
            doc.append(rng.choice(5, p=model.predict_proba(doc)))
        docs.append(np.array(doc))
    assert calibration(model, model.tokenize(docs)).error < 0.02


def test_each_half_is_mixed_with_the_share_that_suits_the_other():
    rng = np.random.default_rng(0)
    one, two = np.log(rng.uniform(0.01, 1, (2, 300)))
    sentence = rng.integers(50, size=300)
    mixed, weights = _mixed(one, two, sentence)
    odd = sentence % 2 == 1
    for half, weight in ((odd, weights[0]), (~odd, weights[1])):
        best = minimize_scalar(
            lambda w, o=~half: -np.log(w * np.exp(one[o]) + (1 - w) * np.exp(two[o])).mean(),
            bounds=(0, 1), method="bounded", options={"xatol": 1e-9},
        )  # fmt: skip
        assert weight == pytest.approx(best.x, abs=1e-4)
        expected = np.log(weight * np.exp(one[half]) + (1 - weight) * np.exp(two[half]))
        assert mixed[half] == pytest.approx(expected)
