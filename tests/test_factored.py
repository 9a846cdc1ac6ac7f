"""Class-factored readout: its probabilities, how words get classes, and both solvers."""

import json
import warnings

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import check_estimator
from test_readouts import pairs

from esnlm import (
    ClassFactoredReadout,
    MixtureOfExpertsReadout,
    NormalisedSoftmaxReadout,
    ReducedRankSoftmaxReadout,
    RidgeReadout,
    SoftmaxReadout,
)
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.readout import ArrayBlocks
from esnlm.readouts.class_based.softmaxes import WordSoftmax
from esnlm.readouts.class_based.word_clusters import (
    frequency_classes,
    frequent_words_and_clusters,
    given_classes,
    state_clusters,
)
from esnlm.readouts.class_based.word_factors import ClassLayout, WordFactors, shared_ridge

CLASSES = np.array([0, 1, 2, 0, 1, 2, 0, 1, 3])


def softmax_rows(n, n_units, n_words, seed=0, sharpness=1.0):
    """States, words drawn from a softmax of them, and the log-probabilities they came from."""
    random = np.random.default_rng(seed)
    weights = np.random.default_rng(99).standard_normal((n_units, n_words)) * sharpness
    X = random.standard_normal((n, n_units))
    logs = log_softmax(X @ weights, axis=1)
    gumbel = random.gumbel(size=logs.shape)
    return X, np.argmax(logs + gumbel, axis=1), logs


@pytest.fixture(scope="module")
def rows():
    X, y, _ = softmax_rows(1500, 6, len(CLASSES))
    return X, y


KINDS = {
    "default": {},
    "ridge": {"class_readout": "ridge", "word_readout": "ridge"},
    "joint softmax": {"solver": "joint"},
    "joint ridge": {"solver": "joint", "class_readout": "ridge", "word_readout": "ridge"},
    "joint mixture": {"solver": "joint", "class_readout": "moe"},
    "joint, both kinds": {"solver": "joint", "word_readout": "ridge", "clustering": "words"},
}


@pytest.fixture(params=KINDS, scope="module")
def readout(request):
    return ClassFactoredReadout(random_state=0, **KINDS[request.param])


