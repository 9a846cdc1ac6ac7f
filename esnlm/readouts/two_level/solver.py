"""Factors of classes and of the words in them, on a few components of the states, in passes."""

from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.base.minibatches import WaitingRows
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.two_level.cca import canonical_variables
from esnlm.readouts.two_level.class_softmax import GatedSolver
from esnlm.readouts.two_level.pilot_sample import Assignment, Findings, Survey
from esnlm.readouts.two_level.schedule import LARGEST_BATCH, LATER_RATE, Schedule
from esnlm.readouts.two_level.word_factors import ClassLayout, shared_ridge
from esnlm.readouts.two_level.word_softmax import WordSolver
from esnlm.utils.threads import TileMap, one_blas_thread, tile_map

# Batches of classes to one batch of words.
_WORD_BATCHES = 4
# Occurrences of each word beside those that were seen: classes of rare words have many.
_DOUBT = 0.5
# Products of fewer operations are not worth threads.
_WORTH_THREADS = 1 << 22


class FactorSettings(NamedTuple):
    """How both factors are learned.

    ``n_experts`` softmaxes over classes, or none: ridge; words within them by softmax, or by
    ridge. ``alpha`` and ``word_alpha`` are penalties (ridge: None chooses them).
    """

    n_components: int
    n_experts: int
    softmax_words: bool
    alpha: float | None
    word_alpha: float | None
    learning_rate: float
    momentum: float
    n_passes: int
    seed: int


