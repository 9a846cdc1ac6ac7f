"""Which readout gives the best likelihood of natural text a minute, at a full vocabulary?

    python benchmarks/natural_readouts.py TRAIN DEV [--units N] [--only NAME ...]

TRAIN and DEV are shards that ``esnlm prepare`` made with one tokenizer. Every setting reads the
same sentences in the same order and is judged on the same tokens of DEV; its peer is a modified
Kneser-Ney 5-gram on those sentences. The states of a run are harvested once for all its readouts.
Minutes are processor time of everything: word features and states, counted for each readout, and
its statistics, clusters and passes. So they do not depend on what else the machine does, and
settings may be measured a few at a time: rows of other settings are kept.
"""

from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

import argparse  # noqa: E402
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
    MixtureOfExpertsReadout,
    Reservoir,
    SoftmaxReadout,
    SpectralWordFeatures,
)
from esnlm.models.training import Trainer, TrainingPlan  # noqa: E402
from esnlm.ngrams.kneser_ney import KneserNey  # noqa: E402
from esnlm.readouts.base.readout import StreamingReadout  # noqa: E402
from esnlm.text.corpus import TokenStream  # noqa: E402
from esnlm.text.shards import Shards  # noqa: E402
from esnlm.text.shuffling import evenly_spaced  # noqa: E402

JUDGED = 100_000
N_FEATURES = 128


def softmax(n_passes: int, learning_rate: float = 0.2) -> SoftmaxReadout:
    """A factor learned in passes."""
    return SoftmaxReadout(alpha=10.0, n_passes=n_passes, learning_rate=learning_rate)


def factored(n_components: int, factor: Any = "softmax", words: Any = None, **options: Any) -> Any:
    """Class-factored on so many components; ``words``: the other kind of factor for words."""
    words = factor if words is None else words
    return ClassFactoredReadout(
        class_readout=factor,
        word_readout=words,
        n_components=n_components,
        random_state=0,
        **options,
    )


#: What ``esnlm train`` gives a low-rank readout of such a vocabulary.
DIRECT: dict[str, Any] = {"n_direct": 3, "n_pairs": 131072, "random_state": 0}

