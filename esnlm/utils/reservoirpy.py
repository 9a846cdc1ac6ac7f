"""Reservoirs and readouts as reservoirpy nodes, and reservoirpy reservoirs as ours."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import reservoirpy.nodes
from reservoirpy.activationsfunc import identity, relu, tanh
from reservoirpy.model import Model
from reservoirpy.node import Node, OnlineNode
from reservoirpy.ops import ModelBuilderUtil, link_feedback
from reservoirpy.ops import link as link_nodes
from reservoirpy.ops import merge as merge_nodes
from reservoirpy.utils.data_validation import check_node_input
from sklearn.base import BaseEstimator, is_regressor

from esnlm.utils.arrays import Array, Floats, Ints64
from esnlm.utils.validation import at_fit

_ACTIVATIONS = {tanh: "tanh", relu: "relu", identity: "identity"}


class _Labelled:
    """``>>`` makes models that take class numbers (T,) as targets, too."""

    def __rshift__(self, other: Any) -> Any:
        return _labelled(Node.__rshift__(self, other))

    def __rrshift__(self, other: Any) -> Any:
        return _labelled(Node.__rrshift__(self, other))


class _EstimatorNode(_Labelled):
    """A node whose state is its last output; `_outputs` gives those of vectors (T, n_inputs)."""

    output_dim: Any
    _outputs: Any

    def _step(self, state: Any, x: Array) -> Any:
        return self._run(state, x[None])[0]

    def _run(self, state: Any, x: Array) -> tuple[Any, Array]:
        if not len(x):
            return state, np.empty((0, self.output_dim))
        out = self._outputs(state, x)
        return {"out": out[-1]}, out


class ReservoirNode(_EstimatorNode, Node):
    """A fitted or unfitted ``esnlm.Reservoir`` as a node: vectors (T, n_inputs) -> states.

    An unfitted reservoir draws its weights for the width of the first input. The node's state is
    the reservoir's, kept between calls as reservoirpy does; ``reset`` sets it to zero.
    """

    def __init__(self, reservoir: Any, name: str | None = None) -> None:
        self.reservoir = reservoir
        self.name = name
        self.output_dim = at_fit(reservoir)["n_units"]
        if hasattr(reservoir, "W_"):
            self.input_dim = reservoir.n_inputs_

    def initialize(self, x: Any, y: Any = None) -> None:
        """Set the dimensions, and draw the weights of an unfitted reservoir."""
        self._set_input_dim(x)
        if not hasattr(self.reservoir, "W_"):
            self.reservoir.fit(n_inputs=self.input_dim)
        self.state = {"out": np.zeros(self.output_dim)}
        self.initialized = True

    def _outputs(self, state: Any, x: Array) -> Array:
        return np.asarray(self.reservoir._states(x, state["out"]))


class ReadoutNode(_EstimatorNode, OnlineNode):
    """A readout, or any scikit-learn classifier, as a node: states -> class probabilities.

    Targets of ``fit`` are one-hot or probability rows (T, n_classes), whose largest entry is the
    class, or class numbers (T,) or (T, 1); all else is refused. In a model whose first part is
    reservoirpy's own, class numbers are (T, 1), as reservoirpy wants them. Column k of the output
    is class k; a class that the readout has not seen has probability 0.
    """

    def __init__(self, readout: Any, name: str | None = None) -> None:
        self.readout = readout
        self.name = name
        classes = getattr(readout, "classes_", None)
        if classes is not None:
            self.output_dim = int(np.max(classes)) + 1

    def initialize(self, x: Any, y: Any = None) -> None:
        """Set the dimensions."""
        self._set_input_dim(x)
        if y is not None:
            # reservoirpy wants the width of the targets here; class numbers widen it in fit.
            self.output_dim = (y[0] if isinstance(y, list | tuple) else y).shape[-1]
        self.state = {"out": np.zeros(self.output_dim or 0)}
        self.initialized = True

    def fit(self, x: Any, y: Any = None, warmup: int = 0) -> "ReadoutNode":
        """Fit the readout on all series, each without its first ``warmup`` steps."""
        y = self._targets(x, y)
        states, targets = (_joined(series, warmup) for series in (x, y))
        labels = _labels(targets)
        self.readout.fit(states, labels)
        if targets.shape[1] == 1:
            self.output_dim = int(labels.max()) + 1
        self.state = {"out": np.zeros(self.output_dim)}
        return self

    def partial_fit(self, x: Any, y: Any = None) -> Floats:
        """Learn from one more series; the probabilities of its steps, once they are learned.

        The first call needs targets whose width says how many classes there are.
        """
        y = self._targets(x, y)
        if y.shape[1] > 1:
            classes = np.arange(y.shape[1])
        elif hasattr(self.readout, "classes_"):
            classes = np.asarray(self.readout.classes_)
        else:
            raise ValueError(
                "the first targets of partial_fit must be one-hot rows, one column a class, got"
                " class numbers, which may lack some"
            )
        self.readout.partial_fit(x, _labels(y), classes=classes)
        self.output_dim = int(np.max(classes)) + 1
        self.state, out = self._run(self.state, x)
        return out

    def _targets(self, x: Any, y: Any) -> Any:
        """Return targets as columns, once they are checked and the node is ready for them."""
        if y is None:
            raise ValueError("fitting a readout needs targets y, got None")
        y = as_columns(y)
        check_node_input(x, expected_dim=self.input_dim)
        check_node_input(y)
        if not self.initialized:
            self.initialize(x, y)
        return y

    def _learning_step(self, x: Array, y: Array | None) -> Floats:
        return self.partial_fit(x[None], None if y is None else y[None])[0]

    def _outputs(self, state: Any, x: Array) -> Floats:
        out = np.zeros((len(x), self.output_dim))
        classes = np.asarray(self.readout.classes_, dtype=np.int64)
        out[:, classes] = self.readout.predict_proba(x)
        return out


class RegressorNode(ReadoutNode):
    """A `RidgeRegressor`, or any scikit-learn regressor, as a node: states -> real predictions."""

    def initialize(self, x: Any, y: Any = None) -> None:
        """Set the dimensions, without targets those of the fitted regressor."""
        super().initialize(x, y)
        if y is None:
            self.output_dim = self._outputs(None, np.zeros((1, self.input_dim))).shape[1]
            self.state = {"out": np.zeros(self.output_dim)}

    def fit(self, x: Any, y: Any = None, warmup: int = 0) -> "RegressorNode":
        """Fit the regressor on all series, each without its first ``warmup`` steps."""
        y = self._targets(x, y)
        self.readout.fit(_joined(x, warmup), _joined(y, warmup))
        self.state = {"out": np.zeros(self.output_dim)}
        return self

    def partial_fit(self, x: Any, y: Any = None) -> Floats:
        """Learn from one more series; the predictions of its steps, once they are learned."""
        self.readout.partial_fit(x, self._targets(x, y))
        self.state, out = self._run(self.state, x)
        return out

    def _outputs(self, state: Any, x: Array) -> Floats:
        return np.reshape(self.readout.predict(x), (len(x), -1))


class _Model(_Labelled, Model):
    """A model whose targets may also be class numbers (T,)."""

    def fit(self, x: Any, y: Any = None, warmup: int = 0, workers: int = 1) -> Model:
        return super().fit(x, as_columns(y), warmup=warmup, workers=workers)

    def partial_fit(self, x: Any, y: Any = None) -> Any:
        return super().partial_fit(x, as_columns(y))


def link(left: Any, right: Any) -> Any:
    """Return ``left >> right`` as a model; each is an estimator, a node, a model or a list.

    A number is a delay, as in ``left >> 3 >> right``.
    """
    if isinstance(left, int):
        return ModelBuilderUtil(node_of(right), left, node_is_first=False)
    if isinstance(right, int):
        return ModelBuilderUtil(node_of(left), right)
    if isinstance(right, ModelBuilderUtil):
        return right.__rrshift__(node_of(left))
    return _labelled(link_nodes(node_of(left), node_of(right)))


def feed_back(sender: Any, receiver: Any) -> Model:
    """Return ``receiver << sender`` as a model."""
    return _labelled(link_feedback(node_of(sender), node_of(receiver)))


def merge(*parts: Any) -> Model:
    """Return ``part & part`` as a model."""
    return _labelled(merge_nodes(*map(node_of, parts)))


def _labelled(model: Any) -> Any:
    """Return a model as a `_Model`; what ``>>`` makes of a delay as it is."""
    return _Model(model.nodes, model.edges) if isinstance(model, Model) else model


def node_of(part: Any) -> Any:
    """Return what reservoirpy links: the node of an estimator, and nodes and models as they are."""
    if isinstance(part, Node | Model):
        return part
    if isinstance(part, list | tuple):
        return [node_of(each) for each in part]
    if hasattr(part, "harvest"):
        Node.register(type(part))
        return part
    if (classifies := hasattr(part, "predict_proba")) or (
        isinstance(part, BaseEstimator) and is_regressor(part)
    ):
        # One node an estimator: it may stand in several places of a graph.
        node = vars(part).get("_node") or (ReadoutNode if classifies else RegressorNode)(part)
        if isinstance(part, Sequence):
            vars(part)["_node"] = node
        return node
    raise TypeError(
        "both sides of >> must be a reservoir, a readout, a reservoirpy node or a model,"
        f" got {type(part).__name__}"
    )


def as_columns(y: Any) -> Any:
    """Return targets with class numbers (T,) as columns (T, 1), of one series or several."""
    if isinstance(y, list | tuple) and all(hasattr(series, "ndim") for series in y):
        return [as_columns(series) for series in y]
    return y[:, None] if isinstance(y, np.ndarray) and y.ndim == 1 else y


def _labels(targets: Array) -> Ints64:
    """Return the classes (T,) of targets (T, n_classes) or (T, 1); ValueError for real numbers."""
    if targets.dtype.kind not in "biuf":
        raise ValueError(
            "a readout in a model of reservoirpy needs class numbers or one-hot rows, got"
            f" {targets.dtype}: np.unique(y, return_inverse=True) numbers the labels"
        )
    if targets.shape[1] == 1:
        labels = targets[:, 0]
        if not (np.isfinite(labels) & (labels >= 0) & (labels == np.floor(labels))).all():
            raise ValueError(
                "a readout predicts classes: targets must be class numbers or one-hot rows, got"
                " real numbers; esnlm.RidgeRegressor predicts those"
            )
        return labels.astype(np.int64)
    sums = targets.sum(axis=1)
    if not ((targets >= 0).all() and np.allclose(sums, 1, atol=1e-4)):
        raise ValueError(
            "a readout predicts classes: targets must be class numbers, or one-hot or probability"
            f" rows, got rows that sum to {sums.min():.4g} to {sums.max():.4g};"
            " esnlm.RidgeRegressor predicts real numbers"
        )
    return np.asarray(targets.argmax(axis=1), dtype=np.int64)


def reservoir_from_node(kind: Any, node: Any) -> Any:
    """Return a reservoir of class ``kind`` with the weights of a reservoirpy node."""
    if type(node) is not reservoirpy.nodes.Reservoir:
        raise ValueError(
            f"from_reservoirpy needs a reservoirpy.nodes.Reservoir, got {type(node).__name__}"
        )
    if any(map(callable, (node.W, node.Win, node.bias))):
        raise ValueError("the node has no weights yet: run or initialize it first")
    if node.activation not in _ACTIVATIONS:
        raise ValueError(
            "the node's activation must be tanh, relu or identity,"
            f" got {getattr(node.activation, '__name__', node.activation)}"
        )
    options = {"activation": _ACTIVATIONS[node.activation], "dtype": "float64"}
    leak_rate = np.asarray(node.lr, dtype=np.float64).tolist()
    reservoir = kind(node.units, spectral_radius=float(node.sr), leak_rate=leak_rate, **options)
    bias = node.bias.toarray() if hasattr(node.bias, "toarray") else np.asarray(node.bias)
    bias = bias.ravel() if bias.ndim else bias
    return reservoir.set_weights(node.W, node.Win, bias, np.asarray(node.lr))


def node_from_reservoir(reservoir: Any) -> reservoirpy.nodes.Reservoir:
    """Return a reservoirpy node with the weights of a fitted reservoir, in float64.

    It is initialised where it first reads: nodes that are already do not link to several others.
    """
    if not hasattr(reservoir, "W_"):
        raise ValueError("the reservoir has no weights yet: call fit first")
    leak = reservoir.leak_rate_.astype(np.float64)
    node = reservoirpy.nodes.Reservoir(
        W=reservoir.W_.astype(np.float64),
        Win=reservoir.W_in_.astype(np.float64),
        bias=reservoir.bias_.astype(np.float64),
        # A number where it can be: reservoirpy cannot show a node of several.
        lr=float(leak[0]) if (leak == leak[0]).all() else leak,
        sr=at_fit(reservoir)["spectral_radius"],
        activation=at_fit(reservoir)["activation"],
        input_dim=reservoir.n_inputs_,
    )
    node.state = {"out": np.zeros(node.units)}
    return node


def _joined(series: Any, warmup: int) -> Array:
    several = isinstance(series, list | tuple) or series.ndim == 3
    return np.concatenate([part[warmup:] for part in (series if several else [series])])
