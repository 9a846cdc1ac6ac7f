"""Directions of the M-step: truncated conjugate gradient, and a quasi-Newton memory over steps."""

from collections.abc import Callable

import numpy as np

from esnlm.utils.arrays import Array, Ints

_TINY = 1e-300
#: Of a diagonal that is inverted: the gate of one expert, without a penalty, has none.
LEAST_CURVATURE = 1e-12


def conjugate_gradient(
    gradient: Array, product: Callable[[Array], Array], inverse: Array, systems: Ints, n_steps: int
) -> Array:
    """Approximate solution D (rows, width) of H D = gradient, from ``n_steps`` products with H.

    Started at zero, every truncation is a direction of ascent for the function whose negative
    curvature is H. ``product`` maps D to H D, which is symmetric and positive definite within every
    system: ``systems`` (rows,) says which one a row belongs to; they share products but not step
    lengths. ``inverse`` (rows, width) of the diagonal is the preconditioner.
    """

    def inner(left: Array, right: Array) -> Array:
        return np.bincount(systems, weights=np.einsum("ij,ij->i", left, right))

    def by_row(values: Array) -> Array:
        return values[systems, None]

    direction = np.zeros(gradient.shape)
    residual = np.array(gradient, dtype=np.float64)
    scaled = inverse * residual
    search = scaled
    old = inner(residual, scaled)
    for _ in range(n_steps):
        image = product(search)
        length = by_row(old / np.maximum(inner(search, image), _TINY))
        direction += length * search
        residual -= length * image
        scaled = inverse * residual
        new = inner(residual, scaled)
        search = scaled + by_row(new / np.maximum(old, _TINY)) * search
        old = new
    return direction


class QuasiNewtonMemory:
    """Curvature of the likelihood over the last ``size`` steps, to correct Newton directions.

    The M-step uses the curvature of Q, which exceeds that of the likelihood by the information in
    the missing responsibilities, so it steps too short. The limited-memory BFGS recursion with
    the M-step as its first metric corrects that (quasi-Newton acceleration of EM: Jamshidian &
    Jennrich 1997; Lange 1995).
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._pairs: list[tuple[Array, Array, float]] = []

    def update(self, step: Array, drop: Array) -> None:
        """Remember that the gradient fell by ``drop`` along ``step``."""
        product = float(np.vdot(step, drop))
        if product > 1e-10 * float(np.vdot(step, step)):
            self._pairs = [*self._pairs, (step, drop, 1.0 / product)][-self.size :]

    def direction(self, gradient: Array, solve: Callable[[Array], Array]) -> Array:
        """Two-loop recursion around ``solve``, the Newton step of the M-step for a gradient."""
        remaining = np.array(gradient, dtype=np.float64)
        lengths = []
        for step, drop, inverse in reversed(self._pairs):
            length = inverse * float(np.vdot(step, remaining))
            remaining -= length * drop
            lengths.append(length)
        direction = solve(remaining)
        for (step, drop, inverse), length in zip(self._pairs, reversed(lengths), strict=True):
            direction = direction + (length - inverse * float(np.vdot(drop, direction))) * step
        if np.vdot(direction, gradient) <= 0:
            self._pairs = []
            return solve(gradient)
        return direction
