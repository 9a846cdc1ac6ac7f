"""Do fixed cyclic offsets cost accuracy beside the random pattern, on Elman and on text?

    python benchmarks/offsets_accuracy.py TEXT [--seeds 3] [--characters 300000]

TEXT is a plain file (tiny Shakespeare), lower-cased and read by characters; its last tenth is the
test. Both patterns have the same number of connections and the same spectral radius. Nats a token.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from esnlm.utils.blas import use_widest_kernels

# ruff: noqa: E402  (the kernels are chosen before numpy loads)
use_widest_kernels()

import numpy as np
from _report import options, report, row
from numpy.typing import NDArray

from esnlm import ElmanGrammar, Reservoir, RidgeReadout, SoftmaxReadout

Cut = tuple[NDArray[Any], NDArray[Any]]


class Harvest:
    """A fresh pass over the blocks of a sequence at each ``iter``."""

    def __init__(self, reservoir: Reservoir, tokens: NDArray[Any]) -> None:
        self.reservoir, self.tokens = reservoir, tokens

    def __iter__(self) -> Iterator[Any]:
        return self.reservoir.harvest(self.tokens, washout=10, reuse=True)


def main() -> None:
    given = options(__doc__, "text", seeds=3, characters=300_000)
    text = characters(given.text, given.characters)
    rows = []
    for seed in range(given.seeds):
        rows += compare("Elman", elman(seed), seed, 100, 10)
        rows += compare("text", text, seed, 1000, 16)
    report("offsets_accuracy", rows)


def compare(name: str, data: Cut, seed: int, n_units: int, degree: int) -> list[dict[str, Any]]:
    scores = {
        topology: losses(data, topology, seed, n_units, degree)
        for topology in ("offsets", "random")
    }
    setting = f"N={n_units} d={degree} seed={seed} n_train={len(data[0])}; peer: random"
    return [
        row(f"{name}, {readout}", setting, ours, scores["random"][readout], "nats/token")
        for readout, ours in scores["offsets"].items()
    ]


def losses(data: Cut, topology: str, seed: int, n_units: int, degree: int) -> dict[str, float]:
    """Test loss of a ridge and of a softmax readout."""
    train, test = data
    n_tokens = int(max(train.max(), test.max())) + 1
    reservoir = Reservoir(n_units, degree=degree, topology=topology, random_state=seed)
    reservoir.fit(n_inputs=n_tokens)
    found = {}
    for name, readout in (
        ("ridge", RidgeReadout()),
        ("softmax", SoftmaxReadout(solver="incremental")),
    ):
        readout.fit_blocks(Harvest(reservoir, train), classes=np.arange(n_tokens))
        total, count = 0.0, 0
        for states, following in Harvest(reservoir, test):
            likely = readout.predict_log_proba(states)
            total -= float(likely[np.arange(len(following)), following].sum())
            count += len(following)
        found[name] = total / count
    return found


def elman(seed: int) -> Cut:
    grammar = ElmanGrammar()
    sentences = grammar.sample(11_000, seed)
    return grammar.encode(sentences[:5500]), grammar.encode(sentences[5500:])


def characters(path: Path, most: int) -> Cut:
    letters = np.array(list(path.read_text(encoding="utf-8").lower()[:most]))
    tokens = np.unique(letters, return_inverse=True)[1]
    cut = len(tokens) * 9 // 10
    return tokens[:cut], tokens[cut:]


if __name__ == "__main__":
    main()
