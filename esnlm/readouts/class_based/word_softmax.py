"""Softmaxes over the words of every class, trained on mini-batches by AdaGrad."""

import numpy as np

from esnlm.readouts.class_based.word_factors import TASKS, ClassLayout, WordFactors
from esnlm.readouts.softmax.loss import discount, logits, residuals
from esnlm.utils.arrays import Array, Floats32, Ints
from esnlm.utils.state_dict import Stateful, saved
from esnlm.utils.threads import TileMap


class WordSoftmax(WordFactors, Stateful):
    """Stochastic minimiser of ``-log P(w | class(w), z)`` over rows z, of all classes at once.

    Most rows say nothing of a word, so steps are AdaGrad's (Duchi et al. 2011) with one rate a
    word: its gradient g, divided by the root of the sum of |g|² |z|² over all steps so far, |z|²
    the mean over rows by their squared residuals. So the k-th row that pulls a word moves its
    logit by ``rate / sqrt(k)`` at most, however long the row is and however often it recurs, as
    the beginning of sentences does with direct connections.

    ``counts`` (V,) are the words' occurrences, for the first intercepts; ``prior`` the rows that a
    word's sum starts with, in units of the components' variance; ``penalty`` that of half the
    squared weights, for each row.
    """

    _saved = saved("coef", "intercept", "squares")

    def __init__(
        self, layout: ClassLayout, n_components: int, counts: Array, prior: float, penalty: float
    ) -> None:
        mass = counts + 0.5
        of_class = np.bincount(layout.word_class, mass, layout.n_classes)
        shares = (mass / of_class[layout.word_class])[layout.order]
        coef = np.zeros((len(counts), n_components), dtype=np.float32)
        super().__init__(layout, coef, np.log(shares).astype(np.float32))
        self.penalty = penalty
        self.squares = np.full(len(counts), (prior * n_components) ** 2, dtype=np.float32)

    def step(
        self,
        Z: Floats32,
        words: Ints,
        n_rows: int,
        rate: float,
        over: TileMap,
        in_z: Floats32 | None = None,
        discounts: Floats32 | None = None,
    ) -> None:
        """One step of the words of every class that occurs in rows Z (n, P), words (n,).

        ``rate`` is in nats. Of ``n_rows`` rows, those whose word is alone in its class may be left
        out. ``in_z`` (n, P) receives the gradient of the summed loss in Z, before the step;
        ``discounts`` (n,) are shares of the rows' targets that go to all words of the class alike.
        """
        decay = np.float32(self.penalty * n_rows)
        parts = self.layout.rows_by_class(self.layout.word_class[words])

        def classes(first: int) -> None:
            for c, rows in parts[first::TASKS]:
                z, run = Z[rows], self.layout.runs[c]
                targets = self.layout.position[words[rows]] - run.start
                _, _, R = residuals(logits(z, self.coef[run].T, self.intercept[run]), targets)
                if discounts is not None:
                    discount(R, targets, discounts[rows], 1 / R.shape[1])
                if in_z is not None:
                    in_z[rows] = R @ self.coef[run]
                self._move(z, run, R, np.float32(rate), decay)

        over(classes, range(min(TASKS, len(parts))))

    def _move(self, z: Array, run: slice, R: Array, rate: np.float32, decay: np.float32) -> None:
        """Step of the words of a class, whose rows (n, P) have residuals R."""
        coef, intercept, squares = self.coef[run], self.intercept[run], self.squares[run]
        gradient = R.T @ z
        weights = np.square(R)
        lengths = (np.einsum("ij,ij->i", z, z) @ weights) / np.maximum(weights.sum(axis=0), 1e-30)
        squares += lengths * np.einsum("vj,vj->v", gradient, gradient)
        rates = rate / np.sqrt(squares)
        gradient *= rates[:, None]
        coef -= gradient
        coef /= (1 + rates * decay)[:, None]
        intercept -= rates * R.sum(axis=0)
