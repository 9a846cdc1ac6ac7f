"""Linear interpolation of two models: the weighted mean of their probabilities."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esnlm.evaluation.metrics import pooled
from esnlm.models.base import SequenceModel
from esnlm.text.corpus import TokenStream
from esnlm.utils.interpolation import interpolated, likeliest_weight


class InterpolatedModel(SequenceModel):
    """``weight * first + (1 - weight) * second``, of fitted models with the same tokens.

    ``weight`` is the share of the first, in [0, 1]; `choose_weight` finds the best on held-out
    text. Raises ValueError where the models differ in tokenizer, vocabulary or ``reset``.
    """

    def __init__(self, first: SequenceModel, second: SequenceModel, weight: float = 0.5) -> None:
        check_alike(first, second)
        self.first = first
        self.second = second
        self.weight = weight
        self.tokenizer_ = first.tokenizer_
        self.n_tokens_ = first.n_tokens_
        self.reset = first.reset

    def choose_weight(self, docs: Any) -> "InterpolatedModel":
        """Set the weight that is likeliest on held-out ``docs``."""
        stream = self.tokenize(docs)
        self.weight = interpolation_weight(
            self.first.log_likelihood(stream), self.second.log_likelihood(stream)
        )
        return self

    def _log_probabilities(self, stream: TokenStream) -> NDArray[np.float64]:
        left, right = (m._log_probabilities(stream) for m in (self.first, self.second))
        return np.where(stream.predicted(), interpolated(left, right, self.weight), 0.0)

    def _read(self, ids: NDArray[Any], state: Any = None) -> tuple[Any, Any]:
        one, two = (None, None) if state is None else state
        return self.first._read(ids, one), self.second._read(ids, two)

    def _next_log_probabilities(self, state: tuple[Any, Any]) -> NDArray[np.float64]:
        left = self.first._next_log_probabilities(state[0])
        return interpolated(left, self.second._next_log_probabilities(state[1]), self.weight)


def check_alike(first: SequenceModel, second: SequenceModel) -> None:
    """Raise ValueError unless both models read the same text as the same tokens."""
    one, two = (m.tokenizer_ and m.tokenizer_.__getstate__() for m in (first, second))
    if one != two:
        raise ValueError("the two models have different tokenizers: their tokens do not compare")
    if (first.reset, first.n_tokens_) != (second.reset, second.n_tokens_):
        raise ValueError(
            f"the two models must read sequences alike, got reset={first.reset!r} with"
            f" {first.n_tokens_} tokens and reset={second.reset!r} with {second.n_tokens_}"
        )


def interpolation_weight(
    log_p: ArrayLike | Sequence[ArrayLike], log_q: ArrayLike | Sequence[ArrayLike]
) -> float:
    """The w in [0, 1] for which ``w * p + (1 - w) * q`` is likeliest, from held-out tokens.

    ``log_p`` and ``log_q``: natural-log probabilities of the same tokens, (T,) or one array per
    document. Raises ValueError for different lengths, none, NaN, or a token impossible to both.

    >>> round(interpolation_weight(np.log([0.6, 0.2]), np.log([0.2, 0.5])), 6)
    0.583333
    """
    left, right = pooled(log_p), pooled(log_q)
    if left.shape != right.shape:
        raise ValueError(
            f"both must score the same tokens, got {len(left)} and {len(right)} log-probabilities"
        )
    if np.any(np.maximum(left, right) == -np.inf):
        raise ValueError("a token is impossible to both models, so no weight makes it likely")
    return likeliest_weight(left, right)
