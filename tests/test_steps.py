"""Stochastic steps against the same written out word by word, and against scikit-learn's optima."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from test_readouts import READOUTS, pairs

from esnlm import ClassFactoredReadout, LanguageModel, Reservoir, SoftmaxReadout
from esnlm.readouts.base.last_tokens import NO_TOKEN, last_tokens
from esnlm.readouts.class_based.direct_connections import DirectConnections
from esnlm.readouts.class_based.word_factors import ClassLayout
from esnlm.readouts.class_based.word_softmax import WordSoftmax
from esnlm.text.corpus import join_sequences
from esnlm.text.shuffling import ChunkOrder
from esnlm.training.trainer import Trainer, TrainingPlan
from esnlm.utils.threads import tile_map


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
    np.testing.assert_allclose(direct.pair_coef[0], pair, rtol=1e-4, atol=1e-6)


def test_gradients_that_cancel_move_no_direct_connection():
    direct = DirectConnections(1, 4, 3)
    gradient = np.array([[1, -2, 3], [-1, 2, -3]], dtype=np.float32)
    direct.step(np.array([[2], [2]]), gradient, 0.5)
    assert not direct.coef.any()
    assert not direct.squares.any()


@pytest.mark.parametrize("penalty", [0.0, 0.7])
@pytest.mark.parametrize("discounted", [False, True])
def test_words_step_as_written_out(penalty: float, discounted: bool):
    rng = np.random.default_rng(1)
    layout = ClassLayout(np.array([0, 1, 0, 1, 1, 2]))
    words = WordSoftmax(layout, 3, np.arange(1, 7), prior=2.0, penalty=penalty)
    words.coef[:] = rng.standard_normal(words.coef.shape)
    coef, intercept = words.coef.astype(float), words.intercept.astype(float)
    squares = np.full(6, (2.0 * 3) ** 2)
    place = {int(word): at for at, word in enumerate(layout.order)}
    for _ in range(3):
        Z = rng.standard_normal((30, 3)).astype(np.float32)
        targets = rng.integers(0, 5, 30)
        less = rng.uniform(0, 0.3, 30).astype(np.float32) if discounted else None
        with tile_map(1) as over:
            words.step(Z, targets, 40, 0.9, over, discounts=less)
        for members in ([0, 2], [1, 3, 4]):
            at = [place[word] for word in members]
            rows = np.flatnonzero(np.isin(targets, members))
            logits = Z[rows] @ coef[at].T + intercept[at]
            R = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            for i, row in enumerate(rows):
                wanted = (np.array(members) == targets[row]).astype(float)
                if less is not None:
                    wanted = (1 - less[row]) * wanted + less[row] / len(members)
                R[i] -= wanted
            for v, a in enumerate(at):
                gradient = R[:, v] @ Z[rows]
                share = R[:, v] ** 2 / (R[:, v] ** 2).sum()
                squares[a] += (share @ (Z[rows] ** 2).sum(axis=1)) * (gradient @ gradient)
                rate = 0.9 / np.sqrt(squares[a])
                coef[a] = (coef[a] - rate * gradient) / (1 + rate * penalty * 40)
                intercept[a] -= rate * R[:, v].sum()
    np.testing.assert_allclose(words.coef, coef, rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(words.intercept, intercept, rtol=2e-4, atol=1e-5)


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


def test_each_pass_has_a_shuffle_of_its_own(monkeypatch: pytest.MonkeyPatch):
    orders: list[list[int]] = []

    class Noted(ChunkOrder):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            orders.append(self._first.tolist())

    monkeypatch.setattr("esnlm.training.trainer.ChunkOrder", Noted)
    sequences = [np.array([0, i]) for i in range(1, 60)]
    stream = join_sequences([sequences], n_tokens=60, reset=True)
    for _ in range(2):
        readout = SoftmaxReadout(solver="incremental", n_passes=2)
        model = LanguageModel(Reservoir(4, random_state=0), readout, n_tokens=60)
        model._read_corpus(stream)
        Trainer(model, stream, plan=TrainingPlan(chunk_tokens=20)).run()
    first, second = orders[: len(orders) // 2], orders[len(orders) // 2 :]
    assert first == second
    assert len({tuple(order) for order in first}) == len(first) >= 2
    assert all(sorted(order) == list(range(0, 118, 2)) for order in first)


@pytest.mark.parametrize("readout", READOUTS.values(), ids=READOUTS.keys())
def test_more_rows_change_what_a_fitted_readout_predicts(readout: Any):
    X, y = pairs(400)
    learned = clone(readout).fit(X, y)
    shifted = (y + 1) % 4
    before = learned.predict_log_proba_of(X, shifted).mean()
    for _ in range(3):
        learned.partial_fit(X, shifted)
    assert learned.predict_log_proba_of(X, shifted).mean() > before + 0.05


def test_tokens_from_before_a_piece_are_read_where_it_goes_on():
    text, before = np.array([5, 6, 7]), np.array([4, 3, 2])
    found = last_tokens(text, np.arange(3), None, 3, before)
    assert found.tolist() == [[5, 4, 3], [6, 5, 4], [7, 6, 5]]
    alone = last_tokens(text, np.arange(3), None, 3)
    assert alone.tolist() == [[5, NO_TOKEN, NO_TOKEN], [6, 5, NO_TOKEN], [7, 6, 5]]