@pytest.mark.parametrize(
    "kind", ["ridge", pytest.param("joint, both kinds", marks=pytest.mark.slow)]
)  # the others: test_readouts.py
def test_scikit_learn_accepts_it(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        check_estimator(ClassFactoredReadout(random_state=0, **KINDS[kind]))


def test_rows_are_distributions(readout, rows):
    fitted = clone(readout).fit(*rows)
    P = fitted.predict_proba(rows[0])
    assert P.dtype == np.float64
    assert (P >= 0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1, atol=1e-6)
    single = fitted.predict_proba(rows[0].astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, P, atol=1e-4)


def test_probability_of_the_target_is_that_of_the_row(readout, rows):
    fitted = clone(readout).fit(*rows)
    logs = fitted.predict_log_proba(rows[0])
    expected = logs[np.arange(len(rows[1])), rows[1]]
    np.testing.assert_allclose(fitted.predict_log_proba_of(*rows), expected, atol=1e-6)


def test_probabilities_are_products_of_the_factors(rows):
    X, y = rows
    fitted = ClassFactoredReadout(clustering=CLASSES).fit(X, y)
    by_class = SoftmaxReadout().fit(X, CLASSES[y]).predict_proba(X)
    expected = np.zeros((len(X), len(CLASSES)))
    for c in range(4):
        inside = CLASSES[y] == c
        words = np.unique(y[inside])
        within = (
            SoftmaxReadout().fit(X[inside], y[inside]).predict_proba(X) if len(words) > 1 else 1
        )
        expected[:, words] = by_class[:, c, None] * within
    np.testing.assert_allclose(fitted.predict_proba(X), expected, atol=1e-5)
    assert 3 not in fitted.word_factors_


@pytest.mark.parametrize("kind", KINDS)
def test_better_than_frequencies(kind, rows):
    X, y = rows
    held, target, logs = softmax_rows(1500, 6, len(CLASSES), seed=1)
    fitted = ClassFactoredReadout(random_state=0, **KINDS[kind]).fit(X, y)
    at = np.arange(len(target))
    loss = -fitted.predict_log_proba(held)[at, target].mean()
    floor = -logs[at, target].mean()
    frequencies = np.bincount(y, minlength=len(CLASSES)) / len(y)
    unigram = -np.log(frequencies[target]).mean()
    assert floor < loss < floor + 0.4 * (unigram - floor)


def test_chunks_give_what_fit_gives(readout, rows):
    X, y = rows
    whole = clone(readout).fit(X, y)
    chunked = clone(readout)
    for part in np.array_split(np.arange(len(X)), [1, 7, 300, 301, 1200]):
        chunked.partial_fit(X[part], y[part], classes=np.arange(len(CLASSES)))
    np.testing.assert_allclose(chunked.predict_proba(X), whole.predict_proba(X), atol=1e-10)


def test_cuts_do_not_matter_past_the_buffer(readout, rows):
    X, y = rows
    fits = []
    for cuts in ([100, 700], [3, 499, 501, 999]):
        streamed = clone(readout).set_params(buffer_size=500)
        for part in np.array_split(np.arange(len(X)), cuts):
            streamed.partial_fit(X[part], y[part], classes=np.arange(len(CLASSES)))
        fits.append(streamed.predict_log_proba_of(X, y))
    np.testing.assert_allclose(*fits, atol=1e-8)
    first = clone(readout).fit(X[:500], y[:500]).predict_log_proba_of(X[500:], y[500:])
    assert fits[0][500:].mean() > first.mean()


def test_blocks_give_what_arrays_give(readout, rows):
    X, y = rows
    words = np.arange(len(CLASSES))
    fits = [
        clone(readout).fit_blocks(
            ArrayBlocks(X, y, size), words, held_out=ArrayBlocks(X[:90], y[:90], 40)
        )
        for size in (64, 1500)
    ]
    a, b = (fit.predict_proba(X) for fit in fits)
    np.testing.assert_allclose(a, b, atol=1e-7)


def test_words_that_never_occur_keep_a_column(readout, rows):
    X, y = rows
    seen = y < 5
    words = np.arange(40)
    fitted = clone(readout).fit_blocks(ArrayBlocks(X[seen], y[seen]), words)
    P = fitted.predict_proba(X)
    assert P.shape == (len(X), 40)
    np.testing.assert_allclose(P.sum(axis=1), 1, atol=1e-6)
    assert P[:, :5].sum(axis=1).min() > 0.5
    assert np.isfinite(fitted.predict_log_proba_of(X[:3], [39, 20, 5])).all()


def test_a_class_that_never_occurs_is_uniform(rows):
    X, y = rows
    seen = CLASSES[y] != 1
    fitted = ClassFactoredReadout(clustering=CLASSES)
    fitted.fit_blocks(ArrayBlocks(X[seen], y[seen]), np.arange(len(CLASSES)))
    P = fitted.predict_proba(X)[:, CLASSES == 1]
    np.testing.assert_allclose(P, P[:, :1] * np.ones(3), rtol=1e-6)


def test_saved_arrays_restore_it(readout, rows):
    X, y = rows
    fitted = clone(readout).fit(X, y)
    params = json.loads(json.dumps(fitted.get_params()))
    again = ClassFactoredReadout(**params).load_state_dict(fitted.state_dict())
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(
        again.predict_log_proba_of(X, y), fitted.predict_log_proba_of(X, y)
    )
    assert again.n_parameters_ == fitted.n_parameters_ > 0


def test_words_that_follow_alike_but_for_rounding_are_no_reason_to_warn():
    random = np.random.default_rng(0)
    lengths = random.uniform(0.1, 2, (23, 1))
    vectors = (random.standard_normal((4, 3))[random.integers(0, 4, 23)] * lengths).astype("f4")
    classes = frequent_words_and_clusters(np.arange(23)[::-1], vectors, 14, 7, seed=0)
    assert len(classes) == 23
    assert np.bincount(classes)[classes[:14]].tolist() == [1] * 14


def test_no_frequency_bin_is_huge():
    counts = (100000 / np.arange(1, 20001)).astype(int)
    classes = frequency_classes(counts, 141)
    assert set(classes) == set(range(141))
    assert np.bincount(classes).max() <= np.ceil(3 * 20000 / 141)


@pytest.mark.parametrize("kind", ["joint softmax", "joint ridge", "joint mixture"])
def test_a_joint_solution_that_was_loaded_learns_no_more(kind, rows):
    fitted = ClassFactoredReadout(random_state=0, **KINDS[kind]).fit(*rows)
    again = clone(fitted).load_state_dict(fitted.state_dict())
    with pytest.raises(ValueError, match="loaded without its training state"):
        again.partial_fit(*rows).predict(rows[0])


def test_parameters_are_counted():
    X, y, _ = softmax_rows(300, 6, len(CLASSES))
    separate = ClassFactoredReadout(clustering=CLASSES).fit(X, y)
    assert separate.n_parameters_ == (6 + 1) * (4 + 8)
    joint = ClassFactoredReadout(clustering=CLASSES, solver="joint").fit(X, y)
    assert joint.n_parameters_ == 6 * 6 + (6 + 1) * (4 + 9)
    mixture = ClassFactoredReadout(
        clustering=CLASSES, solver="joint", class_readout=MixtureOfExpertsReadout(n_experts=3)
    ).fit(X, y)
    assert mixture.n_parameters_ == 6 * 6 + (6 + 1) * (3 * 4 + 3 + 9)
    of_experts = mixture.class_weights_.reshape(6 + 1, 3, 4)
    assert np.ptp(of_experts, axis=1).max() > 1e-3  # no two experts are one


def test_readouts_of_the_caller_are_cloned(rows):
    mine = RidgeReadout(alpha=3.0)
    fitted = ClassFactoredReadout(class_readout=mine, word_readout=mine).fit(*rows)
    assert not hasattr(mine, "coef_")
    assert fitted.class_factor_.alpha_ == 3.0
    assert all(factor.alpha_ == 3.0 for factor in fitted.word_factors_.values())


def test_same_seed_same_classes(rows):
    a, b = (ClassFactoredReadout(n_classes=3, random_state=7).fit(*rows) for _ in range(2))
    np.testing.assert_array_equal(a.word_class_, b.word_class_)
    np.testing.assert_array_equal(a.predict_proba(rows[0]), b.predict_proba(rows[0]))


def test_one_class_is_the_readout_itself(rows):
    X, y = rows
    fitted = ClassFactoredReadout(n_classes=1).fit(X, y)
    plain = SoftmaxReadout().fit(X, y)
    assert fitted.class_factor_ is None
    np.testing.assert_allclose(fitted.predict_proba(X), plain.predict_proba(X), atol=1e-7)


def test_as_many_classes_as_words(rows):
    X, y = rows
    fitted = ClassFactoredReadout(clustering=np.arange(len(CLASSES))).fit(X, y)
    plain = SoftmaxReadout().fit(X, y)
    assert fitted.word_factors_ == {}
    np.testing.assert_allclose(fitted.predict_proba(X), plain.predict_proba(X), atol=1e-7)


# -- classes of words -----------------------------------------------------------------------


def test_clusters_gather_words_that_follow_alike():
    random = np.random.default_rng(0)
    kind = random.integers(0, 3, 3000)
    word = 4 * kind + random.integers(0, 4, 3000)
    X = np.eye(3)[kind] + 0.5 * random.standard_normal((3000, 3))
    classes = state_clusters(Moments(3, 12).add(X, word), 3, seed=0)
    assert [len(set(classes[4 * k : 4 * k + 4])) for k in range(3)] == [1, 1, 1]
    assert len(set(classes)) == 3


def test_clusters_are_balanced():
    X, y, _ = softmax_rows(4000, 5, 100)
    classes = state_clusters(Moments(5, 130).add(X, y), 10, seed=0)
    assert np.bincount(classes).max() <= np.ceil(1.5 * 130 / 10)
    assert len(classes) == 130


@pytest.mark.parametrize("n_classes", [1, 2, 7, 30])
@pytest.mark.parametrize("exponent", [0.0, 1.0, 4.0])
def test_frequency_bins(n_classes, exponent):
    counts = np.random.default_rng(0).permutation(1000.0 / np.arange(1, 31) ** exponent).astype(int)
    classes = frequency_classes(counts, n_classes)
    assert set(classes) == set(range(n_classes))
    order = np.argsort(-counts, kind="stable")
    assert (np.diff(classes[order]) >= 0).all()
    mass = np.bincount(classes, weights=counts)
    assert mass.max() <= counts.sum() / n_classes + counts.max()


def test_words_that_never_occurred_add_no_mass_to_a_bin():
    classes = frequency_classes(np.repeat([1, 0], 20), 2)
    assert classes.tolist() == [0] * 10 + [1] * 30


def test_words_of_no_class_are_refused():
    for word_class in ([], [-1], [0, 2], [0, 5]):
        with pytest.raises(ValueError, match="numbered from 0, and none of them empty"):
            ClassLayout(np.array(word_class, dtype=np.intp))


def test_mappings_of_the_caller(rows):
    X, y = rows
    labels = np.array(list("abcdefghi"))
    mapping = {label: "vowel" if label in "aei" else "other" for label in labels}
    fitted = ClassFactoredReadout(clustering=mapping).fit(X, labels[y])
    np.testing.assert_array_equal(fitted.word_class_, [1, 0, 0, 0, 1, 0, 0, 0, 1])
    with pytest.raises(ValueError, match="no class to 1 of 9 words, such as \\['i'\\]"):
        given_classes(dict.fromkeys("abcdefgh", 0), labels)
    with pytest.raises(ValueError, match="one class to each of the 9 words"):
        given_classes([0, 1], labels)


# -- joint solvers --------------------------------------------------------------------------


def shrunk_ridge(X, Y, alpha):
    """Ridge coefficients (n_words, n_units), shrunk by n_w / (n_w + degrees of freedom)."""
    centred = X - X.mean(axis=0)
    gram = centred.T @ centred
    freedom = np.trace(np.linalg.solve(gram + alpha * np.eye(len(gram)), gram))
    counts = Y.sum(axis=0)
    return Ridge(alpha=alpha).fit(X, Y).coef_ * (counts / (counts + freedom))[:, None]


def test_shared_ridge_of_one_class_is_ridge(rows):
    X, y = rows
    moments = Moments(6, len(CLASSES)).add(X, y)
    factors, _ = shared_ridge(moments, ClassLayout(np.zeros(len(CLASSES), dtype=np.intp)), 2.5)
    expected = shrunk_ridge(X, np.eye(len(CLASSES))[y], 2.5)
    np.testing.assert_allclose(factors.coef, expected, atol=1e-10)
    outputs = X.mean(axis=0) @ factors.coef.T + factors.intercept
    np.testing.assert_allclose(outputs, np.bincount(y) / len(y), atol=1e-3)


def test_shared_ridge_is_ridge_where_classes_have_equal_moments():
    # The same states before every class: each class's product is the same share of the whole.
    random = np.random.default_rng(0)
    X = np.tile(random.standard_normal((200, 4)), (2, 1))
    y = random.integers(0, 3, 400) + np.repeat([0, 3], 200)
    layout = ClassLayout(np.repeat([0, 1], 3))
    factors, _ = shared_ridge(Moments(4, 6).add(X, y), layout, 0.7)
    for c in range(2):
        rows, words = slice(200 * c, 200 * c + 200), slice(3 * c, 3 * c + 3)
        expected = shrunk_ridge(X[rows], np.eye(6)[y[rows]][:, words], 0.7)
        np.testing.assert_allclose(factors.coef[words], expected, atol=1e-10)


def test_word_steps_come_close_to_the_optimum():
    X, y, _ = softmax_rows(20000, 6, 20, sharpness=0.7)
    X = X.astype(np.float32)
    layout = ClassLayout(np.arange(20) % 4)
    solver = WordSoftmax(layout, 6, np.bincount(y), prior=1.0, penalty=0.0)
    for k, part in enumerate(3 * np.array_split(np.arange(len(X)), 40)):
        solver.step(X[part], y[part], len(part), 5 * (1 - k / 120), 1)
    reached = -solver.log_probability_of(X, y).mean()
    best = 0.0
    for c in range(4):
        inside = y % 4 == c
        fitted = SoftmaxReadout(solver="newton-cg").fit(X[inside], y[inside])
        logs = fitted.predict_log_proba(X[inside])
        best -= logs[np.arange(inside.sum()), np.searchsorted(fitted.classes_, y[inside])].sum()
    assert best / len(X) < reached < best / len(X) + 0.0005


def test_words_that_follow_one_long_row_come_close_to_their_frequencies():
    # As those after the beginning of a sentence do, whose components are long with direct ones.
    random = np.random.default_rng(0)
    n, n_steps = 1000, 100
    common = random.standard_normal(64).astype(np.float32)
    common *= 12 / np.linalg.norm(common)
    Z = random.standard_normal((n * n_steps, 64)).astype(np.float32)
    opening = random.random(len(Z)) < 0.1
    Z[opening] = common
    shares = 1 / np.arange(1, 16) ** 2
    openers = random.choice(15, len(Z), p=shares / shares.sum())
    y = np.where(opening, openers, random.integers(15, 30, len(Z)))
    layout = ClassLayout(np.zeros(30, dtype=np.intp))
    solver = WordSoftmax(layout, 64, np.bincount(y), prior=1.0, penalty=0.0)
    for k, rows in enumerate(np.split(np.arange(len(Z)), n_steps)):
        solver.step(Z[rows], y[rows], n, 5 * (1 - k / n_steps), 1)
    counts = np.bincount(y)[:15]
    assert counts.min() > 20
    found = solver.log_probability_of(np.tile(common, (15, 1)), np.arange(15))
    np.testing.assert_allclose(found, np.log(counts / counts.sum()), atol=0.5)


# -- passes over a corpus -------------------------------------------------------------------

N_WORDS = 300
FACTORS = {
    "ridge": {"class_readout": "ridge", "word_readout": "ridge"},
    "softmax": {},
    "moe": {"class_readout": MixtureOfExpertsReadout(n_experts=3)},
    "ridge of words": {"word_readout": "ridge"},
}


@pytest.fixture(scope="module")
def corpus():
    X, y, _ = softmax_rows(4000, 8, N_WORDS, sharpness=2.0)
    return X.astype(np.float32), y


def begun(kind, corpus):
    X, y = corpus
    readout = ClassFactoredReadout(n_components=5, random_state=0, **FACTORS[kind])
    counts = np.bincount(y, minlength=N_WORDS)
    return readout._begin(np.arange(N_WORDS), X.shape[1], n_rows=len(X), counts=counts)


def learn(readouts, corpus, steps):
    """Surveys of 1000 rows, then passes of 4000, in steps of 250."""
    X, y = corpus
    for step in steps:
        rows = slice(250 * step % 4000, 250 * step % 4000 + 250)
        for readout in readouts:
            readout._step(step >= 4)(X[rows], y[rows])


def n_steps(readout):
    return 4 + 16 * readout._training_passes


@pytest.mark.parametrize("stop", [1, 4, 7, 18])
@pytest.mark.parametrize("kind", FACTORS)
def test_a_pass_goes_on_where_it_was_saved(kind, stop, corpus):
    whole, part = begun(kind, corpus), begun(kind, corpus)
    learn((whole, part), corpus, range(stop))
    arrays = {name: array.copy() for name, array in part.state_dict(training=True).items()}
    part = begun(kind, corpus)
    part.load_state_dict(arrays, training=True)
    learn((whole, part), corpus, range(stop, 4 + 16 * min(whole._training_passes, 2)))
    for readout in (whole, part):
        readout._end_pass(1)
        readout._finish()
    ours, theirs = part.state_dict(), whole.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


@pytest.mark.parametrize("kind", FACTORS)
def test_passes_learn_a_corpus(kind, corpus):
    readout = begun(kind, corpus)
    assert readout._sample_rows == 4000
    assert readout._training_passes == (1 if kind == "ridge" else 8)
    learn((readout,), corpus, range(n_steps(readout)))
    readout._finish()
    X, y, logs = softmax_rows(2000, 8, N_WORDS, seed=1, sharpness=2.0)
    P = readout.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1, atol=1e-6)
    scores = readout.predict_log_proba_of(X, y)
    at = np.arange(len(y))
    np.testing.assert_allclose(scores, np.log(P)[at, y], atol=1e-5)
    counts = np.bincount(corpus[1], minlength=N_WORDS) + 0.5
    unigram = -np.log(counts / counts.sum())[y].mean()
    share = (unigram + scores.mean()) / (unigram + logs[at, y].mean())
    assert share > (0.2 if kind == "ridge" else 0.4), share


