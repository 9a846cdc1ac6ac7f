"""Which readout gives the best likelihood of natural text a minute, at a full vocabulary?

    python benchmarks/natural_readouts.py TRAIN DEV [--units N] [--sentences S] [--only NAME]

TRAIN and DEV are shards that ``esnlm prepare`` made with one tokenizer. Every setting reads the
same sentences in the same order and is judged on the same tokens of DEV; its peer is a modified
Kneser-Ney 5-gram on those sentences. Seconds are of everything: word features, statistics,
clusters, passes. Rows say how busy the machine was (load average before and after).
"""

from esnlm.blas import use_widest_kernels

use_widest_kernels()

import argparse  # noqa: E402
import os  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from _report import report  # noqa: E402

from esnlm import (  # noqa: E402
    ClassFactoredReadout,
    LanguageModel,
    LowRankReadout,
    Reservoir,
    RidgeReadout,
    SoftmaxReadout,
    SpectralWordFeatures,
)
from esnlm.chunks import evenly_spaced  # noqa: E402
from esnlm.corpus import TokenStream  # noqa: E402
from esnlm.ngrams import KneserNey  # noqa: E402
from esnlm.shards import Shards  # noqa: E402
from esnlm.training import Trainer, TrainingPlan  # noqa: E402

JUDGED = 100_000
STREAMED = SoftmaxReadout(solver="incremental", n_passes=1)

#: Name -> features of words (0: one-hot), and readout.
SETTINGS: dict[str, tuple[int, Any]] = {
    "low rank 256": (128, LowRankReadout(256, random_state=0)),
    "low rank 512": (128, LowRankReadout(512, random_state=0)),
    "low rank 256, two passes": (128, LowRankReadout(256, n_passes=2, random_state=0)),
    "low rank 256, 256 features": (256, LowRankReadout(256, random_state=0)),
    "low rank 256, one-hot words": (0, LowRankReadout(256, random_state=0)),
    "low rank 256, softmax of words": (
        128,
        LowRankReadout(256, n_frequent=0, random_state=0),
    ),
    "classes of all units": (
        128,
        ClassFactoredReadout(
            solver="joint", class_readout=STREAMED, word_readout=STREAMED, random_state=0
        ),
    ),
    "ridge": (128, RidgeReadout(selection=None)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--units", type=int, default=1024)
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--only", action="append", choices=tuple(SETTINGS))
    args = parser.parse_args()
    shards = Shards(args.train)
    n_tokens = shards.n_tokens_vocab
    corpus = first_sentences(shards.stream().shuffled(np.random.default_rng(0)), args.sentences)
    dev = evenly_spaced(Shards(args.dev).stream(), JUDGED)
    peer = KneserNey(5, n_tokens=n_tokens).fit(corpus.tokens, starts=corpus.starts)
    logs = peer.log_probabilities(dev.tokens, starts=dev.starts)[dev.predicted()]
    report("natural_readouts", rows(args, corpus, dev, n_tokens, -float(logs.mean())))


def first_sentences(stream: TokenStream, n: int) -> TokenStream:
    """The first n sentences."""
    assert stream.starts is not None, "shards hold sentences"
    if n >= len(stream.starts):
        return stream
    end = int(stream.starts[n])
    return TokenStream(stream.tokens[:end], stream.starts[:n], np.array([0, end]))


def rows(
    args: argparse.Namespace, corpus: TokenStream, dev: TokenStream, n_tokens: int, peer: float
) -> Iterator[dict[str, Any]]:
    for name in args.only or SETTINGS:
        n_features, readout = SETTINGS[name]
        before, start = os.getloadavg()[0], time.monotonic()
        model = LanguageModel(
            Reservoir(
                args.units,
                topology="offsets",
                spectral_radius=0.99,
                leak_rate=("uniform", 0.0, 1.0),
                random_state=0,
            ),
            readout,
            features=SpectralWordFeatures(n_features, random_state=0) if n_features else None,
            n_tokens=n_tokens,
        )
        model.read(corpus)
        Trainer(model, corpus, plan=TrainingPlan(seed=0)).run()
        seconds = time.monotonic() - start
        loss = -model.score(dev)
        load = f"{before:.1f}-{os.getloadavg()[0]:.1f}"
        setting = f"{name}, {args.units} units, {corpus.n_predicted} tokens, load {load}"
        yield {
            "benchmark": "held-out loss",
            "setting": setting,
            "ours": loss,
            "peer": peer,
            "unit": "nats/token",
            "target": "below the peer's",
            "met": loss < peer,
        }
        yield {"benchmark": "time", "setting": setting, "ours": seconds, "unit": "s"}


if __name__ == "__main__":
    main()
