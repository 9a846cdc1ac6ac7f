"""Mixins of estimators: saved as arrays by name, and linked by the ``>>`` of reservoirpy."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse

from esnlm.utils.arrays import Array, Arrays
from esnlm.utils.validation import at_fit


def with_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """Return arrays under names that begin with ``prefix`` and a dot."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def under_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """Return the inverse of `with_prefix`, leaving out all others."""
    start = prefix + "."
    return {k.removeprefix(start): array for k, array in arrays.items() if k.startswith(start)}


def saved(*names: str, **renamed: str) -> dict[str, str]:
    """Return names to save under, and attributes: of the same name, and ``name="attribute"``."""
    return {name: name for name in names} | renamed


def array_of(arrays: Arrays, name: str) -> Array | None:
    """Return the array saved under a name, or labels saved as JSON; None for neither."""
    if name + "json" in arrays:
        return np.asarray(json.loads(bytes(arrays[name + "json"])))
    return None if name not in arrays else np.asarray(arrays[name])


class Stateful:
    """An object whose state is a few named attributes.

    A subclass lists them in ``_saved``, made by `saved`, or computes `_names`. They are arrays,
    numbers, lists of numbers, sparse matrices, labels that are text (as JSON), or `Stateful`
    parts, whose arrays are saved under the part's name and a dot; those that are None or missing
    are left out. `load_state_dict` sets arrays as they are, without a copy, and numbers as
    Python's. A part that does not exist yet is made by `_make_part`; `_before_saving`,
    `_before_loading` and `_loaded` prepare and complete an object.

    >>> class Sum(Stateful):
    ...     _saved = saved("n", "total")
    ...     n, total = 2, np.ones(2)
    >>> class Pair(Stateful):
    ...     _saved = saved("first", second="_second")
    ...     def __init__(self):
    ...         self.first, self._second = Sum(), None
    >>> Pair().state_dict()
    {'first.n': array(2), 'first.total': array([1., 1.])}
    >>> pair = Pair().load_state_dict({"first.n": np.array(3), "first.total": np.zeros(1)})
    >>> pair.first.n, pair.first.total
    (3, array([0.]))
    """

    _saved: ClassVar[Mapping[str, str]] = {}

    def _names(self, training: bool) -> Mapping[str, str]:
        """Return saved names and attributes; ``training`` adds those that continue a training."""
        return self._saved

    def _required(self, arrays: Arrays, training: bool) -> Iterable[str]:
        """Return the names that must be among ``arrays`` to be loaded."""
        return ()

    def _before_saving(self, training: bool) -> None:
        """Make all attributes current, or raise an error where they are not there yet."""

    def state_dict(self, *, training: bool = False) -> Arrays:
        """Return all that the object continues from, by name, as views.

        Of a readout: what predictions need, or with ``training`` what further rows are added to.
        """
        self._before_saving(training)
        arrays: Arrays = {}
        for name, attribute in self._names(training).items():
            value = getattr(self, attribute, None)
            if value is None or (isinstance(value, list) and not value):
                continue
            if isinstance(value, Stateful):
                arrays |= with_prefix(name, value.state_dict(training=training))
            elif scipy.sparse.issparse(value):
                parts = "data", "indices", "indptr"
                arrays |= with_prefix(name, {part: getattr(value, part) for part in parts})
            elif np.asarray(value).dtype.kind in "OSU":
                text = json.dumps(np.asarray(value).tolist()).encode()
                arrays[name + "json"] = np.frombuffer(text, dtype=np.uint8)
            else:
                arrays[name] = np.asarray(value)
        return arrays

    def load_state_dict(self, arrays: Arrays, *, training: bool = False) -> Self:
        """Continue from what `state_dict` gave; the arrays are taken over. Returns self.

        KeyError names an array that is missing.
        """
        arrays = self._before_loading(arrays, training)
        for name in self._required(arrays, training):
            if name not in arrays:
                raise KeyError(name)
        for name, attribute in self._names(training).items():
            value, part = getattr(self, attribute, None), under_prefix(name, arrays)
            if isinstance(value, Stateful):
                value.load_state_dict(part, training=training)
            elif part:
                setattr(self, attribute, self._make_part(name, part, training))
            elif (array := array_of(arrays, name)) is not None:
                plain = isinstance(value, list) or not array.ndim
                setattr(self, attribute, array.tolist() if plain else array)
            elif value is not None:
                setattr(self, attribute, [] if isinstance(value, list) else None)
        self._loaded(training)
        return self

    @classmethod
    def restored(cls, arrays: Arrays, **attributes: Any) -> Self:
        """Return the object of a `state_dict`, with the attributes that it leaves out."""
        instance = cls.__new__(cls)
        vars(instance).update(attributes)
        return instance.load_state_dict(arrays)

    def make_writable(self, copies: dict[int, tuple[Array, Array]] | None = None) -> None:
        """Copy read-only arrays, as joblib maps them in its workers, before they are changed.

        ``copies`` are the arrays by their ``id``, with their copies: what is one array stays one.
        """
        copies = {} if copies is None else copies
        for name, value in vars(self).items():
            if isinstance(value, Stateful):
                value.make_writable(copies)
            elif isinstance(value, np.ndarray) and not value.flags.writeable:
                copy = copies.setdefault(id(value), (value, np.array(value)))[1]
                setattr(self, name, copy)

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        """Forget what was, before these arrays are loaded; the arrays to load."""
        return arrays

    def _make_part(self, name: str, arrays: Arrays, training: bool) -> Any:
        """Return a part, or sparse matrix, that does not exist yet, of these arrays."""
        raise TypeError(f"{type(self).__name__} has no part {name!r} to load")

    def _loaded(self, training: bool) -> None:
        """Complete what follows from the attributes, which are all set."""


class Linkable:
    """An estimator that stands on either side of reservoirpy's ``>>``.

    reservoirpy links nodes, models and each node of a sequence: an estimator counts as a sequence
    of its one node.
    """

    def __rshift__(self, other: Any) -> Any:
        """Return the model ``estimator >> other``, a readout, a reservoir, a node or a model."""
        from esnlm.utils.reservoirpy import link

        return link(self, other)

    def __rrshift__(self, other: Any) -> Any:
        """Return the model ``other >> estimator``."""
        from esnlm.utils.reservoirpy import link

        return link(other, self)

    def __iter__(self) -> Iterator[Any]:
        from esnlm.utils.reservoirpy import node_of

        yield node_of(self)

    def __getitem__(self, place: int) -> Self:
        """Return the estimator at place 0: scikit-learn asks a sequence's first what it can do."""
        if place:
            raise IndexError(f"an estimator stands for itself alone, got place {place}")
        return self


