"""Word features against one-hot words: perplexity on Elman's grammar, and the time to learn them.

    python benchmarks/features.py

One long sequence of 5 500 sentences, the readout a ridge (the paper's linear readout); medians
over three seeds of the reservoir and the features.
"""

from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from _report import report, row, seconds  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from esnlm import ElmanGrammar, Reservoir, RidgeReadout, WordFeatures  # noqa: E402

SIZES, FEATURES, SEEDS = (25, 50, 100, 400), (2, 3, 5, 10), (0, 1, 2)


def main() -> None:
    grammar = ElmanGrammar()
    train, test = (grammar.encode(grammar.sample(5500, random_state=k)) for k in (1, 2))
    n_words = len(grammar.vocabulary)
    rows = []
    for n_units in SIZES:
        one_hot = [perplexity(reservoir(n_units, n_words, k), train, test, None) for k in SEEDS]
        for n_features in FEATURES:
            learned = [run(n_units, n_features, k, train, test, n_words) for k in SEEDS]
            ours = float(np.median([value for value, _ in learned]))
            peer = float(np.median(one_hot))
            took = np.median([spent for _, spent in learned])
            setting = f"{n_units} units, {n_features} features ({took:.1f} s); peer: one-hot"
            met: Any = {"target": "below 1", "met": ours < peer}
            rows.append(row("features", setting, ours, peer, "perplexity", **met))
    report("features", rows)


def reservoir(n_units: int, n_inputs: int, seed: int) -> Reservoir:
    return Reservoir(n_units, random_state=seed).fit(n_inputs=n_inputs)


def run(
    n_units: int, n_features: int, seed: int, train: NDArray[Any], test: NDArray[Any], n_words: int
) -> tuple[float, float]:
    """Test perplexity with learned features, and the seconds that learning them took."""
    driven = reservoir(n_units, n_features, seed)
    words = WordFeatures(n_features, random_state=seed)
    took = seconds(lambda: words.fit(train, reservoir=driven, n_tokens=n_words))
    return perplexity(driven, train, test, words.embedding_), took


def perplexity(driven: Reservoir, train: NDArray[Any], test: NDArray[Any], features: Any) -> float:
    """Of a ridge readout on test, states driven by one-hot words or by features."""
    readout = RidgeReadout()
    readout.fit(driven.transform(train, features=features)[:-1], train[1:])
    logs = readout.predict_log_proba(driven.transform(test, features=features)[:-1])
    return float(np.exp(-logs[np.arange(len(test) - 1), test[1:]].mean()))


if __name__ == "__main__":
    main()