def test_passes_of_separate_factors_are_one(corpus):
    readout = ClassFactoredReadout(solver="separate")._begin([0, 1], 3, n_rows=10)
    assert (readout._training_passes, readout._sample_rows) == (1, 0)


def test_held_out_loss_is_noted(corpus):
    readout = begun("ridge", corpus)
    learn((readout,), corpus, range(20))
    X, y = corpus[0][:100], corpus[1][:100]
    readout._end_pass(1, [(X, y)])
    readout._finish()
    assert readout.history_ == pytest.approx([-readout.predict_log_proba_of(X, y).mean()])


def test_ridge_of_all_components_is_ridge_of_the_states(corpus):
    """One class of all words, unpenalised: any basis of the states gives the same outputs."""
    X, y, _ = softmax_rows(3000, 4, 5)
    free = RidgeReadout(alpha=0.0)
    options = {"solver": "joint", "class_readout": free, "word_readout": free}
    fitted = ClassFactoredReadout(n_classes=1, **options).fit(X, y)
    factors, _ = shared_ridge(Moments(4, 5).add(X, y), ClassLayout(np.zeros(5, dtype=np.intp)), 0.0)
    expected = factors.log_probabilities(X, np.zeros((len(X), 1)))
    np.testing.assert_allclose(fitted.predict_log_proba(X), expected, atol=1e-4)


