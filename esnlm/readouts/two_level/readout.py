"""Base class of readouts that train a `TwoLevelLearner`."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from esnlm.readouts.base.blocks import (
    ArrayBlocks,
    Block,
    Blocks,
    Interleaved,
    blocks_rows,
    in_memory,
)
from esnlm.readouts.base.buffer import BufferedReadout
from esnlm.readouts.two_level.solver import TwoLevelLearner
from esnlm.utils.state_dict import Arrays, under_prefix, with_prefix

_PREFIX = "joint"


class TwoLevelReadout(BufferedReadout):
    """A readout whose parameters a `TwoLevelLearner` trains, from arrays or in streamed passes.

    A subclass computes `_make_learner`, `_show` and `_restore`.
    """

    random_state: int | np.random.RandomState | None
    _learner: TwoLevelLearner | None

    @abstractmethod
    def _make_learner(self, n_rows: int, counts: NDArray[Any] | None) -> TwoLevelLearner:
        """A learner for passes of n_rows rows with counts (V,) of the words."""

    @abstractmethod
    def _show(self) -> None:
        """Set learned attributes to the learner's arrays, which it changes in place."""

    def _start(self) -> None:
        self._learner = None
        self.history_: list[float] = []

    @property
    def training_passes(self) -> int:
        """Passes over the corpus, known after `begin`: more where rows are few."""
        learner = self.__dict__.get("_learner")
        return 1 if learner is None else learner.n_passes

    @property
    def sample_rows(self) -> int:
        """Rows of the pilot sample, from which directions and classes are computed."""
        learner = self.__dict__.get("_learner")
        return 0 if learner is None else learner.schedule.survey_rows

    @property
    def _may_be_joint(self) -> bool:
        """Whether a `TwoLevelLearner` trains this configuration."""
        return True

    def _plan(self, n_rows: int, counts: NDArray[Any] | None) -> None:
        if self._may_be_joint:
            self._learner = self._make_learner(n_rows, counts)
            self._streaming = True

    def _sample(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Add rows to the pilot sample."""
        self._trained.survey(X, codes)

    def _end_sample(self) -> None:
        """Solve the components, and make the classes."""
        self._trained.end_survey()
        self._show()

    def _learn(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Take steps on the next rows of the pass."""
        if self._learner is None:
            super()._learn(X, codes)
            return
        self._trained.learn(X, codes.astype(np.intp, copy=False))

    def _end_pass(self, held_out: Iterable[Block] | None = None) -> None:
        """Note the held-out loss."""
        if self._learner is not None and held_out is not None:
            self._trained.settle()
            self.history_.append(self._mean_loss(held_out))

    def _finish(self, held_out: Iterable[Block] | None = None) -> None:
        """Learn the rows still waiting, and solve."""
        if self._learner is None:
            super()._finish(held_out)
            return
        self._trained.finish()
        self._show()

    @property
    def _trained(self) -> Any:
        """The part that learns and predicts."""
        assert self._learner is not None, "no rows were learned"
        return self._learner

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Pilot sample and passes over the rows, which are interleaved where they are arrays."""
        blocks = in_memory(blocks, self._capacity(np.float64)) or blocks
        n_rows, counts = blocks_rows(blocks), None
        if isinstance(blocks, ArrayBlocks):
            counts = np.bincount(blocks.y, minlength=len(self.classes_))
            blocks = Interleaved(blocks.X, blocks.y, min(blocks.block_size, n_rows))
        elif not n_rows:
            n_rows = sum(len(codes) for _, codes in blocks)
        self._plan(n_rows, counts)
        self._exhaust(blocks, held_out)

    def _mean_loss(self, held_out: Iterable[Block]) -> float:
        """Mean negative log-probability of held-out rows; not a number where there are none."""
        total = n = 0.0
        for X, codes in held_out:
            total -= float(self._log_probabilities_of(X, codes).sum(dtype=np.float64))
            n += len(codes)
        return total / n if n else float("nan")

    def _seed(self) -> int:
        """A seed for the clustering, drawn anew."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _update(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        self._trained.learn_later(X, codes)

    def _settle(self) -> None:
        super()._settle()
        if self._learner is not None:
            self._learner.settle()

    def _log_probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        return self._trained.log_probabilities(X)

    def _log_probabilities_of(self, X: NDArray[Any], codes: NDArray[np.intp]) -> NDArray[Any]:
        """Computes the classes, and the words of one class a row: not the whole vocabulary."""
        return self._trained.log_probability_of(X, codes)

    def _learner_arrays(self) -> Arrays:
        if self._learner is None:
            return {}
        arrays = with_prefix(_PREFIX, self._learner.state_dict())
        return arrays | ({"history": np.array(self.history_)} if self.history_ else {})

    def _restore_learner(self, arrays: Arrays) -> None:
        # Earlier versions of `LowRankReadout` saved these arrays without a prefix.
        own = under_prefix(_PREFIX, arrays) or arrays
        if not int(own.get("n_rows", np.zeros(()))):
            return
        self._learner = self._make_learner(int(own["n_rows"]), own.get("counts"))
        self._learner.load_state_dict(own)
        self.history_ = arrays.get("history", np.zeros(0)).tolist()
        if self._learner.pilot is None:
            self._show()
