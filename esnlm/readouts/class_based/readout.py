"""Base class of readouts that train a `TwoLevelLearner`."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from esnlm.readouts.base.blocks import ArrayBlocks, Blocks, Interleaved, blocks_rows, in_memory
from esnlm.readouts.base.buffer import BUFFER, BufferedReadout
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.passes import SamePasses
from esnlm.readouts.class_based.solver import TwoLevelLearner, TwoLevelSettings
from esnlm.utils.arrays import Array, Arrays, Ints
from esnlm.utils.state_dict import saved
from esnlm.utils.sums import Keyed, Sums
from esnlm.utils.validation import check_parameters


class TwoLevelReadout(BufferedReadout):
    """A readout whose parameters a `TwoLevelLearner` trains, from arrays or in streamed passes.

    A subclass computes `_settings`, `_assign`, `_show` and `_use`.
    """

    _training_state: ClassVar[Mapping[str, str]] = saved(joint="_learner", history="history_")
    random_state: int | np.random.RandomState | None
    _learner: TwoLevelLearner | None = None
    _n_copies = 1

    @abstractmethod
    def _settings(self, n_rows: int) -> TwoLevelSettings:
        """Return the hyper-parameters of the learner for a pass of ``n_rows`` rows."""

    @abstractmethod
    def _assign(self, counts: Array, vectors: Array) -> Ints:
        """Classes (V,) of words with these counts (V,), which follow states like vectors (V, P)."""

    @abstractmethod
    def _show(self) -> None:
        """Set learned attributes to the learner's arrays, which it changes in place."""

    @abstractmethod
    def _use(self, learner: TwoLevelLearner) -> None:
        """Set the learner's weights to the learned attributes, which were loaded."""

    def _start(self) -> None:
        check_parameters(self)
        self._learner, self._n_copies = None, 1
        self._training_passes, self._sample_rows = 1, 0
        self.history_: list[float] = []

    @property
    def _may_be_joint(self) -> bool:
        """Whether a `TwoLevelLearner` trains this configuration."""
        return True

    def _make_learner(self, n_rows: int, counts: Array | None) -> TwoLevelLearner:
        settings, n_units, n_words = self._settings(n_rows), self.n_features_in_, len(self.classes_)
        learner = TwoLevelLearner(settings, self._assign, n_units, n_words, n_rows, counts)
        learner.n_copies = self._n_copies
        return learner

    def _plan(self, n_rows: int, counts: Array | None) -> None:
        if self._may_be_joint:
            learner = self._learner = self._make_learner(n_rows, counts)
            # One for ridge, and more than were asked for where rows are few.
            self._training_passes = 1 if learner.is_ridge else learner.schedule.n_passes
            self._sample_rows = learner.schedule.survey_rows
            self._streaming = True

    def _pass_moments(self, number: int) -> Moments | None:
        learner = self._learner
        if learner is None or (number > 0 and not learner.is_ridge):
            return None
        return learner.moments if learner.pilot is None else learner.pilot.moments

    def _enable_averaging(self, n_copies: int) -> bool:
        if self._learner is None:
            return False
        settings = self._learner.settings
        if (settings.n_experts == 0) == settings.softmax_words:  # moments beside steps
            return False
        self._n_copies = self._learner.n_copies = n_copies
        return True

    def _pass_sums(self, number: int, before: Arrays | None = None) -> Sums:
        if before is not None:
            self._trained.flush()
        sums, ngrams = super()._pass_sums(number, before), self._trained.ngram_counts
        if ngrams is None:
            return sums
        keys, counts = ngrams.totals
        return Sums(sums.plain, {**sums.keyed, "ngrams": Keyed(keys, [counts])})

    def _take_sums(self, number: int, sums: Sums) -> None:
        super()._take_sums(number, sums)
        self._trained.after_merge(sums)

    def _step(self, number: int) -> Callable[[Array, Ints], Any]:
        if self._learner is None:
            return super()._step(number)
        return self._learner.learn if number else self._learner.survey

    def _end_pass(self, number: int, held_out: Blocks | None = None) -> None:
        if not number:
            self._trained.end_survey()
            self._show()
        elif self._learner is not None and held_out is not None:
            self.history_.append(self._learner.judge(held_out))

    def _finish(self, held_out: Blocks | None = None) -> None:
        if self._learner is None:
            super()._finish(held_out)
            return
        self._learner.flush()
        self._learner.settle()
        self._show()

    @property
    def _trained(self) -> Any:
        assert self._learner is not None, "no rows were learned"
        return self._learner

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Train in passes, and interleave rows that are arrays or fit the buffer."""
        blocks = in_memory(blocks, self._capacity(np.float64)) or blocks
        n_rows, counts = blocks_rows(blocks), None
        if isinstance(blocks, ArrayBlocks):
            counts = np.bincount(blocks.y, minlength=len(self.classes_))
        elif not n_rows:
            n_rows = sum(len(codes) for _, codes in blocks)
        self._plan(n_rows, counts)
        if isinstance(blocks, ArrayBlocks):  # whose rows may be sorted: a step sees all of them
            batch = self._trained.schedule.batch
            blocks = Interleaved(blocks.X, blocks.y, batch, max(1, blocks.block_size // batch))
        for _ in self._stream(SamePasses(blocks), held_out):
            pass

    def _seed(self) -> int:
        """Return a seed for the clustering, drawn anew."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _update(self, X: Array, codes: Ints) -> None:
        self._trained.learn_later(X, codes)
        self._show()  # views of the learner's arrays, which a pickle parts from them

    def _settle(self) -> None:
        super()._settle()
        if self._learner is not None and self._learner.ridge_behind:
            self._learner.settle()
            self._show()

    def _log_probabilities(self, X: Array) -> Array:
        return self._trained.log_probabilities(X)

    def _log_probabilities_of(self, X: Array, codes: Ints) -> Array:
        return self._trained.log_probability_of(X, codes)

    def _names(self, training: bool) -> Mapping[str, str]:
        return BUFFER | dict(self._training_state) if training else super()._names(training)

    def _make_part(self, name: str, arrays: Arrays, training: bool) -> TwoLevelLearner:
        learner = self._make_learner(int(arrays["n_rows"]), arrays.get("counts"))
        return learner.load_state_dict(arrays)

    def _loaded(self, training: bool) -> None:
        if not training:
            self._can_learn = False
            learner = self._learner = self._make_learner(0, None)
            learner.begin(self.directions_, self.shift_, self.word_class_)
            self._use(learner)
        if self._learner is not None and self._learner.pilot is None:
            self._show()