@pytest.mark.parametrize("floor", [None, 0.02])
def test_outputs_are_normalised_class_by_class(floor, monkeypatch):
    random = np.random.default_rng(0)
    layout = ClassLayout(random.permutation(np.arange(40) % 7))
    factors = WordFactors(
        layout,
        random.standard_normal((40, 3)),
        random.standard_normal(40),
        None if floor is None else np.full(40, floor),
    )
    X = random.standard_normal((500, 3))
    logs = factors.log_probabilities(X, np.zeros((500, 7)))
    for c in range(7):
        words = layout.words(c)
        outputs = X @ factors.coef[layout.runs[c]].T + factors.intercept[layout.runs[c]]
        outputs = np.exp(outputs) if floor is None else np.maximum(outputs, floor)
        expected = outputs / outputs.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(np.exp(logs[:, words]), expected, rtol=1e-9)
    words = random.integers(0, 40, 500)
    single = factors.log_probability_of(X, words)
    np.testing.assert_allclose(single, logs[np.arange(500), words], atol=1e-12)
    monkeypatch.setattr("esnlm.readouts.class_based.word_factors._CHUNK_BYTES", 40 * 8 * 3)
    for n_threads in ("1", "2"):
        monkeypatch.setenv("ESNLM_NUM_THREADS", n_threads)
        again = factors.log_probabilities(X, np.zeros((500, 7)))
        np.testing.assert_allclose(again, logs, atol=1e-12)
        assert factors.log_probability_of(X, words).tobytes() == single.tobytes()


