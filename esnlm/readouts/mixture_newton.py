"""Truncated conjugate gradient on several independent systems at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]

_TINY = 1e-300


def conjugate_gradient(
    gradient: Floats,
    product: Callable[[Floats], Floats],
    inverse_diagonal: Floats,
    systems: NDArray[np.intp],
    n_steps: int,
) -> Floats:
    """Approximate solution D (rows, width) of H D = gradient, from ``n_steps`` products with H.

    Started at zero, every truncation is a direction of ascent for the function whose negative
    curvature is H.

    Parameters
    ----------
    gradient : ndarray (rows, width)
    product : D -> H D, symmetric and positive definite within every system
    inverse_diagonal : ndarray (rows, width)
        Preconditioner.
    systems : ndarray (rows,) intp
        Which system each row belongs to: they share products but not step lengths.
    n_steps : int

    Examples
    --------
    >>> diagonal = np.array([[2.0], [4.0]])
    >>> conjugate_gradient(
    ...     np.ones((2, 1)), lambda D: diagonal * D, np.ones((2, 1)), np.array([0, 1]), 1
    ... ).ravel().tolist()
    [0.5, 0.25]
    """

    def inner(left: Floats, right: Floats) -> Floats:
        return np.bincount(systems, weights=np.einsum("ij,ij->i", left, right))

    def by_row(values: Floats) -> Floats:
        return values[systems, None]

    direction = np.zeros(gradient.shape)
    residual = np.array(gradient, dtype=np.float64)
    scaled = inverse_diagonal * residual
    search = scaled
    old = inner(residual, scaled)
    for step in range(n_steps):
        image = product(search)
        length = by_row(old / np.maximum(inner(search, image), _TINY))
        direction += length * search
        if step + 1 == n_steps:
            break
        residual -= length * image
        scaled = inverse_diagonal * residual
        new = inner(residual, scaled)
        search = scaled + by_row(new / np.maximum(old, _TINY)) * search
        old = new
    return direction
