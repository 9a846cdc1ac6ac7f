"""Peak memory of a ridge fit over 10^5, 10^6 and 10^7 tokens, each in a fresh process.

The corpus is random characters, streamed through a reservoir of 512 units; the tokens themselves
(one byte each) are all that grows.
"""

# ruff: noqa: E402
from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

import resource
import subprocess
import sys

import numpy as np
from _report import options, report, row

N_UNITS = 512
N_CLASSES = 64


class Harvest:
    """A harvest as re-iterable blocks."""

    def __init__(self, n_tokens: int) -> None:
        from esnlm import Reservoir

        self.tokens = np.random.default_rng(0).integers(0, N_CLASSES, n_tokens, dtype=np.uint8)
        self.reservoir = Reservoir(N_UNITS, random_state=0).fit(n_inputs=N_CLASSES)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.reservoir.harvest(self.tokens, reuse=True))


def fit(n_tokens: int) -> None:
    """Fit on ``n_tokens`` tokens and print the peak resident set in MiB, tokens taken off."""
    from esnlm import RidgeReadout

    RidgeReadout().fit_blocks(Harvest(n_tokens), np.arange(N_CLASSES))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(peak - n_tokens / 2**20)


def measured(n_tokens: int) -> float:
    """Peak MiB of `fit` in a fresh process."""
    command = [sys.executable, __file__, "--fit", str(n_tokens)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    n_tokens = options(__doc__, fit=int).fit
    if n_tokens:
        fit(n_tokens)
        return
    peaks = {n: measured(n) for n in (10**5, 10**6, 10**7)}
    rows = [
        row(
            "ridge_memory",
            f"{n} tokens, {N_UNITS} units; peer: 1e5 tokens",
            peak,
            peaks[10**5],
            "MiB",
            target="ratio <= 1.1",
            met=peak / peaks[10**5] <= 1.1,
        )
        for n, peak in peaks.items()
    ]
    report("ridge_memory", rows)


if __name__ == "__main__":
    main()
