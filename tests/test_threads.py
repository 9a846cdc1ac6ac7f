"""How many threads, and a map that keeps the order."""

import threading
import time
from typing import Any

import pytest

from esnlm.threads import available_cores, n_threads, tile_map


def test_the_caller_decides_then_the_environment_then_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ESNLM_NUM_THREADS", " 3 ")
    assert n_threads(2) == 2
    assert n_threads() == 3
    monkeypatch.setenv("ESNLM_NUM_THREADS", "")
    assert n_threads() == available_cores() >= 1


@pytest.mark.parametrize("requested", [0, -1, 1.0, True, "2"])
def test_bad_counts_are_named(requested: Any) -> None:
    with pytest.raises(ValueError, match="n_threads must be an integer of at least 1, got"):
        n_threads(requested)


@pytest.mark.parametrize("text", ["0", "-2", "many", "1.5"])
def test_a_bad_environment_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ESNLM_NUM_THREADS", text)
    with pytest.raises(ValueError, match=f"ESNLM_NUM_THREADS must be .* got '{text}'"):
        n_threads()


@pytest.mark.parametrize("count", [1, 3])
def test_results_keep_the_order_of_the_tiles(count: int) -> None:
    def late_first(tile: int) -> int:
        time.sleep(0.01 if tile == 0 else 0)
        return tile

    with tile_map(count) as over:
        assert over(late_first, range(9)) == list(range(9))


def test_threads_end_with_the_block_and_errors_come_through() -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), tile_map(3) as over:
        over(lambda tile: 1 // tile, [2, 1, 0])
    assert threading.active_count() == before
