"""Reservoirs and readouts as reservoirpy nodes, and reservoirpy reservoirs as ours."""

from typing import Any

import numpy as np
import reservoirpy.nodes
from numpy.typing import NDArray
from reservoirpy.activationsfunc import identity, relu, tanh
from reservoirpy.model import Model
from reservoirpy.node import Node, TrainableNode
from reservoirpy.ops import link as link_nodes
from reservoirpy.utils.data_validation import check_node_input

_ACTIVATIONS = {tanh: "tanh", relu: "relu", identity: "identity"}


class ReservoirNode(Node):
    """A fitted or unfitted ``esnlm.Reservoir`` as a node: vectors (T, n_inputs) -> states.

    An unfitted reservoir draws its weights for the width of the first input. The node's state is
    the reservoir's, kept between calls as reservoirpy does; ``reset`` sets it to zero.
    """

    def __init__(self, reservoir: Any, name: str | None = None) -> None:
        self.reservoir = reservoir
        self.name = name
        self.output_dim = reservoir.n_units
        if hasattr(reservoir, "W_"):
            self.input_dim = reservoir.n_inputs_

    def initialize(self, x: Any, y: Any = None) -> None:
        """Set the dimensions, and draw the weights of an unfitted reservoir."""
        self._set_input_dim(x)
        if not hasattr(self.reservoir, "W_"):
            self.reservoir.fit(n_inputs=self.input_dim)
        self.state = {"out": np.zeros(self.output_dim)}
        self.initialized = True

    def _step(self, state: Any, x: NDArray[Any]) -> Any:
        return {"out": self._run(state, x[None])[1][0]}

    def _run(self, state: Any, x: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
        if not len(x):
            return state, np.empty((0, self.output_dim))
        states = self.reservoir.transform(x, initial_state=state["out"])
        return {"out": states[-1]}, states


class ReadoutNode(TrainableNode):
    """A readout, or any scikit-learn classifier, as a node: states -> class probabilities.

    Targets of ``fit`` are one-hot or probability rows (T, n_classes), whose largest entry is the
    class, or class numbers (T, 1). Column k of the output is class k; a class that the readout has
    not seen has probability 0.
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
        if y is None:
            raise ValueError("fitting a readout needs targets y, got None")
        check_node_input(x, expected_dim=self.input_dim)
        check_node_input(y)
        if not self.initialized:
            self.initialize(x, y)
        states, targets = (_joined(series, warmup) for series in (x, y))
        labels = targets.argmax(axis=1) if targets.shape[1] > 1 else targets[:, 0].astype(np.int64)
        self.readout.fit(states, labels)
        if targets.shape[1] == 1:
            self.output_dim = int(labels.max()) + 1
        self.state = {"out": np.zeros(self.output_dim)}
        return self

    def _step(self, state: Any, x: NDArray[Any]) -> Any:
        return {"out": self._probabilities(x[None])[0]}

    def _run(self, state: Any, x: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
        if not len(x):
            return state, np.empty((0, self.output_dim))
        probabilities = self._probabilities(x)
        return {"out": probabilities[-1]}, probabilities

    def _probabilities(self, states: NDArray[Any]) -> NDArray[np.float64]:
        out = np.zeros((len(states), self.output_dim))
        out[:, np.asarray(self.readout.classes_, dtype=np.int64)] = self.readout.predict_proba(
            states
        )
        return out


def link(reservoir: Any, other: Any) -> Model:
    """``reservoir >> other`` as a reservoirpy model; other is a node, a model or a readout."""
    if isinstance(other, Node | Model | list | tuple):
        return link_nodes(ReservoirNode(reservoir), other)
    if hasattr(other, "predict_proba"):
        return link_nodes(ReservoirNode(reservoir), ReadoutNode(other))
    raise TypeError(
        "the right side of reservoir >> must be a readout, a reservoirpy node or a model,"
        f" got {type(other).__name__}"
    )


def reservoir_from_node(kind: Any, node: Any) -> Any:
    """The reservoir of class ``kind`` with the weights of an initialised reservoirpy node."""
    if type(node) is not reservoirpy.nodes.Reservoir:
        raise ValueError(
            f"from_reservoirpy needs a reservoirpy.nodes.Reservoir, got {type(node).__name__}"
        )
    if not node.initialized:
        raise ValueError("the node has no weights yet: run or initialize it first")
    if node.activation not in _ACTIVATIONS:
        raise ValueError(
            "the node's activation must be tanh, relu or identity,"
            f" got {getattr(node.activation, '__name__', node.activation)}"
        )
    made = kind(
        node.units,
        spectral_radius=float(node.sr),
        activation=_ACTIVATIONS[node.activation],
        dtype="float64",
    )
    bias = node.bias.toarray() if hasattr(node.bias, "toarray") else np.asarray(node.bias)
    made.set_weights(node.W, node.Win, bias.ravel() if bias.ndim else bias, np.asarray(node.lr))
    made.leak_rate = made.leak_rate_.tolist() if np.ndim(node.lr) else float(node.lr)
    return made


def node_from_reservoir(reservoir: Any) -> reservoirpy.nodes.Reservoir:
    """An initialised reservoirpy node with the weights of a fitted reservoir, in float64."""
    if not hasattr(reservoir, "W_"):
        raise ValueError("the reservoir has no weights yet: call fit first")
    node = reservoirpy.nodes.Reservoir(
        W=reservoir.W_.astype(np.float64),
        Win=reservoir.W_in_.astype(np.float64),
        bias=reservoir.bias_.astype(np.float64),
        lr=reservoir.leak_rate_.astype(np.float64),
        sr=reservoir.spectral_radius,
        activation=reservoir.activation,
    )
    node.initialize(np.zeros((1, reservoir.n_inputs_)))
    return node


def _joined(series: Any, warmup: int) -> NDArray[Any]:
    several = isinstance(series, list | tuple) or series.ndim == 3
    return np.concatenate([part[warmup:] for part in (series if several else [series])])
