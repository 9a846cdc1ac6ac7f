"""Training in parts on Dask: what sharing costs, what travels, and what averaged steps lose.

    python benchmarks/scale.py overhead SHARDS
    python benchmarks/scale.py loss SHARDS DEV

``overhead`` trains ridge on one worker process, with more and more parts, beside the same parts in
this process; ``loss`` a low-rank readout, whose steps are averaged over parts, beside one process.
Rows are in ``reports/scale``. Times are processor seconds: of all processes, and of this one.
"""

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _report import report, row

from esnlm import LanguageModel, LowRankReadout, Reservoir, RidgeReadout, SpectralWordFeatures
from esnlm.experiments.common.cluster import Workers, workers
from esnlm.models.parts import PartedCorpus
from esnlm.models.parts_training import PartsTrainer
from esnlm.models.training import Trainer, TrainingPlan
from esnlm.text.shards import Shards
from esnlm.text.shuffling import evenly_spaced
from esnlm.utils.sums import Sums, reduce_here


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("overhead", "loss"))
    parser.add_argument("shards", type=Path)
    parser.add_argument("dev", type=Path, nargs="?")
    parser.add_argument("--units", type=int, default=512)
    parser.add_argument("--components", type=int, default=128)
    parser.add_argument("--parts", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    rows = _overhead(args) if args.what == "overhead" else _loss(args)
    report(args.what, rows, merge=True, folder="scale")


class _Measured:
    """A `Reduce` that remembers how large sums are."""

    def __init__(self, reduce: Any) -> None:
        self.reduce, self.sizes = reduce, dict[str, int]()

    def __call__(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        found: Sums = self.reduce(name, function, *arguments)
        self.sizes[name] = found.nbytes
        return found


def _overhead(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    corpus = PartedCorpus(args.shards.absolute())
    setting = f"ridge, {args.units} units, {corpus.n_tokens} tokens"

    def train(n_parts: int, reduce: Any) -> tuple[float, float]:
        model = _model(corpus, args.units, RidgeReadout())
        trainer = PartsTrainer(model, corpus, n_parts=n_parts, reduce=reduce)
        begun, since = time.process_time(), time.perf_counter()
        trainer.run()
        return time.process_time() - begun, time.perf_counter() - since

    train(8, reduce_here)  # compiles, and reads the corpus into the cache
    with workers(f"local:{args.workers}") as found:
        train(8, found)
        for n in args.parts:
            name, here = f"{setting}, {n} parts", _Measured(reduce_here)
            alone, _ = train(n, here)
            before = _processor_seconds(found)
            client, wall = train(n, found)
            total = client + _processor_seconds(found) - before
            where = f"{args.workers} workers"
            yield row("processor seconds", f"{name}, {where}", total, alone, "s", target="<= 1.03")
            yield row("client", f"{name}, {where}", client, total, "s")
            yield row("wall", f"{name}, {where}", wall, unit="s")
            yield row("all sums", name, here.sizes["moments"] / 2**20, unit="MiB")
            peaks = found.client.run(_peak).values()
            yield row("peak of a worker so far", f"{name}, {where}", max(peaks), unit="MiB")


def _loss(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    corpus, stream = PartedCorpus(args.shards), Shards(args.shards).stream()
    held = evenly_spaced(Shards(args.dev).stream(), 1 << 16)
    readout = LowRankReadout(args.components, random_state=0)
    setting = (
        f"low rank, {args.units} units, {args.components} components, {corpus.n_tokens} tokens"
    )

    def train(make: Callable[[LanguageModel], Trainer]) -> tuple[float, float, int]:
        model = _model(corpus, args.units, readout)
        begun = time.process_time()
        trainer = make(model)
        trainer.run()
        return -model.score(held), time.process_time() - begun, trainer.step

    def alone(model: LanguageModel) -> Trainer:
        model.read(stream)
        return Trainer(model, stream, held, TrainingPlan())

    single, seconds, steps = train(alone)
    yield row("held-out loss", f"{setting}, one process", single, unit="nats")
    yield row("processor time", f"{setting}, one process", seconds, unit="s")
    for n in args.parts:

        def shared(model: LanguageModel, n: int = n) -> Trainer:
            return PartsTrainer(model, corpus, held, n_parts=n)

        loss, seconds, steps = train(shared)
        name = f"{setting}, {n} parts, {steps} rounds"
        yield row("held-out loss", name, loss, single, "nats")
        yield row("processor time", name, seconds, unit="s")


def _model(corpus: PartedCorpus, n_units: int, readout: Any) -> LanguageModel:
    reservoir = Reservoir(n_units, topology="offsets", leak_rate=0.5, random_state=0)
    features = SpectralWordFeatures(128, random_state=0)
    model = LanguageModel(reservoir, readout, corpus.tokenizer, features, random_state=0)
    model.use_tokenizer(corpus.tokenizer)
    return model


def _processor_seconds(found: Workers) -> float:
    return float(sum(found.client.run(time.process_time).values()))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
