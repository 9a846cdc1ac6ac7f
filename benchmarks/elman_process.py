"""How far above its oracle does a trigram stay, whatever Elman's productions are weighted with?

    python benchmarks/elman_process.py [--settings 500]

Random production probabilities, the paper's lengths, with gaps in object relatives and without.
Ours: perplexity of n-grams counted on 12 000 sentences, each context's distribution drawn towards
the words' frequencies by two observations; peer: the oracle's, on the same 3 000 other sentences.
Rows: n-grams of the default probabilities, and of all settings the one whose trigram is closest to
its oracle.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from _report import options, report, row
from numpy.typing import NDArray

from esnlm import ElmanGrammar

TRAIN, TEST = 12_000, 3_000
ORDERS = (1, 2, 3, 4)
PSEUDO_COUNT = 2.0


def main() -> None:
    n_settings = options(__doc__, settings=500).settings
    rows = []
    for gaps in (True, False):
        name = "gaps in object relatives" if gaps else "no gaps"
        oracle, ngrams = perplexities(ElmanGrammar(gaps=gaps))
        for order, value in zip(ORDERS, ngrams, strict=True):
            rows.append(
                row(f"{order}-gram", f"{name}, default probabilities", value, oracle, "perplexity")
            )
        found = [perplexities(ElmanGrammar(gaps=gaps, **s)) for s in settings(n_settings)]
        oracle, ngrams = min(found, key=lambda each: each[1][2] / each[0])
        setting = f"{name}, closest of {n_settings} random settings"
        rows.append(row("3-gram", setting, ngrams[2], oracle, "perplexity"))
    report("elman_process", rows)


def settings(count: int) -> Iterator[dict[str, Any]]:
    """Random production probabilities, the same in every run."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        phrase, verb = rng.dirichlet([1.0] * 3, 2).tolist()
        subject, with_object = rng.random(2).tolist()
        yield {
            "noun_phrase": dict(zip(("proper", "noun", "relative"), phrase, strict=True)),
            "verb": dict(zip(("required", "optional", "none"), verb, strict=True)),
            "relative_clause": {"subject": subject, "object": 1 - subject},
            "object_probability": with_object,
        }


def perplexities(grammar: ElmanGrammar) -> tuple[float, list[float]]:
    """Of the oracle, and of n-grams by order, on the test sentences."""
    train = grammar.encode(grammar.sample(TRAIN, random_state=0))
    drawn = grammar.sample(TEST, random_state=1)
    test = grammar.encode(drawn)
    size = len(grammar.vocabulary)
    return grammar.oracle_perplexity(drawn), [ngram(train, test, o, size) for o in ORDERS]


def ngram(train: NDArray[Any], test: NDArray[Any], order: int, size: int) -> float:
    """Perplexity of the smoothed relative frequencies of order-grams; inf with an unseen word."""
    frequencies = np.bincount(train, minlength=size) / len(train)
    counts = np.bincount(codes(train, order, size), minlength=size**order).reshape(-1, size)
    context, word = np.divmod(codes(test, order, size), size)
    seen = counts[context, word] + PSEUDO_COUNT * frequencies[word]
    with np.errstate(divide="ignore"):
        logs = np.log(seen / (counts.sum(axis=1)[context] + PSEUDO_COUNT))
    return float(np.exp(-logs.mean()))


def codes(tokens: NDArray[Any], order: int, size: int) -> NDArray[np.int64]:
    """Every run of ``order`` tokens as one number."""
    runs = np.lib.stride_tricks.sliding_window_view(tokens.astype(np.int64), order)
    numbers: NDArray[np.int64] = runs @ size ** np.arange(order - 1, -1, -1)
    return numbers


if __name__ == "__main__":
    main()
