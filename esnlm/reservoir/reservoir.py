"""The reservoir: a fixed random recurrence that turns tokens into states."""

import reprlib
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from esnlm.reservoir import weights as _weights
from esnlm.reservoir.closed_loop import closed_loop
from esnlm.reservoir.folder import SavedWeights
from esnlm.reservoir.parallel_streams import StreamPlan, checked_starts
from esnlm.reservoir.recurrence import Drive, recurrence_of
from esnlm.utils.arrays import (
    Array,
    are_sequences,
    checked_tokens,
    checked_vectors,
    counted_inputs,
)
from esnlm.utils.memory import check_memory
from esnlm.utils.state_dict import NodeLike, saved
from esnlm.utils.validation import (
    Count,
    DivergenceError,
    Float,
    Number,
    OneOf,
    at_fit,
    check_parameters,
    limited,
    restored_after_error,
)

_BLOCK_BYTES = 32 << 20
# Beyond this size float32 sums of squares of states lose all meaning.
_LIMIT = 1e8
# Of weights; beyond it those of float32 are infinite.
_SCALE = Number(0, 1e30)
# Parameters that weights do not depend on, or that choose among weights that are not set.
_BESIDE_WEIGHTS = {"activation", "washout", "random_state"}


@dataclass(eq=False, repr=False)
class Reservoir(
    SavedWeights, NodeLike, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Leaky echo state network: ``h[t] = (1-a) h[t-1] + a f(W h[t-1] + W_in u[t] + b)``.

    Tokens (T,) integers or vectors (T, n_inputs) -> states (T, n_units) of ``dtype``. A token is
    one column of ``W_in``; a one-hot matrix is never formed. The state starts at zero.

    Parameters
    ----------
    n_units : int
        Number of units.
    spectral_radius : float
        Largest modulus of the eigenvalues of ``W``, exact to 1e-6. ``delay_line`` has no
        eigenvalue but zero: there it is the weight of every connection.
    input_scaling : float
        Standard deviation of the input weights.
    degree : int
        Recurrent connections into a unit (at most ``n_units``) for the topologies random and
        offsets, their mean for bernoulli and small_world (rounded down to an even number there).
        Others refuse it.
    leak_rate : float, array (n_units,), ("uniform", low, high) or ("inverse_gamma", alpha)
        Rates in (0, 1]; 1 keeps nothing of the last state. ``inverse_gamma`` takes quantiles of
        timescales T ~ InverseGamma(alpha, 1), ``a = 1 - exp(-1/T)`` (Mahto et al. 2021), in an
        order drawn by the seed.
    activation : {"tanh", "relu", "identity"}
        In float32, tanh is a rational function with an error of 3e-7.
    topology : {"random", "bernoulli", "offsets", "ring", "small_world", "orthogonal", \
"diagonal", "delay_line"}
        ``random`` draws exactly ``degree`` connections into each unit, ``bernoulli`` each
        connection with probability ``degree / n_units`` (Ueda et al. 2025, eq. 2 and 3), those of
        inputs with ``input_degree / n_units``.
        ``offsets`` connects unit i to units (i + s_k) mod n_units for ``degree`` random offsets:
        faster than ``random``, every read being contiguous. ``diagonal`` connects each unit to
        itself alone, with the radius as weight; with a radius of 0 units are leaky traces of their
        inputs. The others are reservoirpy's generators.
    bias_scaling : float
        Standard deviation of the Gaussian bias.
    input_degree : int, optional
        Units that an input drives, of bernoulli the mean. None: all of them.
    dtype : {"float32", "float64"}
    random_state : int, optional
        The same seed gives the same weights on every machine.
    washout : int
        Pairs that `harvest` drops at the beginning of each sequence by default.
        `transform` returns every row, and language models train and score on every token.

    Attributes
    ----------
    W_ : CSR matrix (n_units, n_units)
    W_in_ : array (n_units, n_inputs), or CSC matrix where ``input_degree`` is set
    bias_, leak_rate_ : arrays (n_units,)
    spectral_radius_ : float
        Measured on ``W_`` as stored (0 for ``delay_line``).
    n_inputs_ : int

    Examples
    --------
    >>> reservoir = Reservoir(50, random_state=0).fit(n_inputs=3)
    >>> reservoir.transform([0, 2, 1, 1]).shape
    (4, 50)
    >>> round(reservoir.spectral_radius_, 6)
    0.97
    """

    _saved = saved(bias="bias_", leak_rate="leak_rate_", W="W_", W_in="W_in_")

    # Places in a compiled row are int32.
    n_units: int = field(metadata={"constraint": Count(most=2**31 - 1)})
    _: KW_ONLY
    spectral_radius: float = limited(0.97, _SCALE)
    input_scaling: float = limited(1.0, _SCALE)
    degree: int = limited(32, Count(), topology=OneOf(_weights.WITH_DEGREE))
    leak_rate: Any = 1.0
    activation: str = limited("tanh", OneOf(("tanh", "relu", "identity")))
    topology: str = limited("random", OneOf(_weights.TOPOLOGIES))
    bias_scaling: float = limited(0.0, _SCALE)
    input_degree: int | None = limited(None, Count(none=True))
    dtype: str = limited("float32", Float())
    random_state: int | None = limited(None, Count(0, none=True))
    washout: int = limited(0, Count(0))

    _has_set_weights = False  # by `set_weights`, which `fit` keeps

    def fit(
        self, X: ArrayLike | None = None, y: Any = None, *, n_inputs: int | None = None
    ) -> "Reservoir":
        """Draw the weights for ``n_inputs``, the size of the vocabulary or of an input vector.

        None takes it from X: tokens (T,) integers, the largest plus one, or vectors (T, n_inputs),
        or a list of arrays of either. y is ignored. Weights that were set, as by
        `from_reservoirpy`, are kept, by `sklearn.base.clone` too; ValueError where they have fewer
        inputs, or where a parameter of the weights was changed since.
        """
        check_parameters(self)
        if n_inputs is None:
            n_inputs = counted_inputs(X)
        Count().check("n_inputs", n_inputs)
        sequences: Any = X if are_sequences(X) else [X]
        for inputs in sequences:
            if np.ndim(inputs) == 2:
                checked_vectors("X", inputs, n_inputs)
        if X is not None:  # remember the names of a data frame's columns
            validate_data(self, X, skip_check_array=True, ensure_2d=False)
        if self._has_set_weights:
            if n_inputs > self.n_inputs_:
                raise ValueError(
                    f"n_inputs must be at most {self.n_inputs_}, as the weights that were set"
                    f" have it, got {n_inputs}: draw others with"
                    " Reservoir(**reservoir.get_params())"
                )
            for name, value in at_fit(self).items():
                if name not in _BESIDE_WEIGHTS and not np.array_equal(getattr(self, name), value):
                    raise ValueError(
                        f"{name}={getattr(self, name)!r} has no effect, as weights were set with"
                        f" {name}={value!r}: leave it, or draw others with"
                        " Reservoir(**reservoir.get_params())"
                    )
            self._complete()
            return self
        n_inputs, n_units, degree = int(n_inputs), self.n_units, self.degree
        dtype = np.dtype(self.dtype)
        dense = n_units if self.topology == "orthogonal" else min(degree, n_units)
        driven = n_units if self.input_degree is None else self.input_degree
        n_bytes = 12 * n_units * dense + 8 * driven * n_inputs
        what = f"the weights of {n_units} units and {n_inputs} inputs"
        check_memory(what, n_bytes, "lower one of them")
        seeds = np.random.SeedSequence(self.random_state).spawn(4)
        recurrent, inputs, leak, bias = map(np.random.default_rng, seeds)
        with restored_after_error(self):
            self.leak_rate_ = _weights.leak_rates(self.leak_rate, n_units, dtype, leak)
            self.W_ = _weights.recurrent_weights(
                self.topology, n_units, degree, self.spectral_radius, dtype, recurrent
            )
            self.W_in_ = _weights.input_weights(
                self.topology,
                n_units,
                n_inputs,
                self.input_scaling,
                self.input_degree,
                dtype,
                inputs,
            )
            self.bias_ = (self.bias_scaling * bias.standard_normal(n_units)).astype(dtype)
            self._complete()
        return self

    def transform(
        self,
        X: Any,
        *,
        initial_state: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> Any:
        """Return states of one sequence: tokens (T,) or vectors (T, n_inputs) -> (T, n_units).

        Of a list of arrays, sequences of any lengths, a list of their states, each sequence read
        on its own. ``initial_state`` (n_units,) is that before the first input, None the zero
        state; the row of a token in ``features`` (n_tokens, n_inputs) is the vector that drives
        the reservoir. After ``set_output(transform="pandas")`` states are a data frame with the
        index of X and columns ``reservoir0``, ``reservoir1``, ...

        >>> reservoir = Reservoir(20, random_state=0).fit(n_inputs=3)
        >>> [len(states) for states in reservoir.transform([np.array([0, 2, 1]), np.array([1])])]
        [3, 1]
        """
        if hasattr(self, "feature_names_in_") and hasattr(X, "columns"):  # in the same order
            validate_data(self, X, reset=False, skip_check_array=True, ensure_2d=False)
        if not are_sequences(X):
            return self._states(X, initial_state, features)
        self._fit_on_first_use(X, features)
        states = [self.transform(x, initial_state=initial_state, features=features) for x in X]
        if hasattr(states[0], "columns"):
            raise ValueError(
                "set_output makes a table of one sequence, got a list of them: transform each by"
                " itself"
            )
        return states

    def _states(
        self, X: ArrayLike, initial_state: ArrayLike | None, features: ArrayLike | None = None
    ) -> Array:
        """Return the states of `transform` as an array, whatever `set_output` says."""
        inputs = np.asarray(X)
        self._fit_on_first_use(inputs, features)
        state = self._initial(initial_state)
        if inputs.ndim == 2:
            vectors = checked_vectors("X", inputs, self.n_inputs_)
            drive = Drive(self.W_in_, self.bias_, features=vectors)
            rows = np.arange(len(vectors))
        else:
            drive = self.drive_of(features)
            rows = checked_tokens(inputs, drive.n_tokens)
        return self._checked(self._recurrence.run(drive, rows, state))

    @cached_property
    def spectral_radius_(self) -> float:
        """Return the largest modulus of the eigenvalues of ``W_``, once there are weights."""
        if self._has_set_weights:  # which may be any, whatever the topology
            return _weights.measured_spectral_radius(self.W_)
        return _weights.radius_of(at_fit(self)["topology"], self.W_)

    @property
    def n_features_in_(self) -> int:
        """Return ``n_inputs_``, by the name that scikit-learn has for it."""
        return self.n_inputs_

    @property
    def _n_features_out(self) -> int:
        """Return the columns that ``get_feature_names_out`` names, once there are weights."""
        return len(self.bias_)

    def advance(self, state: ArrayLike, token: int, *, features: ArrayLike | None = None) -> Array:
        """Return the state (n_units,) after one more token."""
        check_is_fitted(self, "W_")
        return self._states([token], state, features)[0]

    def run_closed_loop(self, readout: Any, state: ArrayLike, n: int) -> Array:
        """Return the predictions of ``n`` steps whose inputs are the predictions before them.

        The first is that after ``state`` (n_units,). A regressor's are (n, n_inputs) vectors, a
        classifier's (n,) tokens, the most probable ones.

        >>> series = np.sin(np.arange(300) / 5)[:, None]
        >>> reservoir = Reservoir(50, dtype="float64", random_state=0)
        >>> states = reservoir.transform(series)
        >>> from esnlm import RidgeRegressor
        >>> readout = RidgeRegressor(alpha=1e-8).fit(states[50:-1], series[51:])
        >>> forecast = reservoir.run_closed_loop(readout, states[-1], 100)
        >>> bool(np.abs(forecast[:, 0] - np.sin(np.arange(300, 400) / 5)).max() < 0.01)
        True
        """
        check_is_fitted(self, "W_")
        return closed_loop(self, readout, self._initial(state), n)

    def harvest(
        self,
        tokens: ArrayLike,
        *,
        starts: ArrayLike | None = None,
        n_streams: int = 64,
        block_size: int | None = None,
        washout: int | None = None,
        warmup: int = 256,
        features: ArrayLike | Drive | None = None,
        n_threads: int | None = None,
        return_positions: bool = False,
        initial_state: ArrayLike | None = None,
        reuse: bool = False,
    ) -> Iterator[tuple[Array, ...]]:
        """Yield blocks of (states (n, n_units), next tokens (n,)) of a corpus, in parallel streams.

        Every pair is yielded once, in an order of the streams', not of the text. Raises
        `DivergenceError` where states grow without bound.

        Parameters
        ----------
        tokens : array (T,) of integers
            A memory map is read block by block.
        starts : sorted array of positions, optional
            Where the state restarts from zero (sentences, documents); position 0 is implied. A
            pair whose next token is a start is not yielded. Sequences go to streams whole, so
            states are those of ``transform`` whatever ``n_streams``. None: one long sequence,
            cut into streams that each begin ``warmup`` tokens early from a zero state; with the
            default, a spectral radius up to 1, inputs of scale 1 and no slow leak rates the states
            differ from those of one stream by about 1e-5 at most. ``n_streams=1`` is exact.
        n_streams : int
            Upper bound; short corpora use fewer.
        block_size : int, optional
            About how many pairs a block holds. Default: 32 MiB of states, 16 384 pairs at most.
        washout : int, optional
            Pairs dropped at the beginning of each sequence. Default: the reservoir's.
        warmup : int
            See ``starts``. Longer for slow leak rates, and for small inputs at a radius near 1.
        features : as in `transform`, or what `drive_of` made of them
        n_threads : int, optional
            Results do not depend on it. Default: every core available.
        return_positions : bool
            Also yield positions (n,) int64 of the tokens just read.
        initial_state : array (n_units,), optional
            State before position 0.
        reuse : bool
            Yield views into memory that the next block overwrites, which is faster.

        Examples
        --------
        >>> reservoir = Reservoir(20, random_state=0).fit(n_inputs=5)
        >>> tokens = np.array([0, 1, 2, 0, 3, 4])
        >>> for states, following in reservoir.harvest(tokens, starts=[0, 3]):
        ...     print(states.shape, following)
        (4, 20) [1 3 2 4]
        """
        text = np.asarray(tokens)
        self._fit_on_first_use(text, features)
        drive = self.drive_of(features)
        text = checked_tokens(text, drive.n_tokens)
        Count().check("n_streams", n_streams)
        washout = self.washout if washout is None else washout
        Count(0).check("washout", washout)
        Count(0).check("warmup", warmup)
        Count(none=True).check("block_size", block_size)
        sizes = int(n_streams), int(warmup), int(washout)  # products of numpy's may overflow
        plan = StreamPlan(len(text), checked_starts(starts, len(text)), *sizes)
        if block_size is None:
            row = len(self.bias_) * self.W_.dtype.itemsize
            block_size = min(16384, max(64, _BLOCK_BYTES // row))
        state = None if initial_state is None else self._initial(initial_state)
        blocks = self._recurrence.blocks(
            drive, text, plan, int(block_size), initial_state=state, n_threads=n_threads,
            check=self._checked if reuse else lambda states: self._checked(states).copy(order="K"),
        )  # fmt: skip
        return blocks if return_positions else (block[:2] for block in blocks)

    @classmethod
    def from_reservoirpy(cls, node: Any) -> "Reservoir":
        """Return the reservoir of an initialised reservoirpy ``Reservoir`` node, in float64.

        Examples
        --------
        >>> from reservoirpy.nodes import Reservoir as Node
        >>> node = Node(20, lr=0.3, sr=0.9, seed=1)
        >>> states = node.run(np.ones((5, 2)))
        >>> bool(np.allclose(Reservoir.from_reservoirpy(node).transform(np.ones((5, 2))), states))
        True
        """
        from esnlm.utils.reservoirpy import reservoir_from_node

        return reservoir_from_node(cls, node)

    def to_reservoirpy(self) -> Any:
        """Return the fitted reservoir as a reservoirpy ``Reservoir`` node, in float64."""
        from esnlm.utils.reservoirpy import node_from_reservoir

        return node_from_reservoir(self)

    def set_weights(self, W: Any, W_in: Any, bias: Array, leak_rate: Array) -> "Reservoir":
        """Take copies of these weights instead of drawn ones, cast to ``dtype``.

        W is (n_units, n_units), W_in (n_units, n_inputs), dense or sparse; bias and leak_rate are
        numbers or (n_units,). ValueError for other shapes and for numbers that are not finite.
        """
        check_parameters(self)
        dtype = np.dtype(self.dtype)
        for name, part in (("W", W), ("W_in", W_in), ("bias", bias)):
            if np.iscomplexobj(part):
                raise ValueError(f"{name} must hold real numbers, got complex ones")
        if np.shape(bias) not in ((), (self.n_units,)):
            raise ValueError(
                f"bias must be a number or have shape ({self.n_units},), got {np.shape(bias)}"
            )
        with restored_after_error(self):
            self.W_ = scipy.sparse.csr_matrix(W, dtype=dtype, copy=True)
            if scipy.sparse.issparse(W_in):
                self.W_in_ = scipy.sparse.csc_matrix(W_in, dtype=dtype, copy=True)
            else:
                self.W_in_ = np.array(W_in, dtype=dtype, order="F")
            self.bias_ = np.array(np.broadcast_to(bias, (self.n_units,)), dtype=dtype)
            for name, part in (("W", self.W_), ("W_in", self.W_in_), ("bias", self.bias_)):
                values = part.data if scipy.sparse.issparse(part) else part
                if not np.isfinite(values).all():
                    raise ValueError(f"{name} must hold finite numbers, got NaN or infinity")
            self.leak_rate_ = _weights.given_leak_rates(leak_rate, self.n_units, dtype)
            self._complete()
            self._has_set_weights = True
        return self

    def _complete(self) -> None:
        # First of all: an index out of range makes sparse products write to foreign memory.
        _weights.check_shapes(self.n_units, self.W_, self.W_in_, self.bias_, self.leak_rate_)
        self.W_.sort_indices()
        self.n_inputs_: int = int(self.W_in_.shape[1])
        self._at_fit = self.get_params(deep=False)
        self.__dict__.pop("spectral_radius_", None)
        self._recurrence = recurrence_of(self.W_, self.leak_rate_, self.activation)
        self.forget_drive()

    def forget_drive(self) -> None:
        """Free the table of the drives of tokens that is kept; it is made again when needed."""
        self._token_drive: Drive | None = None

    def drive_of(self, features: ArrayLike | Drive | None) -> Drive:
        """Return the drive of tokens, by their ``features`` if there are any, for `harvest`."""
        if isinstance(features, Drive):
            return features
        if features is not None:
            vectors = checked_vectors("features", features, self.n_inputs_)
            return Drive(self.W_in_, self.bias_, features=vectors)
        if self._token_drive is None:
            self._token_drive = Drive(self.W_in_, self.bias_)
        return self._token_drive

    def _fit_on_first_use(self, inputs: Any, features: Any) -> None:
        if not hasattr(self, "W_"):
            n_inputs = None if features is None else np.atleast_2d(features).shape[1]
            self.fit(inputs, n_inputs=n_inputs)

    def _initial(self, state: ArrayLike | None) -> Array:
        if state is None:
            return np.zeros_like(self.bias_)
        initial = np.array(state, dtype=self.W_.dtype)
        if initial.shape != self.bias_.shape:
            raise ValueError(
                f"initial_state must have shape {self.bias_.shape}, got {initial.shape}"
            )
        if not np.isfinite(initial).all():
            raise ValueError("initial_state must hold finite numbers, got NaN or infinity")
        return initial

    def _checked(self, states: Array) -> Array:
        """Return the states; DivergenceError where they grow without bound, as under tanh never."""
        params = at_fit(self)
        bounded = params["activation"] == "tanh" or not states.size
        if not bounded and not -_LIMIT <= states.min() <= states.max() <= _LIMIT:
            raise DivergenceError(
                "the states of the reservoir diverge with"
                f" spectral_radius={params['spectral_radius']}, activation="
                f"{params['activation']!r} and leak_rate={reprlib.repr(params['leak_rate'])}:"
                " lower spectral_radius or leak_rate, or take activation='tanh'"
            )
        return states
