"""How many rows a survey, a batch and all passes of a readout that learns in steps have."""

from typing import NamedTuple

_SURVEY_ROWS = 1 << 20
#: Rows of the largest batch: learning rates are stated for it.
LARGEST_BATCH = 4096
_LEAST_BATCH = 16
_LEAST_STEPS = 512
#: Part of the learning rate that is left for rows that come after the passes.
LATER_RATE = 0.1


class Schedule(NamedTuple):
    """Batches and passes for passes of ``n_rows`` rows: few rows are passed over more often.

    Parameters
    ----------
    n_rows : int
        Rows of one pass; 0 where they are not known yet.
    least_passes : int
    batches : int
        Of one pass, where that is not more than `LARGEST_BATCH` rows each.

    Examples
    --------
    >>> few, many = Schedule(2000, 1), Schedule(10**6, 1)
    >>> few.batch, few.n_passes, few.n_steps
    (31, 8, 512)
    >>> many.batch, many.n_passes, many.n_steps
    (4096, 3, 732)
    >>> few.share_left(12000)
    0.25
    """

    n_rows: int
    least_passes: int
    batches: int = 64

    @property
    def survey_rows(self) -> int:
        """Rows that directions and classes are made from."""
        return min(_SURVEY_ROWS, self.n_rows)

    @property
    def batch(self) -> int:
        """Rows of a step."""
        if not self.n_rows:
            return LARGEST_BATCH
        return min(max(self.n_rows // self.batches, _LEAST_BATCH), LARGEST_BATCH)

    @property
    def n_passes(self) -> int:
        """Passes over the rows; more than was asked for where steps would be few."""
        if not self.n_rows:
            return self.least_passes
        return max(self.least_passes, -(-_LEAST_STEPS // self._steps_a_pass))

    @property
    def n_steps(self) -> int:
        """Steps of all passes."""
        return self._steps_a_pass * self.n_passes

    @property
    def _steps_a_pass(self) -> int:
        return max(1, self.n_rows // self.batch)

    def share_left(self, n_seen: int) -> float:
        """Part of the rows of all passes that is to come after so many."""
        return max(0.0, 1 - n_seen / max(1, self.n_rows * self.n_passes))
