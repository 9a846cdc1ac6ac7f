"""Word features in front of the recurrence (Rachez & Hagiwara 2014, sections 3.1 and 3.2)."""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from esnlm.kernels import features as kernels
from esnlm.reservoir.parallel_streams import checked_starts
from esnlm.reservoir.recurrence import ACTIVATIONS
from esnlm.utils.arrays import Array, Arrays, check_arrays, checked_tokens
from esnlm.utils.state_dict import Stateful, saved
from esnlm.utils.validation import Count, Number, at_fit, check_parameters, limited

# Online least squares with step η‖x‖² converges below 2; a tenth keeps its gradient noise small
# at every reservoir size (with 0.01 the paper's rate is above it from about 30 units on).
_LARGEST_STEP = 0.1


class BaseWordFeatures(Stateful, TransformerMixin, BaseEstimator):
    """A table of word vectors, ``embedding_`` (n_tokens, n_features), that drives a reservoir."""

    embedding_: Array

    def transform(self, tokens: ArrayLike) -> Array:
        """Return the features of tokens (T,) int, as an array (T, n_features)."""
        check_is_fitted(self, "embedding_")
        return self.embedding_[checked_tokens(tokens, len(self.embedding_))]

    def _before_saving(self, training: bool) -> None:
        check_is_fitted(self, "embedding_")

    def _required(self, arrays: Arrays, training: bool) -> Iterable[str]:
        return self._saved

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        check_arrays(arrays, {"embedding": "f V F"})
        return arrays