#: Name -> readout.
SETTINGS: dict[str, Any] = {
    "low rank 128": LowRankReadout(128, random_state=0),
    "low rank 512": LowRankReadout(512, random_state=0),
    "low rank 128, rate 0.2": LowRankReadout(128, learning_rate=0.2, random_state=0),
    "low rank 512, rate 0.2": LowRankReadout(512, learning_rate=0.2, random_state=0),
    "low rank 128, direct 3": LowRankReadout(128, n_direct=3, random_state=0),
    "low rank 128, direct 3 and pairs": LowRankReadout(128, **DIRECT),
    "low rank 512, direct 3 and pairs": LowRankReadout(512, **DIRECT),
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
    "factored mixture of 2, 128": factored(128, MixtureOfExpertsReadout(2), "softmax"),
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
    ngrams = KneserNey(5, n_tokens=n_tokens).fit(corpus.tokens, starts=corpus.starts)
    logs = ngrams.log_probabilities(dev.tokens, starts=dev.starts)[dev.predicted()]
    peer = -float(logs.mean())
    names = args.only or list(SETTINGS)
    together = Together([SETTINGS[name] for name in names])
    figures = measured(together, args.units, corpus, dev, n_tokens)
    for name, (minutes, loss) in zip(names, figures, strict=True):
        setting = f"{name}, {args.units} units, {corpus.n_predicted} tokens"
        yield {
            "benchmark": "held-out loss",
            "setting": setting,
            "ours": loss,
            "peer": peer,
            "unit": "nats/token",
            "target": "below the peer's",
            "met": loss < peer,
        }
        yield {"benchmark": "training", "setting": setting, "ours": minutes, "unit": "CPU min"}


class Together(StreamingReadout):
    """Readouts that learn from the same states, and the processor seconds of each."""

    def __init__(self, readouts: list[Any]) -> None:
        self.readouts = readouts
        #: Columns of last tokens beside the states: those that any of the readouts reads.
        self.n_direct = max(_n_direct(readout) for readout in readouts)

    def own(self, readout: Any, X: Any) -> Any:
        """The columns that one of the readouts reads: the newest tokens come first."""
        return X[:, : X.shape[1] - self.n_direct + _n_direct(readout)]

    def begin(self, *args: Any, **options: Any) -> "Together":
        classes, n_columns = args
        for readout in self.readouts:
            readout.begin(classes, n_columns - self.n_direct + _n_direct(readout), **options)
        self.seconds = np.zeros(len(self.readouts))
        self.n_passes = [readout.training_passes for readout in self.readouts]
        self.passes_done = 0
        #: Seconds of states, up to the end of each pass.
        self.shared: list[float] = []
        return self

    @property
    def training_passes(self) -> int:
        return max(self.n_passes)

    @property
    def survey_rows(self) -> int:
        return max(readout.survey_rows for readout in self.readouts)

    def each(self, name: str, X: Any = None, codes: Any = None) -> None:
        """Call a method of every readout that wants this pass."""
        for k, readout in enumerate(self.readouts):
            if self.passes_done < self.n_passes[k]:
                start = time.process_time()
                given = () if X is None else (self.own(readout, X), codes)
                getattr(readout, name)(*given)
                self.seconds[k] += time.process_time() - start

    def survey(self, X: Any, codes: Any) -> None:
        self.each("survey", X, codes)

    def end_survey(self) -> None:
        self.each("end_survey")

    def learn(self, X: Any, codes: Any) -> None:
        self.each("learn", X, codes)

    def end_pass(self, held_out: Any = None) -> bool:
        self.each("end_pass")
        for k, readout in enumerate(self.readouts):
            if self.passes_done + 1 == self.n_passes[k]:
                start = time.process_time()
                readout.finish()
                self.seconds[k] += time.process_time() - start
        self.passes_done += 1
        self.shared.append(time.process_time() - float(self.seconds.sum()))
        return True

    def finish(self, held_out: Any = None) -> None:
        """Each is finished after its last pass."""


def _n_direct(readout: Any) -> int:
    return int(getattr(readout, "n_direct", 0))


class Run(Trainer):
    """Training that is neither resumed nor scored along the way."""

    def _described(self) -> dict[str, Any]:
        return {}

    def _score(self, number: int) -> None:
        pass


def measured(
    together: Together, n_units: int, corpus: TokenStream, dev: TokenStream, n_tokens: int
) -> list[tuple[float, float]]:
    """Processor minutes of training, and mean held-out loss (nats a token), of each readout."""
    start = time.process_time()
    reservoir = Reservoir(
        n_units,
        topology="offsets",
        spectral_radius=0.99,
        leak_rate=("uniform", 0.0, 1.0),
        random_state=0,
    )
    features = SpectralWordFeatures(N_FEATURES, random_state=0)
    model = LanguageModel(reservoir, together.readouts[0], features=features, n_tokens=n_tokens)
    model.read(corpus)
    model.readout = together
    run = Run(model, corpus, dev, TrainingPlan(seed=0, held_out_tokens=JUDGED))
    trained = run.run().readout_
    totals, n = np.zeros(len(trained.readouts)), 0
    blocks = run._held_states()
    assert blocks is not None
    for X, codes in blocks:
        for k, readout in enumerate(trained.readouts):
            logs = readout.predict_log_proba_of(trained.own(readout, X), codes)
            totals[k] -= logs.sum(dtype=np.float64)
        n += len(codes)
    shared = [trained.shared[n_passes - 1] - start for n_passes in trained.n_passes]
    return [
        ((states + own) / 60, total / n)
        for states, own, total in zip(shared, trained.seconds, totals, strict=True)
    ]


if __name__ == "__main__":
    main()
