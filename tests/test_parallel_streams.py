"""Cuts of a corpus into streams: every pair once, whatever the cut."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esnlm.reservoir.parallel_streams import StreamPlan, checked_starts


def kept(plan: StreamPlan, n_steps: int) -> list[int]:
    """Positions yielded by all blocks of the plan, sorted."""
    blocks = [plan.step(first, n_steps) for first in range(0, plan.n_steps, n_steps)]
    return sorted(int(p) for block in blocks for p in block.positions[block.keep])


@given(
    length=st.integers(2, 200),
    n_streams=st.integers(1, 20),
    warmup=st.integers(0, 30),
    washout=st.integers(0, 5),
    n_steps=st.integers(1, 50),
)
def test_one_long_sequence_cut_anywhere(
    length: int, n_streams: int, warmup: int, washout: int, n_steps: int
) -> None:
    plan = StreamPlan(length, None, n_streams, warmup, washout)
    assert kept(plan, n_steps) == list(range(washout, length - 1))
    assert 1 <= plan.n_streams <= n_streams
    # A stream is warmed up by exactly so many tokens, or begins where the text does.
    assert all(plan.begin == np.maximum(plan.emit - warmup, 0))
    assert plan.emit[0] == plan.begin[0] == 0


@given(data=st.data(), length=st.integers(2, 120), n_streams=st.integers(1, 20))
def test_sequences_stay_whole(data: st.DataObject, length: int, n_streams: int) -> None:
    starts = sorted(data.draw(st.sets(st.integers(1, length - 1), max_size=15)) | {0})
    plan = StreamPlan(length, np.array(starts), n_streams, 256, 0)
    expected = [t for t in range(length - 1) if t + 1 not in starts]
    assert kept(plan, 7) == expected
    if expected:
        first = plan.step(0, 1)
        assert set(first.positions.ravel().tolist()) <= set(starts)
        assert first.restart.all()


def test_short_texts_use_few_streams() -> None:
    plan = StreamPlan(2001, None, 64, 100, 0)
    assert plan.n_streams == 5
    assert StreamPlan(10, None, 64, 100, 0).n_streams == 1


def test_starts_are_sorted_positions_with_zero_among_them() -> None:
    assert checked_starts(None, 5) is None
    for given_starts in ([], [0], np.array([], dtype=np.int32)):
        found = checked_starts(given_starts, 5)
        assert found is not None
        assert found.tolist() == [0]
    found = checked_starts([2, 4], 5)
    assert found is not None
    assert found.tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ([3, 1], "increase strictly"),
        ([-1, 2], r"lie in \[0, 5\)"),
        ([5], r"lie in \[0, 5\), got \[5\]"),
        ([[0]], r"1-D array of integers, got int64 of shape \(1, 1\)"),
        ([0.0], "1-D array of integers, got float64"),
    ],
)
def test_bad_starts_are_named(starts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked_starts(starts, 5)
