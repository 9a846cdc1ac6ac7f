"""Softmax word factors of every class, learned in batches of components."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.softmax.loss import residuals
from esnlm.readouts.two_level.word_factors import ClassLayout, WordFactors
from esnlm.utils.threads import TileMap

Arrays = dict[str, NDArray[Any]]

# Classes are shared out among so many tasks.
_TASKS = 16
_ARRAYS = ("coef", "intercept", "curvature")


class WordSolver:
    """Incremental minimiser of ``-log P(w | class(w), z)`` over rows z, of all classes at once.

    Rows z (n, P) are taken to be centred, and their columns uncorrelated and of variance one at
    most. Most rows say nothing of a word, so steps are online Newton ones: each word's gradient
    divided by ``prior P`` + the sum over all rows so far of p (1 - p). They fall off like
    1 / rows, sooner for frequent words, and need no schedule.

    Parameters
    ----------
    layout : ClassLayout
    n_components : int
        P.
    counts : ndarray (V,)
        Occurrences of the words, for the first intercepts.
    prior : float
        Curvature of a word before its first row, in units of the components' variance.
    penalty : float
        Of half the squared weights, for each row.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> Z = random.standard_normal((4096, 2)).astype(np.float32)
    >>> words = 2 * (Z[:, 0] > 0) + (Z[:, 1] > 0)
    >>> solver = WordSolver(ClassLayout(np.array([0, 0, 1, 1])), 2, np.ones(4))
    >>> from esnlm.utils.threads import tile_map
    >>> with tile_map(1) as over:
    ...     for k in range(0, 4096, 64):
    ...         solver.step(Z[k : k + 64], words[k : k + 64], over)
    >>> bool(np.exp(solver.factors.log_probability_of(Z, words)).mean() > 0.8)
    True
    """

    def __init__(
        self,
        layout: ClassLayout,
        n_components: int,
        counts: NDArray[Any],
        *,
        prior: float = 1.0,
        penalty: float = 0.0,
    ) -> None:
        self.layout = layout
        self.penalty = penalty
        mass = counts + 0.5
        of_class = np.bincount(layout.word_class, mass, layout.n_classes)
        shares = (mass / of_class[layout.word_class])[layout.order]
        self.coef = np.zeros((len(counts), n_components), dtype=np.float32)
        self.intercept = np.log(shares).astype(np.float32)
        self.curvature = np.full(len(counts), prior * n_components, dtype=np.float32)

    @property
    def factors(self) -> WordFactors:
        """What was learned, as views."""
        return WordFactors(self.layout, self.coef, self.intercept)

    def step(self, Z: NDArray[np.float32], words: NDArray[np.intp], over: TileMap) -> None:
        """One step of the words of every class that occurs in rows Z (n, P), words (n,)."""
        layout = self.layout
        decay = np.float32(self.penalty * len(Z))
        inside = np.flatnonzero(layout.sizes[layout.word_class[words]] > 1)
        parts = layout.rows_by_class(layout.word_class[words[inside]])

        def classes(first: int) -> None:
            for c, found in parts[first::_TASKS]:
                rows, run = inside[found], layout.runs[c]
                targets = layout.position[words[rows]] - run.start
                arrays = self.coef[run], self.intercept[run], self.curvature[run]
                step_of_class(Z[rows], targets, *arrays, decay)

        over(classes, range(min(_TASKS, len(parts))))

    def to_arrays(self) -> Arrays:
        """All that `step` goes on from, as views."""
        return {name: np.asarray(getattr(self, name)) for name in _ARRAYS}

    def restore(self, arrays: Arrays) -> None:
        """Take over what `to_arrays` gave."""
        for name in _ARRAYS:
            setattr(self, name, arrays[name])


def step_of_class(
    z: NDArray[Any],
    targets: NDArray[np.intp],
    coef: NDArray[Any],
    intercept: NDArray[Any],
    curvature: NDArray[Any],
    decay: np.float32,
    *,
    downwards: bool = False,
) -> NDArray[Any] | None:
    """An online Newton step of the softmax over the words of one class, in place.

    Rows z (n, P) with words targets (n,), counted within the class; coef (words, P), intercept and
    curvature (words,). Where ``downwards``, the gradient (n, P) of the loss in z before the step.
    """
    logits = z @ coef.T
    logits += intercept
    _, P, R = residuals(logits, targets, np.ones(len(z), dtype=np.float32))
    curvature += P.sum(axis=0) - np.einsum("iv,iv->v", P, P)
    in_z = R @ coef if downwards else None
    gradient = R.T @ z
    gradient /= curvature[:, None]
    coef -= gradient
    coef *= (curvature / (curvature + decay))[:, None]
    intercept -= R.sum(axis=0) / curvature
    return in_z
