"""What a trainer asks of a readout: passes over blocks of rows, and a state that can be saved."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Block = tuple[NDArray[Any], NDArray[Any]]
Arrays = dict[str, NDArray[Any]]

#: What a readout says that was loaded to predict, and is asked for more.
WITHOUT_STATE = (
    "this readout was loaded without its training state and cannot learn more rows: save it with"
    " training=True, or fit a clone on all of them"
)


class Blocks(Protocol):
    """A re-iterable: each ``iter()`` is a fresh pass over ``(X, y)`` blocks in reused memory."""

    def __iter__(self) -> Iterator[Block]: ...


class StreamedTraining:
    """Learning in passes over a corpus whose states are never held, with a state to save.

    The order of calls: `begin`; if ``survey_rows`` is not 0, `survey` until it has so many rows,
    then `end_survey`; for each of ``training_passes`` passes `learn` block after block, then
    `end_pass`; `finish`. Between two blocks `training_arrays` may be saved. On a clone after the
    same `begin`, `restore_training` brings the readout to where it was, bit for bit.

    Rows are states X (n, n_units), C or F order, in memory that is used again; codes (n,) are
    columns of ``classes_``. Nothing is validated here: the rows come from a reservoir.

    Examples
    --------
    >>> from esnlm import RidgeReadout
    >>> X, codes = np.array([[0.0], [1.0], [2.0]]), np.array([0, 0, 1])
    >>> readout = RidgeReadout().begin([0, 1], 1, n_rows=3)
    >>> readout.learn(X[:2], codes[:2])
    >>> other = RidgeReadout().begin([0, 1], 1, n_rows=3)
    >>> other.restore_training(readout.training_arrays())
    >>> other.learn(X[2:], codes[2:])
    >>> other.finish()
    >>> bool(np.allclose(other.coef_, RidgeReadout().fit(X, codes).coef_))
    True
    """

    #: Whether a score along the way costs little beside the rows it is made of.
    scores_are_cheap: ClassVar[bool] = True

    #: Last columns of X that hold the tokens read last, beside the states (see `last_tokens`).
    n_direct: int = 0

    classes_: NDArray[Any]
    n_features_in_: int

    @property
    def training_passes(self) -> int:
        """Passes over the corpus that it wants."""
        return 1

    @property
    def survey_rows(self) -> int:
        """Rows to be surveyed before the first pass; asked after `begin`."""
        return 0

    def begin(
        self,
        classes: ArrayLike,
        n_units: int,
        *,
        n_rows: int,
        counts: NDArray[np.int64] | None = None,
        dtype: str = "float32",
    ) -> Self:
        """Forget what was learned, and prepare for passes of ``n_rows`` rows.

        Parameters
        ----------
        classes : array (V,)
            Every label, sorted.
        n_units : int
        n_rows : int
            Rows of one pass.
        counts : array (V,), optional
            Occurrences of each class in one pass.
        dtype : str
            Of the states.
        """
        self.classes_ = np.unique(np.asarray(classes))
        self.n_features_in_ = int(n_units)
        self._start()
        return self

    def survey(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Look at a sample of rows, which come again in the first pass."""

    def end_survey(self) -> None:
        """The sample is complete."""

    def learn(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Learn from the next block of the pass."""
        self._absorb(X, np.asarray(codes, dtype=np.intp))

    def end_pass(self, held_out: Iterable[Block] | None = None) -> bool:
        """A pass is over; False when no other is worth it. ``held_out`` are rows to judge by."""
        return True

    def finish(self, held_out: Iterable[Block] | None = None) -> None:
        """Make the parameters final; ``held_out`` are rows to choose penalties by."""
        self._settle()

    def training_arrays(self) -> Arrays:
        """All that further learning needs, by name, without any effect on it.

        Raises
        ------
        ValueError
            The readout has nothing to learn on with: it was loaded without its training state.
        """
        raise ValueError(f"{type(self).__name__} keeps no training state that could be saved")

    def restore_training(self, arrays: Arrays) -> None:
        """Go on where `training_arrays` was called; the arrays are taken over, not copied.

        The readout has been through the same `begin`, or was made by ``from_arrays``.
        """
        raise ValueError(f"{type(self).__name__} keeps no training state that could be restored")

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _absorb(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None: ...

    @abstractmethod
    def _settle(self) -> None: ...