def test_experts_tell_what_no_softmax_can():
    random = np.random.default_rng(0)
    X = random.standard_normal((8000, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int) + 2 * (X[:, 0] > 0.5)
    losses = [
        -ClassFactoredReadout(
            clustering=np.arange(4),
            class_readout=MixtureOfExpertsReadout(n_experts=k),
            solver="joint",
            random_state=0,
        )
        .fit(X, y)
        .predict_log_proba_of(X, y)
        .mean()
        for k in (1, 4)
    ]
    assert losses[1] < 0.6 * losses[0]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"clustering": "kmeans"}, "clustering must be"),
        ({"solver": "both"}, "solver must be"),
        ({"word_readout": "linear"}, "word_readout must be"),
        ({"class_readout": 3}, "class_readout must be"),
        ({"buffer_size": 0}, "buffer_size must be an integer of at least 1, got 0"),
        ({"n_components": 0}, "n_components must be an integer of at least 1, got 0"),
        ({"solver": "joint", "word_readout": "moe"}, "got MixtureOfExpertsReadout for words"),
        (
            {"solver": "joint", "class_readout": MixtureOfExpertsReadout(experts="linear")},
            "or a mixture of softmax experts",
        ),
        ({"n_classes": 0}, "n_classes must be None or an integer of at least 1, got 0"),
        ({"clustering": [0, 1]}, "one class to each of the 9 words"),
    ],
)
def test_bad_parameters_are_named(rows, params, message):
    with pytest.raises(ValueError, match=message):
        ClassFactoredReadout(**params).fit(*rows)


