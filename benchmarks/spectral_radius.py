"""How exact is the spectral radius, and what does it cost at 16 384 units?

    python benchmarks/spectral_radius.py

Errors at 2 048 units, relative to LAPACK's dense eigenvalues; the peer is reservoirpy's own
rescaling of the same matrix. Seconds to draw and rescale 16 384 units; the peer is reservoirpy
drawing and rescaling a matrix of that size and density.
"""

import time
from typing import Any

from esnlm.utils.blas import use_widest_kernels

# ruff: noqa: E402  (the kernels are chosen before numpy loads)
use_widest_kernels()

import numpy as np
from _report import report, row
from _report import seconds as seconds_of
from reservoirpy.mat_gen import normal
from reservoirpy.observables import spectral_radius

from esnlm.reservoir.weights import measured_spectral_radius, recurrent_weights

RADIUS, DEGREE = 0.97, 32


def main() -> None:
    rows = [error(topology) for topology in ("random", "offsets", "small_world")]
    peer = peer_seconds()
    rows += [seconds(topology, peer) for topology in ("random", "offsets", "small_world")]
    report("spectral_radius", rows)


def error(topology: str, n_units: int = 2048) -> dict[str, Any]:
    drawn = recurrent_weights(
        topology, n_units, DEGREE, RADIUS, np.dtype("float64"), np.random.default_rng(0)
    )
    true = np.abs(np.linalg.eigvals(drawn.toarray())).max()
    ours, peer = abs(true / RADIUS - 1), abs(spectral_radius(drawn) / true - 1)
    setting = f"{topology} N={n_units} d={DEGREE}; peer: reservoirpy.observables"
    met: Any = {"target": 1e-6, "met": bool(ours <= 1e-6)}
    return row("relative error of the radius", setting, float(ours), float(peer), "relative", **met)


def seconds(topology: str, peer: float, n_units: int = 16384) -> dict[str, Any]:
    start = time.perf_counter()
    drawn = recurrent_weights(
        topology, n_units, DEGREE, RADIUS, np.dtype("float32"), np.random.default_rng(0)
    )
    ours = time.perf_counter() - start
    again = measured_spectral_radius(drawn.T.tocsr())
    setting = (
        f"{topology} N={n_units} d={DEGREE} radius of the transpose {again:.8f};"
        " peer: reservoirpy random"
    )
    met = bool(ours <= 60 and abs(again - RADIUS) <= 1e-6 * RADIUS)
    return row("draw and rescale", setting, ours, peer, "s", target=60, met=met)


def peer_seconds(n_units: int = 16384) -> float:
    density = DEGREE / n_units
    return seconds_of(lambda: normal(n_units, n_units, sr=RADIUS, connectivity=density, seed=0))


if __name__ == "__main__":
    main()
