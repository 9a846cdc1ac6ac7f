"""Moments of sampled rows, from which CCA directions and word classes are computed."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from esnlm.readouts.base.moments import Moments
from esnlm.readouts.class_based.cca import canonical_directions, word_vectors
from esnlm.readouts.class_based.word_clusters import CLUSTERED_DIRECTIONS
from esnlm.utils.arrays import Array, Ints
from esnlm.utils.state_dict import Stateful, saved

#: (counts (V,), vectors (V, P)) -> classes (V,).
Assignment = Callable[[Array, Array], Ints]
PilotResult = tuple[Array, Array, Array, Array, Array]

# Rows in the matrix of products, at least and for each unit.
_GRAM_ROWS, _GRAM_ROWS_A_UNIT = 1 << 16, 32
# Sums of states are kept for as many words, the most frequent.
_SUM_BYTES = 1 << 30
#: Standard deviation of a component at the noise level, where the first one has 1.
LEAST_SCALE = 0.02

_PILOT_ROWS = 1 << 20
#: Rows of the largest batch: learning rates are stated for it.
LARGEST_BATCH = 4096
_LEAST_BATCH = 16
_LEAST_STEPS = 512


class PilotSample(Stateful):
    """Moments of a sample of rows, from which directions and classes are solved.

    The sums of states of all rare words are kept together where those of every word would take
    more than 1 GiB.

    ``counts`` (V,) are the occurrences of the words in all rows; None: those in the sample.
    ``rank`` (V,) is the class of a word in ``moments``.
    """

    _saved = saved("moments")

    def __init__(self, n_units: int, n_words: int, counts: Array | None = None) -> None:
        self.counts = counts
        n_sums, self.rank = n_words, np.arange(n_words)
        if counts is not None:
            n_sums = min(n_words, max(2, _SUM_BYTES // (8 * n_units)))
            order = np.argsort(-counts, kind="stable")
            self.rank[order] = np.minimum(np.arange(n_words), n_sums - 1)
        gram_rows = max(_GRAM_ROWS, _GRAM_ROWS_A_UNIT * n_units)
        self.moments = Moments(n_units, n_sums, gram_rows)

    def solve(self, n_components: int, assign: Assignment) -> PilotResult:
        """Directions, shift, classes, scale and counts, as `TwoLevelLearner.begin` takes them.

        ``directions`` (n_units, P) float32 are linear maps of a state that tell the next words
        apart best, uncorrelated, each scaled by its canonical correlation, so that a penalty weighs
        on uninformative ones; P is ``n_components``, but ``n_units`` at most. ``shift`` (P,)
        float32 is the mean state along them, ``scale`` (P,) the standard deviations of the
        components, falling from one. Classes are (V,) intp, ``counts`` (V,) those of the words.
        """
        moments, rank = self.moments, self.rank
        directions, correlations = canonical_directions(moments, n_components)
        vectors = word_vectors(moments, directions)
        # Penalties weigh less on components of high correlation: most of many are noise.
        scale = np.maximum(correlations / max(float(correlations[0]), 1e-6), LEAST_SCALE)
        directions *= scale.astype(np.float32)
        counts = moments.counts[rank] if self.counts is None else self.counts
        if moments.n_classes < len(rank):
            vectors[-1] = 0  # of many rare words together
        word_class = assign(counts, vectors[rank, :CLUSTERED_DIRECTIONS])
        shift = (moments.mean @ directions).astype(np.float32)
        return directions, shift, word_class, scale, counts


class Schedule(NamedTuple):
    """Batch size, number of passes and pilot-sample size for stochastic readouts.

    Few rows are passed over more often. ``n_rows`` are those of one pass, 0 where they are not
    known yet; ``batches`` those of one pass, unless they exceed `LARGEST_BATCH` rows each.

    >>> few, many = Schedule(2000, 1), Schedule(10**6, 1)
    >>> few.batch, few.n_passes, many.batch, many.n_passes
    (31, 8, 4096, 3)
    """

    n_rows: int
    least_passes: int
    batches: int = 64

    @property
    def survey_rows(self) -> int:
        """Rows of the pilot sample."""
        return min(_PILOT_ROWS, self.n_rows)

    @property
    def batch(self) -> int:
        """Rows of a step."""
        if not self.n_rows:
            return LARGEST_BATCH
        return min(max(self.n_rows // self.batches, _LEAST_BATCH), LARGEST_BATCH)

    @property
    def n_passes(self) -> int:
        """Passes over the rows: more than ``least_passes`` where steps would be few."""
        if not self.n_rows:
            return self.least_passes
        return max(self.least_passes, -(-_LEAST_STEPS // self._steps_a_pass))

    @property
    def n_steps(self) -> int:
        """Return the number of steps in all passes."""
        return self._steps_a_pass * self.n_passes

    @property
    def _steps_a_pass(self) -> int:
        return max(1, self.n_rows // self.batch)

    def share_left(self, n_seen: int) -> float:
        """Remaining share of the rows of all passes after ``n_seen`` rows."""
        return max(0.0, 1 - n_seen / max(1, self.n_rows * self.n_passes))
