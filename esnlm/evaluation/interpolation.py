"""Linear interpolation of two models: the weighted mean of their probabilities."""

from typing import Any

import numpy as np

from esnlm.models.base import SequenceModel
from esnlm.text.corpus import TokenStream
from esnlm.utils.arrays import Array, Floats
from esnlm.utils.interpolation import interpolated


class InterpolatedModel(SequenceModel):
    """``weight * first + (1 - weight) * second``, of fitted models with the same tokens.

    ``weight`` is the share of the first, in [0, 1]; `likeliest_weight` finds the best on held-out
    text. Raises ValueError where the models differ in tokenizer, vocabulary or ``reset``.
    """

    def __init__(self, first: SequenceModel, second: SequenceModel, weight: float = 0.5) -> None:
        check_alike(first, second)
        self.first = first
        self.second = second
        self.weight = weight
        self.tokenizer_ = first.tokenizer_
        self.n_tokens_ = first.n_tokens_
        self.reset = first.reset_

    def _log_probabilities(self, stream: TokenStream) -> Floats:
        left, right = (m._log_probabilities(stream) for m in (self.first, self.second))
        return np.where(stream.predicted(), interpolated(left, right, self.weight), 0.0)

    def _read(self, ids: Array, state: Any = None) -> tuple[Any, Any]:
        one, two = (None, None) if state is None else state
        return self.first._read(ids, one), self.second._read(ids, two)

    def _next_log_probabilities(self, state: tuple[Any, Any]) -> Floats:
        left = self.first._next_log_probabilities(state[0])
        return interpolated(left, self.second._next_log_probabilities(state[1]), self.weight)


def check_alike(first: SequenceModel, second: SequenceModel) -> None:
    """Raise ValueError unless both models read the same text as the same tokens."""
    one, two = (m.tokenizer_ and m.tokenizer_.__getstate__() for m in (first, second))
    if one != two:
        raise ValueError("the two models have different tokenizers: their tokens do not compare")
    if (first.reset_, first.n_tokens_) != (second.reset_, second.n_tokens_):
        raise ValueError(
            f"the two models must read sequences alike, got reset={first.reset_!r} with"
            f" {first.n_tokens_} tokens and reset={second.reset_!r} with {second.n_tokens_}"
        )