@pytest.mark.parametrize("kind", [NormalisedSoftmaxReadout, ReducedRankSoftmaxReadout])
def test_readouts_that_change_states_stay_as_they_are(kind):
    X, y, _ = softmax_rows(2000, 8, 300)
    factors = {"class_readout": kind(), "word_readout": kind(), "clustering": "frequency"}
    readout = ClassFactoredReadout(**factors, random_state=0).fit_blocks([(X, y)], np.arange(300))
    apart = ClassFactoredReadout(**factors, solver="separate", random_state=0)
    apart.fit_blocks([(X, y)], np.arange(300))
    np.testing.assert_array_equal(readout.predict_proba(X[:50]), apart.predict_proba(X[:50]))
    with pytest.raises(ValueError, match=f"got {kind.__name__} for words"):
        ClassFactoredReadout(**factors, solver="joint").fit(X, y)


@pytest.mark.parametrize("n_classes", [1, 2, 5])
@pytest.mark.parametrize("clustering", ["words", "clusters", "frequency"])
def test_seen_words_have_no_more_classes_than_asked_for(n_classes: int, clustering: str):
    X, y, _ = softmax_rows(6000, 8, 300)
    y = np.unique(y, return_inverse=True)[1]
    readout = ClassFactoredReadout(n_classes=n_classes, clustering=clustering, random_state=0).fit(
        X, y
    )
    assert readout.n_classes_used_ <= n_classes


