"""Do the n-gram baselines reproduce the published Penn Treebank figure, and what do they cost?

    python benchmarks/kneser_ney.py TRAIN TEST [--shards NAME=TRAIN ... --held-out SHARDS]

TRAIN and TEST are one sentence a line (gzip or plain): Mikolov's ptb.train.txt and ptb.test.txt.
Each line is scored from its first word to its end mark, and contexts do not cross lines. Shards
are what ``esnlm prepare`` makes of a corpus; each set is counted in a process of its own.
"""

import argparse
import gzip
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from _report import median_seconds, report, row
from numpy.typing import NDArray

from esnlm.grammars.elman import ElmanGrammar
from esnlm.models.ngram import NgramLanguageModel
from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.text.shards import Shards
from esnlm.utils.memory import peak_rss_mib

#: T. Mikolov et al. (2011), Extensions of recurrent neural network language model: 5-gram, KN.
PUBLISHED_PTB = {5: 141.2}
#: Rachez & Hagiwara's test set, as its author measured it (smoothing not stated).
AUTHOR_ELMAN = {1: 18.35, 2: 9.30, 3: 7.42, 4: 8.61}
N_TOKENS_LARGE, VOCABULARY_LARGE = 14_000_000, 50_257


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--shards", nargs="+", default=[], metavar="NAME=TRAIN")
    parser.add_argument("--held-out", type=Path, metavar="SHARDS")
    files = parser.parse_args()
    vocabulary: dict[str, int] = {"</s>": 0}
    train, test = sentences(files.train, vocabulary), sentences(files.test, vocabulary)
    rows = [
        *accuracy("Penn Treebank", train, test, len(vocabulary), PUBLISHED_PTB, 0.005),
        single_discount(train, test, len(vocabulary)),
        *elman(),
        pace(train, len(vocabulary)),
        *large(),
        *(found for named in files.shards for found in corpus(named, files.held_out)),
    ]
    report("kneser_ney", rows)


def sentences(path: Path, vocabulary: dict[str, int]) -> list[NDArray[np.int32]]:
    """One token array a line between end marks, new words numbered as they come."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        lines = (line.split() for line in file)
        return [
            np.array([0, *(vocabulary.setdefault(w, len(vocabulary)) for w in words), 0], np.int32)
            for words in lines
            if words
        ]


def accuracy(
    name: str, train: Any, test: Any, n_tokens: int, published: dict[int, float], within: float
) -> Iterator[dict[str, Any]]:
    for order in range(1, 6):
        found = NgramLanguageModel(order=order, n_tokens=n_tokens).fit(train).perplexity(test)
        peer = published.get(order)
        target: Any = {}
        if within and peer:
            met = abs(found / peer - 1) <= within
            target = {"target": f"published within {within:.1%}", "met": met}
        yield row("perplexity", f"{name}, {order}-gram", found, peer, "perplexity", **target)


def single_discount(train: Any, test: Any, n_tokens: int) -> dict[str, Any]:
    """One discount an order instead of three."""
    model = NgramLanguageModel(order=5, n_tokens=n_tokens, discounts="single").fit(train)
    setting = "Penn Treebank, 5-gram, one discount an order"
    return row("perplexity", setting, model.perplexity(test), unit="perplexity")


def elman() -> Iterator[dict[str, Any]]:
    """The default corpus, halves of 5 500 sentences as single sequences, beside the author's."""
    grammar = ElmanGrammar()
    corpus = grammar.sample(11_000, random_state=0)
    train, test = grammar.encode(corpus[:5500]), grammar.encode(corpus[5500:])
    yield from accuracy("Elman default corpus", train, test, 24, AUTHOR_ELMAN, 0.0)
    oracle = grammar.oracle_perplexity(corpus[5500:])
    yield row("perplexity", "Elman default corpus, oracle", oracle, unit="perplexity")


