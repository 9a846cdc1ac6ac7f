"""What readouts share that survey some rows first, and then learn in passes over all of them."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from esnlm.readouts.base.buffer import BufferedReadout
from esnlm.readouts.base.minibatches import Interleaved
from esnlm.readouts.base.readout import ArrayBlocks, Block, Blocks, blocks_rows


class SurveyedReadout(BufferedReadout):
    """A readout that a trainer's calls and given rows teach in the same way.

    Beside what a `BufferedReadout` does, a subclass computes `_plan` and the calls of a trainer
    (`StreamedTraining`): `survey`, `end_survey`, `learn`, `end_pass` and `finish`.
    """

    random_state: int | np.random.RandomState | None

    @abstractmethod
    def _plan(self, n_rows: int, counts: NDArray[Any] | None) -> None:
        """Begin a survey, before passes of n_rows rows with counts (V,) of the words."""

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Survey and passes over the rows, which are interleaved where they are arrays."""
        blocks = self._held(blocks)
        n_rows, counts = blocks_rows(blocks), None
        if isinstance(blocks, ArrayBlocks):
            counts = np.bincount(blocks.y, minlength=len(self.classes_))
            blocks = Interleaved(blocks.X, blocks.y, min(blocks.block_size, n_rows))
        elif not n_rows:
            n_rows = sum(len(codes) for _, codes in blocks)
        self._plan(n_rows, counts)
        surveyed = 0
        for X, codes in blocks:
            self.survey(X, codes)
            surveyed += len(X)
            if surveyed >= self.survey_rows:
                break
        self.end_survey()
        for _ in range(self.training_passes):
            for X, codes in blocks:
                self.learn(X, codes)
            self.end_pass(held_out)
        self.finish()

    def _held(self, blocks: Blocks) -> Blocks:
        """The rows as arrays where ``partial_fit`` would hold them all, which are interleaved."""
        capacity = self._capacity(np.float64)
        if isinstance(blocks, ArrayBlocks) or blocks_rows(blocks) > capacity:
            return blocks
        parts: list[Block] = []
        n_rows = 0
        for X, codes in blocks:
            parts.append((X.copy(), codes.copy()))
            n_rows += len(X)
            if n_rows > capacity:
                return blocks
        return ArrayBlocks(
            np.concatenate([X for X, _ in parts]), np.concatenate([codes for _, codes in parts])
        )

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
