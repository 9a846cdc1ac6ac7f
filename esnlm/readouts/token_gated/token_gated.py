"""A softmax readout for each token that may have been read last."""

from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

import numpy as np

from esnlm.readouts.base.readout import StreamingReadout
from esnlm.readouts.softmax.loss import log_softmax
from esnlm.readouts.softmax.sgd import batch_rows, decayed, frequencies_of
from esnlm.readouts.token_gated.sgd import GatedPasses, GateMoments
from esnlm.readouts.token_gated.token_code import n_code_units, token_of
from esnlm.utils.arrays import Array, Arrays, Ints
from esnlm.utils.state_dict import Stateful, saved
from esnlm.utils.validation import PENALTY, Count, Number, check_parameters, limited

_SAMPLE_ROWS_A_UNIT = 100
_LEAST_SAMPLE = 65536


@dataclass(eq=False, repr=False)
class TokenGatedReadout(StreamingReadout):
    """Softmax regressions of the next token on the state, one for each token just read.

    A mixture of experts whose gate is known: the token u[t], which `with_token_code` keeps in the
    last units of the state. ``P(y | h, u) = softmax(A_u h + b_u)``: the product of token and
    context that one softmax on the state lacks. A prediction costs the same, the
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
    _learned = saved(
        n_seen="_n_seen", n_rows="_n_rows", targets="_targets", survey="_pilot", passes="_passes"
    )
    _layouts: ClassVar[dict[str, str]] = {"coef_": "f G U V", "intercept_": "f G V"}

    n_gates: int = field(metadata={"constraint": Count()})
    alpha: float = limited(1.0, PENALTY)
    _: KW_ONLY
    n_passes: int = limited(2, Count())
    learning_rate: float = limited(0.05, Number(0, open="low"))
    momentum: float = limited(0.9, Number(0, 1, open="high"))

    def _start(self) -> None:
        check_parameters(self)
        self._n_code = n_code_units(self.n_gates)
        self._passes: GatedPasses | None = None
        self._pilot: GateMoments | None = None
        self._targets = np.zeros(len(self.classes_), dtype=np.int64)
        self._n_seen, self._n_rows, self._stale = 0, 0, False

    @property
    def training_passes(self) -> int:
        return self.n_passes

    @property
    def sample_rows(self) -> int:
        wanted = max(_SAMPLE_ROWS_A_UNIT * (self.n_features_in_ - self._n_code), _LEAST_SAMPLE)
        return 0 if self._passes is not None else wanted

    def _sample(self, X: Array, codes: Ints) -> None:
        states, gates = self._split(X)
        if self._pilot is None:
            self._pilot = GateMoments(self.n_gates, states.shape[1])
        self._pilot.add(states, gates)
        self._targets += np.bincount(codes, minlength=len(self._targets))

    def _learn(self, X: Array, codes: Ints) -> None:
        left = max(0.0, 1 - self._n_seen / max(1, self._n_rows * self.n_passes))
        self._take(X, codes, self.learning_rate * left)

    def _make_part(self, name: str, arrays: Arrays, training: bool) -> Stateful:
        if name == "passes":
            return GatedPasses.restored(arrays, alpha=self.alpha, momentum=self.momentum)
        made = GateMoments(self.n_gates, self.n_features_in_ - self._n_code)
        return made.load_state_dict(arrays)

    def _loaded(self, training: bool) -> None:
        super()._loaded(training)
        self._stale = self._passes is not None

    def _plan(self, n_rows: int, counts: Array | None) -> None:
        self._n_rows = n_rows

    def _absorb(self, X: Array, codes: Ints) -> None:
        if self._passes is None:
            self._sample(X, codes)
        self._n_rows = max(self._n_rows, self._n_seen + len(X))
        part = decayed(self._n_seen, batch_rows(X.shape[1]) * self.n_gates)
        self._take(X, codes, self.learning_rate * part)

    def _take(self, X: Array, codes: Ints, rate: float) -> None:
        if self._passes is None:
            sample, self._pilot = self._pilot, None
            if sample is None:
                raise ValueError("a pilot sample comes before the first rows")
            n_sample = int(sample.counts.sum())
            counts = sample.counts * (max(self._n_rows, n_sample) / max(n_sample, 1))
            frequencies = frequencies_of(self._targets)
            self._passes = GatedPasses(sample, counts, frequencies, self.alpha, self.momentum)
        self._passes.learn(*self._split(X), codes, rate)
        self._n_seen += len(X)
        self._stale = True

    def _settle(self) -> None:
        if self._stale and self._passes is not None:
            self.coef_ = self._passes.weights.copy()
            self.intercept_ = self._passes.intercept
            self._stale = False

    def _split(self, X: Array) -> tuple[Array, Ints]:
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

    def _log_probabilities(self, X: Array) -> Array:
        states, gates = self._split(X)
        logs = np.empty((len(X), len(self.classes_)), dtype=X.dtype)
        for gate in np.unique(gates):
            rows = np.flatnonzero(gates == gate)
            logs[rows] = states[rows] @ self.coef_[gate] + self.intercept_[gate]
        return log_softmax(logs)
