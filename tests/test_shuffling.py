"""Orders of chunks."""

from typing import Any

import numpy as np
import pytest

from esnlm import LanguageModel, Reservoir, SoftmaxReadout
from esnlm.text.corpus import join_sequences
from esnlm.text.shuffling import ChunkOrder
from esnlm.training.trainer import Trainer, TrainingPlan


def test_each_pass_has_a_shuffle_of_its_own(monkeypatch: pytest.MonkeyPatch):
    orders: list[list[int]] = []

    class Noted(ChunkOrder):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            orders.append(self._first.tolist())

    monkeypatch.setattr("esnlm.training.trainer.ChunkOrder", Noted)
    sequences = [np.array([0, i]) for i in range(1, 60)]
    stream = join_sequences([sequences], n_tokens=60, reset=True)
    for _ in range(2):
        readout = SoftmaxReadout(solver="incremental", n_passes=2)
        model = LanguageModel(Reservoir(4, random_state=0), readout, n_tokens=60)
        model._read_corpus(stream)
        Trainer(model, stream, plan=TrainingPlan(chunk_tokens=20)).run()
    first, second = orders[: len(orders) // 2], orders[len(orders) // 2 :]
    assert first == second
    assert len({tuple(order) for order in first}) == len(first) >= 2
    assert all(sorted(order) == list(range(0, 118, 2)) for order in first)
