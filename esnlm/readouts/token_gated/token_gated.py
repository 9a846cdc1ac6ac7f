"""A softmax readout for each token that may have been read last, and its n-grams."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from esnlm.readouts.base.last_tokens import split_last_tokens
from esnlm.readouts.base.readout import StreamingReadout
from esnlm.readouts.softmax.loss import log_softmax
from esnlm.readouts.softmax.sgd import batch_rows, decayed, frequencies_of
from esnlm.readouts.token_gated.ngram_connections import NgramConnections
from esnlm.readouts.token_gated.sgd import GatedPasses, GateMoments
from esnlm.utils.arrays import Array, Arrays, Ints, Ints64
from esnlm.utils.state_dict import Stateful, saved
from esnlm.utils.validation import PENALTY, Count, Number, at_fit, check_parameters, limited

_SAMPLE_ROWS_A_UNIT = 100
_LEAST_SAMPLE = 65536
# A digit of a token code is tanh(8) or -tanh(8), as near to one as compiled float32 comes.
_DRIVE, _LEAST_DIGIT = 8.0, 0.99


@dataclass(eq=False, repr=False)
class TokenGatedReadout(StreamingReadout):
    """Softmax regressions of the next token on the state, one for each token just read.

    A mixture of experts whose gate is known, the token u[t]: ``P(y | h, u) = softmax(A_u h + b_u +
    d)``, the product of token and context that one softmax on the state lacks. A prediction costs
    the same, the weights are ``n_gates`` times as many. For small vocabularies, such as characters.

    With ``n_direct`` the last tokens are read directly, past the reservoir, as columns beside the
    state: the newest is the gate, and the n-grams of all of them add d to the logits, by
    `esnlm.readouts.token_gated.ngram_connections.NgramConnections`. Both are trained together.
    To learn from a row, the eighth of the text that it stands in is left out of their counts.
    The trainer and ``esnlm train`` count in the order of the text; `LanguageModel.fit` reads many
    places at once, and trusts n-grams too much where a long text repeats itself.
    Without n-grams d is zero, and u[t] is what `with_token_code` keeps in the last units.

    Minimises, for each gate, ``sum_i -log p(y_i | x_i) + alpha / 2 |A_u|²``.

    Parameters
    ----------
    n_gates : int, optional
        Tokens that may be read, V of the reservoir; default: as many as there are classes.
    alpha : float
        L2 penalty on the weights, on the scale of the summed loss of a gate.
    n_direct : int
        Last tokens whose n-grams are read directly; 0: none.
    n_passes : int
        Passes over the corpus; the rate falls linearly to zero over them. With ``n_direct`` one
        more comes first, which counts.
    learning_rate, momentum : float
        See `esnlm.readouts.softmax.sgd.IncrementalSolver`.

    Attributes
    ----------
    coef_ : ndarray (n_gates, n_units, V) float32, without the units of a token code
    intercept_ : ndarray (n_gates, V) float32
    ngrams_ : NgramConnections, or None

    Examples
    --------
    Whether 2 or 3 follows is the exclusive or of the last two tokens:

    >>> from esnlm import LanguageModel, Reservoir
    >>> from esnlm.readouts.token_gated.token_gated import with_token_code
    >>> bits = np.random.default_rng(0).integers(2, size=(3000, 2))
    >>> tokens = np.column_stack([bits, 2 + (bits[:, 0] ^ bits[:, 1])]).ravel()
    >>> reservoir = with_token_code(Reservoir(20, random_state=0).fit(n_inputs=4))
    >>> model = LanguageModel(reservoir, TokenGatedReadout(n_gates=4), n_tokens=4, reset="never")
    >>> model.fit([tokens]).predict_proba(tokens[:5])[2:].round(1)
    array([0., 1.])

    Trigrams say so, too:

    >>> readout = TokenGatedReadout(n_direct=2, alpha=100)
    >>> model = LanguageModel(Reservoir(5), readout, n_tokens=4, reset="never")
    >>> model.fit([tokens]).predict_proba(tokens[:5])[2:].round(1)
    array([0., 1.])
    """

    _parameters: ClassVar[tuple[str, ...]] = ("coef_", "intercept_")
    _training_state = saved(
        n_seen="_n_seen", n_rows="_n_rows", targets="_targets", survey="_pilot", passes="_passes",
        ngrams="ngrams_",
    )  # fmt: skip
    _layouts: ClassVar[dict[str, str]] = {"coef_": "f G U V", "intercept_": "f G V"}

    _: KW_ONLY
    n_gates: int | None = limited(None, Count(none=True))
    alpha: float = limited(1.0, PENALTY)
    n_direct: int = limited(0, Count(0))
    n_passes: int = limited(2, Count())
    learning_rate: float = limited(0.05, Number(0, open="low"))
    momentum: float = limited(0.9, Number(0, 1, open="high"))

    def _start(self) -> None:
        """Check the parameters, and forget passes, pilot sample, n-grams and target counts."""
        check_parameters(self)
        self._n_gates = self.n_gates or len(self.classes_)
        self._n_code = 0 if self.n_direct else n_code_units(self._n_gates)
        self._passes: GatedPasses | None = None
        self._pilot: GateMoments | None = None
        self.ngrams_: NgramConnections | None = None
        if self.n_direct:
            self.ngrams_ = NgramConnections(self.n_direct, self._n_gates, len(self.classes_))
        self._targets = np.zeros(len(self.classes_), dtype=np.int64)
        self._n_seen, self._n_rows, self._stale = 0, 0, False

    @property
    def n_parameters_(self) -> int:
        """Number of trained parameters; n-grams counted are among them."""
        n_weights, ngrams = super().n_parameters_, self.ngrams_
        return n_weights if ngrams is None else n_weights + ngrams.n_ngrams + 2 * ngrams.trust.size

    @property
    def _moment_rows(self) -> int:
        n_units = self.n_features_in_ - self._n_code - at_fit(self)["n_direct"]
        return max(_SAMPLE_ROWS_A_UNIT * n_units, _LEAST_SAMPLE)

    def _sample(self, X: Array, codes: Ints) -> None:
        """Count targets and n-grams of a block, and add gate moments until they suffice."""
        states, gates, last = self._split(X)
        before = int(self._targets.sum())
        if self.ngrams_ is not None:
            self.ngrams_.count(last, codes, before, self._n_rows)
        if self._pilot is None:
            self._pilot = GateMoments(self._n_gates, states.shape[1])
        if self._pilot.counts.sum() < self._moment_rows:
            # Rows that are counted come in order.
            every = max(1, -(-self._sample_rows // self._moment_rows))
            rows = slice(-before % every, None, every)
            self._pilot.add(states[rows], gates[rows])
        self._targets += np.bincount(codes, minlength=len(self._targets))

    def _step(self, number: int) -> Callable[[Array, Ints], None]:
        return self._learn if number else self._sample

    def _learn(self, X: Array, codes: Ints) -> None:
        share = max(0.0, 1 - self._n_seen / max(1, self._n_rows * self.n_passes))
        self._take_steps(X, codes, share)

    def _make_part(self, name: str, arrays: Arrays, training: bool) -> Stateful:
        if name == "passes":
            return GatedPasses.restored(arrays, alpha=self.alpha, momentum=self.momentum)
        if name == "ngrams":
            ngrams = NgramConnections(at_fit(self)["n_direct"], self._n_gates, len(self.classes_))
            return ngrams.load_state_dict(arrays, training=training)
        n_units = self.n_features_in_ - self._n_code - at_fit(self)["n_direct"]
        return GateMoments(self._n_gates, n_units).load_state_dict(arrays)

    def _loaded(self, training: bool) -> None:
        super()._loaded(training)
        self._stale = self._passes is not None

    def _plan(self, n_rows: int, counts: Array | None) -> None:
        self._n_rows, self._training_passes = n_rows, self.n_passes
        # With n-grams all rows are counted, and parts that are left out are runs of the text.
        self._sample_rows = max(self._moment_rows, n_rows if self.n_direct else 0)
        self._samples_in_order = self.ngrams_ is not None

    def _absorb(self, X: Array, codes: Ints) -> None:
        if self._passes is None:
            self._sample(X, codes)
        elif self.ngrams_ is not None:
            self.ngrams_.count(self._split(X)[2], codes)
        self._n_rows = max(self._n_rows, self._n_seen + len(X))
        self._take_steps(X, codes, decayed(self._n_seen, batch_rows(X.shape[1]) * self._n_gates))

    def _take_steps(self, X: Array, codes: Ints, share: float) -> None:
        """Learn from rows at a share of the learning rate; n-grams step between two parts."""
        passes, ngrams = self._begin_passes(), self.ngrams_
        start = 0
        while start < len(X):
            rows = slice(start, len(X) if ngrams is None else start + ngrams.room)
            states, gates, last = self._split(X[rows])
            Z = np.zeros((len(states), len(self.classes_)), dtype=np.float32)
            tiles = [] if ngrams is None else ngrams.add_to(Z, last, codes[rows])
            passes.learn(states, gates, codes[rows], self.learning_rate * share, Z)
            if ngrams is not None:
                ngrams.learn(tiles, Z, share)
            start += len(states)
        self._n_seen += len(X)
        self._stale |= len(X) > 0

    def _begin_passes(self) -> GatedPasses:
        """Return the passes, begun with the pilot sample where they have not been."""
        if self._passes is not None:
            return self._passes
        sample, self._pilot = self._pilot, None
        if sample is None:
            raise ValueError("a pilot sample comes before the first rows")
        n_sample = int(sample.counts.sum())
        counts = sample.counts * (max(self._n_rows, n_sample) / max(n_sample, 1))
        frequencies = frequencies_of(self._targets)
        self._passes = GatedPasses(sample, counts, frequencies, self.alpha, self.momentum)
        if self.ngrams_ is not None:
            self.ngrams_.settle()  # tables of a checkpoint may lack the last rows counted
            self._passes.offset[:] = 0  # n-grams begin with the frequencies
        return self._passes

    def _settle(self) -> None:
        if self.ngrams_ is not None:
            self.ngrams_.settle()
        if self._stale and self._passes is not None:
            self.coef_ = self._passes.weights.copy()
            self.intercept_ = self._passes.intercept
            self._stale = False

    def _split(self, X: Array) -> tuple[Array, Ints, Ints64]:
        """States without the token code, the gates (n,) and the last tokens (n, n_direct)."""
        n_direct = at_fit(self)["n_direct"]
        states, last = split_last_tokens(X, n_direct, self._n_gates)
        if n_direct:
            return states, np.maximum(last[:, 0], 0), last
        if X.shape[1] <= self._n_code:
            raise ValueError(
                f"states must have more than {self._n_code} units, the token's code, got"
                f" {X.shape[1]}; see with_token_code, or give n_direct"
            )
        sizes = np.abs(X[:, -self._n_code :])
        if ((sizes > 0) & (sizes < _LEAST_DIGIT)).any():
            raise ValueError(
                f"the last {self._n_code} units hold other values than the digits -1 and 1 of a"
                " token: the states must come from with_token_code, or give n_direct"
            )
        gates = token_of(X, self._n_code)
        if len(gates) and gates.max() >= self._n_gates:
            raise ValueError(
                f"the last {self._n_code} units name the token {gates.max()}, expected one of"
                f" {self._n_gates}: the states must come from with_token_code, or n_direct be given"
            )
        return X[:, : -self._n_code], gates, last

    def _log_probabilities(self, X: Array) -> Array:
        states, gates, last = self._split(X)
        logs = np.zeros((len(X), len(self.classes_)), dtype=X.dtype)
        if self.ngrams_ is not None:
            self.ngrams_.add_to(logs, last)
        for gate in np.unique(gates):
            rows = np.flatnonzero(gates == gate)
            logs[rows] += states[rows] @ self.coef_[gate] + self.intercept_[gate]
        return log_softmax(logs)

    def _names(self, training: bool) -> Mapping[str, str]:
        ngrams = saved(ngrams="ngrams_") if at_fit(self)["n_direct"] else {}
        return dict(super()._names(training)) | ngrams

    def _required(self, arrays: Arrays, training: bool) -> Iterable[str]:
        ngrams = ("ngrams.trust",) if at_fit(self)["n_direct"] else ()
        return (*super()._required(arrays, training), *ngrams)


def n_code_units(n_tokens: int) -> int:
    """Binary digits of the largest token.

    >>> [n_code_units(n) for n in (1, 2, 3, 52)]
    [1, 1, 2, 6]
    """
    return max(1, int(n_tokens - 1).bit_length())


def with_token_code(reservoir: Any) -> Any:
    """Return a copy of a fitted reservoir whose last units are the last token, in binary.

    They take the place of units: no recurrent weight leads to them, and the sign of each is a
    digit of the token, the lowest first. `token_of` reads it.
    """
    n_tokens = int(reservoir.n_inputs_)
    n_code = n_code_units(n_tokens)
    if reservoir.activation != "tanh" or n_code >= reservoir.n_units:
        raise ValueError(
            f"a token code of {n_code} units needs more units than that and the activation tanh,"
            f" got {reservoir.n_units} and {reservoir.activation!r}"
        )
    W = reservoir.W_.copy()
    W.data[W.indptr[-n_code - 1] :] = 0  # kept in the pattern: cyclic offsets stay cyclic
    inputs = reservoir.W_in_
    W_in = np.array(inputs.toarray() if hasattr(inputs, "toarray") else inputs)
    digits = np.arange(n_tokens) >> np.arange(n_code)[:, None] & 1
    W_in[-n_code:] = np.where(digits, _DRIVE, -_DRIVE)
    bias, leak = reservoir.bias_.copy(), reservoir.leak_rate_.copy()
    bias[-n_code:], leak[-n_code:] = 0, 1
    return clone(reservoir).set_weights(W, W_in, bias, leak)


def token_of(states: Array, n_code: int) -> Ints:
    """Tokens (n,) that the last ``n_code`` units of states (n, n_units) hold; 0 of a zero state."""
    return np.asarray((states[:, -n_code:] > 0) @ (1 << np.arange(n_code)), dtype=np.intp)
