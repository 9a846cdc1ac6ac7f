"""``>>`` between the estimators of this package and the nodes of reservoirpy."""

from collections.abc import Iterator, Sequence
from typing import Any


class Linkable:
    """An estimator that stands on either side of reservoirpy's ``>>``.

    reservoirpy links nodes, models and each node of a sequence: an estimator counts as a sequence
    of its one node.
    """

    def __rshift__(self, other: Any) -> Any:
        """``estimator >> other``, a readout, a reservoir, a node or a model: a model."""
        from esnlm.utils.reservoirpy import link

        return link(self, other)

    def __rrshift__(self, other: Any) -> Any:
        """``other >> estimator``: a model."""
        from esnlm.utils.reservoirpy import link

        return link(other, self)

    def __iter__(self) -> Iterator[Any]:
        from esnlm.utils.reservoirpy import node_of

        yield node_of(self)


Sequence.register(Linkable)
