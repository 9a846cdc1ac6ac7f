"""Steps of the softmax of words in their class, against the same written out."""

import numpy as np
import pytest

from esnlm.readouts.class_based.softmaxes import WordSoftmax
from esnlm.readouts.class_based.word_factors import ClassLayout


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
        words.step(Z, targets, 40, 0.9, 1, discounts=less)
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
