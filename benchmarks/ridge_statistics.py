"""Harvest and ridge statistics together, beside the Gram product alone (BLAS ssyrk).

Pace in tokens a second at 4096 units, float32, all cores; medians over alternating repeats.
"""

# ruff: noqa: E402
from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

import statistics
import time
from typing import Any

import numpy as np
from _report import options, report, row
from scipy.linalg import blas

from esnlm import Reservoir
from esnlm.readouts.base.moments import Moments

N_CLASSES = 64


def ssyrk_pace(n_units: int, rows: int) -> float:
    """Tokens a second of ssyrk on blocks of 8192 rows."""
    states = np.random.default_rng(0).standard_normal((8192, n_units), dtype=np.float32)
    gram = np.zeros((n_units, n_units), dtype=np.float32, order="F")
    start = time.perf_counter()
    for _ in range(rows // 8192):
        gram = blas.ssyrk(1.0, states.T, beta=1.0, c=gram, lower=1, overwrite_c=1)
    return rows / (time.perf_counter() - start)


def our_pace(reservoir: Reservoir, tokens: np.ndarray) -> float:
    """Tokens a second of harvest and moments together."""
    moments = Moments(reservoir.n_units, N_CLASSES)
    start = time.perf_counter()
    for states, following in reservoir.harvest(tokens, block_size=8192, warmup=0, reuse=True):
        moments.add(states, following)
    return moments.n / (time.perf_counter() - start)


def main() -> None:
    given = options(__doc__, units=4096, tokens=65536, repeats=5)
    tokens = np.random.default_rng(0).integers(0, N_CLASSES, given.tokens + 1)
    rows = []
    for topology in ("random", "offsets"):
        reservoir = Reservoir(given.units, topology=topology, random_state=0)
        reservoir.fit(n_inputs=N_CLASSES)
        our_pace(reservoir, tokens[:9000])
        paces = [
            (our_pace(reservoir, tokens), ssyrk_pace(given.units, given.tokens))
            for _ in range(given.repeats)
        ]
        ours, peer = (statistics.median(column) for column in zip(*paces, strict=True))
        ratio = statistics.median(a / b for a, b in paces)
        setting = f"{topology}, {given.units} units, float32; peer: ssyrk alone"
        met: Any = {"ratio": ratio, "target": "ratio >= 0.8", "met": ratio >= 0.8}
        rows.append(row("ridge_statistics", setting, ours, peer, "tokens/s", **met))
    report("ridge_statistics", rows)


if __name__ == "__main__":
    main()
