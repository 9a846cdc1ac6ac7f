"""Learning in passes over rows of which one block is at hand at a time, here or by copies.

Copies that took steps from the same weights are averaged (local SGD). Each row is averaged over
the copies that changed it. So vectors of rare words, which few copies met, move as far as where
one copy learns alone (Stich 2019). McMahan et al. (2017) average all copies, which holds such
rows back.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

import numpy as np

from esnlm.readouts.base.blocks import Block, Blocks, blocks_rows
from esnlm.readouts.base.moments import Moments
from esnlm.utils.arrays import Array, Arrays, Ints
from esnlm.utils.state_dict import Stateful
from esnlm.utils.sums import Keyed, Sums
from esnlm.utils.validation import DivergenceError

_DIVERGED = (
    "the readout diverged, its {} are not finite: lower learning_rate, or give a penalty alpha and"
    " states of ordinary size"
)
# Counters of steps are averaged, as their weights are; counters of rows are added.
_AVERAGED = "n_steps"


class Passes(Protocol):
    """Rows in passes, each with an order of its own, in chunks that are iterables of blocks.

    ``first`` is the pass to begin with: 0, the pilot sample, unless training is resumed.
    """

    first: int

    def read(self, number: int, *, n_rows: int | None = None) -> Iterator[Blocks | Sums]:
        """Chunks of a pass, or the first ones that hold ``n_rows`` rows.

        `Sums` stand for rows that were read elsewhere, by copies of the readout.
        """


class SamePasses:
    """`Passes` of one chunk each, all alike."""

    first = 0

    def __init__(self, rows: Blocks) -> None:
        self.rows = rows

    def read(self, number: int, *, n_rows: int | None = None) -> Iterator[Blocks]:
        """Yield one chunk: all rows, or the first blocks that hold ``n_rows`` rows."""
        yield self.rows if n_rows is None else self._first(n_rows)

    def _first(self, n_rows: int) -> Iterator[Block]:
        for X, y in self.rows:
            yield X, y
            n_rows -= len(X)
            if n_rows <= 0:
                return


class PassLearner(Stateful):
    """What a readout does with rows in passes: `_plan`, `_step`, `_end_pass`, `_finish` in turn.

    Rows are states X (n, n_units), C or F order, in memory that is used again; codes (n,) are
    columns of the classes. ``_parameters`` names the trained arrays.
    """

    # Passes over the rows; rows of the pilot sample before them, and whether a sample of all rows
    # is to come in the order of the text. `_plan` sets them.
    _training_passes = 1
    _sample_rows = 0
    _samples_in_order = False
    _parameters: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def _start(self) -> None:
        """Forget any earlier fit; ``classes_`` are known, ``n_features_in_`` maybe not yet."""

    @abstractmethod
    def _absorb(self, X: Array, codes: Ints) -> None:
        """Take one more chunk; may put off the solving to `_settle`."""

    @abstractmethod
    def _settle(self) -> None:
        """Make the parameters current with everything absorbed."""

    def _plan(self, n_rows: int, counts: Array | None) -> None:
        """Prepare for passes of ``n_rows`` rows, with counts (V,) of the classes or None."""

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Learn from scratch from re-iterable blocks of (X, codes), in passes that are alike."""
        self._plan(blocks_rows(blocks) or sum(len(codes) for _, codes in blocks), None)
        for _ in self._stream(SamePasses(blocks), held_out):
            pass

    def _train(self, passes: Passes, held_out: Blocks | None = None) -> Iterator[tuple[int, bool]]:
        """Learn in passes; yield the pass and whether it ended, after chunks and between passes.

        Pass 0 is the pilot sample, 1 the first one over all rows; ``held_out`` rows judge passes
        and choose penalties. After a chunk, a readout that is prepared for the same passes
        continues from ``state_dict(training=True)``, bit for bit.
        """
        with divergence(self):
            yield from self._stream(passes, held_out)

    def _stream(self, passes: Passes, held_out: Blocks | None) -> Iterator[tuple[int, bool]]:
        """`_train`, without its check of the parameters."""
        for number in range(passes.first, self._training_passes + 1):
            if number == 0 and not self._sample_rows:
                continue
            for chunk in passes.read(number, n_rows=None if number else self._sample_rows):
                if isinstance(chunk, Sums):
                    self._take_sums(number, chunk)
                else:
                    self._read_chunk(number, chunk)
                yield number, False
            self._end_pass(number, held_out)
            if 0 < number < self._training_passes:
                yield number, True
        self._finish(held_out)

    def _read_chunk(self, number: int, chunk: Blocks) -> None:
        """Learn the blocks of a chunk of pass ``number``; 0 is the pilot sample."""
        learn = self._step(number)
        for X, codes in chunk:
            learn(X, np.asarray(codes, dtype=np.intp))

    def _step(self, number: int) -> Callable[[Array, Ints], Any]:
        """Return what learns a block of pass ``number``; rows of the sample (0) come again."""
        return self._absorb

    def _end_pass(self, number: int, held_out: Blocks | None = None) -> None:
        """End a pass, or (0) the pilot sample; ``held_out`` are rows to judge a pass by."""

    def _finish(self, held_out: Blocks | None = None) -> None:
        """Make the parameters final; ``held_out`` are rows to choose penalties by."""
        self._settle()

    def _pass_moments(self, number: int) -> Moments | None:
        """Moments of the rows of pass ``number``, where it does nothing but add them up."""
        return None

    def _enable_averaging(self, n_copies: int) -> bool:
        """Prepare for averaging the steps of so many copies; False where that is impossible."""
        return False

    def _pass_sums(self, number: int, before: Arrays | None = None) -> Sums:
        """Return what pass ``number`` added up over the rows read, or changed since ``before``."""
        moments = self._pass_moments(number)
        if moments is not None:
            return moments.to_sums()
        assert before is not None, "steps change what was before them"
        return changes(before, self.state_dict(training=True))

    def _take_sums(self, number: int, sums: Sums) -> None:
        """Take the sums of all rows of pass ``number``, or the changes of all copies."""
        moments = self._pass_moments(number)
        if moments is not None:
            moments.replace(sums)
        else:
            before = self.state_dict(training=True)
            self.load_state_dict(averaged(before, sums), training=True)