@dataclass(eq=False, repr=False)
class WordFeatures(BaseWordFeatures):
    """Dense word features f(u) = W_f u that drive a reservoir in place of one-hot words.

    Equations are those of Rachez & Hagiwara (2014), here 8-11. ``W_f`` and a provisional linear
    readout ``W_out`` descend the squared error of the next word (eq. 12), one update per word of
    the text in its order. The error of a prediction reaches the
    features of the word just read only: it passes through the reservoir's units once and never
    through its recurrent weights, as the echo state property makes older words count
    geometrically less (eq. 19-29). The features then stay fixed, the provisional readout is
    dropped, and any readout is fitted on the states that the features drive.

    A pass costs n_units * (n_tokens + in-degree) operations per word, in one thread: the updates
    depend on one another.

    Parameters
    ----------
    n_features : int
        Dimensions of a word's features, F; the paper has 2.
    n_passes : int
        Passes over the tokens.
    learning_rate, readout_learning_rate : float
        Step sizes for ``W_f`` and ``W_out``; the paper has 0.05 and 0.01. A readout step on
        a state x is held at or below ``0.1 / ‖x‖²``, which keeps large reservoirs stable.
    random_state : int, RandomState instance or None
        Draws the initial features.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_tokens, n_features), float64
        Row v is the feature vector of token v: the transpose of W_f. It starts as Gaussian noise
        of standard deviation 0.1 (the paper gives none). Words that never occur keep their initial
        row.
    coef_ : ndarray of shape (n_tokens, n_units), float64
        The provisional W_out, which starts at zero.
    loss_history_ : ndarray of shape (n_passes,), float64
        Mean over predictions of half the squared error, measured before each update.
    n_predictions_ : int
        Predictions in one pass.

    Examples
    --------
    Words 0 and 1 are always followed by 2, so their features come to agree:

    >>> import numpy as np
    >>> from esnlm import Reservoir, WordFeatures
    >>> tokens = np.random.default_rng(0).choice([0, 1], 2000)
    >>> tokens[1::2] = 2
    >>> reservoir = Reservoir(20, random_state=0).fit(n_inputs=2)
    >>> words = WordFeatures(n_features=2, random_state=0).fit(tokens, reservoir=reservoir)
    >>> a, b, c = words.embedding_
    >>> bool(np.linalg.norm(a - b) < 0.5 * np.linalg.norm(a - c))
    True
    >>> words.transform([2, 0]).shape
    (2, 2)
    """

    _saved = saved(
        embedding="embedding_", coef="coef_",
        loss_history="loss_history_", n_predictions="n_predictions_",
    )  # fmt: skip

    _: KW_ONLY
    n_features: int = limited(2, Count())
    n_passes: int = limited(10, Count())
    learning_rate: float = limited(0.05, Number(0, open="low"))
    readout_learning_rate: float = limited(0.01, Number(0, open="low"))
    random_state: int | np.random.RandomState | None = None

    def fit(
        self,
        tokens: ArrayLike,
        y: None = None,
        *,
        reservoir: Any,
        n_tokens: int | None = None,
        starts: ArrayLike | None = None,
    ) -> Self:
        """Learn the features on integers (T,), in their order; y is ignored.

        Raises ValueError for tokens outside the vocabulary, fewer than two of them, a reservoir of
        another input size, or features that diverged.

        ``reservoir`` is the one that the features will drive, with ``n_inputs_ == n_features``; one
        without weights is fitted. It is read, not changed. ``n_tokens`` is the size of the
        vocabulary; default: the largest token + 1. ``starts`` are sorted positions at which the
        state returns to zero, and whose token is not predicted (beginnings of sentences); default:
        one long sequence, as in the paper.
        """
        check_parameters(self)
        Count(none=True).check("n_tokens", n_tokens)
        # A copy: compiled code reads tokens without checks, and the caller's array may change.
        ids = checked_tokens(np.array(tokens), n_tokens).astype(np.int64, copy=False)
        if len(ids) < 2:
            raise ValueError(f"word features need at least two tokens, got {len(ids)}")
        size = int(ids.max()) + 1 if n_tokens is None else int(n_tokens)
        weights = self._reservoir_weights(reservoir)
        random = check_random_state(self.random_state)
        embedding = random.standard_normal((size, self.n_features)) * 0.1
        coef = np.zeros((size, len(reservoir.bias_)))
        restart = np.zeros(len(ids), dtype=np.bool_)
        positions = checked_starts(starts, len(ids))
        restart[0 if positions is None else positions] = True
        rates = (float(self.learning_rate), float(self.readout_learning_rate), _LARGEST_STEP)
        history = np.empty(self.n_passes)
        count = 0
        for i in range(self.n_passes):
            total, count = kernels.descend(ids, restart, weights, embedding, coef, *rates)
            if not (np.isfinite(total) and np.isfinite(embedding).all()):
                raise ValueError(
                    f"word features diverged in pass {i + 1}: lower learning_rate "
                    f"(got {self.learning_rate}) or the reservoir's spectral radius"
                )
            history[i] = total / max(count, 1)
        if count == 0:
            raise ValueError("every token begins a sequence, so there is nothing to predict")
        self.embedding_, self.coef_ = embedding, coef
        self.loss_history_, self.n_predictions_ = history, count
        return self

    def _reservoir_weights(self, reservoir: Any) -> tuple[Any, ...]:
        """Return CSR arrays, input weights, bias, leak rate and activation code of a reservoir."""
        if not hasattr(reservoir, "W_"):
            reservoir.fit(n_inputs=self.n_features)
        if reservoir.n_inputs_ != self.n_features:
            raise ValueError(
                f"the reservoir has {reservoir.n_inputs_} inputs for {self.n_features} features: "
                f"make its weights with Reservoir(...).fit(n_inputs={self.n_features})"
            )
        recurrent = reservoir.W_.tocsr()
        inputs = reservoir.W_in_
        inputs = inputs.toarray() if hasattr(inputs, "toarray") else inputs
        rest = inputs, reservoir.bias_, reservoir.leak_rate_
        return (
            recurrent.indptr.astype(np.int64),
            recurrent.indices.astype(np.int64),
            recurrent.data.astype(np.float64),
            *(np.ascontiguousarray(array, dtype=np.float64) for array in rest),
            ACTIVATIONS[at_fit(reservoir)["activation"]],
        )
