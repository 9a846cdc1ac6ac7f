"""Characters by the joint model, the network and their mean: the benchmark on a few lines."""

import math
from typing import Any

import pytest
from benchmark_cases import BENCHMARKS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    found = pytest.importorskip("tiny_shakespeare")
    monkeypatch.setattr(found, "NGRAMS", found.NGRAMS | {"units": 16, "passes": 1, "direct": 3})
    small = {"width": 12, "n_hidden": 16, "n_direct": 2}
    monkeypatch.setattr(found, "NETWORK", found.NETWORK | small)
    plan = {"n_passes": 1, "batch_size": 2, "length": 16, "bf16": False}
    monkeypatch.setattr(found, "NETWORK_PLAN", found.NETWORK_PLAN | plan)
    return found


@pytest.mark.parametrize("controls", [False, True])
def test_the_mean_of_the_joint_model_and_the_network(
    benchmark: Any,
    monkeypatch: pytest.MonkeyPatch,
    controls: bool,
) -> None:
    lines = ["To be, or not to be.\n", "that is the question,\n", "Whether 'tis nobler\n"]
    text = "".join(lines[i * i % 3] for i in range(120))
    monkeypatch.setattr(benchmark, "load_tiny_shakespeare", lambda _, lower: {"train": text})
    rows: list[dict[str, Any]] = []
    monkeypatch.setattr(benchmark, "report", lambda _, made, merge: rows.extend(made))
    given = ["tiny_shakespeare.py", "--network", "--cased"]
    monkeypatch.setattr("sys.argv", given + ["--controls"] * controls)
    benchmark.main()
    assert len(rows) == 3 * (2 if controls else 3)
    for alone, mixed, minutes in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        assert alone["ours"] < math.log(25)  # of at least as many characters
        # No less than the network's share of its probability, whatever the other model says.
        assert mixed["ours"] <= alone["ours"] - math.log(benchmark.SHARE) + 1e-6
        assert 0 < minutes["ours"] < 1
        if not controls:
            assert mixed["met"] == (mixed["ours"] <= 1.47)
    losses = [row["ours"] for row in rows[1::3]]
    assert len(set(losses)) == len(losses)
