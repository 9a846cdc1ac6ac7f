"""Linear outputs to distributions: values below a floor are raised to it, as in Rachez."""

import numpy as np

from esnlm.utils.arrays import Array


def least_output(n_classes: int) -> float:
    """Rachez's floor at his 24 words, the same mass in all beyond.

    >>> least_output(24), least_output(2400)
    (0.001, 1e-05)
    """
    return 1e-3 * min(1.0, 24 / n_classes)


def floor_rows(outputs: Array, floor: float | Array) -> Array:
    """Raise outputs (n, V) to ``floor``, one or one a class (V,), and divide each row by its sum.

    In place; returns outputs.

    >>> floor_rows(np.array([[-0.5, 1.0], [0.25, 0.75]]), 0.25)
    array([[0.2 , 0.8 ],
           [0.25, 0.75]])
    """
    np.maximum(outputs, floor, out=outputs)
    outputs /= outputs.sum(axis=1, keepdims=True)
    return outputs
