"""Softmax regression on re-iterable blocks, by passes of the incremental solver."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.readouts.base.minibatches import Interleaved
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.readout import ArrayBlocks, Block, Blocks, blocks_rows
from esnlm.readouts.softmax.loss import log_likelihood
from esnlm.readouts.softmax.sgd import (
    IncrementalSolver,
    batch_rows,
    sample_moments,
)
from esnlm.readouts.softmax.softmax_passes import Rates


def sampled_solver(blocks: Blocks, n_units: int, n_classes: int, rates: Rates) -> IncrementalSolver:
    """A solver that has learned nothing, its preconditioner from the first rows."""
    sampled = _shuffled(blocks, n_units)
    moments = sample_moments(sampled, n_units, n_classes, max(8 * n_units, 16384))
    if moments.n == 0:
        raise ValueError("no rows to learn from: got 0 rows, give at least one")
    ridge = rates.alpha / max(moments.n, blocks_rows(blocks))
    return IncrementalSolver(moments, frequencies_of(moments), rates.momentum, ridge=ridge)


def descend(
    solver: IncrementalSolver,
    blocks: Blocks,
    n_passes: int,
    rates: Rates,
    held_out: Blocks | None,
) -> tuple[int, list[float]]:
    """Passes of the solver; the rows of one pass, and the held-out losses after each.

    The rate falls linearly to zero over all passes. In a first pass over an unknown number of
    rows (blocks without ``n_rows``) it falls as the root of the rows seen instead. The solver is
    left as it was after the pass that held-out rows like best.
    """
    n_rows = blocks_rows(blocks)
    shuffled = _shuffled(blocks, solver.weights.shape[0])
    top, first = 1.0, 0 if n_rows else 1
    best: tuple[float, NDArray[Any], NDArray[Any]] | None = None
    history: list[float] = []
    for k in range(n_passes):
        seen = 0
        for X, codes in shuffled:
            if n_rows:
                part = top * max(0.0, 1 - (k + seen / n_rows - first) / (n_passes - first))
            else:
                part = top = (1 + seen / (20 * solver.batch)) ** -0.5
            ridge = rates.alpha / max(n_rows, seen + len(X))
            solver.learn(X, codes, rates.learning_rate * part, ridge)
            seen += len(X)
        n_rows = seen
        if held_out is not None:
            score = mean_loss(held_out, solver.weights, solver.intercept)
            history.append(score)
            if best is None or score < best[0]:
                best = (score, solver.weights.copy(), solver.offset.copy())
    if best is not None:
        solver.weights, solver.offset = best[1], best[2]
    return n_rows, history


def frequencies_of(moments: Moments) -> NDArray[np.float64]:
    """Relative frequencies (V,) of the classes, each of half an occurrence more than it had."""
    shares = (moments.counts + 0.5) / (moments.n + 0.5 * moments.n_classes)
    return np.asarray(shares, dtype=np.float64)


def mean_loss(blocks: Iterable[Block], weights: NDArray[Any], intercept: NDArray[Any]) -> float:
    """Mean negative log-likelihood (nats) of blocks of (X, codes)."""
    total, rows = 0.0, 0
    for X, codes in blocks:
        total -= log_likelihood(X, codes, weights, intercept)
        rows += len(codes)
    if rows == 0:
        raise ValueError("held_out has no rows: give some, or None")
    return total / rows


def _shuffled(blocks: Blocks, n_units: int) -> Blocks:
    """Arrays interleaved; streams as they come (a harvest's blocks span the corpus already)."""
    if not isinstance(blocks, ArrayBlocks):
        return blocks
    return Interleaved(blocks.X, blocks.y, max(blocks.block_size, 2 * batch_rows(n_units)))
