"""Direct connections: gradients, last tokens beside states, and every way a model reads them."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from esnlm import LanguageModel, LowRankReadout, Reservoir
from esnlm.evaluation.minimal_pairs.scores import sentence_log_likelihoods
from esnlm.readouts.base.last_tokens import NO_TOKEN, append_tokens, last_tokens
from esnlm.readouts.class_based.direct_connections import DirectConnections, NgramCounts
from esnlm.readouts.class_based.solver import TwoLevelLearner, TwoLevelSettings

V = 12


def second_order_text(n: int, seed: int) -> np.ndarray:
    """Tokens each of which follows from the one two places before, nearly always."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, V, n)
    for t in range(2, n):
        if rng.random() < 0.9:
            tokens[t] = (5 * tokens[t - 2] + 3) % V
    return tokens


def readout(**options: Any) -> LowRankReadout:
    return LowRankReadout(n_components=4, n_frequent=3, n_classes=3, random_state=0, **options)


def model(reset: str = "never", **options: Any) -> LanguageModel:
    # Too small a reservoir to remember tokens exactly.
    return LanguageModel(
        Reservoir(6, random_state=0), readout(**options), reset=reset, n_tokens=V, random_state=0
    )


def test_the_gradient_is_that_of_finite_differences():
    random = np.random.default_rng(0)
    settings = TwoLevelSettings(
        n_components=5,
        n_experts=None,
        softmax_words=True,
        alpha=0.0,
        word_alpha=0.0,
        rate=lambda *sizes: 1e-30,
        momentum=0.9,
        n_passes=1,
        n_direct=1,
        direct_rate=0.1,
    )
    learner = TwoLevelLearner(settings, np.zeros_like, 6, V, n_rows=40)
    classes = np.repeat(np.arange(4), 3)
    learner.begin(np.eye(5, dtype="f4"), np.zeros(5, dtype="f4"), classes)
    learner.class_solver.weights[:-1] = random.standard_normal((5, 4))
    learner.word_solver.coef[:] = random.standard_normal((V, 5))
    Z = random.standard_normal((40, 5)).astype(np.float32)
    words, last = random.integers(0, V, 40), random.integers(-1, V, (40, 1))

    def loss(shift: np.ndarray) -> float:
        X = np.concatenate([Z.astype(np.float64) + shift, last], axis=1)
        return -float(learner.log_probability_of(X, words).sum())

    wanted = np.empty((V + 1, 5))
    for token in range(-1, V):
        for k in range(5):
            shift = np.zeros(Z.shape)
            shift[last[:, 0] == token, k] = 1e-5
            wanted[token, k] = (loss(shift) - loss(-shift)) / 2e-5
    steps: list[np.ndarray] = []

    def note(last: np.ndarray, gradient: np.ndarray, rate: float) -> None:
        sums = np.zeros((V + 1, 5))
        np.add.at(sums, last[:, 0], gradient)
        steps.append(sums)

    learner.direct.step = note  # type: ignore[method-assign]
    learner.learn(np.concatenate([Z, last.astype(np.float32)], axis=1), words)
    learner.flush()
    learner.settle()
    assert len(steps) == 4  # of the classes on three batches, and of the words
    np.testing.assert_allclose(sum(steps), wanted, atol=2e-4)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 4), st.data())
def test_last_tokens_are_those_read_one_by_one(tokens, n_last, data):
    text = np.array(tokens)
    others = data.draw(st.lists(st.integers(1, len(text)), unique=True))
    starts = np.array(sorted({0, *others} - {len(text)}))
    one_by_one = []
    for t, token in enumerate(tokens):
        if t in starts:
            last = np.full(n_last, NO_TOKEN)
        last = append_tokens(last, np.array([token]))
        one_by_one.append(last)
    positions = data.draw(st.permutations(range(len(text))))
    found = last_tokens(text, np.array(positions), starts, n_last)
    np.testing.assert_array_equal(found, np.array(one_by_one)[positions])