Sequence.register(Linkable)


class NodeLike(Linkable):
    """A reservoir that is a node of reservoirpy: called, run, fed back, anywhere in its graphs.

    What reservoirpy asks of a node it answers by an `esnlm.utils.reservoirpy.ReservoirNode` of its
    own, which keeps the state between calls.
    """

    #: By which a model with several inputs or outputs tells its nodes apart.
    name: str | None = None
    n_units: int
    _node: Any = None

    def __post_init__(self) -> None:
        """Be a node to `isinstance`, by which reservoirpy tells, where it is imported."""
        if (module := sys.modules.get("reservoirpy.node")) is not None:
            module.Node.register(type(self))

    @property
    def state(self) -> Any:
        """The node's state, ``{"out": (n_units,)}``."""
        return self._as_node().state

    @state.setter
    def state(self, state: Any) -> None:
        self._as_node().state = state

    def __call__(self, x: Any = None) -> Any:
        """Return the state (n_units,) after one more vector (n_inputs,)."""
        return self._as_node().step(x)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_NODES:
            return getattr(self._as_node(), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __lshift__(self, other: Any) -> Any:
        """Return ``self << other``: ``other`` is an input of the next step."""
        from esnlm.utils.reservoirpy import feed_back

        return feed_back(other, self)

    def __rlshift__(self, other: Any) -> Any:
        """Return ``other << self``."""
        from esnlm.utils.reservoirpy import feed_back

        return feed_back(self, other)

    def __and__(self, other: Any) -> Any:
        """Return a model of this node and those of ``other``."""
        from esnlm.utils.reservoirpy import merge

        return merge(self, other)

    def _as_node(self) -> Any:
        from esnlm.utils.reservoirpy import ReservoirNode

        node, width = self._node, getattr(self, "n_inputs_", None)
        fits = node is not None and node.output_dim == at_fit(self)["n_units"]
        if not fits or (width and node.input_dim not in (None, width)):
            self._node = ReservoirNode(self)
        return self._node


_OF_NODES = {
    "initialized", "initialize", "input_dim", "output_dim", "step", "run", "reset", "_step", "_run",
}  # fmt: skip
