"""Objects saved as arrays by name, and restored from them."""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def with_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """Arrays under names that begin with ``prefix`` and a dot."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def under_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """The inverse of `with_prefix`, leaving out all others."""
    start = prefix + "."
    return {k.removeprefix(start): array for k, array in arrays.items() if k.startswith(start)}


class Stateful:
    """An object whose state is a few named attributes: arrays, numbers, None, or other parts.

    A subclass lists the attributes in ``_saved``; those that are None or missing are left out. A
    part that is `Stateful` too is saved under its name and a dot. `load_state_dict` sets arrays
    as they are, without a copy, and numbers as Python's; a part must exist before, or is made by
    `_make_part`.

    >>> class Sum(Stateful):
    ...     _saved = ("n", "total")
    ...     n, total = 2, np.ones(2)
    >>> class Pair(Stateful):
    ...     _saved = ("first", "second")
    ...     def __init__(self):
    ...         self.first, self.second = Sum(), None
    >>> Pair().state_dict()
    {'first.n': array(2), 'first.total': array([1., 1.])}
    >>> pair = Pair()
    >>> pair.load_state_dict({"first.n": np.array(3), "first.total": np.zeros(1)})
    >>> pair.first.n, pair.first.total
    (3, array([0.]))
    """

    _saved: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> Arrays:
        """All that the object continues from, by name, as views."""
        arrays: Arrays = {}
        for name in self._saved:
            value = getattr(self, name, None)
            if isinstance(value, Stateful):
                arrays |= with_prefix(name, value.state_dict())
            elif value is not None:
                arrays[name] = np.asarray(value)
        return arrays

    def load_state_dict(self, arrays: Arrays) -> None:
        """Continue from what `state_dict` gave; the arrays are taken over."""
        for name in self._saved:
            part = under_prefix(name, arrays)
            if part:
                value = getattr(self, name, None)
                if not isinstance(value, Stateful):
                    value = self._make_part(name, part)
                    setattr(self, name, value)
                value.load_state_dict(part)
            elif name in arrays:
                array = np.asarray(arrays[name])
                setattr(self, name, array if array.ndim else array.item())
            elif getattr(self, name, None) is not None:
                if isinstance(getattr(self, name), Stateful):
                    getattr(self, name).load_state_dict({})
                else:
                    setattr(self, name, None)

    @classmethod
    def restored(cls, arrays: Arrays, **attributes: Any) -> Self:
        """The object whose `state_dict` is ``arrays``, with the attributes that it leaves out."""
        made = cls.__new__(cls)
        vars(made).update(attributes)
        made.load_state_dict(arrays)
        return made

    def _make_part(self, name: str, arrays: Arrays) -> "Stateful":
        """A part that does not exist yet, to be loaded with these arrays."""
        raise TypeError(f"{type(self).__name__} has no part {name!r} to load")