def ngram_text(n: int, order: int, seed: int) -> np.ndarray:
    """Tokens that follow from the last ``order`` together: fewer of them tell nothing."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, V, n)
    table = np.random.default_rng(9).permuted(np.tile(np.arange(V), (V, 1)), axis=1)
    for t in range(order, n):
        if rng.random() < 0.9:
            tokens[t] = table[tokens[t - order], tokens[t - order : t].sum() % V]
    return tokens


@pytest.mark.parametrize(("order", "n"), [(2, 10_000), (3, 30_000)])
def test_ngrams_tell_what_their_tokens_alone_do_not(order, n):
    text, held_out = ngram_text(n, order, 0), ngram_text(3000, order, 1)
    without, with_ngrams = (
        model(n_direct=order, n_ngrams=k, n_passes=4).fit([text]).perplexity([held_out])
        for k in (0, 2000)
    )
    assert with_ngrams < 0.6 * without


@given(st.lists(st.lists(st.integers(-1, 3), min_size=3, max_size=3), max_size=40))
def test_ngrams_are_counted_whatever_the_calls(rows):
    last = np.array(rows, dtype=np.int64).reshape(-1, 3)
    counts = NgramCounts(4)
    for part in np.array_split(last, 3):
        counts.add(part)
    spans = [row[:n] for row in rows for n in (2, 3)]
    met = Counter(tuple(span) for span in spans if min(span) >= 0)
    numbers = {ngram: _number(ngram) for ngram in met}
    assert len(set(numbers.values())) == len(met)
    assert dict(zip(*counts.totals.tolist(), strict=True)) == {
        numbers[ngram]: n for ngram, n in met.items()
    }
    chosen = counts.most_frequent(2).tolist()
    times = sorted((n for ngram, n in met.items() if numbers[ngram] in chosen), reverse=True)
    assert times == sorted((n for n in met.values() if n > 1), reverse=True)[:2]


def _number(ngram: tuple[int, ...]) -> int:
    """Number of an n-gram of four tokens, the newest first: in base 4, after all shorter ones."""
    return sum(4**k * (token + (k > 1)) for k, token in enumerate(ngram))


def test_what_the_reservoir_forgets_is_read_directly():
    text, held_out = second_order_text(20_000, 0), second_order_text(3000, 1)
    without, one, two = (
        model(n_direct=k, n_passes=4).fit([text]).perplexity([held_out]) for k in (0, 1, 2)
    )
    # Nine of ten tokens follow from the second last; chance is 12.
    assert two < 0.5 * without
    assert two < 0.55 * one
    assert two < 3.5


@pytest.mark.parametrize("reset", ["never", "sentence"])
def test_every_way_of_reading_gives_the_same_probabilities(reset):
    docs = [second_order_text(200, seed) for seed in range(40)]
    fitted = model(reset, n_direct=3, n_ngrams=20).fit(docs)
    test = docs[0][:30]
    whole = fitted.log_likelihood([test])[0]
    stepwise = [float(np.log(fitted.predict_proba(test[:t])[test[t]])) for t in range(1, len(test))]
    np.testing.assert_allclose(whole, stepwise, atol=1e-5)
    state = fitted._read(test[:10])
    np.testing.assert_allclose(fitted._read(test[10:], state), fitted._read(test), atol=1e-5)


def test_sentences_of_ngrams_score_as_they_do_alone():
    words = ["the", "cat", "a", "dog", "sees", "hears", "boys", "girls"]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, 6)) for _ in range(300)]
    fitted = LanguageModel(
        Reservoir(6, random_state=0), readout(n_direct=3, n_ngrams=20), tokenizer="word"
    )
    fitted.fit(texts)
    alone = [fitted.log_likelihood([text])[0][:-1].sum() for text in texts[:50]]
    np.testing.assert_allclose(sentence_log_likelihoods(fitted, texts[:50]), alone, atol=1e-4)


def test_pieces_of_one_text_are_learned_as_one():
    text = second_order_text(4000, 0)
    whole, pieces = (model(n_direct=2, n_ngrams=20, buffer_size=8000) for _ in range(2))
    whole.partial_fit([text])
    for part in np.split(text, [700, 701, 1500]):
        pieces.partial_fit([part])
    learned, losses = [], []
    for fitted in (whole, pieces):  # in another order: a long text is read in parallel streams
        X, codes = fitted.readout_._waiting.joined()
        order = np.lexsort((X[:, 0], codes, X[:, -1], X[:, -2]))
        learned.append(np.stack([X[order, -2], X[order, -1], codes[order]]))
        again = clone(fitted.readout_).fit(X[order], codes[order])
        losses.append(again.predict_log_proba_of(X, codes).mean())
    np.testing.assert_array_equal(*learned)
    assert losses[1] == pytest.approx(losses[0], abs=0.02)
    np.testing.assert_array_equal(pieces._carried[1], text[:-4:-1])


def test_pieces_of_one_text_have_the_columns_of_the_whole():
    text = second_order_text(60, 0)
    fitted = model(n_direct=3).set_params(n_streams=1).fit([text])
    rows = [
        (states[:, -3:].astype(int).tolist(), following.tolist())
        for part in np.split(text, [1, 2, 20, 21, 40])
        for states, following in fitted._continued(fitted.tokenize([part]))
    ]
    last = [row for columns, _ in rows for row in columns]
    assert last == [[*text[:t][::-1][:3], *[NO_TOKEN] * (3 - t)] for t in range(1, 60)]
    assert [token for _, tokens in rows for token in tokens] == text[1:].tolist()


def test_a_saved_model_reads_directly_too(tmp_path):
    fitted = model(n_direct=2, n_ngrams=20).fit([second_order_text(2000, 0)])
    fitted.save(tmp_path / "model", training=True)
    again = LanguageModel.load(tmp_path / "model")
    test = [second_order_text(500, 3)]
    assert again.score(test) == fitted.score(test)
    assert fitted.n_parameters_ == again.n_parameters_ > 2 * (V + 1) * 4
    for one in (fitted, again):
        one.partial_fit([second_order_text(300, 4)])
    assert again.score(test) == fitted.score(test)


@pytest.mark.parametrize(("column", "got"), [(V, "12.0"), (0.5, "0.5"), (-2, "-2.0")])
def test_columns_that_are_no_tokens_are_named(column, got):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((100, 5)), np.full(100, 3)])
    y = np.arange(100) % V
    fitted = readout(n_direct=1).fit(X, y)
    X[0, -1] = column
    with pytest.raises(ValueError, match="must be tokens, whole numbers from -1"):
        fitted.predict_proba(X)
    with pytest.raises(ValueError, match=got):
        fitted.predict_proba(X)


def test_direct_connections_step_by_adagrad_of_sums_with_their_signs():
    rng = np.random.default_rng(0)
    direct = DirectConnections(2, 5, 3, np.array([1 * 5 + 2]))
    tables = np.zeros((2, 6, 3))
    squares = np.zeros((2, 6, 3))
    pair, pair_squares = np.zeros(3), np.zeros(3)
    for _ in range(3):
        last = rng.integers(-1, 5, (20, 2))
        last[:4] = [2, 1]
        gradient = rng.standard_normal((20, 3)).astype(np.float32)
        direct.step(last, gradient, 0.3)
        for k in range(2):
            for token in set(last[:, k]):
                total = gradient[last[:, k] == token].sum(axis=0)
                squares[k, token] += total**2
                tables[k, token] -= 0.3 * total / (np.sqrt(squares[k, token]) + 1e-4)
        total = gradient[(last == [2, 1]).all(axis=1)].sum(axis=0)
        pair_squares += total**2
        pair -= 0.3 * total / (np.sqrt(pair_squares) + 1e-4)
    np.testing.assert_allclose(direct.coef, tables, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(direct.ngram_coef[0], pair, rtol=1e-4, atol=1e-6)


def test_gradients_that_cancel_move_no_direct_connection():
    direct = DirectConnections(1, 4, 3)
    gradient = np.array([[1, -2, 3], [-1, 2, -3]], dtype=np.float32)
    direct.step(np.array([[2], [2]]), gradient, 0.5)
    assert not direct.coef.any()
    assert not direct.squares.any()


def test_tokens_from_before_a_piece_are_read_where_it_goes_on():
    text, before = np.array([5, 6, 7]), np.array([4, 3, 2])
    found = last_tokens(text, np.arange(3), None, 3, before)
    assert found.tolist() == [[5, 4, 3], [6, 5, 4], [7, 6, 5]]
    alone = last_tokens(text, np.arange(3), None, 3)
    assert alone.tolist() == [[5, NO_TOKEN, NO_TOKEN], [6, 5, NO_TOKEN], [7, 6, 5]]
