"""Passes of Adam over a network of scikit-learn, without its checks of every batch."""

from collections.abc import Callable
from typing import Any

import numpy as np

from esnlm.readouts.softmax.loss import softmax
from esnlm.utils.arrays import Array, Ints


def pass_function(network: Any) -> Callable[[Array, Ints], Any]:
    """Return what takes a further pass over rows X (n, N), codes (n,), in their order.

    ``network`` is an `MLPClassifier` after the first pass of its ``fit``. What is no softmax over
    rectified units, learned by Adam, continues by its own ``partial_fit``.
    """
    softmaxes = network.out_activation_ == "softmax"
    if network.solver == "adam" and network.activation == "relu" and softmaxes:
        return AdamPasses(network)
    learn: Callable[[Array, Ints], Any] = network.partial_fit
    return learn


class AdamPasses:
    """Adam (Kingma & Ba 2015) on the weights of a network, which become views of one vector."""

    def __init__(self, network: Any) -> None:
        self.network, self.n_steps = network, 0
        layers = [*network.coefs_, *network.intercepts_]
        self.weights: Array = np.concatenate([layer.ravel() for layer in layers])
        self.gradient, self.mean, self.square = (np.zeros_like(self.weights) for _ in range(3))
        n_layers = len(network.coefs_)
        views = _views(self.weights, layers)
        network.coefs_, network.intercepts_ = views[:n_layers], views[n_layers:]
        views = _views(self.gradient, layers)
        self.layers = list(zip(network.coefs_, network.intercepts_, strict=True))
        self.gradients = list(zip(views[:n_layers], views[n_layers:], strict=True))

    def __call__(self, X: Array, codes: Ints) -> None:
        """Take a step on every batch of rows X (n, N), codes (n,)."""
        size = self.network.batch_size
        size = min(200 if size == "auto" else size, len(X))
        columns = np.searchsorted(self.network.classes_, codes)
        for start in range(0, len(X), size):
            self._step(X[start : start + size], columns[start : start + size])

    def _step(self, X: Array, columns: Ints) -> None:
        inputs: list[Array] = []
        outputs = X
        for weights, offset in self.layers:
            inputs.append(np.maximum(outputs, 0, out=outputs) if inputs else outputs)
            outputs = inputs[-1] @ weights
            outputs += offset
        delta = softmax(outputs)
        delta[np.arange(len(X)), columns] -= 1
        alpha = self.weights.dtype.type(self.network.alpha)
        for i in reversed(range(len(inputs))):
            weights, (of_weights, of_offset) = self.layers[i][0], self.gradients[i]
            np.matmul(inputs[i].T, delta, out=of_weights)
            of_weights += alpha * weights
            delta.sum(axis=0, out=of_offset)
            if i:
                delta = delta @ weights.T
                delta *= inputs[i] > 0
        self.gradient /= len(X)
        self._move()

    def _move(self) -> None:
        """Move the weights down the gradient by Adam's rule."""
        network, g = self.network, self.gradient
        self.n_steps += 1
        memories = np.array([network.beta_1, network.beta_2])
        bias = 1 - memories**self.n_steps
        rate, epsilon = network.learning_rate_init * np.sqrt(bias[1]) / bias[0], network.epsilon
        rest = (1 - memories).astype(g.dtype)
        self.mean += rest[0] * (g - self.mean)
        self.square += rest[1] * (g * g - self.square)
        step = np.sqrt(self.square)
        step += g.dtype.type(epsilon)
        np.divide(self.mean, step, out=step)
        step *= g.dtype.type(rate)
        self.weights -= step


def _views(vector: Array, layers: list[Array]) -> list[Array]:
    """Return views of a vector, one after the other, in the shapes of the layers."""
    parts = np.split(vector, np.cumsum([layer.size for layer in layers])[:-1])
    return [part.reshape(layer.shape) for part, layer in zip(parts, layers, strict=True)]
