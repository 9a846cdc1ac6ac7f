"""Word features learned from what a readout asks of the states that they drive."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from esnlm.kernels import features as kernels
from esnlm.readouts.base.last_tokens import last_tokens
from esnlm.readouts.factored.low_rank import LowRankReadout
from esnlm.readouts.two_level.cca import canonical_variables
from esnlm.readouts.two_level.direct_connections import DirectConnections
from esnlm.readouts.two_level.solver import TwoLevelLearner
from esnlm.reservoir.parallel_streams import checked_starts
from esnlm.reservoir.recurrence import ACTIVATIONS
from esnlm.reservoir.spectral_features import SpectralWordFeatures
from esnlm.reservoir.word_features import BaseWordFeatures, draw_for_features
from esnlm.text.corpus import TokenStream
from esnlm.text.shuffling import ChunkOrder, target_counts
from esnlm.utils.array_shapes import checked_tokens
from esnlm.utils.arrays import Array, Floats32, Ints64
from esnlm.utils.state_dict import saved
from esnlm.utils.threads import TileMap, one_blas_thread, tile_map
from esnlm.utils.validation import Count, Flag, Number, check_parameters, limited

_through_units: Any = kernels.through_units  # compiled functions carry no types of their own

# The readout beside which features are learned has fewer components than that of a model; the
# most rows that its directions are computed from.
_COMPONENTS, _N_LAST, _SURVEYED = 256, 3, 1 << 18
_WORD_RATE, _TILE = 3.0, 512
# Sequences are cut to so many tokens, which bounds memory.
_LONGEST = 1024


@dataclass(eq=False, repr=False)
class LearnedWordFeatures(BaseWordFeatures):
    """Dense word features that descend the cross-entropy of a readout of the states they drive.

    They begin as `SpectralWordFeatures`. In a pass over the text, in sentences drawn from all over
    it, a softmax of low rank over classes and words learns to read the states and the last three
    tokens (as `LowRankReadout`), and the features of each token follow the gradient that reaches
    them: through the activation of the units at that token's own step, as in Rachez & Hagiwara
    (2014, eq. 19-29), and with ``traces`` from later states along each unit's own leak, as
    eligibility traces do (Bellec et al. 2020). It never passes through the recurrent weights: no
    back-propagation through time. Then the features stay fixed, this readout is dropped, and any
    readout is fitted on the states that they drive.

    The text is read some thousand tokens at a time (a sequence is cut after each 1 024): memory
    beside the tokens is that of their states, and for each word of the vocabulary of its features
    and the readout's weights, which are some 12 KiB for 128 features and 512 units.

    Parameters
    ----------
    n_features : int
        Dimensions of a word's features, F; at most the size of the vocabulary.
    n_rounds : int
        Passes. Each begins with a new readout, of the states as they are then: inputs, readout,
        and inputs again.
    learning_rate : float
        Of the features (AdaGrad, each entry by its own gradients); falls linearly to zero in a
        pass.
    traces : bool
        Whether the error of a later prediction reaches a token, along the units' leaks. Without
        leaks, or with False, only that of the next one does.
    random_state : int, RandomState instance or None
        For the first features, the classes of words and the order of sentences.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_tokens, n_features), float32
        Row v is the feature vector of token v.

    Examples
    --------
    >>> import numpy as np
    >>> from esnlm import Reservoir
    >>> from esnlm.models.learned_features import LearnedWordFeatures
    >>> tokens = np.random.default_rng(0).choice([0, 1], 2000)
    >>> tokens[1::2] += 2
    >>> reservoir = Reservoir(20, random_state=0).fit(n_inputs=2)
    >>> words = LearnedWordFeatures(n_features=2, random_state=0).fit(tokens, reservoir=reservoir)
    >>> words.transform([3, 0]).shape
    (2, 2)
    """

    _saved = saved(embedding="embedding_")

    _: KW_ONLY
    n_features: int = limited(128, Count())
    n_rounds: int = limited(1, Count())
    learning_rate: float = limited(0.02, Number(0, open="low"))
    traces: bool = limited(True, Flag())
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
        """Learn from integers (T,), which may be a memory map; arguments as in `WordFeatures.fit`.

        Raises ValueError for tokens outside the vocabulary, no two neighbouring ones, more features
        than words, or a reservoir of another input size.
        """
        check_parameters(self)
        ids = checked_tokens(tokens, n_tokens)
        size = int(ids.max(initial=0)) + 1 if n_tokens is None else int(n_tokens)
        given = checked_starts(starts, len(ids))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        first = SpectralWordFeatures(n_features=self.n_features, random_state=seed)
        table = DirectConnections(1, size, self.n_features)
        table.coef[0, :-1] = first.fit(ids, n_tokens=size, starts=given).embedding_
        draw_for_features(reservoir, self.n_features)
        stream = TokenStream(ids, _cut(given, len(ids)), np.array([0, len(ids)]))
        # One thread of BLAS: sums in one order, so the features are those of the seed.
        with one_blas_thread(), tile_map() as over:
            for number in range(self.n_rounds):
                _Round(stream, table, reservoir, self.traces, seed + number).run(
                    self.learning_rate, over
                )
        self.embedding_ = table.coef[0, :-1].copy()
        return self


class _Chunk(NamedTuple):
    """States (n, n_units) after tokens (n,) of sequences, and the places whose next one counts."""

    states: Array
    tokens: Ints64
    begins: Array
    places: Ints64
    last: Ints64

    @property
    def targets(self) -> Ints64:
        return self.tokens[self.places + 1]


class _Round:
    """One pass over the text, in which a new readout and the features of ``table`` learn."""

    def __init__(
        self, stream: TokenStream, table: DirectConnections, reservoir: Any, traces: bool, seed: int
    ) -> None:
        self.stream, self.table, self.reservoir = stream, table, reservoir
        self.traces, self.random = traces, np.random.default_rng(seed)
        n_tokens = table.coef.shape[1] - 1
        counts = target_counts(stream, n_tokens)
        readout = LowRankReadout(n_components=_COMPONENTS, n_direct=_N_LAST, random_state=seed)
        n_columns, n_rows = reservoir.n_units + _N_LAST, int(counts.sum())
        readout._begin(np.arange(n_tokens), n_columns, n_rows=n_rows, counts=counts)
        self.learner: TwoLevelLearner = readout._trained

    def run(self, rate: float, over: TileMap) -> None:
        """Survey some of the text, then learn from all of it."""
        learner, n_seen = self.learner, 0
        for chunk in self._chunks():
            rows = chunk.states[chunk.places], chunk.last.astype(chunk.states.dtype)
            learner.survey(np.concatenate(rows, axis=1), chunk.targets)
            n_seen += len(chunk.places)
            if n_seen >= _SURVEYED:
                break
        learner.end_survey()
        n_seen = 0
        for chunk in self._chunks():
            share = max(0.0, 1 - n_seen / learner.n_rows)
            self._follow(chunk, self._learn(chunk, share, over), share * rate, over)
            n_seen += len(chunk.places)

    def _learn(self, chunk: _Chunk, share: float, over: TileMap) -> Floats32:
        """A step of the readout; the gradient of the loss by its components (n_places, P)."""
        learner, targets = self.learner, chunk.targets
        class_solver, word_solver = learner.class_solver, learner.word_solver
        assert class_solver is not None
        assert word_solver is not None
        assert learner.discounts is not None
        layout, settings = learner.layout, learner.settings
        states = chunk.states[chunk.places].astype(np.float32, copy=False)
        Z = canonical_variables(states, learner.directions, learner.shift)
        learner.direct.add_to(Z, chunk.last)
        classes = layout.word_class[targets]
        inside = layout.sizes[classes] > 1
        discounts, n_steps = learner.discounts[targets], learner.n_rows // learner.schedule.batch
        by_class, by_word = np.empty_like(Z), np.empty_like(Z[inside])
        rate = settings.rate(share, len(Z), Z.shape[1], max(1, n_steps))
        less = discounts, layout.shares
        class_solver.step(Z, classes, rate, over, by_class, less)
        words = Z[inside], targets[inside], len(Z), share * _WORD_RATE
        word_solver.step(*words, over, by_word, discounts[inside])
        by_class[inside] += by_word
        learner.direct.step(chunk.last, by_class, share * settings.direct_rate)
        return by_class

    def _follow(self, chunk: _Chunk, in_z: Floats32, rate: float, over: TileMap) -> None:
        """A step of the features down the gradient (n_places, P) by the readout's components."""
        reservoir, directions = self.reservoir, self.learner.directions.T
        gradient = np.zeros_like(chunk.states)
        inputs = reservoir.W_in_
        inputs = inputs.toarray() if hasattr(inputs, "toarray") else inputs
        by_feature = np.empty((len(gradient), inputs.shape[1]), dtype=np.float32)

        def to_states(start: int) -> None:
            rows = slice(start, start + _TILE)
            gradient[chunk.places[rows]] = in_z[rows] @ directions

        def to_features(start: int) -> None:
            rows = slice(start, start + _TILE)
            by_feature[rows] = gradient[rows] @ inputs

        over(to_states, range(0, len(in_z), _TILE))
        code = ACTIVATIONS[reservoir.activation]
        _through_units(
            chunk.states, gradient, chunk.begins, reservoir.leak_rate_, code, self.traces
        )
        over(to_features, range(0, len(gradient), _TILE))
        self.table.step(chunk.tokens[:, None], by_feature, rate)

    def _chunks(self) -> Iterator[_Chunk]:
        """States that the features drive as they are now, of sequences in an order drawn anew."""
        reservoir, dtype = self.reservoir, self.reservoir.W_.dtype
        order = ChunkOrder(self.stream, self.learner.schedule.batch, self.random)
        for index in range(len(order)):
            ((piece, _),) = order.chunk(index)
            tokens, starts = piece.tokens.astype(np.int64), piece.starts
            states = np.zeros((len(tokens), reservoir.n_units), dtype=dtype)
            counted = np.zeros(len(tokens), dtype=bool)
            # Words of this chunk alone: a harvest computes what each of them drives once.
            words, numbers = np.unique(tokens, return_inverse=True)
            features = self.table.coef[0, words].astype(dtype, copy=False)
            for block, _, positions in reservoir.harvest(
                numbers, starts=starts, features=features, return_positions=True, reuse=True
            ):
                states[positions], counted[positions] = block, True
            begins = np.zeros(len(tokens), dtype=bool)
            begins[starts] = True
            places = np.flatnonzero(counted)
            if len(places):
                last = last_tokens(tokens, places, starts, _N_LAST)
                yield _Chunk(states, tokens, begins, places, last)


def _cut(starts: Ints64 | None, n_tokens: int) -> Ints64:
    """Starts of sequences (n,), or None for one, and of the parts of those that are long.

    >>> _cut(np.array([0, 5]), 2000).tolist()
    [0, 5, 1029]
    """
    first = np.zeros(1, dtype=np.int64) if starts is None else starts
    n_parts = -(-np.diff(np.append(first, n_tokens)) // _LONGEST)
    part = np.arange(int(n_parts.sum())) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
    return np.asarray(np.repeat(first, n_parts) + part * _LONGEST)
