"""Arrays of the parts of a readout, in one dictionary under names that begin with the part's."""

from typing import Any

from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def with_start(start: str, arrays: Arrays) -> Arrays:
    """Arrays under names that begin with ``start``."""
    return {f"{start}{name}": array for name, array in arrays.items()}


def after_start(start: str, arrays: Arrays) -> Arrays:
    """The inverse of `with_start`, leaving out all others."""
    return {k.removeprefix(start): array for k, array in arrays.items() if k.startswith(start)}