def pace(train: list[NDArray[np.int32]], n_tokens: int) -> dict[str, Any]:
    """A fitted 5-gram against dictionaries that only count the same n-grams."""
    tokens, starts = np.concatenate(train), np.cumsum([0, *map(len, train)])[:-1]
    ours = median_seconds(
        lambda: KneserNey(order=5, n_tokens=n_tokens).fit(tokens, starts=starts), 3
    )
    lists = [doc.tolist() for doc in train]
    peer = median_seconds(lambda: count_in_dictionaries(lists), 3)
    setting = "Penn Treebank, 5-gram, against collections.Counter counting alone"
    return row("fit seconds", setting, ours, peer, "seconds", ratio=peer / ours)


def count_in_dictionaries(docs: list[list[int]]) -> None:
    for order in range(1, 6):
        counts: Counter[tuple[int, ...]] = Counter()
        for doc in docs:
            counts.update(zip(*(doc[start:] for start in range(order)), strict=False))


def large() -> Iterator[dict[str, Any]]:
    """Independent Zipf tokens: hardly any long n-gram repeats, the worst case for memory."""
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, VOCABULARY_LARGE + 1)
    drawn = rng.choice(VOCABULARY_LARGE, size=N_TOKENS_LARGE, p=frequency / frequency.sum())
    tokens, starts = drawn.astype(np.uint16), np.arange(0, N_TOKENS_LARGE, 20)
    model = KneserNey(order=5, n_tokens=VOCABULARY_LARGE)
    setting = f"{N_TOKENS_LARGE:,} Zipf tokens, {VOCABULARY_LARGE:,} types, 5-gram"
    seconds = median_seconds(lambda: model.fit(tokens, starts=starts), 1)
    peak = peak_rss_mib() / 1024
    met = seconds <= 120
    yield row("fit seconds", setting, seconds, unit="seconds", target="<= 120", met=met)
    yield row("peak resident memory", setting, peak, unit="GiB", target="< 3", met=peak < 3)


def corpus(named: str, held_out: Path) -> Iterator[dict[str, Any]]:
    """A 5-gram of a prepared corpus: time and memory to count, and loss on held-out text."""
    name, train = named.split("=", 1)
    with get_context("spawn").Pool(1) as pool:
        found = pool.apply(counted_and_scored, (train, str(held_out)))
    setting = f"{name}, {found['n_tokens']:,} tokens, 5-gram"
    limits = {"fit seconds": ("seconds", 300), "peak resident memory": ("GiB", 3)}
    for benchmark, (unit, limit) in limits.items():
        ours = found[benchmark]
        yield row(benchmark, setting, ours, unit=unit, target=f"<= {limit}", met=ours <= limit)
    for unit in ("nats per token", "nats per token, one discount an order", "tokens per second"):
        # A benchmark and a setting identify a row of the report.
        yield row(f"held-out {unit}", setting, found[unit], unit=unit)


def counted_and_scored(train: str, held_out: str) -> dict[str, float]:
    shards, test = Shards(train, verify=False), Shards(held_out, verify=False).stream()
    stream = shards.stream()
    start = time.perf_counter()
    model = KneserNey(order=5, n_tokens=shards.n_tokens_vocab).fit(
        stream.tokens, starts=stream.starts
    )
    fitted = time.perf_counter()
    scores = model.log_probabilities(test.tokens, test.starts)
    scored = time.perf_counter()
    peak = peak_rss_mib() / 1024
    single = KneserNey(order=5, n_tokens=shards.n_tokens_vocab, discounts="single")
    single.fit(stream.tokens, starts=stream.starts)
    others = single.log_probabilities(test.tokens, test.starts)
    return {
        "n_tokens": stream.n_predicted,
        "fit seconds": fitted - start,
        "peak resident memory": peak,
        "nats per token": -float(scores.sum()) / test.n_predicted,
        "nats per token, one discount an order": -float(others.sum()) / test.n_predicted,
        "tokens per second": test.n_predicted / (scored - fitted),
    }


if __name__ == "__main__":
    main()
