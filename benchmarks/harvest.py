"""How fast does the reservoir turn tokens into states, beside reservoirpy and batched scipy?

    python benchmarks/harvest.py [--n-units 4096] [--degree 32]

Token input, float32, tanh, two threads, 64 streams; reservoirpy gets the same weights (in float64,
as it computes) and one-hot rows. Medians. The bound is a kernel that only reads the state rows that
the connections name, on a tile of 16 streams in each thread.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from esnlm.utils.blas import use_widest_kernels

# ruff: noqa: E402  (the kernels are chosen before numpy loads)
use_widest_kernels()

import numpy as np
from _report import median_seconds, options, report, row
from numba import njit
from numpy.typing import NDArray

from esnlm import Reservoir
from esnlm.kernels.simd import fma_each, load_each, splat, store_each
from esnlm.reservoir.recurrence import aligned

V, N_STREAMS, N_THREADS = 50, 64, 2


def main() -> None:
    size = options(__doc__, n_units=4096, degree=32)
    tokens = np.random.default_rng(0).integers(0, V, 1_000_000)
    made = {
        topology: Reservoir(
            size.n_units, degree=size.degree, topology=topology, random_state=0
        ).fit(n_inputs=V)
        for topology in ("random", "offsets")
    }
    random = made["random"]
    node, steps = node_pace(random, tokens[:600]), scipy_pace(random, tokens, 40)
    setting = f"N={size.n_units} d={size.degree} V={V} float32 threads={N_THREADS}"
    rows = []

    def add(name: str, ours: float, peer_name: str, peer: float, target: float | str) -> None:
        met = ours / peer >= target if isinstance(target, float) else ""
        beside = f"{setting}; peer: {peer_name}"
        rows.append(row(name, beside, ours, peer, "tokens/s", target=target, met=met))

    pace = {topology: harvest_pace(reservoir, tokens) for topology, reservoir in made.items()}
    alone = {
        topology: transform_pace(reservoir, tokens[:4000]) for topology, reservoir in made.items()
    }
    add("harvest random", pace["random"], "reservoirpy node", node, 25.0)
    add("harvest random", pace["random"], "scipy csr @ dense, 64 streams", steps, 4.0)
    add("harvest offsets", pace["offsets"], "reservoirpy node", node, 40.0)
    add("one stream offsets", alone["offsets"], "reservoirpy node", node, 10.0)
    add("one stream random", alone["random"], "reservoirpy node", node, "")
    bound = gather_pace(random)
    add("harvest random", pace["random"], "kernel that only gathers state rows", bound, "")
    add("harvest offsets", pace["offsets"], "kernel that only gathers state rows", bound, "")
    sentences = harvest_pace(random, tokens, starts=np.arange(0, len(tokens), 7))
    add("harvest random, sentences of 7", sentences, "reservoirpy node", node, "")
    report("harvest", rows)


def harvest_pace(reservoir: Reservoir, tokens: NDArray[Any], starts: Any = None) -> float:
    def run() -> None:
        for _ in reservoir.harvest(
            tokens, starts=starts, n_streams=N_STREAMS, n_threads=N_THREADS, reuse=True
        ):
            pass

    return len(tokens) / median_seconds(run, 3)


def transform_pace(reservoir: Reservoir, tokens: NDArray[Any]) -> float:
    return len(tokens) / median_seconds(lambda: reservoir.transform(tokens), 5)


def node_pace(reservoir: Reservoir, tokens: NDArray[Any]) -> float:
    node, one_hot = reservoir.to_reservoirpy(), np.eye(V)[tokens]
    return len(tokens) / median_seconds(lambda: node.run(one_hot), 3)


def scipy_pace(reservoir: Reservoir, tokens: NDArray[Any], n_steps: int) -> float:
    """Batched steps in numpy and scipy, one thread, as they run."""
    inputs = np.ascontiguousarray(reservoir.W_in_)
    streams = tokens[: n_steps * N_STREAMS].reshape(n_steps, N_STREAMS)

    def run() -> None:
        state = np.zeros((reservoir.n_units, N_STREAMS), dtype=np.float32)
        for step in streams:
            state = reservoir.W_ @ state
            state += inputs[:, step]
            np.tanh(state, out=state)

    return streams.size / median_seconds(run, 3)


@njit(nogil=True)
def gather_rows(  # type: ignore[no-untyped-def]
    first_entry, columns, state, out, n_steps
):
    """Add up the rows of state (n_units * 16,) that the entries of each row of W name."""
    one, like = splat(np.float32(1)), (0,)
    zero = load_each(np.zeros(16, dtype=np.float32), 0, 0, like)
    for _ in range(n_steps):
        for i in range(len(first_entry) - 1):
            total = zero
            for e in range(first_entry[i], first_entry[i + 1]):
                total = fma_each((one,), state, np.intp(columns[e]) * 16, 16, total)
            store_each(out, i * 16, 16, total)


def gather_pace(reservoir: Reservoir) -> float:
    """Tokens a second if reading state rows were all there is to do."""
    n_steps, shape = 50, (reservoir.n_units * 16,)
    W = reservoir.W_
    entries = W.indptr.astype(np.uint32), W.indices.astype(np.uint16)
    float32 = np.dtype(np.float32)
    tiles = [(aligned(shape, float32), aligned(shape, float32)) for _ in range(N_THREADS)]

    def gather(tile: tuple[NDArray[Any], NDArray[Any]]) -> None:
        gather_rows(entries[0], entries[1], tile[0], tile[1], n_steps)

    with ThreadPoolExecutor(N_THREADS) as pool:

        def run() -> None:
            list(pool.map(gather, tiles))

        return N_THREADS * 16 * n_steps / median_seconds(run, 5)


if __name__ == "__main__":
    main()
