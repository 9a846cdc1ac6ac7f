"""Training in parts on Dask: what sharing costs, what travels, and what averaged steps lose.

    python benchmarks/scale.py overhead SHARDS
    python benchmarks/scale.py pace SHARDS
    python benchmarks/scale.py kills SHARDS
    python benchmarks/scale.py loss SHARDS DEV

``pace`` adds up the moments of ridge and the pilot sample of a low-rank readout with the threads of
this process and with worker processes of one thread, in turn, by the clock; sums must have the same
bytes with one worker as with several. ``kills`` trains ridge on three workers again and again, one
of which is killed at some moment of each run. ``overhead`` trains ridge on one worker process, with
more and more parts, beside the same parts in this process, in turn (medians of ``--repeats``);
``loss`` a low-rank readout, whose steps are averaged over parts, beside one process. Rows are in
``reports/scale``. Times but those of ``pace`` are processor seconds, of all processes and of this
one.
"""

import argparse
import contextlib
import hashlib
import os
import resource
import signal
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _report import report, row

from esnlm import LanguageModel, LowRankReadout, Reservoir, RidgeReadout, SpectralWordFeatures
from esnlm.runs.workers import Workers, workers
from esnlm.text.corpus import TokenStream
from esnlm.text.shard_parts import PartedCorpus
from esnlm.text.shards import Shards
from esnlm.text.shuffling import evenly_spaced
from esnlm.training.parts_trainer import PartsTrainer
from esnlm.training.trainer import Trainer, TrainingPlan
from esnlm.utils.sums import Sums, reduce_here


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=_WHAT)
    parser.add_argument("shards", type=Path)
    parser.add_argument("dev", type=Path, nargs="?")
    parser.add_argument("--units", type=int, default=512)
    parser.add_argument("--components", type=int, default=128)
    parser.add_argument("--parts", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    report(args.what, _WHAT[args.what](args), merge=True, folder="scale")


class _Measured:
    """A `Reduce` that remembers how large sums are."""

    def __init__(self, reduce: Any) -> None:
        self.reduce, self.sizes = reduce, dict[str, int]()

    def __call__(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        found: Sums = self.reduce(name, function, *arguments)
        self.sizes[name] = found.__sizeof__()
        return found


def _overhead(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    corpus = PartedCorpus(args.shards.absolute())
    setting = f"ridge, {args.units} units, {corpus.n_tokens} tokens"

    def train(n_parts: int, reduce: Any) -> tuple[float, float]:
        model = model_of(corpus, args.units, RidgeReadout())
        trainer = PartsTrainer(model, corpus, n_parts=n_parts, reduce=reduce)
        begun, since = time.process_time(), time.perf_counter()
        trainer.run()
        return time.process_time() - begun, time.perf_counter() - since

    train(8, reduce_here)  # compiles, and reads the corpus into the cache
    with workers(f"local:{args.workers}") as found:
        train(8, found)
        for n in args.parts:
            name, here = f"{setting}, {n} parts", _Measured(reduce_here)
            runs = []
            for _ in range(args.repeats):
                alone, _ = train(n, here)
                before = _processor_seconds(found)
                client, wall = train(n, found)
                runs.append((alone, client + _processor_seconds(found) - before, client, wall))
            alone, total, client, wall = map(statistics.median, zip(*runs, strict=True))
            where = f"{args.workers} workers"
            yield row("processor seconds", f"{name}, {where}", total, alone, "s", target="<= 1.03")
            yield row("client", f"{name}, {where}", client, total, "s")
            yield row("wall", f"{name}, {where}", wall, unit="s")
            yield row("all sums", name, here.sizes["moments"] / 2**20, unit="MiB")
            peaks = found.client.run(_peak).values()
            yield row("peak of a worker so far", f"{name}, {where}", max(peaks), unit="MiB")


class _MeasuredError(Exception):
    """The pass that is measured has ended."""


def _pace(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    corpus, stream = PartedCorpus(args.shards.absolute()), Shards(args.shards).stream()
    low_rank = LowRankReadout(n_components=args.components, random_state=0)
    features = _features(corpus, stream)
    jobs = {"survey": (low_rank, 0), "moments": (RidgeReadout(), 1)}
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    digests: dict[str, set[str]] = defaultdict(set)
    peaks, n_rows = [0.0], {"moments": corpus.n_rows}

    def measure(who: str, make: Callable[[type[Any], LanguageModel], Any], kind: type[Any]) -> None:
        for job, times_of in (("survey", "start"), ("survey", who), ("moments", who)):
            readout, last = jobs[job]
            model = model_of(corpus, args.units, readout, features)
            model._read_corpus(stream)
            trainer = make(_timed(kind, last), model)
            with contextlib.suppress(_MeasuredError):
                trainer.run()
            times[job, times_of].append(trainer.measured)
            n_rows.setdefault("survey", trainer.readout._sample_rows)
            if kind is PartsTrainer:
                digests[job].add(trainer.digest_of_sums)

    for _ in range(args.repeats):
        measure("threads", lambda kind, model: kind(model, stream), Trainer)
        for n in (args.workers, 1):
            with workers(f"local:{n}") as found:

                def shared(kind: type[Any], model: LanguageModel, found: Workers = found) -> Any:
                    return kind(model, corpus, reduce=found)

                measure(str(n), shared, PartsTrainer)
                peaks += found.client.run(_peak).values()
    for job in jobs:
        setting = f"{job}, {args.units} units, {n_rows[job]} rows of {corpus.n_tokens} tokens"
        if len(digests[job]) != 1:
            raise SystemExit(f"{setting}: sums differ from one number of workers to the next")
        threads, *shared_ = (
            statistics.median(times[job, who]) for who in ("threads", str(args.workers), "1")
        )
        for n, seconds in zip((args.workers, 1), shared_, strict=True):
            name = f"{setting}, {n} workers beside {args.workers} threads"
            target = ">= 0.9" if n == args.workers else ""
            pace = n_rows[job] / seconds, n_rows[job] / threads
            yield row("rows a second", name, *pace, "rows/s", target=target)
    yield row("peak of a worker", f"{args.units} units", max(peaks), unit="MiB")
    yield row("peak of the client and of threads", f"{args.units} units", _peak(), unit="MiB")


def _timed(trainer: type[Trainer], last: int) -> type[Any]:
    """A trainer that stops after pass ``last``, and holds its seconds and a hash of its sums."""

    class Timed(trainer):  # type: ignore[misc, valid-type]
        def read(self, number: int, n_rows: int | None = None) -> Iterator[Any]:
            begun, sums = time.perf_counter(), list[Sums]()
            for chunk in super().read(number, n_rows=n_rows):
                if isinstance(chunk, Sums):
                    sums.append(chunk)
                yield chunk
            if number == last:
                self.measured = time.perf_counter() - begun
                self.digest_of_sums = _digest(sums)
                raise _MeasuredError

    return Timed


def _digest(sums: list[Sums]) -> str:
    found = hashlib.sha256()
    for each in sums:
        arrays = [each.plain[name] for name in sorted(each.plain)]
        for _, rows in sorted(each.keyed.items()):
            arrays += rows.keys, *rows.values
        for array in arrays:
            found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _kills(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    corpus = PartedCorpus(args.shards.absolute())
    features = _features(corpus, Shards(args.shards).stream())
    setting = f"ridge, {args.units} units, {corpus.n_tokens} tokens, 3 workers"
    rng, digests, killed, took = np.random.default_rng(0), [], 0, 0.0
    for run in range(1 + args.repeats):
        model = model_of(corpus, args.units, RidgeReadout(), features)
        with workers("local:3") as found:
            pids = list(found.client.run(os.getpid).values())
            stop = threading.Timer(rng.uniform(0, took), os.kill, (pids[run % 3], signal.SIGKILL))
            begun = time.perf_counter()
            if run:
                stop.start()
            PartsTrainer(model, corpus, reduce=found).run()
            took = took or time.perf_counter() - begun
            stop.cancel()
            killed += bool(run) and pids[run % 3] not in found.client.run(os.getpid).values()
        digests.append(hashlib.sha256(model.readout_.coef_.tobytes()).hexdigest())
    same = digests.count(digests[0]) - 1
    yield row("runs with a worker killed", setting, killed, args.repeats, "runs")
    yield row("of these the same bytes as without", setting, same, args.repeats, "runs")


def _loss(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    corpus, stream = PartedCorpus(args.shards), Shards(args.shards).stream()
    held = evenly_spaced(Shards(args.dev).stream(), 1 << 16)
    readout = LowRankReadout(n_components=args.components, random_state=0)
    setting = (
        f"low rank, {args.units} units, {args.components} components, {corpus.n_tokens} tokens"
    )

    def train(make: Callable[[LanguageModel], Trainer]) -> tuple[float, float, int]:
        model = model_of(corpus, args.units, readout)
        begun = time.process_time()
        trainer = make(model)
        trainer.run()
        return -model.score(held), time.process_time() - begun, trainer.step

    def alone(model: LanguageModel) -> Trainer:
        model._read_corpus(stream)
        return Trainer(model, stream, held_out=held, plan=TrainingPlan())

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


def _features(corpus: PartedCorpus, stream: TokenStream) -> SpectralWordFeatures:
    found: SpectralWordFeatures = SpectralWordFeatures(n_features=128, random_state=0).fit(
        stream.tokens, n_tokens=len(corpus.tokenizer), starts=stream.starts
    )
    return found


def model_of(
    corpus: PartedCorpus,
    n_units: int,
    readout: Any,
    features: SpectralWordFeatures | None = None,
) -> LanguageModel:
    """A model for the corpus, without weights."""
    reservoir = Reservoir(n_units, topology="offsets", leak_rate=0.5, random_state=0)
    features = features or SpectralWordFeatures(n_features=128, random_state=0)
    model = LanguageModel(
        reservoir, readout, tokenizer=corpus.tokenizer, features=features, random_state=0
    )
    model._use_tokenizer(corpus.tokenizer)
    return model


def _processor_seconds(found: Workers) -> float:
    return float(sum(found.client.run(time.process_time).values()))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


_WHAT: dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "overhead": _overhead, "pace": _pace, "kills": _kills, "loss": _loss,
}  # fmt: skip

if __name__ == "__main__":
    main()