class JointFactors:
    """P(class | x) and P(w | class, x) of every class, learned together from streamed rows.

    1. From a `Survey` of rows: the linear maps of a state that tell the next words apart best,
       and the classes.
    2. Passes over all rows: ridge adds up moments of the components, from which both factors
       are solved at the end (one pass; P x V sums, whatever the units); softmax and mixtures
       take steps on batches of components.

    The order of calls is that of `StreamedTraining`.

    Attributes
    ----------
    directions, shift : ndarrays (n_units, P), (P,)
    layout : ClassLayout
    words : WordFactors
    """

    def __init__(
        self,
        settings: FactorSettings,
        assign: Assignment,
        n_units: int,
        n_words: int,
        n_rows: int,
        counts: NDArray[Any] | None = None,
    ) -> None:
        self.settings, self.assign = settings, assign
        self.n_units, self.n_words = n_units, n_words
        self.schedule = Schedule(max(n_rows, 1), settings.n_passes)
        self.batch = self.schedule.batch
        self.counts = counts
        self.n_seen = 0
        self.surveyed: Survey | None = None
        self.moments: Moments | None = None
        self.class_solver: GatedSolver | None = None
        self.word_solver: WordSolver | None = None
        self.ridge_behind = False
        self.class_rows = WaitingRows(self.batch)
        self.word_rows = WaitingRows(_WORD_BATCHES * self.batch)

    @property
    def survey_rows(self) -> int:
        """Rows that directions and classes are made from."""
        return self.schedule.survey_rows

    @property
    def n_passes(self) -> int:
        """Passes over the rows: one for ridge; more than was asked for where rows are few."""
        all_ridge = not self.settings.n_experts and not self.settings.softmax_words
        return 1 if all_ridge else self.schedule.n_passes

    @property
    def _any_ridge(self) -> bool:
        return not self.settings.n_experts or not self.settings.softmax_words

    def begin_survey(self) -> None:
        """Prepare for the rows of the survey."""
        self.surveyed = Survey(self.n_units, self.n_words, self.counts)

    def survey(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Rows X (n, n_units), words (n,) for directions and classes."""
        assert self.surveyed is not None, "begin_survey comes first"
        self.surveyed.add(X, codes)

    def end_survey(self) -> None:
        """Solve the directions, and make the classes."""
        assert self.surveyed is not None, "the survey is over"
        findings = self.surveyed.solve(self.settings.n_components, self.assign)
        self.surveyed = None
        self.begin(findings)

    def begin(self, findings: Findings) -> None:
        """Learners on components and classes, with nothing learned."""
        settings, n_components = self.settings, len(findings.shift)
        self.directions, self.shift = findings.directions, findings.shift
        self.layout = layout = ClassLayout(findings.word_class)
        if self._any_ridge:
            self.moments = Moments(n_components, self.n_words)
        if settings.n_experts:
            self.class_solver = GatedSolver(
                n_components,
                settings.n_experts,
                np.bincount(layout.word_class, findings.counts + _DOUBT, layout.n_classes),
                momentum=settings.momentum,
                penalty=(settings.alpha or 0.0) / self.schedule.n_rows,
                told=findings.telling,
                seed=settings.seed,
            )
        if settings.softmax_words:
            penalty = (settings.word_alpha or 0.0) / self.schedule.n_rows
            self.word_solver = WordSolver(
                layout, n_components, findings.counts, prior=findings.variance, penalty=penalty
            )
            self.words = self.word_solver.factors

    def learn(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        """Learn from the next rows X (n, n_units), words (n,) of a pass."""
        if self.surveyed is not None:
            self.end_survey()
        in_first = self.n_seen < self.schedule.n_rows
        self._take(X, codes, self._rate_now(), with_moments=in_first)
        self.n_seen += len(X)

    def learn_later(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        """Learn from rows that come after the passes."""
        rate = LATER_RATE * self._rate(len(X))
        self._take(X, codes, rate, with_moments=True)
        self._flush(rate)

    def settle(self) -> None:
        """Solve what is behind its moments."""
        if not self.ridge_behind:
            return
        moments, settings = self.moments, self.settings
        assert moments is not None
        if not settings.n_experts:
            pooled = moments.pooled(self.layout.word_class)
            one = ClassLayout(np.zeros(self.layout.n_classes, dtype=np.intp))
            doubt = _DOUBT * self.layout.sizes
            self.class_ridge, _ = shared_ridge(pooled, one, settings.alpha, doubt)
        if not settings.softmax_words:
            self.words, _ = shared_ridge(moments, self.layout, settings.word_alpha)
        self.ridge_behind = False

    def finish(self) -> None:
        """Learn the rows still waiting, and solve."""
        self._flush(self._rate_now())
        self.settle()

    def _rate_now(self) -> float:
        return self.schedule.share_left(self.n_seen) * self._rate(self.batch)

    def _rate(self, n_rows: int) -> float:
        """The learning rate for steps on so many rows: less for the noise of few."""
        size = min(1.0, n_rows / len(self.shift), float(np.sqrt(n_rows / LARGEST_BATCH)))
        return self.settings.learning_rate * size

    def _take(
        self, X: NDArray[Any], codes: NDArray[np.intp], rate: float, with_moments: bool
    ) -> None:
        Z = self.components(X.astype(np.float32, copy=False))
        if self.moments is not None and with_moments:
            self.moments.add(Z, codes)
            self.ridge_behind = True
        with ExitStack() as stack:
            over = self._tiles(stack)
            if self.class_solver is not None:
                for batch, words in self.class_rows.cut(Z, codes):
                    self.class_solver.step(batch, self.layout.word_class[words], rate, over)
            if self.word_solver is not None:
                for batch, words in self.word_rows.cut(Z, codes):
                    self.word_solver.step(batch, words, over)

    def _flush(self, rate: float) -> None:
        with ExitStack() as stack:
            over = self._tiles(stack)
            for batch, words in self.class_rows.rest():
                assert self.class_solver is not None
                self.class_solver.step(batch, self.layout.word_class[words], rate, over)
            for batch, words in self.word_rows.rest():
                assert self.word_solver is not None
                self.word_solver.step(batch, words, over)

    def _tiles(self, stack: ExitStack) -> TileMap:
        """A map over tiles of rows or classes, each on one BLAS thread; serial for small steps."""
        width = max(self.settings.n_experts, 1) * self.layout.n_classes
        worth = self.batch * width * len(self.shift) >= _WORTH_THREADS
        stack.enter_context(one_blas_thread())
        return stack.enter_context(tile_map(None if worth else 1))

    def components(self, X: NDArray[Any]) -> NDArray[Any]:
        """Components (n, P) of states X (n, n_units), in X's dtype."""
        return canonical_variables(X, self.directions, self.shift)

    def _log_classes(self, Z: NDArray[Any]) -> NDArray[Any]:
        if self.class_solver is not None:
            return self.class_solver.log_probabilities(Z)
        return self.class_ridge.log_probabilities(Z, np.zeros((len(Z), 1), dtype=Z.dtype))

    def log_probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        """log P(w | x) of every word: X (n, n_units) -> (n, V)."""
        Z = self.components(X)
        return self.words.log_probabilities(Z, self._log_classes(Z))

    def log_probability_of(self, X: NDArray[Any], words: NDArray[np.intp]) -> NDArray[Any]:
        """log P(w | x) (n,) of one word a row: the classes, and the words of one, are computed."""
        Z = self.components(X)
        classes = self.layout.word_class[words]
        out = np.empty(len(Z), dtype=Z.dtype)
        with ExitStack() as stack:
            over = self._tiles(stack)

            def tile(start: int) -> None:
                part = slice(start, start + 1024)
                logs = self._log_classes(Z[part])
                out[part] = logs[np.arange(len(logs)), classes[part]]

            over(tile, range(0, len(Z), 1024))
        inside = self.layout.sizes[classes] > 1
        out[inside] += self.words.log_probability_of(Z[inside], words[inside])
        return out
