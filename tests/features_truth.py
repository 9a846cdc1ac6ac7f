"""The gradient of one prediction of `WordFeatures`, by the kernels that descend it."""

from typing import Any

import numpy as np

from esnlm import WordFeatures
from esnlm.kernels import features as kernels


def one_step_gradient(
    embedding: Any, coef: Any, reservoir: Any, state: Any, token: int, target: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """Loss ``½ ‖W_out x - u‖²``, and its gradient by the token's features and by W_out.

    ``state`` (n_units,), before ``token`` is read, is held constant (the truncation after eq. 29).
    """
    rows = np.ascontiguousarray(embedding, dtype=np.float64)
    readout = np.ascontiguousarray(coef, dtype=np.float64)
    weights = WordFeatures(n_features=rows.shape[1])._reservoir_weights(reservoir)
    after = np.array(state, dtype=np.float64)
    slope, delta = np.empty_like(after), np.empty_like(after)
    kernels.advance(weights, rows[token], after, slope)
    error, gradient = np.empty(len(readout)), np.empty(rows.shape[1])
    loss = kernels.backpropagate(weights[3], readout, after, slope, target, error, delta, gradient)
    return float(loss), gradient, np.outer(error, after)