@contextmanager
def divergence(trained: PassLearner | None = None) -> Iterator[None]:
    """Raise DivergenceError on division by zero, and for trained parameters not finite."""
    try:
        yield
    except ZeroDivisionError as error:
        raise DivergenceError(_DIVERGED.format("probabilities")) from error
    for name in () if trained is None else trained._parameters:
        if not np.isfinite(getattr(trained, name)).all():
            raise DivergenceError(_DIVERGED.format(name))


def changes(before: Arrays, after: Arrays) -> Sums:
    """Return what one copy changed, row by row: to be added to that of others.

    >>> before = {"W": np.zeros((3, 2)), "n_seen": np.array(4)}
    >>> first = changes(before, {"W": np.array([[2.0, 2], [0, 0], [4, 4]]), "n_seen": np.array(7)})
    >>> other = changes(before, {"W": np.array([[4.0, 4], [0, 0], [0, 0]]), "n_seen": np.array(6)})
    >>> after = averaged(before, first + other)
    >>> after["W"].tolist(), int(after["n_seen"])
    ([[3.0, 3.0], [0.0, 0.0], [4.0, 4.0]], 9)
    """
    plain: Arrays = {"copies": np.array(1)}
    rows: dict[str, Keyed] = {}
    for name, old in before.items():
        new = np.asarray(after[name])
        if not old.ndim:
            if old.dtype.kind in "iu":
                plain[name] = np.asarray(new - old)
        elif old.dtype.kind == "f":
            was, now = _rows(old), _rows(new)
            places = np.flatnonzero((was != now).any(axis=1))
            rows[name] = Keyed(places, [now[places] - was[places], np.ones(len(places), dtype=int)])
    return Sums(plain, rows)


def averaged(before: Arrays, sums: Sums) -> Arrays:
    """Return the arrays after the changes of all copies."""
    after = dict(before)
    n_copies = int(sums.plain["copies"])
    for name, total in sums.plain.items():
        if name in before:
            mean = name.endswith(_AVERAGED)
            after[name] = before[name] + (round(int(total) / n_copies) if mean else total)
    for name, rows in sums.keyed.items():
        total, times = rows.values
        array = before[name].copy()
        _rows(array)[rows.keys] += total / times[:, None].astype(total.dtype)
        after[name] = array
    return after


def _rows(array: Array) -> Array:
    """Return a view (n, m) of an array: rows along its last axis, or its entries."""
    return array.reshape(-1, array.shape[-1] if array.ndim > 1 else 1)
