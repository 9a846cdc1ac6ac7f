"""Class-factored readout: its pace and likelihood beside one softmax over the vocabulary.

    python benchmarks/factored.py TRAIN VALID

TRAIN and VALID are one sentence a line (gzip or plain), words between spaces: Mikolov's
ptb.train.txt and ptb.valid.txt. A reservoir of 512 units with leak rates uniform in (0, 1) reads
them as one sequence. The pace is rows/s of one pass, statistics and clustering included.
"""

from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

import gzip  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from _report import median_seconds, options, report, row, seconds  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from esnlm import ClassFactoredReadout, ElmanGrammar, Reservoir, RidgeReadout, SoftmaxReadout  # noqa: E402
from esnlm.readouts.base.readout import ArrayBlocks  # noqa: E402

N_UNITS = 512
PACE_ROWS, PEER_ROWS, JUDGED_ROWS = 100_000, 8_192, 30_000

Rows = tuple[NDArray[Any], NDArray[Any]]


def main() -> None:
    files = options(__doc__, "train", "valid")
    vocabulary: dict[str, int] = {}
    train, valid = (read(path, vocabulary) for path in (files.train, files.valid))
    n_words = len(vocabulary)
    reservoir = Reservoir(N_UNITS, leak_rate=("uniform", 0.0, 1.0), random_state=0)
    reservoir.fit(n_inputs=n_words)
    rows = states(reservoir, train)
    held, targets = states(reservoir, valid)
    judged = held[:JUDGED_ROWS], targets[:JUDGED_ROWS]
    report("factored", [*pace(rows, n_words), *likelihood(rows, judged, n_words), *elman()])


def read(path: Path, vocabulary: dict[str, int]) -> NDArray[np.int64]:
    """Words of each line and an end mark, numbered as they first come."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        words = [word for line in file for word in [*line.split(), "</s>"]]
    return np.array([vocabulary.setdefault(word, len(vocabulary)) for word in words])


def states(reservoir: Reservoir, tokens: NDArray[Any]) -> Rows:
    """Every (state, next word), in a random order."""
    blocks = [(X.copy(), y.copy()) for X, y in reservoir.harvest(tokens)]
    order = np.random.default_rng(0).permutation(sum(len(y) for _, y in blocks))
    X = np.concatenate([X for X, _ in blocks])[order]
    return X, np.concatenate([y for _, y in blocks])[order].astype(np.intp)


def factored(kind: str, n_passes: int) -> ClassFactoredReadout:
    """The readout with softmax or ridge factors, softmax factors in ``n_passes`` passes."""
    softmax = SoftmaxReadout(solver="incremental", n_passes=n_passes)
    factor = softmax if kind == "softmax" else RidgeReadout()
    return ClassFactoredReadout(class_readout=factor, word_readout=factor, random_state=0)


def pace(rows: Rows, n_words: int) -> list[dict[str, Any]]:
    """Rows/s of a pass beside a softmax over every word, and of scoring the words that came."""
    X, y = rows
    words = np.arange(n_words)
    ours = factored("softmax", 1)
    blocks = ArrayBlocks(X[:PACE_ROWS], y[:PACE_ROWS], 8192)
    few = ArrayBlocks(X[:PEER_ROWS], y[:PEER_ROWS], 8192)
    plain = SoftmaxReadout(solver="incremental", n_passes=1)
    fitted = PACE_ROWS / seconds(lambda: ours.fit_blocks(blocks, words))
    peer = PEER_ROWS / seconds(lambda: plain.fit_blocks(few, words))
    some = slice(0, 2048)
    scored = 2048 / median_seconds(lambda: ours.predict_log_proba_of(X[some], y[some]), 3)
    full = 2048 / median_seconds(lambda: ours.predict_log_proba(X[some]), 3)
    return [
        row("factored", "fit, softmax factors; peer: one softmax", fitted, peer, "rows/s"),
        row("factored", "log-probability of the next word; peer: of all", scored, full, "rows/s"),
    ]


def likelihood(rows: Rows, judged: Rows, n_words: int) -> list[dict[str, Any]]:
    """Nats a word on held-out rows beside word frequencies."""
    X, y = rows
    counts = np.bincount(y, minlength=n_words) + 0.5
    unigram = -float(np.log(counts / counts.sum())[judged[1]].mean())
    table = []
    for kind in ("ridge", "softmax"):
        readout = factored(kind, 3)
        took = seconds(
            lambda: readout.fit_blocks(ArrayBlocks(X, y, 8192), np.arange(n_words))  # noqa: B023
        )
        loss = -float(readout.predict_log_proba_of(*judged).mean())
        setting = f"{kind} factors, {len(y)} rows in {took:.0f} s; peer: frequencies"
        table.append(row("factored", setting, loss, unigram, "nats/word"))
    return table


def elman() -> list[dict[str, Any]]:
    """Perplexity on Elman's grammar beside one softmax (paper: slightly worse)."""
    grammar = ElmanGrammar()
    train, test = (grammar.encode(grammar.sample(5500, random_state=k)) for k in (1, 2))
    table = []
    for n_units in (25, 100):
        reservoir = Reservoir(n_units, random_state=0).fit(n_inputs=len(grammar.vocabulary))
        X, y = reservoir.transform(train)[:-1], train[1:]
        held, targets = reservoir.transform(test)[:-1], test[1:]
        at = np.arange(len(targets))
        losses = [
            -float(readout.fit(X, y).predict_log_proba(held)[at, targets].mean())
            for readout in (ClassFactoredReadout(random_state=0), SoftmaxReadout())
        ]
        ours, peer = np.exp(losses)
        setting = f"Elman, {n_units} units, one-hot; peer: one softmax"
        table.append(row("factored", setting, float(ours), float(peer), "perplexity"))
    return table


if __name__ == "__main__":
    main()
