"""How fast is the mixture of ten experts fitted on Elman sentences, and how close to the oracle?

    python benchmarks/mixture.py [--sizes 25 100 400]

States of the default corpus (5 500 + 5 500 sentences in one sequence, state never reset) go to the
mixture with softmax experts beside one softmax readout, and to that with linear experts beside
ridge: same states, same process. The time's peer is its budget of 15 seconds at 100 units.
"""

import argparse
import time
from typing import Any

from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

import numpy as np  # noqa: E402
from _report import report  # noqa: E402

from esnlm import (  # noqa: E402
    ElmanGrammar,
    MixtureOfExpertsReadout,
    Reservoir,
    RidgeReadout,
    SoftmaxReadout,
)

PAIRS = {"softmax": SoftmaxReadout, "linear": RidgeReadout}
BUDGET = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[25, 100, 400])
    given = parser.parse_args()
    grammar = ElmanGrammar()
    train, test = (grammar.encode(grammar.sample(5500, random_state=seed)) for seed in (1, 2))
    oracle = grammar.oracle_perplexity(grammar.sample(5500, random_state=2))
    rows: list[dict[str, Any]] = []
    for size in given.sizes:
        reservoir = Reservoir(size, random_state=0).fit(n_inputs=len(grammar.vocabulary))
        states = [reservoir.transform(tokens)[:-1] for tokens in (train, test)]
        for experts, single in PAIRS.items():
            readout = MixtureOfExpertsReadout(experts=experts, random_state=0)
            start = time.perf_counter()
            readout.fit(states[0], train[1:])
            seconds = time.perf_counter() - start
            reached = perplexity(readout, states[1], test[1:])
            peer = perplexity(single().fit(states[0], train[1:]), states[1], test[1:])
            setting = f"{experts} experts, {size} units, {readout.n_iter_} iterations"
            rows.append(row(setting, "seconds to fit / budget at 100 units", seconds, BUDGET, size))
            rows.append(row(setting, f"perplexity / {single.__name__}", reached, peer, 0))
            rows.append(row(setting, "perplexity / oracle", reached, oracle, 0))
    report("mixture", rows)


def perplexity(readout: Any, X: np.ndarray, y: np.ndarray) -> float:
    return float(np.exp(-np.log(readout.predict_proba(X)[np.arange(len(y)), y]).mean()))


def row(setting: str, what: str, ours: float, peer: float, size: int) -> dict[str, Any]:
    timed = size == 100
    return {
        "benchmark": what,
        "setting": setting,
        "ours": ours,
        "peer": peer,
        "ratio": ours / peer,
        "unit": "s" if what.startswith("seconds") else "perplexity",
        "target": "<= 1" if timed else "",
        "met": ours <= peer if timed else "",
    }


if __name__ == "__main__":
    main()
