"""Scores of minimal pairs under a model: which sentence of each it prefers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.evaluation.minimal_pairs.likelihood import reads_bos, sentence_log_likelihoods
from esnlm.evaluation.minimal_pairs.pairs import Pair

#: Scores that differ by less, relative to their size, are equal: sums of the same numbers in
#: another order differ by 1e-15, while the models' own arithmetic has seven digits.
TIE = 1e-9


@dataclass(frozen=True)
class PairScores:
    """Log-probabilities of n pairs: ``good`` (n,) and ``bad`` (n,), and how they were made."""

    good: NDArray[np.float64]
    bad: NDArray[np.float64]
    bos: bool
    reduction: str

    @property
    def ties(self) -> NDArray[np.bool_]:
        """Whether the two sentences are as probable as each other (n,)."""
        size = np.maximum(np.abs(self.good), np.abs(self.bad))
        with np.errstate(invalid="ignore"):
            near = np.abs(self.good - self.bad) <= TIE * size
        return np.asarray((self.good == self.bad) | (near & np.isfinite(size)))

    @property
    def credit(self) -> NDArray[np.float64]:
        """1 for a right choice, 0.5 for a tie, 0 for a wrong one (n,)."""
        return np.where(self.ties, 0.5, self.good > self.bad)


def score_pairs(
    model: Any,
    pairs: Sequence[Pair],
    *,
    bos: bool | None = None,
    reduction: str = "sum",
    verbose: bool = False,
) -> PairScores:
    """Score both sentences of every pair; see `sentence_log_likelihoods` for the options.

    Raises
    ------
    FloatingPointError
        A score is not a number.
    """
    sentences = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]
    scores = sentence_log_likelihoods(
        model, sentences, bos=bos, reduction=reduction, verbose=verbose
    )
    if np.isnan(scores).any():
        worst = sentences[int(np.argmax(np.isnan(scores)))]
        raise FloatingPointError(f"the model's score of {worst!r} is not a number")
    return PairScores(scores[::2], scores[1::2], reads_bos(model, bos), reduction)
