"""Softmaxes over the words of every class, trained on mini-batches by online Newton steps."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.softmax.loss import residuals
from esnlm.readouts.two_level.word_factors import TASKS, ClassLayout, WordFactors
from esnlm.utils.state_dict import Stateful, saved
from esnlm.utils.threads import TileMap


class WordSoftmax(WordFactors, Stateful):
    """Stochastic minimiser of ``-log P(w | class(w), z)`` over rows z, of all classes at once.

    Rows z (n, P) are taken to be centred, and their columns uncorrelated and of variance one at
    most. Most rows say nothing of a word, so steps are online Newton ones: each word's gradient
    divided by ``prior P`` + the sum over all rows so far of p (1 - p). They fall off like
    1 / rows, sooner for frequent words, and need no schedule.

    ``counts`` (V,) are the words' occurrences, for the first intercepts; ``prior`` a word's
    curvature before its first row, in units of the components' variance; ``penalty`` that of half
    the squared weights, for each row.
    """

    _saved = saved("coef", "intercept", "curvature")

    def __init__(
        self,
        layout: ClassLayout,
        n_components: int,
        counts: NDArray[Any],
        prior: float = 1.0,
        penalty: float = 0.0,
    ) -> None:
        mass = counts + 0.5
        of_class = np.bincount(layout.word_class, mass, layout.n_classes)
        shares = (mass / of_class[layout.word_class])[layout.order]
        coef = np.zeros((len(counts), n_components), dtype=np.float32)
        super().__init__(layout, coef, np.log(shares).astype(np.float32))
        self.penalty = penalty
        self.curvature = np.full(len(counts), prior * n_components, dtype=np.float32)

    def step(
        self,
        Z: NDArray[np.float32],
        words: NDArray[np.intp],
        n_rows: int,
        over: TileMap,
        in_z: NDArray[np.float32] | None = None,
    ) -> None:
        """One step of the words of every class that occurs in rows Z (n, P), words (n,).

        Of ``n_rows`` rows, those whose word is alone in its class may be left out. ``in_z``
        (n, P) receives the gradient of the summed loss with respect to Z, before the step.
        """
        decay = np.float32(self.penalty * n_rows)
        parts = self.layout.rows_by_class(self.layout.word_class[words])

        def classes(first: int) -> None:
            for c, rows in parts[first::TASKS]:
                part = self._step_class(c, Z[rows], words[rows], decay, in_z is not None)
                if in_z is not None:
                    in_z[rows] = part

        over(classes, range(min(TASKS, len(parts))))

    def _step_class(
        self, c: int, z: NDArray[Any], words: NDArray[np.intp], decay: np.float32, wanted: bool
    ) -> NDArray[Any] | None:
        """A step of the words of class c; the loss's gradient in z before it where ``wanted``."""
        run = self.layout.runs[c]
        coef, intercept, curvature = self.coef[run], self.intercept[run], self.curvature[run]
        logits = z @ coef.T
        logits += intercept
        targets = self.layout.position[words] - run.start
        _, P, R = residuals(logits, targets)
        curvature += P.sum(axis=0) - np.einsum("iv,iv->v", P, P)
        in_z = R @ coef if wanted else None
        gradient = R.T @ z
        gradient /= curvature[:, None]
        coef -= gradient
        coef *= (curvature / (curvature + decay))[:, None]
        intercept -= R.sum(axis=0) / curvature
        return in_z
