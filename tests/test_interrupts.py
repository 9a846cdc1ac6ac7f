"""Ctrl-C while compiled code runs on threads: nothing runs on, and what follows is as if anew."""

import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from esnlm import LanguageModel, Reservoir, RidgeReadout, SoftmaxReadout

V = 30
TOKENS = np.random.default_rng(0).integers(0, V, 30_000)


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def interrupted(function: Callable[[], Any], after: float) -> bool:
    """Call a function and raise KeyboardInterrupt in this thread after some seconds, if it runs."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(after, 1e-6))
        function()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return False


def pool_threads() -> list[str]:
    """Threads of ours that stay: one that was told to end may need a moment."""
    deadline = time.monotonic() + 10
    while True:
        left = [t.name for t in threading.enumerate() if t.name.startswith("esnlm")]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.005)


@pytest.mark.parametrize("topology", ["random", "offsets"])
def test_an_interrupted_harvest_leaves_nothing_behind(topology: str) -> None:
    reservoir = Reservoir(500, degree=16, topology=topology, random_state=0).fit(n_inputs=V)

    def harvest() -> Any:
        blocks = reservoir.harvest(TOKENS, n_streams=64, block_size=4096, n_threads=2)
        return np.stack([states.sum(axis=0, dtype=np.float64) for states, _ in blocks])

    expected = harvest()
    pace, rng = seconds(harvest), random.Random(0)
    hits = 0
    for _ in range(8):
        hits += interrupted(harvest, after=rng.uniform(0, pace))
        assert not pool_threads()
        np.testing.assert_array_equal(harvest(), expected)
    assert hits


@pytest.mark.parametrize("readout", [RidgeReadout(), SoftmaxReadout(10.0)])
def test_an_interrupted_fit_can_be_repeated(readout: Any) -> None:
    def model() -> LanguageModel:
        reservoir = Reservoir(100, topology="offsets", random_state=0)
        return LanguageModel(reservoir, readout, reset="never", n_tokens=V)

    expected = model().fit([TOKENS[:6000]]).score([TOKENS[6000:8000]])
    again = model()
    pace, rng = seconds(lambda: model().fit([TOKENS[:6000]])), random.Random(0)
    for _ in range(4):
        interrupted(lambda: again.fit([TOKENS[:6000]]), after=rng.uniform(0, pace))
        assert not pool_threads()
    assert again.fit([TOKENS[:6000]]).score([TOKENS[6000:8000]]) == expected
