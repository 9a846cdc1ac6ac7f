"""Two models of the same tokens as one: the weighted mean of their probabilities."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.evaluation.metrics import interpolated, interpolation_weight
from esnlm.models.base import SequenceModel
from esnlm.text.corpus import TokenStream


class InterpolatedModel(SequenceModel):
    """``weight * first + (1 - weight) * second``, of fitted models that read text alike.

    Parameters
    ----------
    first, second : SequenceModel
        Fitted, with the same tokenizer, vocabulary and ``reset``.
    weight : float
        Share of the first, in [0, 1]; `choose_weight` finds the best on held-out text.

    Raises
    ------
    ValueError
        The models differ in what a token or a sequence is.

    Examples
    --------
    >>> from esnlm.models.ngram import NgramLanguageModel
    >>> docs = [[0, 1, 2, 1, 2], [0, 2, 1, 2]]
    >>> one, two = (NgramLanguageModel(order, n_tokens=3).fit(docs) for order in (1, 3))
    >>> both = InterpolatedModel(one, two).choose_weight([[0, 1, 2, 2, 1]])
    >>> 0 < both.weight < 1, round(float(both.predict_proba([0, 1]).sum()), 12)
    (True, 1.0)
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
        """Set the weight to the likeliest on ``docs``, which neither model has been fitted on."""
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
