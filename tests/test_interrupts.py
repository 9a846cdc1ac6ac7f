"""Ctrl-C while compiled code runs on threads: nothing runs on, and what follows is as if anew."""

import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from threading import get_ident
from typing import Any

import numpy as np
import pytest

from esnlm import LanguageModel, Reservoir, RidgeReadout, SoftmaxReadout
from esnlm.options.training_run import stopping
from esnlm.runs.subprocess_run import interrupts_deferred
from esnlm.utils import threads

# Ctrl-C can come between the opening of a file and its `with`: Python then warns as it closes it.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

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


def helpers() -> int:
    """Threads in our code beside this one: those that are about to end may need a moment."""

    def ours(frame: Any) -> bool:
        return any(
            at.f_code.co_filename == threads.__file__ for at, _ in traceback.walk_stack(frame)
        )

    deadline = time.monotonic() + 10
    while True:
        frames = [frame for of, frame in sys._current_frames().items() if of != get_ident()]
        left = sum(map(ours, frames))
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
        assert not helpers()
        np.testing.assert_array_equal(harvest(), expected)
    assert hits


@pytest.mark.filterwarnings("ignore:the model has a perplexity")
@pytest.mark.parametrize("readout", [RidgeReadout(), SoftmaxReadout(alpha=10.0)])
def test_an_interrupted_fit_can_be_repeated(readout: Any) -> None:
    def model() -> LanguageModel:
        reservoir = Reservoir(100, topology="offsets", random_state=0)
        return LanguageModel(reservoir, readout, reset="never", n_tokens=V)

    expected = model().fit([TOKENS[:6000]]).score([TOKENS[6000:8000]])
    again = model()
    pace, rng = seconds(lambda: model().fit([TOKENS[:6000]])), random.Random(0)
    for _ in range(4):
        interrupted(lambda: again.fit([TOKENS[:6000]]), after=rng.uniform(0, pace))
        assert not helpers()
    assert again.fit([TOKENS[:6000]]).score([TOKENS[6000:8000]]) == expected


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send itself signals")
def test_an_interrupt_that_is_ignored_stops_no_run() -> None:
    """As it is by what a script runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping() as asked:
            signal.raise_signal(signal.SIGINT)
            assert not asked()
            signal.raise_signal(signal.SIGTERM)
            assert asked()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_handlers_of_a_program_that_embeds_python_stay(monkeypatch) -> None:
    """Python cannot put them back: R's reticulate and others have their own."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a handler was replaced")

    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    monkeypatch.setattr(signal, "signal", refuse)
    with interrupts_deferred(), stopping() as asked:
        assert not asked()
