"""How fast is the mixture of ten experts fitted on Elman sentences, and how close to the oracle?

    python benchmarks/mixture.py [--sizes 25 100 400]

States of the default corpus (5 500 + 5 500 sentences in one sequence, state never reset) go to the
mixture with softmax experts beside one softmax readout, and to that with linear experts beside
ridge: same states, same process. The time's peer is its budget of 15 seconds at 100 units.
"""

from typing import Any

from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

import numpy as np  # noqa: E402
from _report import options, report, row, seconds  # noqa: E402

from esnlm import ElmanGrammar, MixtureOfExpertsReadout, Reservoir, RidgeReadout, SoftmaxReadout  # noqa: E402

PAIRS = {"softmax": SoftmaxReadout, "linear": RidgeReadout}
BUDGET = 15.0


def main() -> None:
    given = options(__doc__, sizes=[25, 100, 400])
    grammar = ElmanGrammar()
    train, test = (grammar.encode(grammar.sample(5500, random_state=seed)) for seed in (1, 2))
    oracle = grammar.oracle_perplexity(grammar.sample(5500, random_state=2))
    rows: list[dict[str, Any]] = []
    for size in given.sizes:
        reservoir = Reservoir(size, random_state=0).fit(n_inputs=len(grammar.vocabulary))
        states = [reservoir.transform(tokens)[:-1] for tokens in (train, test)]
        for experts, single in PAIRS.items():
            readout = MixtureOfExpertsReadout(experts=experts, random_state=0)
            took = seconds(lambda: readout.fit(states[0], train[1:]))  # noqa: B023
            reached = perplexity(readout, states[1], test[1:])
            peer = perplexity(single().fit(states[0], train[1:]), states[1], test[1:])
            setting = f"{experts} experts, {size} units, {readout.n_iter_} iterations"
            met: Any = {"target": "<= 1", "met": took <= BUDGET} if size == 100 else {}
            rows += [
                row("seconds to fit / budget at 100 units", setting, took, BUDGET, "s", **met),
                row(f"perplexity / {single.__name__}", setting, reached, peer, "perplexity"),
                row("perplexity / oracle", setting, reached, oracle, "perplexity"),
            ]
    report("mixture", rows)


def perplexity(readout: Any, X: np.ndarray, y: np.ndarray) -> float:
    return float(np.exp(-np.log(readout.predict_proba(X)[np.arange(len(y)), y]).mean()))


if __name__ == "__main__":
    main()
