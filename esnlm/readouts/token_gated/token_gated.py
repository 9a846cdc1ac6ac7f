"""A softmax readout for each token that may have been read last."""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esnlm.readouts.base.readout import WITHOUT_STATE, StreamingReadout
from esnlm.readouts.base.state_dict import after_start, with_start
from esnlm.readouts.softmax.loss import log_softmax
from esnlm.readouts.softmax.sgd import batch_rows
from esnlm.readouts.token_gated.sgd import GatedPasses, GateMoments
from esnlm.readouts.token_gated.token_code import n_code_units, token_of
from esnlm.utils.validation import check_count, check_finite

_SURVEY_ROWS_A_UNIT = 100
_LEAST_SURVEY = 65536


class TokenGatedReadout(StreamingReadout):
    """Softmax regressions of the next token on the state, one for each token just read.

    A mixture of experts whose gate is known: the token u[t], which `with_token_code` keeps in the
    last units of the state. ``P(y | h, u) = softmax(A_u h + b_u)``: the product of token and
    context that one softmax on the state lacks. A prediction costs what that one costs, the
    weights are ``n_gates`` times as many. For small vocabularies, such as characters.

    Minimises, for each gate, ``sum_i -log p(y_i | x_i) + alpha / 2 |A_u|²``.

    Parameters
    ----------
    n_gates : int
        Tokens that may be read, V of the reservoir.
    alpha : float
        L2 penalty on the weights, on the scale of the summed loss of a gate.
    n_passes : int
        Passes over the corpus; the rate falls linearly to zero over them.
    learning_rate, momentum : float
        See `esnlm.readouts.softmax.sgd.IncrementalSolver`.

    Attributes
    ----------
    coef_ : ndarray (n_gates, n_units - n_code, V) float32
    intercept_ : ndarray (n_gates, V) float32

    Examples
    --------
    Whether 2 or 3 follows is the exclusive or of the last two tokens:

    >>> from esnlm import LanguageModel, Reservoir
    >>> from esnlm.readouts.token_gated.token_code import with_token_code
    >>> bits = np.random.default_rng(0).integers(2, size=(3000, 2))
    >>> tokens = np.column_stack([bits, 2 + (bits[:, 0] ^ bits[:, 1])]).ravel()
    >>> reservoir = with_token_code(Reservoir(20, random_state=0).fit(n_inputs=4))
    >>> model = LanguageModel(reservoir, TokenGatedReadout(4), n_tokens=4, reset="never")
    >>> model.fit([tokens]).predict_proba(tokens[:5])[2:].round(1)
    array([0., 1.])
    """

    _parameters: ClassVar[tuple[str, ...]] = ("coef_", "intercept_")

    def __init__(
        self,
        n_gates: int,
        alpha: float = 1.0,
        *,
        n_passes: int = 2,
        learning_rate: float = 0.05,
        momentum: float = 0.9,
    ) -> None:
        self.n_gates = n_gates
        self.alpha = alpha
        self.n_passes = n_passes
        self.learning_rate = learning_rate
        self.momentum = momentum

    def _start(self) -> None:
        check_count("n_gates", self.n_gates)
        check_count("n_passes", self.n_passes)
        for name in ("alpha", "learning_rate", "momentum"):
            check_finite(name, getattr(self, name))
        if self.alpha < 0 or self.learning_rate <= 0 or not 0 <= self.momentum < 1:
            raise ValueError(
                "alpha must not be negative, learning_rate be positive and momentum lie in [0, 1),"
                f" got {self.alpha}, {self.learning_rate} and {self.momentum}"
            )
        self._n_code = n_code_units(self.n_gates)
        self._passes: GatedPasses | None = None
        self._surveyed: GateMoments | None = None
        self._targets = np.zeros(len(self.classes_), dtype=np.int64)
        self._n_seen, self._n_rows, self._stale = 0, 0, False
        self._can_learn = True

    @property
    def training_passes(self) -> int:
        """Passes over the corpus that it wants."""
        return self.n_passes

    @property
    def survey_rows(self) -> int:
        """Rows that the preconditioner is made from."""
        wanted = max(_SURVEY_ROWS_A_UNIT * (self.n_features_in_ - self._n_code), _LEAST_SURVEY)
        return 0 if self._passes is not None else wanted

    def begin(self, classes: ArrayLike, n_units: int, **options: Any) -> Self:
        """See `StreamingReadout.begin`."""
        super().begin(classes, n_units, **options)
        self._n_rows = int(options["n_rows"])
        return self

    def survey(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Rows for the preconditioner."""
        states, gates = self._split(X)
        if self._surveyed is None:
            self._surveyed = GateMoments(self.n_gates, states.shape[1])
        self._surveyed.add(states, gates)
        self._targets += np.bincount(codes, minlength=len(self._targets))

    def learn(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Steps on the next block of the pass."""
        left = max(0.0, 1 - self._n_seen / max(1, self._n_rows * self.n_passes))
        self._learn(X, np.asarray(codes, dtype=np.intp), self.learning_rate * left)

    def training_arrays(self) -> dict[str, NDArray[Any]]:
        """See `StreamingReadout.training_arrays`."""
        self._check_can_learn()
        arrays = {"n_seen": np.asarray(self._n_seen), "n_rows": np.asarray(self._n_rows)}
        if self._surveyed is not None:
            arrays |= with_start("survey.", self._surveyed.to_arrays())
            arrays["targets"] = self._targets
        if self._passes is not None:
            arrays |= with_start("passes.", self._passes.to_arrays())
        return arrays

    def restore_training(self, arrays: dict[str, NDArray[Any]]) -> None:
        """See `StreamingReadout.restore_training`."""
        self._can_learn = True
        self._n_seen, self._n_rows = int(arrays["n_seen"]), int(arrays["n_rows"])
        if surveyed := after_start("survey.", arrays):
            self._surveyed, self._targets = GateMoments.from_arrays(surveyed), arrays["targets"]
        if passes := after_start("passes.", arrays):
            self._passes = GatedPasses.from_arrays(passes, self.alpha, self.momentum)
            self._stale = True

    def _plan(self, n_rows: int, counts: NDArray[Any] | None) -> None:
        self._n_rows = n_rows

    def _absorb(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        """Steps at a rate that falls as the root of the rows seen."""
        self._check_can_learn()
        if self._passes is None:
            self.survey(X, codes)
        self._n_rows = max(self._n_rows, self._n_seen + len(X))
        part = (1 + self._n_seen / (20 * batch_rows(X.shape[1]) * self.n_gates)) ** -0.5
        self._learn(X, codes, self.learning_rate * part)

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(arrays)
        self._can_learn = False

    def _check_can_learn(self) -> None:
        if not self._can_learn:
            raise ValueError(WITHOUT_STATE)

    def _learn(self, X: NDArray[Any], codes: NDArray[np.intp], rate: float) -> None:
        if self._passes is None:
            self._passes = self._begun()
        self._passes.learn(*self._split(X), codes, rate)
        self._n_seen += len(X)
        self._stale = True

    def _begun(self) -> GatedPasses:
        surveyed = self._surveyed
        if surveyed is None:
            raise ValueError("a survey comes before the first rows")
        frequencies = (self._targets + 0.5) / (self._targets + 0.5).sum()
        n_surveyed = int(surveyed.counts.sum())
        counts = surveyed.counts * (max(self._n_rows, n_surveyed) / max(n_surveyed, 1))
        self._surveyed = None
        return GatedPasses(surveyed, counts, frequencies, self.alpha, self.momentum)

    def _settle(self) -> None:
        if self._stale and self._passes is not None:
            self.coef_ = self._passes.weights.copy()
            self.intercept_ = self._passes.intercept
            self._stale = False

    def _split(self, X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """States without the token code, and the gates (n,)."""
        if X.shape[1] <= self._n_code:
            raise ValueError(
                f"states must have more than {self._n_code} units, the token's code, got"
                f" {X.shape[1]}; see with_token_code"
            )
        gates = token_of(X, self._n_code)
        if len(gates) and gates.max() >= self.n_gates:
            raise ValueError(
                f"the last {self._n_code} units name the token {gates.max()}, expected one of"
                f" {self.n_gates}: the states must come from with_token_code"
            )
        return X[:, : -self._n_code], gates

    def _log_probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        states, gates = self._split(X)
        logs = np.empty((len(X), len(self.classes_)), dtype=X.dtype)
        for gate in np.unique(gates):
            rows = np.flatnonzero(gates == gate)
            logs[rows] = states[rows] @ self.coef_[gate] + self.intercept_[gate]
        return log_softmax(logs)
