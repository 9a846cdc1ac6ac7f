"""Low-rank readout: canonical variables, classes, both softmaxes, and what is refused."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cross_decomposition import CCA

from esnlm import LowRankReadout, SoftmaxReadout
from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.class_based.cca import canonical_directions, word_vectors
from esnlm.readouts.class_based.softmaxes import ClassSoftmax
from esnlm.readouts.class_based.unigrams import (
    discounted_unigrams,
    discounts,
    interpolate,
    with_likeliest_share,
)
from esnlm.readouts.class_based.word_clusters import frequent_words_and_clusters

N_UNITS, N_WORDS, RANK = 30, 60, 4


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """States and words, some frequent and most rare, that depend on four directions of them."""
    truth = np.random.default_rng(5)
    maps = truth.standard_normal((N_UNITS, RANK)) / np.sqrt(N_UNITS)
    words = truth.standard_normal((RANK, N_WORDS)) * 1.5
    frequencies = -1.2 * np.log(np.arange(1, N_WORDS + 1))
    random = np.random.default_rng(seed)
    X = np.tanh(random.standard_normal((n, N_UNITS))).astype(np.float32)
    logits = X @ maps @ words + frequencies
    return X, (logits + random.gumbel(size=logits.shape)).argmax(axis=1)


@pytest.fixture(scope="module")
def data():
    return rows(30000)


@pytest.fixture(scope="module")
def held():
    return rows(4000, seed=1)


@pytest.fixture(scope="module")
def fitted(data):
    return LowRankReadout(n_components=8, random_state=0).fit(*data)


def loss(readout, held) -> float:
    return -float(readout.predict_log_proba_of(*held).mean())


def test_directions_are_canonical_correlation_analysis(monkeypatch):
    monkeypatch.setattr("esnlm.readouts.class_based.cca._COUNT_OFFSET", 0.0)
    monkeypatch.setattr("esnlm.readouts.class_based.cca._DAMPING", 1e-9)
    X, y = rows(4000)
    y = y % 4
    moments = Moments(N_UNITS, 4).add(X.astype(np.float64), y)
    directions = canonical_directions(moments, 2)[0]
    for scale in (1, 100):  # of either sign, the one whose largest entry is positive
        scaled = Moments(N_UNITS, 4).add(scale * X.astype(np.float64), y)
        found = canonical_directions(scaled, 2)[0]
        assert (found.max(axis=0) == np.abs(found).max(axis=0)).all()
    ours = (X - X.mean(axis=0)) @ directions
    theirs = CCA(2, scale=False, max_iter=5000, tol=1e-10).fit(X, np.eye(4)[y][:, :3])
    correlation = np.corrcoef(ours.T, theirs.transform(X).T)[:2, 2:]
    np.testing.assert_allclose(np.abs(correlation), np.eye(2), atol=0.02)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_large_mean_moves_no_direction(dtype):
    X, y = rows(4000)
    exact = canonical_directions(Moments(N_UNITS, N_WORDS).add(X, y), RANK)[0]
    far = X.astype(np.float64) + np.linspace(-1000, 1000, N_UNITS)
    moments = Moments(N_UNITS, N_WORDS).add(far.astype(dtype), y)
    for each in (moments, Moments(N_UNITS, N_WORDS).replace(moments.to_sums())):
        directions = canonical_directions(each, RANK)[0]
        np.testing.assert_allclose(directions, exact, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-20, 1e-8, 1e6])
def test_the_size_of_the_states_does_not_matter(scale):
    X, y = rows(2000)
    whole, scaled = (LowRankReadout(n_frequent=5, random_state=0).fit(s * X, y) for s in (1, scale))
    assert loss(scaled, (scale * X, y)) == pytest.approx(loss(whole, (X, y)), abs=1e-3)


@pytest.mark.parametrize("scale", [0.01, 1, 100])
def test_the_largest_weight_of_a_direction_is_positive(scale):
    X, y = rows(2000)
    moments = Moments(N_UNITS, N_WORDS).add(scale * X.astype(np.float64), y)
    directions = canonical_directions(moments, 6)[0]
    assert (directions.max(axis=0) == np.abs(directions).max(axis=0)).all()


def test_few_directions_of_many_units_tell_as_much_as_the_exact_ones(data, monkeypatch):
    X, y = data
    moments = Moments(N_UNITS, N_WORDS).add(X.astype(np.float64), y)
    exact, expected = canonical_directions(moments, 1)
    monkeypatch.setattr("esnlm.readouts.class_based.cca._EXACT", 0)
    found, correlations = canonical_directions(moments, 1)
    assert not np.array_equal(found, exact)
    np.testing.assert_allclose(found, exact, atol=0.01)
    np.testing.assert_allclose(correlations, expected, atol=1e-4)


def test_components_are_uncorrelated_and_the_first_tell_most(fitted, data, held):
    Z = (data[0] @ fitted.directions_) - fitted.shift_
    covariance = np.cov(Z.T)
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=0.02)
    assert (np.diff(np.diag(covariance)) <= 0.01).all()
    assert abs(covariance[0, 0] - 1) < 0.02
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=0.01)
    narrow, enough = (LowRankReadout(n_components=k, random_state=0).fit(*data) for k in (1, RANK))
    assert loss(narrow, held) > loss(enough, held) + 0.1
    assert abs(loss(fitted, held) - loss(enough, held)) < 0.03


def test_rows_past_the_buffer_are_learned_as_well(fitted, data, held):
    blocks = [(data[0][k : k + 3000], data[1][k : k + 3000]) for k in range(0, 30000, 3000)]
    readout = LowRankReadout(n_components=8, buffer_size=5000, random_state=0)
    readout.fit_blocks(blocks, fitted.classes_)
    assert abs(loss(readout, held) - loss(fitted, held)) < 0.05


def test_units_beyond_the_rows_of_a_batch_do_not_slow_the_learning(held):
    (X, y), (Z, z) = rows(4000), held
    readouts = (
        LowRankReadout(n_components=8, random_state=0).fit(np.tile(X, n), y) for n in (1, 20)
    )
    few, many = (
        loss(readout, (np.tile(Z, n), z)) for n, readout in zip((1, 20), readouts, strict=True)
    )
    assert abs(few - many) < 0.01


def test_word_vectors_are_shrunken_mean_states():
    X, y = rows(500)
    moments = Moments(N_UNITS, N_WORDS + 1).add(X.astype(np.float64), y)
    vectors = word_vectors(moments, np.eye(N_UNITS, dtype=np.float32), prior_rows=2.0)
    word = int(np.bincount(y).argmax())
    expected = (X[y == word] - X.mean(axis=0)).sum(axis=0) / ((y == word).sum() + 2)
    np.testing.assert_allclose(vectors[word], expected, atol=1e-5)
    assert not vectors[N_WORDS].any()


def test_it_comes_close_to_a_softmax_over_every_word(fitted, data, held):
    softmax = SoftmaxReadout(alpha=1.0).fit(*data)
    assert loss(fitted, held) < loss(softmax, held) + 0.05


@pytest.mark.parametrize("options", [{"n_frequent": 60}, {"n_frequent": 0}, {"n_classes": 1}])
def test_one_level_alone_will_do(options, data, held, fitted):
    readout = LowRankReadout(n_components=8, random_state=0, **options).fit(*data)
    assert abs(loss(readout, held) - loss(fitted, held)) < 0.1


def test_frequent_words_stand_alone_and_no_class_is_overfull():
    random = np.random.default_rng(0)
    counts, vectors = np.arange(1000)[::-1], random.standard_normal((1000, 5))
    vectors[900:] = 0
    classes = frequent_words_and_clusters(counts, vectors, 50, 20, seed=0)
    sizes = np.bincount(classes)
    assert sizes.sum() == 1000
    assert (sizes[classes[:50]] == 1).all()
    assert sizes.max() <= 3 * np.ceil(950 / 20)
    assert not set(classes[:900]) & set(classes[900:])
    again = frequent_words_and_clusters(counts, vectors, 50, 20, seed=0)
    np.testing.assert_array_equal(classes, again)


def test_numbers_of_classes_are_multiples_of_the_root_of_the_vocabulary(fitted, data):
    sizes = np.bincount(fitted.word_class_)
    assert len(sizes) == round(3 * np.sqrt(N_WORDS)) + round(1.5 * np.sqrt(N_WORDS))
    frequent = np.argsort(-np.bincount(data[1]), kind="stable")[: round(3 * np.sqrt(N_WORDS))]
    assert (sizes[fitted.word_class_[frequent]] == 1).all()


def test_any_number_of_threads_gives_the_same_bytes(monkeypatch):
    monkeypatch.setattr("esnlm.readouts.class_based.solver._WORTH_THREADS", 0)
    monkeypatch.setattr("esnlm.readouts.class_based.softmaxes._TILE", 100)
    random = np.random.default_rng(0)
    X, words = random.standard_normal((3000, 6)).astype(np.float32), random.integers(0, 40, 3000)
    made = []
    for n in ("1", "2"):
        monkeypatch.setenv("ESNLM_NUM_THREADS", n)
        readout = LowRankReadout(n_frequent=5, n_classes=8, random_state=0)
        readout._begin(np.arange(40), 6, n_rows=3000)
        readout._step(0)(X, words)
        readout._step(1)(X, words)
        readout._finish()
        made.append(b"".join(a.tobytes() for a in readout.state_dict(training=True).values()))
    assert made[0] == made[1]


def begun(readout, X, y):
    return clone(readout)._begin(
        np.arange(N_WORDS), N_UNITS, n_rows=len(X), counts=np.bincount(y, minlength=N_WORDS)
    )


@pytest.mark.parametrize("stop", [300, 1000, 1300, 2500])
def test_a_pass_goes_on_where_it_was_saved(stop):
    X, y = rows(3000)
    readout = LowRankReadout(n_components=5, n_frequent=10, n_classes=5, n_passes=1, random_state=0)
    whole, part = begun(readout, X, y), begun(readout, X, y)
    for k in range(0, 4000, 100):
        chunk = slice(k % 3000, k % 3000 + 100)
        if k == stop:
            arrays = {name: a.copy() for name, a in part.state_dict(training=True).items()}
            part = begun(readout, X, y)
            part.load_state_dict(arrays, training=True)
        for one in (whole, part):
            if k < 1000:
                one._step(0)(X[chunk], y[chunk])
            else:
                one._step(1)(X[chunk], y[chunk])
    for one in (whole, part):
        one._end_pass(1)
        one._finish()
    ours, theirs = part.state_dict(), whole.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


def test_words_that_never_occurred_are_as_dear_as_in_kneser_ney():
    random = np.random.default_rng(0)
    X = random.standard_normal((40000, N_UNITS)).astype(np.float32)
    shares = 1 / np.arange(1, 801) ** 1.1
    y = random.choice(800, len(X), p=shares / shares.sum())
    readout = LowRankReadout(n_components=8, random_state=0).fit_blocks([(X, y)], np.arange(1000))
    unigrams = KneserNey(order=1, n_tokens=1000).fit(y).next_token_distribution([])
    missing = np.bincount(y, minlength=1000) == 0
    found = readout.predict_log_proba(X[:200])[:, missing]
    np.testing.assert_allclose(found.mean(), np.log(unigrams[missing]).mean(), atol=0.1)
    assert np.ptp(found) < 1.5


def test_discounted_targets_have_the_gradient_of_finite_differences():
    random = np.random.default_rng(0)
    n, share = 6, random.dirichlet(np.ones(4)).astype(np.float32)
    discounts = random.random(n).astype(np.float32)
    classes, Z = random.integers(0, 4, n), random.standard_normal((n, 3)).astype(np.float32)
    every = np.ones(3, dtype=bool)
    solver = ClassSoftmax(3, None, np.ones(4), momentum=0.0, penalty=0.0, informative=every, seed=0)
    solver.weights[:] = random.standard_normal((4, 4))
    targets = np.outer(discounts, share) + (1 - discounts)[:, None] * np.eye(4)[classes]

    def losses(Z: np.ndarray) -> np.ndarray:
        return -(targets * solver.log_probabilities(Z.astype(np.float64))).sum(axis=1)

    shifts = 1e-5 * np.eye(3)
    wanted = np.stack([losses(Z + e) - losses(Z - e) for e in shifts], axis=1) / 2e-5
    in_z = np.empty_like(Z)
    solver.step(Z, classes, 1e-30, 1, in_z, (discounts, share))
    np.testing.assert_allclose(in_z, wanted, atol=1e-5)


def test_experts_on_classes_learn_what_one_softmax_cannot():
    random = np.random.default_rng(0)
    Z = random.standard_normal((512, 2)).astype(np.float32)
    classes = (Z[:, 0] * Z[:, 1] > 0).astype(np.intp)  # exclusive or
    losses = []
    for n_experts in (None, 1, 4):
        every = np.ones(2, dtype=bool)
        solver = ClassSoftmax(
            2, n_experts, np.ones(2), momentum=0.9, penalty=0.0, informative=every, seed=0
        )
        for _ in range(400):
            solver.step(Z, classes, 1.0, 1)
        losses.append(-solver.log_probabilities(Z)[np.arange(512), classes].mean())
    assert losses[0] > 0.68
    assert losses[1] > 0.68
    assert losses[2] < 0.4


def test_rare_words_may_share_their_sums(monkeypatch, held):
    X, y = rows(6000)
    monkeypatch.setattr("esnlm.readouts.class_based.pilot_sample._SUM_BYTES", 8 * N_UNITS * 20)
    readout = begun(
        LowRankReadout(n_components=8, n_frequent=10, n_classes=5, random_state=0), X, y
    )
    readout._step(0)(X, y)
    readout._end_pass(0)
    for _ in range(readout._training_passes):
        readout._step(1)(X, y)
    readout._finish()
    whole = LowRankReadout(n_components=8, n_frequent=10, n_classes=5, random_state=0).fit(X, y)
    known = np.isin(held[1], whole.classes_)
    held = held[0][known], held[1][known]
    assert loss(readout, held) < loss(whole, held) + 0.1


def test_a_loaded_readout_predicts_and_refuses_more_rows(fitted, held):
    again = clone(fitted).load_state_dict(fitted.state_dict())
    np.testing.assert_array_equal(
        fitted.predict_log_proba(held[0]), again.predict_log_proba(held[0])
    )
    with pytest.raises(ValueError, match="cannot learn more rows"):
        again.state_dict(training=True)
    with pytest.raises(ValueError, match="cannot learn more rows"):
        again.partial_fit(*held).predict(held[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components must be"),
        ({"n_classes": 0}, "n_classes must be"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"prior": -1.0}, r"prior must lie in \(0, 1e\+12\], got -1.0"),
        ({"n_direct": 1, "n_ngrams": 5}, "leave out n_ngrams, or change n_direct"),
        ({"n_direct": -1}, "n_direct must be"),
        ({"n_direct": 3}, "states beside the 3 columns of last tokens, got 3 columns"),
        ({"direct_rate": 0.0}, "direct_rate must be positive, got 0.0"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
    ],
)
def test_bad_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        LowRankReadout(**options).fit(np.eye(3), [0, 1, 2])


def test_the_order_of_rows_hardly_matters(held):
    X, y = rows(20000)
    order = np.argsort(y, kind="stable")
    losses = [
        loss(LowRankReadout(n_components=8, random_state=0).fit(*given), held)
        for given in ((X, y), (X[order], y[order]))
    ]
    assert losses[1] < losses[0] + 0.02


def test_unigrams_take_the_share_that_is_likeliest_on_held_out_rows(data, held):
    X, y = data
    apart = X.copy(), np.where(np.arange(len(y)) % 10, y, 0)  # one row in ten follows from nothing
    readout = LowRankReadout(n_components=8, random_state=0).fit_blocks(
        [(X, y)], classes=np.unique(y)
    )
    assert readout.unigram_.sum() == pytest.approx(1e-3)
    readout.fit_blocks([(X, y)], classes=np.unique(y), held_out=[apart])
    share = readout.unigram_.sum()
    assert 1e-3 < share < 0.5
    losses = []
    for other in (share / 3, share, 3 * share):
        readout.unigram_ *= np.float32(other / readout.unigram_.sum())
        losses.append(-readout.predict_log_proba_of(*apart).mean())
    assert losses[1] == min(losses)
    assert readout.history_[-1] == pytest.approx(losses[1], rel=0.05)


def test_held_out_rows_that_follow_from_nothing_leave_finite_probabilities(data):
    X, y = data
    apart = X, np.random.default_rng(1).integers(0, 3, len(y))  # states say nothing of these
    sure = LowRankReadout(n_components=8, alpha=1e-6, learning_rate=1.0, n_passes=4, random_state=0)
    sure.fit_blocks([(X, y)], classes=np.unique(y), held_out=[apart])
    assert np.isfinite(sure.history_).all()
    assert 0 < sure.unigram_.sum(dtype=np.float64) < 1
    of_one = sure.predict_log_proba_of(*apart)
    every = sure.predict_log_proba(X)
    assert np.isfinite(of_one).all()
    assert np.isfinite(every).all()
    np.testing.assert_allclose(np.exp(every).sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(every[np.arange(len(X)), apart[1]], of_one, rtol=1e-4)


def test_words_that_never_occurred_do_not_change_what_the_others_give():
    counts = np.array([1, 1, 1, 2, 2, 3, 4, 9])
    with_others = discounts(np.append(counts, np.zeros(20, dtype=int)))
    np.testing.assert_array_equal(with_others[:8], discounts(counts))
    # Y = n1 / (n1 + 2 n2), D1 = 1 - 2 Y n2 / n1 (Chen & Goodman 1998, equation 4.33).
    assert discounts(counts)[0] == pytest.approx(1 - 2 * (3 / 7) * 2 / 3)


def test_unigrams_keep_the_least_of_the_other_share_where_they_are_always_likelier():
    unigrams = discounted_unigrams(np.array([5, 3, 1, 0]))
    words = np.array([0, 1, 2, 3])
    share = with_likeliest_share(unigrams, np.full(4, -700.0), words).sum(dtype=np.float64)
    assert share == pytest.approx(1 - 1e-6, abs=1e-7)
    mixed = interpolate(np.full(4, -700.0), np.float32(share) * unigrams / unigrams.sum(), words)
    assert np.isfinite(mixed).all()


def test_no_word_is_dearer_than_its_share_of_the_unigrams(fitted, held):
    X, _ = held
    far = 50 * X
    assert (fitted.predict_proba(far) >= 0.999 * fitted.unigram_).all()