def test_bad_targets_are_named(rows):
    fitted = ClassFactoredReadout().fit(*rows)
    with pytest.raises(ValueError, match="not among the 9 classes"):
        fitted.predict_log_proba_of(rows[0][:2], [0, 77])
    with pytest.raises(ValueError, match="2 rows and y 1"):
        fitted.predict_log_proba_of(rows[0][:2], [0])


@pytest.mark.parametrize("solver", ["separate", "joint"])
def test_a_seed_also_starts_mixtures_that_are_given_by_name(solver: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5))
    y = (X[:, 0] > 0) + 2 * (X[:, 1] * X[:, 2] > 0)
    made = [
        ClassFactoredReadout(n_classes=2, class_readout="moe", solver=solver, random_state=3).fit(
            X, y
        )
        for _ in range(2)
    ]
    one, other = (readout.state_dict() for readout in made)
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("where", ["classes", "words"])
@pytest.mark.parametrize("alpha", [1.0, 100.0])
def test_penalties_of_classes_and_words_lead_to_the_optimum(where: str, alpha: float):
    X, y = pairs(2000)
    factor = SoftmaxReadout(alpha=alpha, n_passes=40)
    one_each = np.arange(4) if where == "classes" else np.zeros(4, dtype=int)
    readout = ClassFactoredReadout(
        solver="joint",
        clustering=one_each,
        class_readout=factor if where == "classes" else "softmax",
        word_readout=factor if where == "words" else "softmax",
        random_state=0,
    ).fit(X, y)
    learner = readout.joint_
    assert learner is not None
    Z = learner.components(X.astype(np.float32))
    truth = LogisticRegression(C=1 / alpha, tol=1e-8, max_iter=1000).fit(Z, y)
    gap = np.abs(readout.predict_proba(X) - truth.predict_proba(Z)).max()
    other = LogisticRegression(C=1e6, tol=1e-8, max_iter=1000).fit(Z, y)
    effect = np.abs(other.predict_proba(Z) - truth.predict_proba(Z)).max()
    assert gap < 0.02
    assert alpha < 10 or effect > 0.1
