"""Which reservoir suits which readout on Elman's grammar? Rows on training text alone.

    python benchmarks/elman_search.py [--draws 12]

Random settings of the reservoir for three readouts and sizes, with and without word features. They
are judged by the perplexity of the last tenth of the training sentences, which the readout does not
learn from, over the oracle's: all on the corpus of seed 0, the best quarter on those of seeds 1 and
2 as well. The second corpora are not read. Rows go to ``reports/elman/search.csv``; a second run
resumes where the first one stopped.
"""

# ruff: noqa: E402  (the kernels are chosen before numpy loads)
from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from _report import ROOT, commit, options

from esnlm.runs.grid import Row, run_grid
from esnlm.studies.elman.presets import Settings
from esnlm.studies.elman.run import STOPPED, held_out_fits, make_readouts
from esnlm.studies.elman.states import drive, make_corpora

#: Readouts and the sizes that they are judged at.
JUDGED = (("softmax", 100), ("moe", 25), ("mlp", 200))
LEAKS = (1.0, 1.0, 0.7, ("uniform", 0.2, 1.0))
PENALTIES = (1.0, 0.1, 0.01)
DRAWN = ("features", "spectral_radius", "input_scaling", "leak_rate")
KEY = ("readout", "n_units", *DRAWN, "seed")
COLUMNS = (*KEY, "held_out_ratio", "penalty", "seconds", "commit")


def draws(n: int) -> Iterable[Row]:
    """Settings of the reservoir; a first part of them is the same for every n."""
    rng = np.random.default_rng(0)
    for number in range(n):
        yield {
            "features": (0, 5, 6, 8)[int(rng.integers(4))] if number % 3 else 0,
            "spectral_radius": round(float(rng.uniform(0.7, 1.6)), 2),
            "input_scaling": round(float(np.exp(rng.uniform(np.log(0.02), np.log(0.8)))), 3),
            "leak_rate": LEAKS[int(rng.integers(4))],
        }


def judge(setting: Row) -> Row:
    """Perplexity of the held-out tenth over the oracle's, by the best penalty."""
    start = time.process_time()
    drawn = {name: setting[name] for name in DRAWN[1:]}
    settings = Settings(**drawn, penalties=PENALTIES)
    seed, name = setting["seed"], setting["readout"]
    corpora = make_corpora(settings, seed)
    states = drive(settings, setting["n_units"], setting["features"], seed).train
    candidates = make_readouts(name, settings, seed)
    _, nats = held_out_fits(candidates, name in STOPPED, states, corpora)
    best = int(np.argmin(nats))
    targets = corpora.train[corpora.held_out :]
    rows = np.arange(corpora.held_out - 1, len(corpora.train) - 1)
    oracle = -float(np.log(corpora.train_oracle[rows, targets]).mean())
    return {
        "held_out_ratio": float(np.exp(nats[best] - oracle)),
        "penalty": getattr(candidates[best], "alpha", ""),
        "seconds": round(time.process_time() - start, 1),
        "commit": commit(),
    }


def searched(settings: Iterable[Row]) -> list[Row]:
    folder = ROOT / "reports" / "elman"
    return run_grid(settings, judge, folder / "search.csv", key=KEY, columns=COLUMNS, jobs=1)


def main() -> None:
    given = options(__doc__, draws=12)
    found = [
        {"readout": readout, "n_units": n_units, **drawn, "seed": 0}
        for readout, n_units in JUDGED
        for drawn in draws(given.draws)
    ]
    table: Any = pd.DataFrame(searched(found))
    table["drawn"] = found
    table["has_features"] = table["features"] > 0
    for _, group in table.sort_values("held_out_ratio").groupby(["readout", "has_features"]):
        best = group["drawn"].head(max(1, len(group) // 4))
        found += [setting | {"seed": seed} for setting in best for seed in (1, 2)]
    rows: Any = pd.DataFrame(searched(found))
    means = rows.groupby([*KEY[:-1]])["held_out_ratio"].agg(["mean", "count"])
    print(means[means["count"] == 3].sort_values(["readout", "mean"]).to_string())


if __name__ == "__main__":
    main()
