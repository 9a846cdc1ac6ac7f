"""Which readout gives the best likelihood of natural text a minute, at a full vocabulary?

    python benchmarks/natural_readouts.py TRAIN DEV [--units N] [--only NAME ...]

TRAIN and DEV are shards that ``esnlm prepare`` made with one tokenizer. Every setting reads the
same sentences in the same order and is judged on the same tokens of DEV; its peer is a modified
Kneser-Ney 5-gram on those sentences. Minutes are processor time of everything: word features,
states, and the readout's statistics, clusters and passes. So they do not depend on what else the
machine does, and settings may be measured a few at a time: rows of other settings are kept.
"""

from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

import argparse  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from _report import report, row  # noqa: E402

from esnlm import (  # noqa: E402
    ClassFactoredReadout,
    LanguageModel,
    LowRankReadout,
    MixtureOfExpertsReadout,
    Reservoir,
    SoftmaxReadout,
    SpectralWordFeatures,
)
from esnlm.ngrams.kneser_ney import KneserNey  # noqa: E402
from esnlm.text.corpus import TokenStream  # noqa: E402
from esnlm.text.shards import Shards  # noqa: E402
from esnlm.text.shuffling import evenly_spaced  # noqa: E402
from esnlm.training.trainer import Trainer, TrainingPlan  # noqa: E402

JUDGED = 100_000
N_FEATURES = 128


def softmax(n_passes: int, learning_rate: float = 0.2) -> SoftmaxReadout:
    """A factor learned in passes."""
    return SoftmaxReadout(alpha=10.0, n_passes=n_passes, learning_rate=learning_rate)


def factored(n_components: int, factor: Any = "softmax", words: Any = None, **options: Any) -> Any:
    """Class-factored readout; ``words`` is the kind of factor for words where it differs."""
    words = factor if words is None else words
    return ClassFactoredReadout(
        class_readout=factor,
        word_readout=words,
        n_components=n_components,
        random_state=0,
        **options,
    )


#: What ``esnlm train`` gives a low-rank readout of such a vocabulary.
DIRECT: dict[str, Any] = {"n_direct": 3, "n_ngrams": 262144, "random_state": 0}

#: Name -> readout.
SETTINGS: dict[str, Any] = {
    "low rank 128": LowRankReadout(n_components=128, random_state=0),
    "low rank 512": LowRankReadout(n_components=512, random_state=0),
    "low rank 128, rate 0.2": LowRankReadout(n_components=128, learning_rate=0.2, random_state=0),
    "low rank 512, rate 0.2": LowRankReadout(n_components=512, learning_rate=0.2, random_state=0),
    "low rank 128, direct 3": LowRankReadout(n_components=128, n_direct=3, random_state=0),
    "low rank 128, direct 3 and n-grams": LowRankReadout(n_components=128, **DIRECT),
    "low rank 384, direct 3 and n-grams": LowRankReadout(n_components=384, **DIRECT),
    "factored softmax 128": factored(128),
    "factored softmax 512": factored(512),
    "factored softmax 128, frequency": factored(128, clustering="frequency"),
    "factored softmax 128, clusters": factored(128, clustering="clusters"),
    "factored softmax 128, two passes": factored(128, softmax(2)),
    "factored softmax 512, two passes": factored(512, softmax(2)),
    "factored ridge 128": factored(128, "ridge"),
    "factored ridge 512": factored(512, "ridge"),
    "factored ridge 512, frequency": factored(512, "ridge", clustering="frequency"),
    "factored ridge 512, clusters": factored(512, "ridge", clustering="clusters"),
    "factored ridge of words 128": factored(128, "softmax", "ridge"),
    "factored mixture of 2, 128": factored(128, MixtureOfExpertsReadout(n_experts=2), "softmax"),
    "factored mixture of 4, 128": factored(128, "moe", "softmax"),
    "factored mixture of 4, 128, rate 0.1": factored(128, "moe", softmax(1, 0.1)),
    "factored mixture of 4, 128, two passes": factored(128, "moe", softmax(2)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--units", type=int, default=512)
    parser.add_argument("--only", action="append", choices=tuple(SETTINGS))
    args = parser.parse_args()
    shards = Shards(args.train)
    corpus = shards.stream().shuffled(np.random.default_rng(0))
    dev = evenly_spaced(Shards(args.dev).stream(), JUDGED)
    report("natural_readouts", rows(args, corpus, dev, shards.n_tokens_vocab), merge=True)


def rows(
    args: argparse.Namespace, corpus: TokenStream, dev: TokenStream, n_tokens: int
) -> Iterator[dict[str, Any]]:
    ngrams = KneserNey(order=5, n_tokens=n_tokens).fit(corpus.tokens, starts=corpus.starts)
    logs = ngrams.log_probabilities(dev.tokens, starts=dev.starts)[dev.predicted()]
    peer = -float(logs.mean())
    for name in args.only or SETTINGS:
        minutes, loss = measured(SETTINGS[name], args.units, corpus, dev, n_tokens)
        setting = f"{name}, {args.units} units, {corpus.n_predicted} tokens"
        met: Any = {"ratio": "", "target": "below the peer's", "met": loss < peer}
        yield row("held-out loss", setting, loss, peer, "nats/token", **met)
        yield row("training", setting, minutes, unit="CPU min")


class Unscored(Trainer):
    """Training that is not scored along the way."""

    def _score(self, number: int) -> None:
        pass


def measured(
    readout: Any, n_units: int, corpus: TokenStream, dev: TokenStream, n_tokens: int
) -> tuple[float, float]:
    """Processor minutes of training, and the mean held-out loss (nats a token)."""
    start = time.process_time()
    reservoir = Reservoir(
        n_units,
        topology="offsets",
        spectral_radius=0.99,
        leak_rate=("uniform", 0.0, 1.0),
        random_state=0,
    )
    features = SpectralWordFeatures(n_features=N_FEATURES, random_state=0)
    model = LanguageModel(reservoir, readout, features=features, n_tokens=n_tokens)
    plan = TrainingPlan(random_state=0, held_out_tokens=JUDGED)
    run = Unscored(model, model._read_corpus(corpus), held_out=dev, plan=plan)
    trained = run.run().readout_
    minutes = (time.process_time() - start) / 60
    blocks = run._held_states()
    assert blocks is not None
    logs = [trained.predict_log_proba_of(X, codes) for X, codes in blocks]
    return minutes, -float(np.concatenate(logs).mean(dtype=np.float64))


if __name__ == "__main__":
    main()
