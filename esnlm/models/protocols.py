"""What a reservoir and a readout must have to be parts of a language model, for type checkers."""

from collections.abc import Iterator
from typing import Any, Protocol


class ReservoirLike(Protocol):
    """Turns tokens into states; `esnlm.Reservoir` is one."""

    n_units: int

    def harvest(self, tokens: Any) -> Iterator[tuple[Any, ...]]:
        """Blocks of (states, next tokens) of a corpus."""

    def transform(self, X: Any) -> Any:
        """States of one sequence."""


class ReadoutLike(Protocol):
    """Turns states into distributions: a readout of this package, or a classifier."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from states (n, n_units) and next tokens (n,)."""

    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n, n_classes) of states (n, n_units)."""
