"""What does the recurrence give on Elman's grammar? The found settings beside their controls.

    python benchmarks/elman_controls.py

Softmax and network on 100 units with six word features, as `esnlm elman` runs them, and with one
part changed or taken away; three seeds. Ours: perplexity on the second corpus; peer: the oracle's.
The control without coupling (radius 0) chooses its leak rate and input scaling on the last tenth
of the training sentences of seed 0, as it would otherwise be held to what suits another reservoir.
The last words alone are their word features side by side, without any reservoir.
"""

# ruff: noqa: E402  (the kernels are chosen before numpy loads)
from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

from functools import cache
from itertools import product
from typing import Any

import numpy as np
from _report import options, report, row
from numpy.typing import NDArray

from esnlm.evaluation.metrics import perplexity
from esnlm.studies.elman.presets import Settings
from esnlm.studies.elman.run import fit_readout, held_out_fits, make_readouts
from esnlm.studies.elman.states import drive, make_corpora

N_UNITS, FEATURES = 100, 6
CONTROLS: dict[str, Settings] = {
    "as found": Settings(),
    "one-hot words": Settings(),
    "word features by gradient": Settings(word_features="gradient"),
    "never reset": Settings(reset="never"),
    "radius 0 with leak": Settings(spectral_radius=0),
    "last word (radius 0, leak rate 1)": Settings(spectral_radius=0, leak_rate=1.0),
}
#: What the control of radius 0 chooses from.
LEAKS = (("uniform", 0.0, 1.0), ("uniform", 0.2, 1.0), 0.6)
SCALINGS = (0.2, 0.6)
#: Last words that stand side by side; the longest sentence has nine.
WINDOWS = (2, 3, 9)


def reservoir_states(name: str, seed: int) -> tuple[str, list[Any]]:
    """What a control chose, and the states of both corpora."""
    settings = CONTROLS[name]
    if name == "radius 0 with leak":
        settings = with_best_leak()
        name += f" {settings.leak_rate}, scaling {settings.input_scaling}"
    driven = drive(settings, N_UNITS, 0 if name == "one-hot words" else FEATURES, seed)
    return name, [driven.train, driven.test]


@cache
def with_best_leak() -> Settings:
    """Leak rate and scaling that a softmax likes best on the held-out training sentences."""
    nats = {}
    for leak_rate, scaling in product(LEAKS, SCALINGS):
        tried = Settings(spectral_radius=0, leak_rate=leak_rate, input_scaling=scaling)
        states, made = drive(tried, N_UNITS, FEATURES, 0).train, make_readouts("softmax", tried, 0)
        nats[tried] = held_out_fits(made, False, states, make_corpora(tried, 0))[1][0]
    return min(nats, key=lambda tried: nats[tried])


def windows(seed: int, n_words: int) -> list[NDArray[np.float32]]:
    """Word features of the last words read in the sentence, zero before its first: both corpora."""
    corpora = make_corpora(Settings(), seed)
    embedding = drive(Settings(), N_UNITS, FEATURES, seed).embedding
    assert embedding is not None
    end = corpora.grammar.vocabulary.index(".")
    found = []
    for tokens in (corpora.train, corpora.test):
        read = tokens[:-1]
        position = np.arange(len(read))
        first = np.maximum.accumulate(np.where(read == end, position, 0))
        columns = []
        for back in range(n_words):
            known = position - back >= first
            columns.append(embedding[np.roll(read, back)] * known[:, None])
        found.append(np.concatenate(columns, axis=1).astype(np.float32))
    return found


def measure(name: str, readout: str, seed: int, states: list[Any]) -> dict[str, Any]:
    """A row: the readout fitted on the states of the first corpus, scored on the second."""
    settings = CONTROLS.get(name, Settings())
    corpora = make_corpora(settings, seed)
    fitted = fit_readout(readout, settings, seed, states[0], corpora)
    ours = perplexity(fitted.predict_log_proba_of(states[1], corpora.test[1:]))
    oracle = perplexity(corpora.grammar.oracle_log_likelihood(corpora.test))
    setting = f"{readout}, {name}, seed {seed}"
    print(setting, f"{ours / oracle:.4f}", flush=True)
    return row("beside the oracle", setting, ours, oracle, "perplexity")


def main() -> None:
    given = options(__doc__, readouts=["softmax", "mlp"], seeds=3, controls=list(CONTROLS))
    for seed in range(given.seeds):
        made = [reservoir_states(name, seed) for name in given.controls]
        made += [(f"last {n} words alone", windows(seed, n)) for n in WINDOWS]
        runs = product(made, given.readouts)
        rows = [measure(name, readout, seed, both) for (name, both), readout in runs]
        report("elman_controls", rows, merge=True)


if __name__ == "__main__":
    main()
