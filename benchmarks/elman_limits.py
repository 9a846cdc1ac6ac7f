"""What keeps the mixture of experts from the oracle of Elman's grammar?

One change at a time from the experiment's setting (one-hot words, 5 500 training sentences, the
paper's lengths, 10 experts, mean over seeds): learned word features of more dimensions, the true
word classes in place of learned features, ten times the training sentences, lengths left to the
grammar, states reset at each sentence, a reservoir that is driven gently. Ours: test perplexity;
peer: the oracle's. ``--settings`` measures some of them anew and keeps the other rows.
"""

# ruff: noqa: E402  (the kernels are chosen before numpy loads)
from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

from collections.abc import Callable
from typing import Any

import numpy as np
from _report import options, report, row
from numpy.typing import NDArray

from esnlm import ElmanGrammar, MixtureOfExpertsReadout, Reservoir, WordFeatures

Inputs = NDArray[np.float32] | None
SENTENCES = 5500
GENTLE = {"spectral_radius": 1.0, "input_scaling": 0.1}


def one_hot(grammar: ElmanGrammar, tokens: NDArray[Any], n_units: int, seed: int) -> Inputs:
    return None


def word_classes(grammar: ElmanGrammar, tokens: NDArray[Any], n_units: int, seed: int) -> Inputs:
    """A unit vector for the grammar's own class of each word."""
    kinds = sorted(set(grammar.word_class.values()))
    classes = [kinds.index(grammar.word_class[word]) for word in grammar.vocabulary]
    return np.eye(len(kinds), dtype=np.float32)[classes]


def learned(n_features: int) -> Callable[..., Inputs]:
    def features(grammar: ElmanGrammar, tokens: NDArray[Any], n_units: int, seed: int) -> Inputs:
        reservoir = Reservoir(n_units, random_state=seed).fit(n_inputs=n_features)
        made = WordFeatures(n_features=n_features, random_state=seed)
        made.fit(tokens, reservoir=reservoir, n_tokens=len(grammar.vocabulary))
        return made.embedding_.astype(np.float32)

    return features


SETTINGS: dict[str, dict[str, Any]] = {
    "one-hot words": {},
    "2 word features": {"inputs": learned(2)},
    "5 word features": {"inputs": learned(5)},
    "10 word features": {"inputs": learned(10)},
    "true word classes": {"inputs": word_classes},
    "ten times the sentences": {"sentences": 10 * SENTENCES},
    "true word classes, ten times the sentences": {
        "inputs": word_classes,
        "sentences": 10 * SENTENCES,
    },
    "free lengths": {"grammar": {"length_quotas": None}},
    "true word classes, free lengths": {"inputs": word_classes, "grammar": {"length_quotas": None}},
    "reset at each sentence": {"reset": True},
    "true word classes, reset at each sentence": {"inputs": word_classes, "reset": True},
    "radius 1, input scaling 0.1": {"reservoir": GENTLE},
    "radius 1, input scaling 0.1, reset at each sentence": {"reservoir": GENTLE, "reset": True},
}


def perplexities(
    n_units: int,
    seed: int,
    inputs: Callable[..., Inputs] = one_hot,
    sentences: int = SENTENCES,
    grammar: dict[str, Any] | None = None,
    reset: bool = False,
    reservoir: dict[str, Any] | None = None,
) -> tuple[float, float]:
    """Test perplexity of the mixture and of the oracle."""
    process = ElmanGrammar(**(grammar or {}))
    drawn = process.sample(sentences + SENTENCES, random_state=seed)
    train, test = process.encode(drawn[:sentences]), process.encode(drawn[sentences:])
    table = inputs(process, train, n_units, seed)
    n_inputs = len(process.vocabulary) if table is None else table.shape[1]
    driven = Reservoir(n_units, random_state=seed, **(reservoir or {})).fit(n_inputs=n_inputs)
    end = process.vocabulary.index(".")

    def states(tokens: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """State after each token and the token that follows, also over sentence ends."""
        if not reset:
            return driven.transform(tokens, features=table)[:-1], tokens[1:]
        starts = np.concatenate(([0], np.flatnonzero(tokens == end)[:-1] + 1))
        pieces = [
            driven.transform(np.concatenate(([end], piece[:-1])), features=table)
            for piece in np.split(tokens, starts[1:])
        ]
        return np.concatenate(pieces), tokens

    readout = MixtureOfExpertsReadout(n_experts=10, random_state=seed)
    readout.fit(*states(train))
    X, following = states(test)
    rows = readout.predict_log_proba(X)[np.arange(len(following)), following]
    return float(np.exp(-rows.mean(dtype=np.float64))), process.oracle_perplexity(drawn[sentences:])


def main() -> None:
    given = options(__doc__, sizes=[25, 100], seeds=1, settings=list(SETTINGS))
    rows = []
    for n_units in given.sizes:
        for name in given.settings:
            found = [perplexities(n_units, seed, **SETTINGS[name]) for seed in range(given.seeds)]
            ours, oracle = np.mean(found, axis=0).tolist()
            setting = f"{n_units} units, {name}"
            rows.append(
                row("mixture of 10 experts beside the oracle", setting, ours, oracle, "perplexity")
            )
            print(setting, f"{ours:.3f} / {oracle:.3f}", flush=True)
    report("elman_limits", rows, merge=True)


if __name__ == "__main__":
    main()
